/*
 * Reads case files (format: bench/README.md). Strict: an unknown key or a bad value stops the
 * driver, because a case that silently lost its time-out or its bar measures something else.
 * A missing prerequisite is no error: the case is kept as skipped, with the reason.
 */
#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS 1000000u

struct reader {
    const char *path;
    unsigned line;
    struct bench_case defaults;
    struct bench_case *cur; /* NULL before the first name */
    struct case_list *list;
    char *err;
    size_t err_size;
};

__attribute__((format(printf, 2, 3))) static int fail(struct reader *r, const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(r->err, r->err_size, "%s:%u: ", r->path, r->line);

    if (n > 0 && (size_t)n < r->err_size) {
        va_start(ap, fmt);
        vsnprintf(r->err + n, r->err_size - (size_t)n, fmt, ap);
        va_end(ap);
    }
    return -1;
}

static int copy_text(struct reader *r, char *dst, size_t size, const char *src)
{
    if (strlen(src) >= size)
        return fail(r, "text is longer than %zu bytes", size - 1);
    strcpy(dst, src);
    return 0;
}

static int parse_uint(struct reader *r, const char *s, unsigned *ret_value)
{
    char *end;
    unsigned long v;

    errno = 0;
    v = strtoul(s, &end, 10);
    if (!isdigit((unsigned char)s[0]) || *end || errno || v == 0 || v > 1000000)
        return fail(r, "'%s' is not a number from 1 to 1000000", s);
    *ret_value = (unsigned)v;
    return 0;
}

static int parse_duration(struct reader *r, const char *s, uint64_t *ret_ns)
{
    char *end;
    double v = strtod(s, &end), scale;

    if (strcmp(end, "ms") == 0)
        scale = NS_PER_MS;
    else if (strcmp(end, "s") == 0)
        scale = 1000.0 * NS_PER_MS;
    else if (strcmp(end, "m") == 0)
        scale = 60000.0 * NS_PER_MS;
    else
        return fail(r, "'%s' is not a duration such as 400ms, 10s or 2m", s);
    if (end == s || !(v > 0) || v * scale > 3.6e12)
        return fail(r, "duration '%s' is not between 0 and one hour", s);
    *ret_ns = (uint64_t)(v * scale);
    return 0;
}

static void skip_case(struct bench_case *c, const char *what, const char *is_missing)
{
    if (c->state != CASE_READY)
        return;
    c->state = CASE_SKIPPED;
    snprintf(c->reason, sizeof(c->reason), "%s %s", what, is_missing);
}

/* Appends ${NAME} of *s to out; leaves ${SEQ} for the run. An unset name skips the case. */
static int expand_variable(struct reader *r, const char **s, FILE *out)
{
    const char *end = strchr(*s, '}');
    char name[64];
    const char *value;
    size_t n;

    if (!end || (n = (size_t)(end - *s) - 2) == 0 || n >= sizeof(name))
        return fail(r, "'${' without a name and '}'");
    memcpy(name, *s + 2, n);
    name[n] = '\0';
    *s = end + 1;
    if (strcmp(name, "SEQ") == 0) {
        fputs("${SEQ}", out);
        return 0;
    }
    value = getenv(name);
    if (value && value[0])
        fputs(value, out);
    else if (r->cur)
        skip_case(r->cur, name, "is not set");
    return 0;
}

/* One word in the manner of a shell: '..' and ".." keep blanks, a backslash the next character. */
static int read_word(struct reader *r, const char **s, char **ret_word)
{
    char *buf = NULL, quote = '\0';
    size_t size = 0;
    FILE *out = open_memstream(&buf, &size);
    int rc = 0;

    if (!out)
        return fail(r, "out of memory");
    while (**s && rc == 0 && (quote || !isspace((unsigned char)**s))) {
        if (quote != '\'' && (*s)[0] == '$' && (*s)[1] == '{') {
            rc = expand_variable(r, s, out);
        } else if (quote ? **s == quote : (**s == '\'' || **s == '"')) {
            quote = quote ? '\0' : **s;
            (*s)++;
        } else {
            if (quote != '\'' && **s == '\\' && (*s)[1])
                (*s)++;
            fputc(**s, out);
            (*s)++;
        }
    }
    if (rc == 0 && quote)
        rc = fail(r, "quote %c is not closed", quote);
    if (fclose(out) != 0 && rc == 0)
        rc = fail(r, "out of memory");
    if (rc < 0)
        free(buf);
    else
        *ret_word = buf;
    return rc;
}

