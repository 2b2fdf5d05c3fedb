/*
 * The plot of one group: a bar to the median, a whisker from there to p99 with a stroke at p90.
 * Plain SVG 1.1 without scripts, fonts or style sheets, so that every viewer shows the same.
 */
#include "bench.h"

#include <string.h>

#define WIDTH 960
#define PLOT_LEFT 250
#define PLOT_RIGHT 740
#define VALUE_X 850
#define RATIO_X 930
#define TOP 86
#define ROW 34
#define BAR 18
#define LOG_FROM 30 /* largest median / smallest median */

#define FONT "font-family=\"Inter,Segoe UI,Helvetica,Arial,sans-serif\""

struct axis {
    double low, high;
    bool is_log;
};

/* log2 by halving and the series of atanh: the driver links nothing but libc. */
static double log2_of(double x)
{
    double whole = 0, t, t2, sum = 0, term;

    while (x >= 2) {
        x /= 2;
        whole++;
    }
    while (x < 1) {
        x *= 2;
        whole--;
    }
    t = (x - 1) / (x + 1);
    t2 = t * t;
    term = t;
    for (int k = 1; k < 40; k += 2) {
        sum += term / k;
        term *= t2;
    }
    return whole + 2 * sum * 1.4426950408889634;
}

static double axis_x(const struct axis *a, double value)
{
    double part;

    if (value <= a->low)
        return PLOT_LEFT;
    if (value >= a->high)
        return PLOT_RIGHT;
    part = a->is_log ? log2_of(value / a->low) / log2_of(a->high / a->low)
                     : (value - a->low) / (a->high - a->low);
    return PLOT_LEFT + part * (PLOT_RIGHT - PLOT_LEFT);
}

/* The largest 1, 2 or 5 times a power of ten that is at most x. */
static double round_down(double x)
{
    double p = 1;

    while (p * 10 <= x)
        p *= 10;
    while (p > x)
        p /= 10;
    return p * 5 <= x ? p * 5 : p * 2 <= x ? p * 2 : p;
}

static double next_tick(double tick)
{
    double p = round_down(tick * 1.0001);
    double lead = p;

    while (lead >= 9.99)
        lead /= 10;
    while (lead < 0.999)
        lead *= 10;
    return lead > 1.9 && lead < 2.1 ? p * 2.5 : p * 2;
}

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

/* One wild p99 must not squeeze every bar: on a linear axis it is cut off and marked. */
static struct axis choose_axis(const struct case_list *g)
{
    double least = 0, most = 0, tail = 0;
    struct axis a = {0};

    for (size_t i = 0; i < g->n; i++) {
        const struct bench_case *c = g->items[i];

        if (c->state != CASE_READY || c->sum.n == 0)
            continue;
        if (least <= 0 || c->sum.median < least)
            least = c->sum.median;
        most = max_of(most, c->sum.median);
        tail = max_of(tail, max_of(c->sum.p99, c->sum.median));
    }
    if (most <= 0)
        return (struct axis){.low = 0, .high = 1};
    a.is_log = most / least > LOG_FROM;
    if (a.is_log) {
        a.low = round_down(least / 1.8);
        a.high = tail * 1.08;
    } else {
        a.high = (tail < most * 1.6 ? tail : most * 1.6) * 1.04;
    }
    return a;
}

static void text_escaped(FILE *f, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc(*s, f);
        }
    }
}

static void text_at(FILE *f, double x, double y, const char *style, const char *s)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" " FONT " %s>", x, y, style);
    text_escaped(f, s);
    fputs("</text>\n", f);
}

static void tick_label(char *buf, size_t size, const struct bench_case *c, double value)
{
    if (strcmp(c->unit, "ns") == 0)
        snprintf(buf, size, value < 1e9 ? "%g ms" : "%g s", value / (value < 1e9 ? 1e6 : 1e9));
    else
        snprintf(buf, size, "%g", value);
}

static void draw_tick(FILE *f, const struct axis *a, const struct bench_case *c, double value,
                      double bottom)
{
    double x = axis_x(a, value);
    char label[48];

    fprintf(f,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e6ea\" "
            "stroke-width=\"1\"/>\n",
            x, TOP - 4, x, bottom);
    tick_label(label, sizeof(label), c, value);
    text_at(f, x, bottom + 17, "font-size=\"11\" fill=\"#6b7280\" text-anchor=\"middle\"", label);
}

static void draw_axis(FILE *f, const struct axis *a, const struct bench_case *c, double bottom)
{
    if (a->is_log) {
        double last_x = 0;

        for (double v = a->low; v <= a->high; v = next_tick(v)) {
            /* Labels need about 45 units each. */
            if (axis_x(a, v) - last_x < 45)
                continue;
            draw_tick(f, a, c, v, bottom);
            last_x = axis_x(a, v);
        }
        return;
    }
    for (double step = round_down(a->high / 4), v = 0; v <= a->high; v += step)
        draw_tick(f, a, c, v, bottom);
}

