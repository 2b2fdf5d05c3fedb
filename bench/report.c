/*
 * What was measured, as JSON for programs, Markdown for readers and plain text for the terminal.
 * Writes to the stream it is given; returns -1 when that stream failed.
 */
#include "bench.h"

#include <inttypes.h>
#include <string.h>

void report_value(char *buf, size_t size, const struct bench_case *c, double value)
{
    if (strcmp(c->unit, "ns") != 0)
        snprintf(buf, size, value >= 100 ? "%.0f %s" : "%.4g %s", value, c->unit);
    else if (value < 1e5)
        snprintf(buf, size, "%.1f \xc2\xb5s", value / 1e3);
    else if (value < 1e7)
        snprintf(buf, size, "%.3f ms", value / 1e6);
    else if (value < 1e10)
        snprintf(buf, size, "%.1f ms", value / 1e6);
    else
        snprintf(buf, size, "%.2f s", value / 1e9);
}

static void json_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

static void json_field(FILE *f, const char *key, const char *value)
{
    fprintf(f, "\"%s\":", key);
    json_string(f, value);
    fputc(',', f);
}

const char *report_bar_word(enum bar_verdict verdict)
{
    switch (verdict) {
    case BAR_OK: return "ok";
    case BAR_NOISE: return "ok (within noise)";
    case BAR_EXCEEDED: return "EXCEEDED";
    case BAR_UNKNOWN: return "skipped";
    case BAR_BROKEN: return "FAILED";
    }
    return "unknown";
}

static void json_bars(FILE *f, const struct bench_case *c)
{
    fputs("\"bars\":[", f);
    for (size_t i = 0; i < c->n_bars; i++) {
        const struct bar *b = &c->bars[i];

        fputs(i ? ",{" : "{", f);
        json_field(f, "name", b->name);
        json_field(f, "of", b->of);
        json_field(f, "verdict", report_bar_word(b->verdict));
        fprintf(f,
                "\"at_least\":%s,\"limit\":%.6g,\"goal\":%.6g,\"value\":%.6g,"
                "\"ci95\":[%.6g,%.6g]}",
                b->at_least ? "true" : "false", b->limit, b->goal, b->measured.value,
                b->measured.ci_low, b->measured.ci_high);
    }
    fputs("]", f);
}

static const char *state_word(enum case_state state)
{
    switch (state) {
    case CASE_READY: return "measured";
    case CASE_SKIPPED: return "skipped";
    case CASE_FAILED: return "failed";
    }
    return "unknown";
}

static void json_case(FILE *f, const struct bench_case *c)
{
    const struct summary *s = &c->sum;

    fputs("  {", f);
    json_field(f, "name", c->name);
    json_field(f, "title", c->title);
    json_field(f, "state", state_word(c->state));
    json_field(f, "unit", c->unit);
    json_field(f, "version", c->version);
    json_field(f, "note", c->note);
    if (c->state != CASE_READY) {
        json_field(f, "reason", c->reason);
        json_field(f, "package", c->package);
    } else {
        fprintf(f,
                "\"n\":%zu,\"min\":%.6g,\"median\":%.6g,\"p90\":%.6g,\"p99\":%.6g,"
                "\"mean\":%.6g,\"median_ci95\":[%.6g,%.6g],",
                s->n, s->min, s->median, s->p90, s->p99, s->mean, s->ci_low, s->ci_high);
        if (c->has_ratio) {
            fputs("\"ratio\":{", f);
            json_field(f, "of", c->ratio_of);
            fprintf(f, "\"value\":%.6g,\"ci95\":[%.6g,%.6g]},", c->ratio.value, c->ratio.ci_low,
                    c->ratio.ci_high);
        }
        fputs("\"samples\":[", f);
        for (size_t i = 0; i < c->n_samples; i++)
            fprintf(f, "%s%.7g", i ? "," : "", c->samples[i]);
        fputs("],", f);
    }
    json_bars(f, c);
    fputs("}", f);
}

int report_json(FILE *f, const struct case_list *group, const struct run_info *info)
{
    const struct machine *m = &info->machine;

    fputs("{\"version\":1,", f);
    json_field(f, "group", group->items[0]->group);
    json_field(f, "date", m->date);
    json_field(f, "commit", m->commit);
    fputs("\n \"machine\":{", f);
    json_field(f, "kernel", m->kernel);
    json_field(f, "cpu", m->cpu);
    json_field(f, "governor", m->governor);
    json_field(f, "load_at_start", m->load);
    fprintf(f, "\"cores\":%u,\"memory_mib\":%lu,\"virtual\":%s},\n", m->cores, m->mem_mib,
            m->is_virtual ? "true" : "false");
    fprintf(f,
            " \"rounds\":%u,\"warmup\":%u,\"seed\":%" PRIu64
            ",\"elapsed_s\":%.1f,\"steal_percent\":%.2f,\n \"cases\":[\n",
            info->rounds, info->warmup, info->seed, info->elapsed_s, info->steal_percent);
    for (size_t i = 0; i < group->n; i++) {
        json_case(f, group->items[i]);
        fputs(i + 1 < group->n ? ",\n" : "\n", f);
    }
    fputs(" ]}\n", f);
    return ferror(f) ? -1 : 0;
}

