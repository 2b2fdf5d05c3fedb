/* Sockets that were bound by a relative name: the kernel's list has the name as it was given, not
 * the folder. Whoever holds such a socket most often still works in the folder it bound it in. Runs
 * in the supervisor, and only where there is such a socket: the walk over /proc costs milliseconds.
 */
#include "plan/plan_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

static struct plan_relative *place_find(struct plan_relative *list, size_t n, const char *link)
{
    if (!str_starts(link, "socket:["))
        return NULL;
    unsigned long inode = strtoul(link + strlen("socket:["), NULL, 10);
    for (size_t i = 0; i < n; i++)
        if (list[i].inode == inode && !list[i].path)
            return &list[i];
    return NULL;
}

/* The name, in the folder a holder works in now, if a socket is there. */
static void place_try(struct plan *p, int pid_fd, struct plan_relative *r)
{
    char cwd[PATH_MAX], real[PATH_MAX];
    struct stat st;
    ssize_t len = readlinkat(pid_fd, "cwd", cwd, sizeof(cwd) - 1);
    if (len <= 0)
        return;
    cwd[len] = '\0';
    const char *path = arena_printf(&p->arena, "%s/%s", cwd, r->name);
    if (path && realpath(path, real) && lstat(real, &st) == 0 && S_ISSOCK(st.st_mode))
        r->path = arena_strdup(&p->arena, real);
}

static void place_process(struct plan *p, int pid_fd, struct plan_relative *list, size_t n)
{
    int fd = openat(pid_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        util_close(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        char link[64];
        ssize_t len = readlinkat(fd, e->d_name, link, sizeof(link) - 1);
        if (len <= 0)
            continue;
        link[len] = '\0';
        struct plan_relative *r = place_find(list, n, link);
        if (r)
            place_try(p, pid_fd, r);
    }
    closedir(dir);
}

void plan_sockets_place(struct plan *p, struct plan_relative *list, size_t n)
{
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc && (e = readdir(proc));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        _cleanup_close_ int pid_fd =
            openat(dirfd(proc), e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (pid_fd >= 0)
            place_process(p, pid_fd, list, n);
    }
    if (proc)
        closedir(proc);
}