static const char *bar_colour(const struct bench_case *c)
{
    if (c->is_subject)
        return "#0f766e";
    return c->is_base || c->is_reference ? "#9aa3af" : "#8fb3d9";
}

static void draw_whisker(FILE *f, const struct axis *a, const struct bench_case *c, double mid)
{
    double x50 = axis_x(a, c->sum.median), x90 = axis_x(a, c->sum.p90);
    double x99 = axis_x(a, c->sum.p99);

    fprintf(f,
            "<g stroke=\"#374151\" fill=\"none\"><path d=\"M%.1f %.1fH%.1f\" "
            "stroke-width=\"1.2\"/>",
            x50, mid, x99);
    if (c->sum.p90 <= a->high)
        fprintf(f, "<path d=\"M%.1f %.1fV%.1f\" stroke-width=\"2\"/>", x90, mid - 5, mid + 5);
    if (c->sum.p99 > a->high)
        fprintf(f, "<path d=\"M%.1f %.1fl5 4l-5 4\" stroke-width=\"1.4\"/></g>\n", x99 - 4,
                mid - 4);
    else
        fprintf(f, "<path d=\"M%.1f %.1fV%.1f\" stroke-width=\"1.2\"/></g>\n", x99, mid - 3,
                mid + 3);
}

static void draw_row(FILE *f, const struct axis *a, const struct bench_case *c, double y)
{
    double mid = y + ROW / 2.0, x50 = axis_x(a, c->sum.median);
    char value[48], ratio[48];

    text_at(f, PLOT_LEFT - 12, mid + 4.5,
            c->is_subject
                ? "font-size=\"13\" fill=\"#0f766e\" font-weight=\"600\" text-anchor=\"end\""
                : "font-size=\"13\" fill=\"#1f2937\" text-anchor=\"end\"",
            c->title);
    fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\"/>\n",
            PLOT_LEFT, mid - BAR / 2.0, max_of(x50 - PLOT_LEFT, 1), BAR, bar_colour(c));
    draw_whisker(f, a, c, mid);
    report_value(value, sizeof(value), c, c->sum.median);
    text_at(f, VALUE_X, mid + 4.5,
            "font-size=\"13\" fill=\"#111827\" font-weight=\"600\" text-anchor=\"end\"", value);
    if (!c->has_ratio)
        return;
    snprintf(ratio, sizeof(ratio), c->ratio.value < 10 ? "%.2f ×" : "%.0f ×", c->ratio.value);
    text_at(f, RATIO_X, mid + 4.5, "font-size=\"12\" fill=\"#6b7280\" text-anchor=\"end\"", ratio);
}

static void draw_head(FILE *f, const struct case_list *g, const struct run_info *info)
{
    const struct machine *m = &info->machine;
    char line[400];

    text_at(f, 24, 34, "font-size=\"18\" fill=\"#111827\" font-weight=\"600\"",
            g->items[0]->group_title[0] ? g->items[0]->group_title : g->items[0]->group);
    snprintf(line, sizeof(line), "%s · %u cores · %s · %u rounds, interleaved · %.10s", m->kernel,
             m->cores, m->cpu, info->rounds, m->date);
    text_at(f, 24, 55, "font-size=\"12\" fill=\"#6b7280\"", line);
    text_at(f, VALUE_X, TOP - 10, "font-size=\"11\" fill=\"#6b7280\" text-anchor=\"end\"",
            "median");
    text_at(f, RATIO_X, TOP - 10, "font-size=\"11\" fill=\"#6b7280\" text-anchor=\"end\"",
            "of base");
}

int svg_write(FILE *f, const struct case_list *group, const struct run_info *info)
{
    struct axis axis = choose_axis(group);
    const struct bench_case *any = NULL;
    size_t rows = 0;
    double bottom, height, y = TOP;

    for (size_t i = 0; i < group->n; i++) {
        if (group->items[i]->state == CASE_READY) {
            any = group->items[i];
            rows++;
        }
    }
    bottom = TOP + (double)rows * ROW + 4;
    height = bottom + 56;
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\">\n<rect width=\"%d\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    draw_head(f, group, info);
    if (any)
        draw_axis(f, &axis, any, bottom);
    for (size_t i = 0; i < group->n; i++) {
        if (group->items[i]->state != CASE_READY)
            continue;
        draw_row(f, &axis, group->items[i], y);
        y += ROW;
    }
    fprintf(f, "<path d=\"M%d %dV%.1f\" stroke=\"#9aa3af\" stroke-width=\"1\"/>\n", PLOT_LEFT,
            TOP - 4, bottom);
    text_at(f, PLOT_LEFT, bottom + 40, "font-size=\"11\" fill=\"#6b7280\"",
            axis.is_log ? "bar: median · whisker: p90 (stroke) to p99 (end) · logarithmic scale"
                        : "bar: median · whisker: p90 (stroke) to p99 (end)");
    fputs("</svg>\n", f);
    return ferror(f) ? -1 : 0;
}
