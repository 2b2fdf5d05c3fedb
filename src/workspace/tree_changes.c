/* Lists of changes. Runs on our side after the guest is gone. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/util.h"
#include "workspace/tree_internal.h"

void *tree_grow(void *list, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return list;
    size_t more = *cap ? *cap * 2 : 64;
    void *grown = reallocarray(list, more, size);
    if (grown)
        *cap = more;
    return grown;
}

int tree_change_order(const void *a, const void *b)
{
    return strcmp(((const struct tree_change *)a)->path, ((const struct tree_change *)b)->path);
}

void tree_changes_settle(struct tree_changes *c)
{
    while (c->fixes) {
        struct tree_fix *fix = c->fixes;
        c->fixes = fix->next;
        _cleanup_close_ int fd = tree_open_dir(fix->layer_fd, fix->path);
        if (fd >= 0)
            fchmod(fd, fix->mode);
        free(fix);
    }
}

void tree_changes_done(struct tree_changes *c)
{
    tree_changes_settle(c);
    util_close(&c->own_fds[0]);
    util_close(&c->own_fds[1]);
    free(c->list);
    free(c->gone_dirs);
    free(c->new_dirs);
    tree_paths_done(&c->unread);
    arena_done(&c->arena);
    *c = TREE_CHANGES_INIT;
}

int tree_changes_add(struct tree_changes *c, const char *path, enum tree_kind kind)
{
    struct tree_change *list = tree_grow(c->list, c->n, &c->cap, sizeof(*list));
    if (!list)
        return -1;
    c->list = list;
    const char *copy = arena_strdup(&c->arena, path);
    if (!copy)
        return -1;
    list[c->n++] = (struct tree_change){.path = copy,
                                        .kind = kind,
                                        .old = {.layer_fd = -1},
                                        .new = {.layer_fd = -1},
                                        .omitted = true,
                                        .is_protected = true,
                                        .is_elsewhere = true};
    return 0;
}