void report_bar_line(FILE *f, const struct bar *b)
{
    fprintf(f, "bar %s: ", b->name);
    if (b->verdict == BAR_UNKNOWN || b->verdict == BAR_BROKEN) {
        fprintf(f, "not measured (bar %s%.2f) %s\n", b->at_least ? "at least " : "", b->limit,
                report_bar_word(b->verdict));
        return;
    }
    fprintf(f, "%.2f%s%s (bar %s%.2f) %s  [95%% %.2f..%.2f", b->measured.value,
            b->of[0] ? " x " : "", b->of, b->at_least ? "at least " : "", b->limit,
            report_bar_word(b->verdict), b->measured.ci_low, b->measured.ci_high);
    if (b->goal > 0)
        fprintf(f, ", goal %.2f", b->goal);
    fputs("]\n", f);
}

/* A pipe would end the cell; everything else in a title or a reason is plain text. */
static void markdown_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (strchr("|<>*_`\\[]", *s))
            fputc('\\', f);
        fputc(*s, f);
    }
}

static void markdown_row(FILE *f, const struct bench_case *c)
{
    const double values[] = {c->sum.min, c->sum.median, c->sum.ci_low, c->sum.ci_high,
                             c->sum.p90, c->sum.p99,    c->sum.mean};
    char text[7][48];

    for (size_t i = 0; i < 7; i++)
        report_value(text[i], sizeof(text[i]), c, values[i]);
    fputs("| ", f);
    markdown_text(f, c->title);
    fprintf(f, " | **%s** | %s … %s | %s | %s | %s | %s | %zu | ", text[1], text[2], text[3],
            text[4], text[5], text[0], text[6], c->sum.n);
    if (c->has_ratio)
        fprintf(f, "%.3f (%.3f … %.3f)", c->ratio.value, c->ratio.ci_low, c->ratio.ci_high);
    fputs(" |\n", f);
}

static void markdown_left_out(FILE *f, const struct case_list *group)
{
    for (size_t i = 0; i < group->n; i++) {
        const struct bench_case *c = group->items[i];

        if (c->state == CASE_READY)
            continue;
        fprintf(f, "- %s: ", state_word(c->state));
        markdown_text(f, c->title);
        fputs(" — ", f);
        markdown_text(f, c->reason);
        if (c->state == CASE_SKIPPED && c->package[0])
            fprintf(f, " (package `%s`)", c->package);
        fputc('\n', f);
    }
}

static void markdown_notes(FILE *f, const struct case_list *group)
{
    for (size_t i = 0; i < group->n; i++) {
        const struct bench_case *c = group->items[i];

        if (c->state != CASE_READY || (!c->note[0] && !c->version[0]))
            continue;
        fputs("- ", f);
        markdown_text(f, c->title);
        fputs(": ", f);
        markdown_text(f, c->version);
        if (c->version[0] && c->note[0])
            fputs("; ", f);
        markdown_text(f, c->note);
        fputc('\n', f);
    }
}

int report_markdown(FILE *f, const struct case_list *group, const struct run_info *info)
{
    const struct machine *m = &info->machine;
    const char *name = group->items[0]->group;
    bool has_bars = false;

    fputs("## ", f);
    markdown_text(f, group->items[0]->group_title[0] ? group->items[0]->group_title : name);
    fprintf(f, "\n\n![%s](%s.svg)\n\n", name, name);
    fputs("| case | median | 95 % of the median | p90 | p99 | min | mean | n | × base (95 %) |\n"
          "| :-- | --: | --: | --: | --: | --: | --: | --: | --: |\n",
          f);
    for (size_t i = 0; i < group->n; i++) {
        if (group->items[i]->state == CASE_READY)
            markdown_row(f, group->items[i]);
        has_bars = has_bars || group->items[i]->n_bars > 0;
    }
    fputc('\n', f);
    markdown_left_out(f, group);
    markdown_notes(f, group);
    if (has_bars) {
        fputs("\n```\n", f);
        for (size_t i = 0; i < group->n; i++)
            for (size_t k = 0; k < group->items[i]->n_bars; k++)
                report_bar_line(f, &group->items[i]->bars[k]);
        fputs("```\n", f);
    }
    fprintf(f,
            "\n%s, commit `%s`; %s, %s%s, %u cores, %lu MiB; governor: %s; load at start: %s; "
            "%u rounds after %u of warm-up in %.0f s, steal %.1f %%.\n\n",
            m->date, m->commit, m->kernel, m->cpu, m->is_virtual ? " (virtual)" : "", m->cores,
            m->mem_mib, m->governor, m->load, info->rounds, info->warmup, info->elapsed_s,
            info->steal_percent);
    return ferror(f) ? -1 : 0;
}

void report_terminal(const struct case_list *group, const struct run_info *info)
{
    printf("\n%s (%u rounds, %.0f s, steal %.1f %%)\n", group->items[0]->group, info->rounds,
           info->elapsed_s, info->steal_percent);
    printf("  %-30s %12s %12s %12s %12s %6s  %s\n", "case", "median", "p90", "p99", "min", "n",
           "x base");
    for (size_t i = 0; i < group->n; i++) {
        const struct bench_case *c = group->items[i];
        const double values[] = {c->sum.median, c->sum.p90, c->sum.p99, c->sum.min};

        printf("  %-30.30s", c->title);
        if (c->state != CASE_READY) {
            printf(" %s: %.300s", state_word(c->state), c->reason);
            if (c->state == CASE_SKIPPED && c->package[0])
                printf(" (package %s)", c->package);
            putchar('\n');
            continue;
        }
        for (size_t k = 0; k < 4; k++) {
            char text[48];

            report_value(text, sizeof(text), c, values[k]);
            /* The micro sign is two bytes and one column. */
            printf(" %*s", strstr(text, "\xc2\xb5") ? 13 : 12, text);
        }
        printf(" %6zu", c->sum.n);
        if (c->has_ratio)
            printf("  %.3f", c->ratio.value);
        putchar('\n');
    }
}
