/* Writes what is made from the tables of the code: option lists in man pages, the JSON Schema of
 * cordon.toml. Runs at build time only. (Completions come from the command itself, which has the
 * verbs.)
 *
 *   docgen man TEMPLATE.scd
 *       the page, with @options@ and @keys sandbox|filesystem|network@ filled in
 *   docgen schema */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "policy/show.h"

#define OUT_MAX (4u << 20)

static void fill_in(const char *line, struct buf *out)
{
    if (str_starts(line, "@options@"))
        policy_man_options(out);
    else if (str_starts(line, "@keys sandbox@"))
        policy_man_keys(TABLE_SANDBOX, out);
    else if (str_starts(line, "@keys filesystem@"))
        policy_man_keys(TABLE_FILESYSTEM, out);
    else if (str_starts(line, "@keys network@"))
        policy_man_keys(TABLE_NETWORK, out);
    else
        buf_str(out, line);
}

static int man_page(const char *path, struct buf *out)
{
    _cleanup_fclose_ FILE *page = fopen(path, "re");
    char line[4096];
    if (!page) {
        fprintf(stderr, "docgen: %s: %s\n", path, strerror(errno));
        return -1;
    }
    while (fgets(line, sizeof(line), page))
        fill_in(line, out);
    return ferror(page) ? -1 : 0;
}

int main(int argc, char **argv)
{
    _cleanup_buf_ struct buf out = BUF_INIT(OUT_MAX);
    int status = -1;

    if (argc == 3 && str_eq(argv[1], "man"))
        status = man_page(argv[2], &out);
    else if (argc == 2 && str_eq(argv[1], "schema"))
        policy_schema(&out), status = 0;
    else
        fprintf(stderr, "usage: docgen man TEMPLATE | schema\n");
    if (status < 0 || out.failed || fwrite(out.data, 1, out.len, stdout) != out.len)
        return 1;
    return fflush(stdout) == 0 ? 0 : 1;
}