/* Several lines of the same key append: long commands stay readable. */
static int append_words(struct reader *r, char **argv, const char *s)
{
    size_t n = 0;

    while (argv[n])
        n++;
    for (;;) {
        s += strspn(s, " \t");
        if (!*s)
            return 0;
        if (n >= BENCH_MAX_ARGS)
            return fail(r, "more than %d words", BENCH_MAX_ARGS);
        if (read_word(r, &s, &argv[n]) < 0)
            return -1;
        n++;
    }
}

/* [NAME <=|>=] NUMBER [of CASE] [goal NUMBER] */
static int parse_bar(struct reader *r, struct bench_case *c, const char *value)
{
    struct bar bar = {.verdict = BAR_UNKNOWN};
    char text[256], *save = NULL, *word, *end;
    char op[3] = "<=";

    if (c->n_bars >= BENCH_MAX_BARS)
        return fail(r, "more than %d bars", BENCH_MAX_BARS);
    if (copy_text(r, text, sizeof(text), value) < 0)
        return -1;
    word = strtok_r(text, " \t", &save);
    snprintf(bar.name, sizeof(bar.name), "%s", c->name);
    if (word && !isdigit((unsigned char)word[0])) {
        char *sign = strtok_r(NULL, " \t", &save);

        if (copy_text(r, bar.name, sizeof(bar.name), word) < 0)
            return -1;
        if (!sign || (strcmp(sign, "<=") != 0 && strcmp(sign, ">=") != 0))
            return fail(r, "bar: '<=' or '>=' expected after '%s'", word);
        memcpy(op, sign, 3);
        word = strtok_r(NULL, " \t", &save);
    }
    bar.at_least = op[0] == '>';
    bar.limit = word ? strtod(word, &end) : 0;
    if (!word || *end || !(bar.limit > 0))
        return fail(r, "bar: a positive number expected");
    while ((word = strtok_r(NULL, " \t", &save))) {
        char *arg = strtok_r(NULL, " \t", &save);

        if (arg && strcmp(word, "of") == 0) {
            if (copy_text(r, bar.of, sizeof(bar.of), arg) < 0)
                return -1;
        } else if (arg && strcmp(word, "goal") == 0) {
            bar.goal = strtod(arg, &end);
            if (*end || !(bar.goal > 0))
                return fail(r, "bar: goal '%s' is not a positive number", arg);
        } else {
            return fail(r, "bar: 'of CASE' or 'goal NUMBER' expected, not '%s'", word);
        }
    }
    c->bars[c->n_bars++] = bar;
    return 0;
}

static int parse_mode(struct reader *r, struct bench_case *c, const char *value)
{
    if (strcmp(value, "wall") == 0) {
        c->mode = MODE_WALL;
    } else if (strcmp(value, "self") == 0) {
        c->mode = MODE_SELF;
    } else if (strcmp(value, "throughput") == 0) {
        c->mode = MODE_THROUGHPUT;
        c->higher_is_better = true;
        strcpy(c->unit, "runs/s");
    } else {
        return fail(r, "mode '%s' is not wall, self or throughput", value);
    }
    return 0;
}

