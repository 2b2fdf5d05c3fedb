/* Line differences. Runs on our side, on bytes a guest wrote: time and memory are bounded whatever
 * they are. */
#include "workspace/diff.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"

#define DIFF_CONTEXT 3
#define DIFF_COST_MAX 256 /* steps of one search before it settles for a good split */

size_t diff_count_lines(const char *data, size_t len)
{
    size_t n = 0;
    for (const char *p = data, *end = data + len; p < end; n++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        p = nl ? nl + 1 : end;
    }
    return n;
}

static int diff_split(const char *data, size_t len, struct diff_text *t)
{
    t->n = diff_count_lines(data, len);
    t->lines = calloc(t->n + 1, sizeof(*t->lines));
    t->changed = calloc(t->n + 1, 1);
    if (!t->lines || !t->changed)
        return -1;
    size_t i = 0;
    for (const char *p = data, *end = data + len; p < end; i++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *next = nl ? nl + 1 : end;
        t->lines[i] = (struct diff_line){p, (size_t)(next - p)};
        p = next;
    }
    return 0;
}

/* ---- Lines become numbers: equal lines, and only they, get the same one ---- */

struct diff_table {
    struct diff_entry {
        struct diff_line line;
        uint32_t hash, id; /* id 0: empty slot */
    } * slots;
    size_t size; /* a power of two, at least twice the number of lines */
    uint32_t next;
    uint64_t seed;
};

/* FNV with a seed of its own per process: a guest that prepares colliding lines only gains the
 * probes of one chain, and the chain's length is bounded below. */
static uint32_t diff_hash(const struct diff_table *t, const struct diff_line *l)
{
    uint64_t h = 0xcbf29ce484222325u ^ t->seed;
    for (size_t i = 0; i < l->len; i++)
        h = (h ^ (unsigned char)l->data[i]) * 0x100000001b3u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    return (uint32_t)(h >> 32);
}

static uint32_t diff_intern(struct diff_table *t, const struct diff_line *l)
{
    uint32_t hash = diff_hash(t, l);
    for (size_t i = hash & (t->size - 1);; i = (i + 1) & (t->size - 1)) {
        struct diff_entry *e = &t->slots[i];
        if (e->id == 0) {
            *e = (struct diff_entry){*l, hash, ++t->next};
            return e->id;
        }
        if (e->hash == hash && e->line.len == l->len && memcmp(e->line.data, l->data, l->len) == 0)
            return e->id;
    }
}

/* ---- The search ---- */

/* What is compared: lines that occur on both sides. The others are changed without a search. */
struct diff_side {
    uint32_t *ids;   /* of the lines that are left */
    uint32_t *index; /* their places in the text */
    unsigned char *changed;
    size_t n;
};

struct diff_box {
    long a0, a1, b0, b1;
};

struct diff_search {
    struct diff_side a, b;
    long *kf, *kb; /* furthest a per diagonal, forward and backward; indexed by diagonal */
};

struct diff_point {
    long a, b;
};

/* Effort is used up: the furthest point either direction reached splits the box. It lies strictly
 * inside or on an edge other than the start, so the boxes shrink. */
static struct diff_point diff_settle(const struct diff_search *s, const struct diff_box *box,
                                     long fmin, long fmax, long bmin, long bmax)
{
    long best_f = -1, best_b = -1;
    struct diff_point f = {box->a0, box->b0}, b = {box->a1, box->b1};
    for (long d = fmin; d <= fmax; d += 2) {
        long x = MIN(s->kf[d], box->a1), y = x - d;
        if (y > box->b1) {
            x = box->b1 + d;
            y = box->b1;
        }
        if (x + y > best_f) {
            best_f = x + y;
            f = (struct diff_point){x, y};
        }
    }
    for (long d = bmin; d <= bmax; d += 2) {
        long x = MAX(s->kb[d], box->a0), y = x - d;
        if (y < box->b0) {
            x = box->b0 + d;
            y = box->b0;
        }
        long gone = box->a1 + box->b1 - (x + y);
        if (gone > best_b) {
            best_b = gone;
            b = (struct diff_point){x, y};
        }
    }
    return best_f - (box->a0 + box->b0) >= best_b ? f : b;
}

/* A point on a shortest path through the box, found from both ends. The box is not empty on either
 * side and neither its first nor its last lines are equal. */
static struct diff_point diff_middle(const struct diff_search *s, const struct diff_box *box)
{
    const uint32_t *a = s->a.ids, *b = s->b.ids;
    long *kf = s->kf, *kb = s->kb;
    long dmin = box->a0 - box->b1, dmax = box->a1 - box->b0;
    long fmid = box->a0 - box->b0, bmid = box->a1 - box->b1;
    bool odd = (fmid - bmid) & 1;
    long fmin = fmid, fmax = fmid, bmin = bmid, bmax = bmid;
    kf[fmid] = box->a0;
    kb[bmid] = box->a1;

