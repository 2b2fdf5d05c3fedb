/* Looks code points up in Unicode's tables, and composes them. Pure; runs in whoever reads a policy
 * and in the broker. */
#include "policy/idna_chars.h"

#include "base/util.h"

#define POINT(run) ((run) & ((1u << IDNA_POINT_BITS) - 1))
#define ABOVE(run) ((run) >> IDNA_POINT_BITS)

/* Hangul syllables are made of two or three letters by arithmetic. */
#define HANGUL 0xac00u
#define HANGUL_L 0x1100u
#define HANGUL_V 0x1161u
#define HANGUL_T 0x11a7u
#define HANGUL_N_L 19u
#define HANGUL_N_V 21u
#define HANGUL_N_T 28u
#define HANGUL_N (HANGUL_N_L * HANGUL_N_V * HANGUL_N_T)

/* ---- properties -------------------------------------------------------------------------------
 */

/* The run a code point is in: the last that does not begin behind it. */
static size_t run_of(const uint32_t *runs, size_t n, uint32_t point)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (POINT(runs[mid]) <= point)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static int map_many(const uint16_t *text, uint32_t ret[static IDNA_EXPANDS_MAX])
{
    int n = 0;
    for (; *text && n < IDNA_EXPANDS_MAX; text++) {
        uint32_t point = *text;
        if (point >= 0xd800 && point < 0xdc00)
            point = 0x10000 + ((point - 0xd800) << 10) + (*++text - 0xdc00u);
        ret[n++] = point;
    }
    return n;
}

int idna_map(uint32_t point, uint32_t ret[static IDNA_EXPANDS_MAX])
{
    ret[0] = point;
    if (point < 0x80) {
        ret[0] = point >= 'A' && point <= 'Z' ? point | 0x20 : point;
        return 1;
    }
    size_t run = run_of(idna_runs, idna_n_runs, point);
    uint32_t distance = point - POINT(idna_runs[run]);
    switch ((enum idna_kind)ABOVE(idna_runs[run])) {
    case IDNA_VALID: return 1;
    case IDNA_IGNORED: return 0;
    case IDNA_ADD: ret[0] = point + (uint32_t)(int16_t)idna_args[run]; return 1;
    case IDNA_PAIR: ret[0] = point + (distance % 2 == 0); return 1;
    case IDNA_ONE: ret[0] = idna_values[idna_args[run] + distance]; return 1;
    case IDNA_MANY: return map_many(&idna_pool[idna_values[idna_args[run] + distance]], ret);
    case IDNA_DISALLOWED: break;
    }
    return -1;
}

bool idna_is_valid(uint32_t point)
{
    uint32_t mapped[IDNA_EXPANDS_MAX];
    return point >= 0x80 && idna_map(point, mapped) == 1 && mapped[0] == point;
}

static uint16_t class_of(uint32_t point)
{
    size_t run = run_of(idna_class_runs, idna_n_class_runs, point);
    return idna_classes[ABOVE(idna_class_runs[run])];
}

unsigned idna_combining(uint32_t point)
{
    return class_of(point) & 0xff;
}

enum idna_bidi idna_bidi_of(uint32_t point)
{
    return (enum idna_bidi)(class_of(point) >> 8 & 0xf);
}

enum idna_joining idna_joining_of(uint32_t point)
{
    return (enum idna_joining)(class_of(point) >> 12 & 0x7);
}

bool idna_is_mark(uint32_t point)
{
    return class_of(point) >> 15;
}

/* ---- composition ------------------------------------------------------------------------------
 */

static const struct idna_pair *pair_of(uint32_t composed)
{
    size_t low = 0, high = idna_n_pairs;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (idna_pairs[mid].composed == composed)
            return &idna_pairs[mid];
        if (idna_pairs[mid].composed < composed)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

/* One step; false: it is whole. */
static bool split(uint32_t point, uint32_t *ret_first, uint32_t *ret_second)
{
    const struct idna_pair *pair = pair_of(point);
    if (pair) {
        *ret_first = pair->first;
        *ret_second = pair->second;
        return true;
    }
    if (point < HANGUL || point >= HANGUL + HANGUL_N)
        return false;
    uint32_t i = point - HANGUL, t = i % HANGUL_N_T;
    *ret_first = t ? point - t : HANGUL_L + i / (HANGUL_N_V * HANGUL_N_T);
    *ret_second = t ? HANGUL_T + t : HANGUL_V + i / HANGUL_N_T % HANGUL_N_V;
    return true;
}

/* The code point that stands for two, or 0. */
static uint32_t join(uint32_t first, uint32_t second)
{
    for (size_t i = 0; i < idna_n_pairs; i++)
        if (idna_pairs[i].first == first && idna_pairs[i].second == second)
            return idna_pairs[i].composed;
    if (first >= HANGUL_L && first < HANGUL_L + HANGUL_N_L && second >= HANGUL_V &&
        second < HANGUL_V + HANGUL_N_V)
        return HANGUL + ((first - HANGUL_L) * HANGUL_N_V + (second - HANGUL_V)) * HANGUL_N_T;
    if (first >= HANGUL && first < HANGUL + HANGUL_N && (first - HANGUL) % HANGUL_N_T == 0 &&
        second > HANGUL_T && second < HANGUL_T + HANGUL_N_T)
        return first + (second - HANGUL_T);
    return 0;
}

/* Takes all composed ones apart. */
static bool decompose(uint32_t *points, size_t *n, size_t max)
{
    for (size_t i = 0; i < *n;) {
        uint32_t first, second;
        if (!split(points[i], &first, &second)) {
            i++;
            continue;
        }
        if (*n == max)
            return false;
        memmove(points + i + 2, points + i + 1, (*n - i - 1) * sizeof(*points));
        points[i] = first; /* looked at again */
        points[i + 1] = second;
        (*n)++;
    }
    return true;
}

/* Marks behind a letter in the order of their classes, those of one class as they came. */
static void reorder(uint32_t *points, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t point = points[i];
        unsigned class = idna_combining(point);
        size_t at = i;
        for (; class > 0 && at > 0 && idna_combining(points[at - 1]) > class; at--)
            points[at] = points[at - 1];
        points[at] = point;
    }
}

bool idna_compose(uint32_t *points, size_t *n, size_t max)
{
    size_t out = 0, starter = 0;
    bool has_starter = false;
    unsigned last_class = 0;
    if (!decompose(points, n, max))
        return false;
    reorder(points, *n);
    for (size_t i = 0; i < *n; i++) {
        uint32_t point = points[i];
        unsigned class = idna_combining(point);
        /* nothing of the same or a higher class, nor a letter, may stand between */
        bool is_free = has_starter && (out - 1 == starter || (class > last_class));
        uint32_t joined = is_free ? join(points[starter], point) : 0;
        if (joined) {
            points[starter] = joined;
            continue;
        }
        if (class == 0) {
            starter = out;
            has_starter = true;
        }
        last_class = class;
        points[out++] = point;
    }
    *n = out;
    return true;
}