/* A program of PATH or an absolute path. The sbin folders count: runc lives there in Debian. */
static char *find_program(const char *name)
{
    const char *path = getenv("PATH");
    char *all = NULL, *found = NULL, *save = NULL;

    if (strchr(name, '/'))
        return access(name, X_OK) == 0 ? strdup(name) : NULL;
    if (asprintf(&all, "%s:/usr/local/sbin:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin") < 0)
        return NULL;
    for (char *dir = strtok_r(all, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
        if (asprintf(&found, "%s/%s", dir, name) < 0) {
            found = NULL;
            break;
        }
        if (access(found, X_OK) == 0)
            break;
        free(found);
        found = NULL;
    }
    free(all);
    return found;
}

static int check_required(struct reader *r, struct bench_case *c, const char *value)
{
    char *words[BENCH_MAX_ARGS + 1] = {NULL};
    int rc = append_words(r, words, value);

    for (size_t i = 0; words[i]; i++) {
        char *found = rc == 0 && words[i][0] ? find_program(words[i]) : NULL;

        if (rc == 0 && words[i][0] && !found)
            skip_case(c, words[i], "is not there");
        free(found);
        free(words[i]);
    }
    return rc;
}

/* The search of PATH happens here, once, and not inside the measured time. */
static int finish_case(struct reader *r)
{
    struct bench_case *c = r->cur;
    char **lists[] = {c ? c->argv : NULL, c ? c->version_argv : NULL, c ? c->cleanup_argv : NULL};

    if (!c)
        return 0;
    if (!c->argv[0] || !c->group[0])
        return fail(r, "case '%s' has no %s", c->name, c->argv[0] ? "group" : "argv");
    if (c->as_user && c->mode == MODE_THROUGHPUT)
        return fail(r, "case '%s': 'as: user' does not go with 'mode: throughput'", c->name);
    for (size_t i = 0; i < 3; i++) {
        char *found;

        if (!lists[i][0] || c->state != CASE_READY)
            continue;
        found = find_program(lists[i][0]);
        if (!found) {
            skip_case(c, lists[i][0], "is not there");
            continue;
        }
        free(lists[i][0]);
        lists[i][0] = found;
    }
    if (!c->title[0])
        snprintf(c->title, sizeof(c->title), "%s", c->name);
    return 0;
}

static int start_case(struct reader *r, const char *name)
{
    struct bench_case *c;

    if (finish_case(r) < 0)
        return -1;
    r->cur = NULL;
    if (!name[0] || strpbrk(name, " \t"))
        return fail(r, "name '%s' is empty or has blanks", name);
    if (cases_find(r->list, r->defaults.group, name))
        return fail(r, "case '%s' exists already in group '%s'", name, r->defaults.group);
    if (r->list->n >= BENCH_MAX_CASES)
        return fail(r, "more than %d cases", BENCH_MAX_CASES);
    c = malloc(sizeof(*c));
    if (!c)
        return fail(r, "out of memory");
    *c = r->defaults;
    r->list->items[r->list->n++] = c;
    r->cur = c;
    return copy_text(r, c->name, sizeof(c->name), name);
}

static int set_flag(struct reader *r, const char *value, bool *ret_flag)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return fail(r, "'%s' is not yes or no", value);
    *ret_flag = value[0] == 'y';
    return 0;
}

static int set_mount_ns(struct reader *r, struct bench_case *c, const char *value)
{
    char *words[BENCH_MAX_ARGS + 1] = {NULL};
    enum case_state state = c->state;
    int rc = append_words(r, words, value);

    /* Optional by design: an unset variable means that the host needs no other view. */
    c->state = state;
    if (rc == 0 && words[0])
        rc = copy_text(r, c->mount_ns, sizeof(c->mount_ns), words[0]);
    for (size_t i = 0; words[i]; i++)
        free(words[i]);
    return rc;
}

static int set_as(struct reader *r, struct bench_case *c, const char *value)
{
    if (strcmp(value, "user") != 0)
        return fail(r, "'%s' is not user", value);
    c->as_user = true;
    if (geteuid() != 0)
        skip_case(c, "as an ordinary user", "is what all cases are here");
    return 0;
}

/* Keys that make sense only inside a case. */
static int set_case_key(struct reader *r, struct bench_case *c, const char *key, const char *value)
{
    if (strcmp(key, "argv") == 0)
        return append_words(r, c->argv, value);
    if (strcmp(key, "version") == 0)
        return append_words(r, c->version_argv, value);
    if (strcmp(key, "cleanup") == 0)
        return append_words(r, c->cleanup_argv, value);
    if (strcmp(key, "base") == 0)
        return set_flag(r, value, &c->is_base);
    if (strcmp(key, "subject") == 0)
        return set_flag(r, value, &c->is_subject);
    if (strcmp(key, "against") == 0)
        return copy_text(r, c->against, sizeof(c->against), value);
    if (strcmp(key, "bar") == 0)
        return parse_bar(r, c, value);
    if (strcmp(key, "requires") == 0)
        return check_required(r, c, value);
    if (strcmp(key, "package") == 0)
        return copy_text(r, c->package, sizeof(c->package), value);
    if (strcmp(key, "mount_ns") == 0)
        return set_mount_ns(r, c, value);
    if (strcmp(key, "as") == 0)
        return set_as(r, c, value);
    if (strcmp(key, "note") == 0)
        return copy_text(r, c->note, sizeof(c->note), value);
    if (strcmp(key, "title") == 0)
        return copy_text(r, c->title, sizeof(c->title), value);
    return fail(r, "unknown key '%s'", key);
}