    for (long cost = 1;; cost++) {
        if (fmin > dmin)
            kf[--fmin - 1] = -1;
        else
            ++fmin;
        if (fmax < dmax)
            kf[++fmax + 1] = -1;
        else
            --fmax;
        for (long d = fmax; d >= fmin; d -= 2) {
            long x = kf[d - 1] >= kf[d + 1] ? kf[d - 1] + 1 : kf[d + 1];
            long y = x - d;
            while (x < box->a1 && y < box->b1 && a[x] == b[y])
                x++, y++;
            kf[d] = x;
            if (odd && bmin <= d && d <= bmax && kb[d] <= x)
                return (struct diff_point){x, y};
        }
        if (bmin > dmin)
            kb[--bmin - 1] = LONG_MAX;
        else
            ++bmin;
        if (bmax < dmax)
            kb[++bmax + 1] = LONG_MAX;
        else
            --bmax;
        for (long d = bmax; d >= bmin; d -= 2) {
            long x = kb[d - 1] < kb[d + 1] ? kb[d - 1] : kb[d + 1] - 1;
            long y = x - d;
            while (x > box->a0 && y > box->b0 && a[x - 1] == b[y - 1])
                x--, y--;
            kb[d] = x;
            if (!odd && fmin <= d && d <= fmax && x <= kf[d])
                return (struct diff_point){x, y};
        }
        if (cost >= DIFF_COST_MAX)
            return diff_settle(s, box, fmin, fmax, bmin, bmax);
    }
}

static void diff_mark(struct diff_side *side, long from, long to)
{
    for (long i = from; i < to; i++)
        side->changed[side->index[i]] = 1;
}

static long diff_size(const struct diff_box *b)
{
    return b->a1 - b->a0 + b->b1 - b->b0;
}

static bool diff_is_inside(const struct diff_box *box, const struct diff_point *p)
{
    return p->a >= box->a0 && p->a <= box->a1 && p->b >= box->b0 && p->b <= box->b1;
}

/* The smaller part is done first and the larger waits: 64 waiting ones are more than can ever be.
 */
static void diff_search(struct diff_search *s)
{
    struct diff_box stack[64];
    size_t n = 0;
    stack[n++] = (struct diff_box){0, (long)s->a.n, 0, (long)s->b.n};
    while (n > 0) {
        struct diff_box box = stack[--n];
        for (;;) {
            while (box.a0 < box.a1 && box.b0 < box.b1 && s->a.ids[box.a0] == s->b.ids[box.b0])
                box.a0++, box.b0++;
            while (box.a0 < box.a1 && box.b0 < box.b1 &&
                   s->a.ids[box.a1 - 1] == s->b.ids[box.b1 - 1])
                box.a1--, box.b1--;
            if (box.a0 == box.a1 || box.b0 == box.b1) {
                diff_mark(&s->a, box.a0, box.a1);
                diff_mark(&s->b, box.b0, box.b1);
                break;
            }
            struct diff_point p = diff_middle(s, &box);
            struct diff_box one = {box.a0, p.a, box.b0, p.b}, two = {p.a, box.a1, p.b, box.b1};
            if (diff_size(&one) > diff_size(&two)) {
                struct diff_box swap = one;
                one = two;
                two = swap;
            }
            if (!diff_is_inside(&box, &p) || diff_size(&two) == diff_size(&box) ||
                n == ARRAY_SIZE(stack)) {
                diff_mark(&s->a, box.a0,
                          box.a1); /* no progress: all of it changed, which is true */
                diff_mark(&s->b, box.b0, box.b1);
                break;
            }
            stack[n++] = two;
            box = one;
        }
    }
}

static int diff_number(struct diff *d, uint32_t *a_ids, uint32_t *b_ids, uint32_t *ret_n)
{
    struct diff_table t = {.size = 16, .seed = (uint64_t)(uintptr_t)d * 0x9e3779b97f4a7c15u};
    while (t.size < 2 * (d->a.n + d->b.n))
        t.size *= 2;
    t.slots = calloc(t.size, sizeof(*t.slots));
    if (!t.slots)
        return -1;
    for (size_t i = 0; i < d->a.n; i++)
        a_ids[i] = diff_intern(&t, &d->a.lines[i]);
    for (size_t i = 0; i < d->b.n; i++)
        b_ids[i] = diff_intern(&t, &d->b.lines[i]);
    *ret_n = t.next;
    free(t.slots);
    return 0;
}

/* Keeps what occurs on both sides; in place. */
static void diff_reduce(struct diff_side *side, size_t n, const unsigned char *on_both)
{
    for (size_t i = 0; i < n; i++) {
        if (!on_both[side->ids[i]]) {
            side->changed[i] = 1;
            continue;
        }
        side->ids[side->n] = side->ids[i];
        side->index[side->n++] = (uint32_t)i;
    }
}

