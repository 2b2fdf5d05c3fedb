/*
 * The files of bench/results: one JSON, one page and one plot per group, and an index of all.
 */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef int (*writer_fn)(FILE *f, const struct case_list *g, const struct run_info *info);

/* Written beside and renamed: a reader never sees half a report. */
static int write_report(const char *dir, const char *group, const char *suffix, writer_fn write_fn,
                        const struct case_list *g, const struct run_info *info)
{
    char path[4096], temp[4110];
    FILE *f;
    int rc;

    snprintf(path, sizeof(path), "%s/%s.%s", dir, group, suffix);
    snprintf(temp, sizeof(temp), "%s.new", path);
    f = fopen(temp, "we");
    rc = f ? write_fn(f, g, info) : -1;
    if (f && fclose(f) != 0)
        rc = -1;
    if (rc < 0 || rename(temp, path) < 0) {
        fprintf(stderr, "bench-driver: write %s: %s\n", path, strerror(errno));
        return -1;
    }
    return 0;
}

static int is_group_page(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return n > 3 && strcmp(d->d_name + n - 3, ".md") == 0 && strcmp(d->d_name, "README.md") != 0;
}

static void append_file(FILE *out, const char *dir, const char *name)
{
    char path[4096], buf[4096];
    FILE *in;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    in = fopen(path, "re");
    if (!in)
        return;
    while ((n = fread(buf, 1, sizeof(buf), in)) > 0)
        fwrite(buf, 1, n, out);
    fclose(in);
}

/* All groups measured so far, each with its own date and commit: a run of one group keeps the
 * others. */
int output_index(const char *dir)
{
    char path[4096];
    struct dirent **pages = NULL;
    int n = scandir(dir, &pages, is_group_page, alphasort), rc;
    FILE *f;

    snprintf(path, sizeof(path), "%s/README.md", dir);
    f = fopen(path, "we");
    if (f)
        fputs("# Benchmark results\n\nWritten by `bench/run`; what each figure means is in "
              "`bench/README.md`. Compare ratios, not milliseconds, between machines.\n\n",
              f);
    for (int i = 0; i < n; i++) {
        if (f)
            append_file(f, dir, pages[i]->d_name);
        free(pages[i]);
    }
    free(pages);
    rc = f && !ferror(f) ? 0 : -1;
    if (f && fclose(f) != 0)
        rc = -1;
    if (rc < 0)
        fprintf(stderr, "bench-driver: write %s: %s\n", path, strerror(errno));
    return rc;
}

int output_group(const char *dir, const struct case_list *group, const struct run_info *info)
{
    const char *name = group->items[0]->group;

    if (write_report(dir, name, "json", report_json, group, info) < 0 ||
        write_report(dir, name, "md", report_markdown, group, info) < 0 ||
        write_report(dir, name, "svg", svg_write, group, info) < 0)
        return -1;
    return 0;
}