static int set_key(struct reader *r, const char *key, const char *value)
{
    struct bench_case *c = r->cur ? r->cur : &r->defaults;

    if (strcmp(key, "name") == 0)
        return start_case(r, value);
    if (strcmp(key, "mode") == 0)
        return parse_mode(r, c, value);
    if (strcmp(key, "workers") == 0)
        return parse_uint(r, value, &c->workers);
    if (strcmp(key, "max_samples") == 0)
        return parse_uint(r, value, &c->max_samples);
    if (strcmp(key, "exact_samples") == 0)
        return parse_uint(r, value, &c->exact_samples);
    if (strcmp(key, "timeout") == 0)
        return parse_duration(r, value, &c->timeout_ns);
    if (strcmp(key, "window") == 0)
        return parse_duration(r, value, &c->window_ns);
    if (strcmp(key, "unit") == 0)
        return copy_text(r, c->unit, sizeof(c->unit), value);
    if (strcmp(key, "higher_is_better") == 0)
        return set_flag(r, value, &c->higher_is_better);
    if (r->cur)
        return set_case_key(r, c, key, value);
    if (strcmp(key, "group") == 0)
        return copy_text(r, c->group, sizeof(c->group), value);
    if (strcmp(key, "group_title") == 0)
        return copy_text(r, c->group_title, sizeof(c->group_title), value);
    return fail(r, "key '%s' is unknown or belongs after a name", key);
}

static int read_line(struct reader *r, char *line)
{
    char *colon, *value, *end;

    line += strspn(line, " \t");
    end = line + strlen(line);
    while (end > line && isspace((unsigned char)end[-1]))
        *--end = '\0';
    if (!*line || *line == '#')
        return 0;
    colon = strchr(line, ':');
    if (!colon)
        return fail(r, "'key: value' expected");
    *colon = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    return set_key(r, line, value);
}

int cases_load(const char *path, struct case_list *list, char *err, size_t err_size)
{
    struct reader r = {.path = path, .list = list, .err = err, .err_size = err_size};
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;

    if (!f) {
        snprintf(err, err_size, "%s: %s", path, strerror(errno));
        return -1;
    }
    r.defaults = (struct bench_case){.unit = "ns",
                                     .workers = 2,
                                     .timeout_ns = 30000ull * NS_PER_MS,
                                     .window_ns = 400ull * NS_PER_MS};
    while (rc == 0 && getline(&line, &cap, f) > 0) {
        r.line++;
        rc = read_line(&r, line);
    }
    if (rc == 0)
        rc = finish_case(&r);
    free(line);
    fclose(f);
    return rc;
}

void cases_free(struct case_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        struct bench_case *c = list->items[i];
        char **lists[] = {c->argv, c->version_argv, c->cleanup_argv};

        for (size_t k = 0; k < 3; k++)
            for (size_t j = 0; lists[k][j]; j++)
                free(lists[k][j]);
        free(c->samples);
        free(c);
    }
    list->n = 0;
}

struct bench_case *cases_find(const struct case_list *list, const char *group, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i]->group, group) == 0 && strcmp(list->items[i]->name, name) == 0)
            return list->items[i];
    return NULL;
}

char *cases_expand_seq(const char *word, unsigned long seq)
{
    const char *at = strstr(word, "${SEQ}");
    char *out = NULL;

    if (!at)
        return strdup(word);
    if (asprintf(&out, "%.*s%lu%s", (int)(at - word), word, seq, at + 6) < 0)
        return NULL;
    return out;
}