static int diff_run(struct diff *d, struct diff_search *s, uint32_t *block)
{
    size_t na = d->a.n, nb = d->b.n;
    s->a = (struct diff_side){.ids = block, .index = block + na, .changed = d->a.changed};
    s->b = (struct diff_side){
        .ids = block + 2 * na, .index = block + 2 * na + nb, .changed = d->b.changed};
    uint32_t n_ids;
    if (diff_number(d, s->a.ids, s->b.ids, &n_ids) < 0)
        return -1;
    _cleanup_free_ unsigned char *seen = calloc((size_t)n_ids + 1, 1);
    if (!seen)
        return -1;
    for (size_t i = 0; i < na; i++)
        seen[s->a.ids[i]] |= 1;
    for (size_t i = 0; i < nb; i++)
        seen[s->b.ids[i]] |= 2;
    for (size_t i = 0; i <= n_ids; i++)
        seen[i] = seen[i] == 3;
    diff_reduce(&s->a, na, seen);
    diff_reduce(&s->b, nb, seen);

    size_t span = s->a.n + s->b.n + 3;
    _cleanup_free_ long *k = calloc(2 * span, sizeof(long));
    if (!k)
        return -1;
    s->kf = k + s->b.n + 1;
    s->kb = s->kf + span;
    diff_search(s);
    return 0;
}

/* A block of changed lines that could as well stand later reads better at its last place: whole
 * functions are then added, not the end of one and the beginning of the next. */
static void diff_slide(struct diff_text *t)
{
    for (size_t i = 0; i < t->n;) {
        if (!t->changed[i]) {
            i++;
            continue;
        }
        size_t start = i;
        while (i < t->n && t->changed[i])
            i++;
        while (i < t->n && !t->changed[i] && t->lines[start].len == t->lines[i].len &&
               memcmp(t->lines[start].data, t->lines[i].data, t->lines[i].len) == 0) {
            t->changed[start++] = 0;
            t->changed[i++] = 1;
            while (i < t->n && t->changed[i])
                i++;
        }
    }
}

int diff_make(const char *a, size_t a_len, const char *b, size_t b_len, struct diff *ret_diff,
              struct cordon_err *err)
{
    struct diff d = {0};
    struct diff_search s = {0};
    uint32_t *block = NULL;
    int r = -1;
    if (diff_split(a, a_len, &d.a) == 0 && diff_split(b, b_len, &d.b) == 0 &&
        (block = calloc(2 * (d.a.n + d.b.n) + 1, sizeof(*block))))
        r = diff_run(&d, &s, block);
    free(block);
    if (r < 0) {
        diff_done(&d);
        return err_nomem(err, "diff");
    }
    diff_slide(&d.a);
    diff_slide(&d.b);
    for (size_t i = 0; i < d.a.n; i++)
        d.removed += d.a.changed[i];
    for (size_t i = 0; i < d.b.n; i++)
        d.added += d.b.changed[i];
    *ret_diff = d;
    return 0;
}

void diff_done(struct diff *d)
{
    free(d->a.lines);
    free(d->a.changed);
    free(d->b.lines);
    free(d->b.changed);
    *d = (struct diff){0};
}

/* ---- Hunks ---- */

static void diff_put_line(struct buf *out, char sign, const struct diff_line *l)
{
    buf_char(out, sign);
    buf_add(out, l->data, l->len);
    if (l->data[l->len - 1] != '\n')
        buf_str(out, "\n\\ No newline at end of file\n");
}

static void diff_put_range(struct buf *out, char sign, size_t from, size_t n)
{
    /* an empty range names the line before it */
    buf_printf(out, "%c%zu", sign, n == 0 ? from : from + 1);
    if (n != 1)
        buf_printf(out, ",%zu", n);
}

static void diff_put_hunk(const struct diff *d, struct buf *out, size_t a0, size_t a1, size_t b0,
                          size_t b1)
{
    buf_str(out, "@@ ");
    diff_put_range(out, '-', a0, a1 - a0);
    buf_char(out, ' ');
    diff_put_range(out, '+', b0, b1 - b0);
    buf_str(out, " @@\n");
    while (a0 < a1 || b0 < b1) {
        if (a0 < a1 && d->a.changed[a0]) {
            diff_put_line(out, '-', &d->a.lines[a0++]);
        } else if (b0 < b1 && d->b.changed[b0]) {
            diff_put_line(out, '+', &d->b.lines[b0++]);
        } else {
            diff_put_line(out, ' ', &d->a.lines[a0++]);
            b0++;
        }
    }
}

void diff_hunks(const struct diff *d, struct buf *out)
{
    size_t a = 0, b = 0;
    while (a < d->a.n || b < d->b.n) {
        if (!(a < d->a.n && d->a.changed[a]) && !(b < d->b.n && d->b.changed[b])) {
            a++, b++;
            continue;
        }
        size_t before = MIN(MIN(a, b), (size_t)DIFF_CONTEXT);
        size_t a0 = a - before, b0 = b - before, same = 0;
        /* until more equal lines follow than two contexts take */
        while ((a < d->a.n || b < d->b.n) && same <= 2 * DIFF_CONTEXT) {
            if (a < d->a.n && d->a.changed[a])
                a++, same = 0;
            else if (b < d->b.n && d->b.changed[b])
                b++, same = 0;
            else
                a++, b++, same++;
        }
        size_t after = MIN(same, (size_t)DIFF_CONTEXT);
        a = a - same + after;
        b = b - same + after;
        diff_put_hunk(d, out, a0, a, b0, b);
    }
}
