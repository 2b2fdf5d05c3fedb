/* Sockets of the host's programs inside granted folders.
 *
 * Neither a read-only mount nor a network namespace keeps a guest from connecting to a socket that
 * has a name in a folder it sees, and what listens there was not written for strangers. The kernel
 * lists them all; those below a grant are covered. One read per run with a grant, whatever lies in
 * the folders. Out of sight are those a program binds later or by a relative name, and those of
 * other network namespaces; no kernel so far lets a mount or a Landlock rule refuse them, so the
 * result says what was done. (Tier landlock needs none of it: its filter refuses connections to
 * names.) */
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

/* The eighth column, if it is a path; names that begin with @ are abstract and stay outside. */
static char *sockets_path(char *line)
{
    for (int column = 0; column < 7; column++) {
        line += strspn(line, " ");
        line += strcspn(line, " ");
    }
    line += strspn(line, " ");
    return *line == '/' ? line : NULL;
}

static int sockets_cover(struct plan *p, const struct plan_grant *grants, size_t n,
                         const char *path, struct cordon_err *err)
{
    struct stat st;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = grants[i].src ? strlen(grants[i].src) : 0;
        if (!len || strncmp(path, grants[i].src, len) != 0 || path[len] != '/')
            continue;
        const char *inside = arena_printf(&p->arena, "%s%s", grants[i].dst, path + len);
        if (!inside || plan_full_mask(p, inside, false) < 0)
            return err_nomem(err, "plan");
        p->n_sockets++;
    }
    return 0;
}

int plan_sockets(struct plan *p, const struct plan_grant *grants, size_t n, struct cordon_err *err)
{
    bool folders = false;
    for (size_t i = 0; i < n; i++)
        folders |= grants[i].src && grants[i].is_dir;
    if (!folders)
        return 0;
    p->covers_sockets = true;
    _cleanup_free_ char *text = NULL;
    if (sockets_read(&text, err) < 0)
        return -1;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *path = sockets_path(line);
        if (path && sockets_cover(p, grants, n, path, err) < 0)
            return -1;
    }
    return 0;
}
