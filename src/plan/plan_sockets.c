/* Sockets of the host's programs inside granted folders.
 *
 * Neither a read-only mount nor a network namespace keeps a guest from connecting to a socket that
 * has a name in a folder it sees, and what listens there was not written for strangers. From
 * PLAN_ABI_SOCKETS on Landlock refuses all of them. Before, the kernel lists those there are, and
 * what lies below a grant is covered: one read per run with a grant, whatever lies in the folders.
 * Out of sight are those a program binds later and those of other network namespaces, so the result
 * says what was done (docs/design/sockets.md: what else was tried). (Tier landlock needs none of
 * it: its filter refuses connections to names.)
 *
 * A socket that the caller names, by its own path, is meant: it is granted. */
#include "plan/plan_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

#define SOCKETS_TEXT_MAX ((size_t)8 << 20)

/* All of it: a list that is cut off would leave sockets open. */
static int sockets_read(char **ret_text, struct cordon_err *err)
{
    size_t cap = 65536, len = 0;
    _cleanup_close_ int fd = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *text = malloc(cap);
    if (fd < 0)
        return err_set(err, CORDON_ERR_HOST, "plan", errno,
                       "/proc/net/unix: the host's sockets cannot be told from files");
    for (;;) {
        if (!text)
            return err_nomem(err, "plan");
        ssize_t n = read(fd, text + len, cap - len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || len + (size_t)n > SOCKETS_TEXT_MAX)
            return err_set(err, CORDON_ERR_HOST, "plan", n < 0 ? errno : E2BIG, "/proc/net/unix");
        if (n == 0)
            break;
        len += (size_t)n;
        if (len + 4096 > cap) {
            char *more = realloc(text, cap * 2);
            if (!more)
                return err_nomem(err, "plan");
            TAKE_PTR(text);
            text = more;
            cap *= 2;
        }
    }
    text[len] = '\0';
    *ret_text = TAKE_PTR(text);
    return 0;
}

/* One line: the inode and the name, the seventh column and the rest. NULL: it has none. */
static char *sockets_name(char *line, unsigned long *ret_inode)
{
    for (int column = 0; column < 7; column++) {
        line += strspn(line, " ");
        if (column == 6)
            *ret_inode = strtoul(line, NULL, 10);
        line += strcspn(line, " ");
    }
    line += *line == ' ';
    return *line ? line : NULL;
}

/* Named outright, or below a folder that is? */
static int sockets_cover(struct plan *p, const struct plan_grant *grants, size_t n,
                         const char *path, struct cordon_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (grants[i].is_socket && str_eq(grants[i].src, path))
            return 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = grants[i].src ? strlen(grants[i].src) : 0;
        if (!len || strncmp(path, grants[i].src, len) != 0 || path[len] != '/' || grants[i].copy)
            continue; /* no socket is ever copied */
        const char *inside = arena_printf(&p->arena, "%s%s", grants[i].dst, path + len);
        if (!inside || plan_full_mask(p, inside, grants[i].overlay ? PLAN_MASK_OPTIONAL : 0) < 0)
            return err_nomem(err, "plan");
        p->n_sockets++;
    }
    return 0;
}

static int sockets_relative(struct plan *p, const struct plan_grant *grants, size_t n,
                            struct plan_relative *list, size_t n_list, struct cordon_err *err)
{
    plan_sockets_place(p, list, n_list);
    for (size_t i = 0; i < n_list; i++) {
        if (!list[i].path)
            p->n_unplaced++;
        else if (sockets_cover(p, grants, n, list[i].path, err) < 0)
            return -1;
    }
    return 0;
}

/* Names that begin with @ are abstract and stay outside with the network namespace. */
static int sockets_lines(struct plan *p, const struct plan_grant *grants, size_t n, char *text,
                         struct cordon_err *err)
{
    struct plan_relative *relative = NULL;
    size_t n_relative = 0, cap = 0;
    char *rest = NULL;
    strtok_r(text, "\n", &rest); /* the heading */
    for (char *line; (line = strtok_r(NULL, "\n", &rest));) {
        unsigned long inode = 0;
        const char *name = sockets_name(line, &inode);
        if (!name || *name == '@')
            continue;
        if (*name == '/') {
            if (sockets_cover(p, grants, n, name, err) < 0)
                return -1;
            continue;
        }
        relative = plan_grow(p, relative, n_relative, &cap, sizeof(*relative));
        if (!relative)
            return err_nomem(err, "plan");
        relative[n_relative++] = (struct plan_relative){.inode = inode, .name = name};
    }
    return n_relative ? sockets_relative(p, grants, n, relative, n_relative, err) : 0;
}

int plan_sockets(struct plan *p, const struct plan_grant *grants, size_t n, struct cordon_err *err)
{
    bool folders = false;
    for (size_t i = 0; i < n; i++)
        folders |= grants[i].src && grants[i].is_dir;
    if (!folders)
        return 0;
    p->covers_sockets = true;
    if (p->backend == BACKEND_NATIVE && p->landlock_abi >= PLAN_ABI_SOCKETS)
        return 0;
    _cleanup_free_ char *text = NULL;
    if (sockets_read(&text, err) < 0)
        return -1;
    return sockets_lines(p, grants, n, text, err);
}

int plan_socket_grant(struct plan *p, const struct plan_grant *g, struct cordon_err *err)
{
    if (p->backend != BACKEND_NATIVE) {
        err_set(err, CORDON_ERR_HOST, "plan", 0,
                "%s: a socket of the host is shown to a guest of the native backend only", g->src);
        return err_hint(err, "use the native backend, or take the grant out");
    }
    if (plan_add_fence(p, g->dst, false, g->optional) < 0)
        return err_nomem(err, "plan");
    p->fences[p->n_fences - 1].connects = true;
    return 0;
}
