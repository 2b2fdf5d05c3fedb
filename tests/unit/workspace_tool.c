/* The parts of a workspace by hand, for test_workspace_patch.py:
 *   workspace_tool diff OLD NEW          patch on stdout, "KIND PATH" lines on stderr
 *   workspace_tool layer BASE UPPER      the same for an overlay layer over BASE
 *   workspace_tool copy FROM TO          TO exists and is empty
 *   workspace_tool remove DIR NAME */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/tree.h"

static int open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        perror(path);
    return fd;
}

static int print_changes(const struct tree_state *old, const struct tree_state *new)
{
    struct cordon_err err;
    struct tree_changes changes;
    struct buf text;
    if (tree_compare(old, new, NULL, &changes, &err) < 0 ||
        tree_diff(&changes, (size_t)256 << 20, &text, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    fwrite(text.data, 1, text.len, stdout);
    for (size_t i = 0; i < changes.n; i++) {
        const struct tree_change *c = &changes.list[i];
        fprintf(stderr, "%s%s %s%c", tree_kind_name(c->kind), c->omitted ? "-omitted" : "", c->path,
                '\0');
    }
    if (changes.truncated)
        fprintf(stderr, "truncated %c", '\0');
    buf_done(&text);
    tree_changes_done(&changes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 64;
    int a = open_dir(argv[2]);
    if (a < 0)
        return 1;
    if (str_eq(argv[1], "remove"))
        return copy_remove(a, argv[3]) < 0 ? (perror(argv[3]), 1) : 0;
    int b = open_dir(argv[3]);
    if (b < 0)
        return 1;
    struct tree_state old = {-1, a};
    if (str_eq(argv[1], "diff")) {
        struct tree_state new = {-1, b};
        return print_changes(&old, &new);
    }
    if (str_eq(argv[1], "layer")) {
        struct tree_state new = {b, a};
        return print_changes(&old, &new);
    }
    struct cordon_err err;
    if (copy_tree(a, b, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}
