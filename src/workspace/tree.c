/* Comparison of two states of a folder. Runs on our side after the guest is gone, over files it
 * made: an iterative walk over a list of folders, each opened from the folder it was found in or,
 * if that is not at hand any more, anew by its path beneath the layer's root, so that neither depth
 * nor links nor descriptors are the guest's to choose. */
#include "workspace/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/tree_internal.h"

/* A folder that is to be compared: where it is, and which layers show through there. */
struct tree_node {
    struct tree_node *parent;
    const char *name;
    unsigned layers; /* LAYER_* bits */
    bool is_moved;   /* of a copy: it, or a folder above it, may have been put there since */
};

enum { LAYER_OLD_UPPER = 1, LAYER_OLD_BASE = 2, LAYER_NEW_UPPER = 4, LAYER_NEW_BASE = 8 };
#define LAYERS 4

struct tree_walk {
    struct tree_changes *out;
    const struct tree_options *options;
    int roots[LAYERS];
    struct tree_node **todo;
    size_t n_todo, cap_todo, n_nodes;
    struct arena nodes;
    /* the folder whose own folders come next: its descriptors and its path */
    struct tree_node *held;
    int held_dirs[LAYERS];
    char held_path[TREE_PATH_MAX + 1];
    size_t held_len;
};

/* Room for that much more text? */
static bool tree_has_room(struct tree_walk *w, const char *text)
{
    w->out->text += strlen(text) + 1;
    if (w->out->text <= TREE_TEXT_MAX)
        return true;
    w->out->truncated = true;
    return false;
}

static int tree_fix(struct tree_walk *w, int layer_fd, int from, const char *name, const char *path)
{
    struct tree_fix *fix = tree_has_room(w, path) ? malloc(sizeof(*fix) + strlen(path) + 2) : NULL;
    if (!fix || tree_unlock(from, name, &fix->mode) < 0) {
        free(fix);
        return -1;
    }
    fix->layer_fd = layer_fd;
    strcpy(fix->path, *path ? path : ".");
    fix->next = w->out->fixes;
    w->out->fixes = fix;
    return 0;
}

/* Only layers of ours are opened up; the host's own folder stays as it is. */
static int tree_enter(struct tree_walk *w, const struct tree_node *node, int layer,
                      const char *path)
{
    int root = w->roots[layer];
    bool held = node->parent && w->held_dirs[layer] >= 0;
    int from = held ? w->held_dirs[layer] : root;
    const char *name = held ? node->name : path;
    int fd = layer % 2 ? tree_open_dir_here(from, name) : tree_open_dir(from, name);
    bool ours = layer != 1 && (layer % 2 == 0 || w->options->copied_at.tv_sec != 0);
    if (fd >= 0 && !tree_is_open(fd)) {
        util_close(&fd);
        errno = EACCES;
    }
    if (fd >= 0 || errno != EACCES || !ours)
        return fd;
    if (tree_fix(w, root, from, name, path) == 0)
        return tree_open_dir(from, name);
    errno = EACCES;
    return -1;
}

/* Keeps a folder at hand for the folders in it, which come next. */
static void tree_hold(struct tree_walk *w, struct tree_node *node, int *dirs, const char *path,
                      size_t len)
{
    for (int i = 0; i < LAYERS; i++) {
        util_close(&w->held_dirs[i]);
        w->held_dirs[i] = TAKE_FD(dirs[i]);
    }
    w->held = node;
    memcpy(w->held_path, path, len);
    w->held_path[len] = '\0';
    w->held_len = len;
}

/* ---- One name ---- */

static bool tree_is_opaque(int dir_fd, const char *name)
{
    char self[64 + 256], value[2];
    int n = snprintf(self, sizeof(self), "/proc/self/fd/%d/%s", dir_fd, name);
    if (n < 0 || (size_t)n >= sizeof(self))
        return false;
    return lgetxattr(self, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static enum tree_type tree_type_of(mode_t mode)
{
    return S_ISREG(mode)   ? TREE_FILE
           : S_ISLNK(mode) ? TREE_SYMLINK
           : S_ISDIR(mode) ? TREE_DIR
                           : TREE_SPECIAL;
}

static void tree_fill(struct tree_view *v, const struct stat *st, int root)
{
    v->entry = (struct tree_entry){.type = tree_type_of(st->st_mode),
                                   .mode = st->st_mode & 0777,
                                   .size = (uint64_t)st->st_size,
                                   .layer_fd = root};
    v->ctime = st->st_ctim;
    v->mtime = st->st_mtim;
}

static void tree_look(const struct tree_walk *w, const int *dirs, int side, const char *name,
                      struct tree_view *v)
{
    struct stat st;
    int upper = side * 2, base = side * 2 + 1;
    *v = (struct tree_view){.entry = {.type = TREE_ABSENT, .layer_fd = -1}};
    bool upper_dir = false;
    if (dirs[upper] >= 0 && fstatat(dirs[upper], name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
            return; /* a whiteout */
        tree_fill(v, &st, w->roots[upper]);
        if (v->entry.type != TREE_DIR)
            return;
        v->layers |= 1u << upper;
        upper_dir = true;
        if (tree_is_opaque(dirs[upper], name))
            return;
    }
    if (dirs[base] < 0 || fstatat(dirs[base], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (w->options->skip_ino && st.st_ino == w->options->skip_ino &&
        st.st_dev == w->options->skip_dev)
        return;
    if (S_ISDIR(st.st_mode))
        v->layers |= 1u << base;
    if (!upper_dir)
        tree_fill(v, &st, w->roots[base]);
}

static bool tree_is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static int tree_add(struct tree_walk *w, const char *path, enum tree_kind kind,
                    const struct tree_entry *old, const struct tree_entry *new)
{
    struct tree_changes *c = w->out;
    if (c->n >= TREE_ENTRIES_MAX) {
        c->truncated = true;
        return 0;
    }
    if (!tree_has_room(w, path))
        return 0;
    struct tree_change *list = tree_grow(c->list, c->n, &c->cap, sizeof(*list));
    if (!list)
        return -1;
    c->list = list;
    char *copy = arena_strdup(&c->arena, path);
    if (!copy)
        return -1;
    list[c->n++] = (struct tree_change){.path = copy, .kind = kind, .old = *old, .new = *new};
    return 0;
}

static int tree_note_unread(struct tree_walk *w, const char *path)
{
    int r = tree_paths_add(&w->out->unread, path);
    w->out->truncated |= r > 0;
    return r < 0 ? -1 : 0;
}

static bool tree_was_unread(const struct tree_walk *w, const char *path)
{
    return w->options->unread && tree_paths_has(w->options->unread, path);
}

static int tree_push(struct tree_walk *w, struct tree_node *parent, const char *name,
                     unsigned layers, bool is_moved)
{
    if (w->n_nodes >= TREE_ENTRIES_MAX) {
        w->out->truncated = true;
        return 0;
    }
    struct tree_node **todo = tree_grow(w->todo, w->n_todo, &w->cap_todo, sizeof(*todo));
    if (!todo)
        return -1;
    w->todo = todo;
    struct tree_node *node = arena_alloc(&w->nodes, sizeof(*node));
    if (!node || !(node->name = arena_strdup(&w->nodes, name)))
        return -1;
    node->parent = parent;
    node->layers = layers;
    node->is_moved = is_moved;
    todo[w->n_todo++] = node;
    w->n_nodes++;
    return 0;
}

static int tree_note_dir(struct tree_changes *c, const char ***list, size_t *n, size_t *cap,
                         const char *path)
{
    const char **grown = tree_grow(*list, *n, cap, sizeof(*grown));
    if (!grown)
        return -1;
    *list = grown;
    if (!(grown[*n] = arena_strdup(&c->arena, path)))
        return -1;
    ++*n;
    return 0;
}

/* Folders are no changes of their own; whoever puts changes in place needs to know them. */
static int tree_note_folders(struct tree_walk *w, const struct tree_entry *old,
                             const struct tree_entry *new, const char *path)
{
    struct tree_changes *c = w->out;
    if ((old->type == TREE_DIR) == (new->type == TREE_DIR) || !tree_has_room(w, path))
        return 0;
    if (old->type == TREE_DIR)
        return tree_note_dir(c, &c->gone_dirs, &c->n_gone, &c->cap_gone, path);
    if (c->n_new < TREE_ENTRIES_MAX)
        return tree_note_dir(c, &c->new_dirs, &c->n_new, &c->cap_new, path);
    return 0;
}

/* A copy has the times of what it was made from. */
static bool tree_is_same_large(const struct tree_view *a, const struct tree_view *b)
{
    return a->entry.type == TREE_FILE && b->entry.type == TREE_FILE && a->entry.size > TREE_LARGE &&
           a->entry.size == b->entry.size && a->entry.mode == b->entry.mode &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* Of a copy: can it be told from the times alone that the guest did not touch it? A file that is
 * changed or renamed shows it, a folder too; what lies below a folder that was renamed does not,
 * and is compared. */
static bool tree_is_untouched(const struct tree_walk *w, const struct tree_node *folder,
                              const struct tree_view *old, const struct tree_view *new)
{
    const struct timespec *at = &w->options->copied_at;
    bool was_changed = tree_is_later(&old->ctime, at); /* on the host, since it was copied */
    if (!at->tv_sec || new->entry.type == TREE_DIR)
        return false;
    /* appeared on the host since: the guest never saw it */
    if (new->entry.type == TREE_ABSENT)
        return was_changed;
    return tree_is_later(at, &new->ctime) &&
           (!folder->is_moved || (old->entry.type != TREE_ABSENT && was_changed) ||
            tree_is_same_large(old, new));
}

static int tree_compare_name(struct tree_walk *w, struct tree_node *node, const int *dirs,
                             const char *path, const char *name)
{
    struct tree_view old, new;
    enum tree_kind kind;
    tree_look(w, dirs, 0, name, &old);
    tree_look(w, dirs, 1, name, &new);
    if (tree_is_untouched(w, node, &old, &new))
        return 0;
    struct tree_entry a = old.entry, b = new.entry;
    a.is_unread = a.type == TREE_FILE && tree_was_unread(w, path);
    if (tree_note_folders(w, &a, &b, path) < 0 || (a.is_unread && tree_note_unread(w, path) < 0))
        return -1;
    if (a.type == TREE_DIR)
        a.type = TREE_ABSENT;
    if (b.type == TREE_DIR)
        b.type = TREE_ABSENT;
    bool is_change = a.is_unread && b.type == TREE_FILE
                         ? tree_judge_unread(&old, &new, &kind)
                         : tree_judge(w->options, &a, &b, path, &kind);
    if (is_change && tree_add(w, path, kind, &a, &b) < 0)
        return -1;
    unsigned layers = old.layers | new.layers;
    /* the same base on both sides and nothing over it: the same folder */
    bool same_base = w->roots[1] == w->roots[3];
    if (layers == 0 || (same_base && layers == (LAYER_OLD_BASE | LAYER_NEW_BASE)))
        return 0;
    bool is_moved = node->is_moved || (new.entry.type == TREE_DIR &&
                                       !tree_is_later(&w->options->copied_at, &new.ctime));
    return tree_push(w, node, name, layers, is_moved);
}

static bool tree_path(const struct tree_walk *w, const struct tree_node *node, char *path,
                      size_t *ret_len)
{
    size_t len = 0, at;
    if (node->parent && node->parent == w->held) {
        size_t k = strlen(node->name), sep = w->held_len > 0;
        if (w->held_len + sep + k > TREE_PATH_MAX)
            return false;
        memcpy(path, w->held_path, w->held_len);
        path[w->held_len] = '/';
        memcpy(path + w->held_len + sep, node->name, k + 1);
        *ret_len = w->held_len + sep + k;
        return true;
    }
    for (const struct tree_node *n = node; n->parent; n = n->parent)
        len += strlen(n->name) + 1;
    if (len > TREE_PATH_MAX)
        return false;
    *ret_len = at = len ? len - 1 : 0;
    path[at] = '\0';
    for (const struct tree_node *n = node; n->parent; n = n->parent) {
        size_t k = strlen(n->name);
        at -= k;
        memcpy(path + at, n->name, k);
        if (at > 0)
            path[--at] = '/';
    }
    return true;
}

static int tree_compare_names(struct tree_walk *w, struct tree_node *node, const int *dirs,
                              char *path, size_t len, struct tree_names *names)
{
    if (names->n > 1)
        qsort(names->list, names->n, sizeof(*names->list), tree_names_order);
    for (size_t i = 0; i < names->n; i++) {
        const char *name = names->list[i];
        if (i > 0 && str_eq(name, names->list[i - 1]))
            continue;
        size_t k = strlen(name);
        if (len + 1 + k > TREE_PATH_MAX) {
            w->out->truncated = true;
            continue;
        }
        char *at = path + len;
        if (len > 0)
            *at++ = '/';
        memcpy(at, name, k + 1);
        if (tree_compare_name(w, node, dirs, path, name) < 0)
            return -1;
    }
    return 0;
}

/* Back at a folder that was left for what is further down: once for all that is still to come in
 * it.
 */
static void tree_hold_parent(struct tree_walk *w, struct tree_node *parent, const char *path)
{
    int dirs[LAYERS] = {-1, -1, -1, -1};
    char above[TREE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    memcpy(above, path, len);
    above[len] = '\0';
    for (int i = 0; i < LAYERS; i++)
        if (parent->layers & 1u << i)
            dirs[i] = tree_open_dir_here(w->roots[i], above);
    tree_hold(w, parent, dirs, above, len);
}

/* Opens the folder in every layer that has it. 1: as far as it can be read, 0: it is left out,
 * since what one side has could not be told from what the other lacks, -1: memory is out. */
static int tree_enter_all(struct tree_walk *w, const struct tree_node *node, const char *path,
                          int *dirs, bool *ret_blank)
{
    bool is_closed = tree_was_unread(w, path), is_part = true;
    for (int i = 0; i < LAYERS; i++) {
        if (!(node->layers & 1u << i) || (dirs[i] = tree_enter(w, node, i, path)) >= 0)
            continue;
        bool is_blank = i == 1 && w->options->has_blanks && errno == EACCES;
        *ret_blank |= is_blank;
        if (errno == EXDEV) /* a mount is not part of it */
            is_part = false;
        else
            is_closed |= !is_blank;
    }
    if (!w->options->unread) {
        w->out->truncated |= is_closed;
        return 1;
    }
    if (is_closed && tree_note_unread(w, path) < 0)
        return -1;
    return is_part && !is_closed;
}

static int tree_compare_dir(struct tree_walk *w, struct tree_node *node)
{
    char path[TREE_PATH_MAX + 2];
    size_t len;
    int dirs[LAYERS] = {-1, -1, -1, -1};
    if (!tree_path(w, node, path, &len)) {
        w->out->truncated = true;
        return 0;
    }
    if (node->parent && node->parent != w->held)
        tree_hold_parent(w, node->parent, path);
    bool blank = false; /* an empty folder in the place of one that the caller cannot read */
    int in = tree_enter_all(w, node, path, dirs, &blank), r = MIN(in, 0);
    struct tree_names names = {0};
    bool old_base = node->layers & LAYER_OLD_BASE, new_base = node->layers & LAYER_NEW_BASE;
    bool list_base = old_base != new_base || w->roots[1] != w->roots[3];
    for (int i = 0; r == 0 && in > 0 && i < LAYERS; i++) {
        if (dirs[i] < 0 || (i % 2 == 1 && !list_base))
            continue;
        if ((r = tree_names_add(&names, dirs[i])) > 0) {
            w->out->truncated = true;
            r = 0;
        }
    }
    w->out->truncated |= blank && names.n > 0;
    w->out->looked += names.n;
    size_t before = w->n_todo;
    if (r == 0)
        r = tree_compare_names(w, node, dirs, path, len, &names);
    tree_names_done(&names);
    if (w->n_todo > before)
        tree_hold(w, node, dirs, path, len);
    for (int i = 0; i < LAYERS; i++)
        util_close(&dirs[i]);
    return r;
}

int tree_compare(const struct tree_state *old, const struct tree_state *new,
                 const struct tree_options *options, struct tree_changes *ret_changes,
                 struct cordon_err *err)
{
    static const struct tree_options none;
    struct tree_changes changes = TREE_CHANGES_INIT;
    struct tree_walk w = {
        .out = &changes,
        .options = options ? options : &none,
        .roots = {old->upper_fd, old->base_fd, new->upper_fd, new->base_fd},
        .held_dirs = {-1, -1, -1, -1},
    };
    unsigned layers = 0;
    for (int i = 0; i < LAYERS; i++)
        layers |= w.roots[i] >= 0 ? 1u << i : 0;
    int r = tree_push(&w, NULL, "", layers, false);
    while (r == 0 && w.n_todo > 0)
        r = tree_compare_dir(&w, w.todo[--w.n_todo]);
    tree_hold(&w, NULL, (int[LAYERS]){-1, -1, -1, -1}, "", 0);
    free(w.todo);
    arena_done(&w.nodes);
    if (r < 0) {
        tree_changes_done(&changes);
        return err_nomem(err, "diff");
    }
    if (changes.n > 1)
        qsort(changes.list, changes.n, sizeof(*changes.list), tree_change_order);
    if (changes.n_gone > 1)
        qsort(changes.gone_dirs, changes.n_gone, sizeof(char *), tree_names_order);
    if (changes.n_new > 1)
        qsort(changes.new_dirs, changes.n_new, sizeof(char *), tree_names_order);
    *ret_changes = changes;
    return 0;
}
