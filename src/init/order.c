/* What pid 1 is told: read from standard input, exactly as many bytes as belong to it, so that the
 * rest is the guest's. Comes from `cordon-docker`; checked all the same. Runs in a container's
 * pid 1. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "init/init_internal.h"

static bool order_read(void *data, size_t len)
{
    char *p = data;
    while (len > 0) {
        ssize_t n = read(0, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static char **order_strings(struct init *in, char **at, uint32_t n)
{
    char **list = calloc((size_t)n + 1, sizeof(*list));
    for (uint32_t i = 0; list && i < n; i++) {
        size_t len = strnlen(*at, (size_t)(in->end - *at));
        if (*at + len >= in->end)
            return NULL;
        list[i] = *at;
        *at += len + 1;
    }
    return list;
}

void order_take(struct init *in)
{
    struct init_order head;
    if (!order_read(&head, sizeof(head)) || memcmp(head.magic, INIT_MAGIC, sizeof(INIT_MAGIC)) != 0)
        _exit(70);
    if (head.total < sizeof(head) || head.total > INIT_ORDER_MAX)
        _exit(70);
    in->order = malloc((size_t)head.total + 1);
    if (!in->order)
        _exit(70);
    memcpy(in->order, &head, sizeof(head));
    if (!order_read(in->order + 1, head.total - sizeof(head)))
        _exit(70);
    in->end = (const char *)in->order + head.total;
    uint64_t tables = (uint64_t)head.n_rlimits * sizeof(struct init_rlimit) +
                      ((uint64_t)head.n_filter + head.n_quiet) * sizeof(struct sock_filter);
    if (tables > head.total - sizeof(head) || head.n_argv > head.total || head.n_env > head.total)
        init_fail(in, "order", EINVAL);
    struct init_rlimit *rlimits = (void *)(in->order + 1);
    in->rlimits = rlimits;
    in->filter = (void *)(rlimits + head.n_rlimits);
    in->quiet = in->filter + head.n_filter;
    char *at = (char *)(in->quiet + head.n_quiet);
    char **cwd = order_strings(in, &at, 1);
    in->argv = order_strings(in, &at, head.n_argv);
    in->env = order_strings(in, &at, head.n_env);
    if (cwd)
        in->cwd = cwd[0];
    if (!in->cwd || !in->argv || !in->env)
        init_fail(in, "order", EINVAL);
    in->files = at;
}

/* Folders of a name, then the file: fresh, never through a link. */
static int order_file(char *name, const char *data, size_t len)
{
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(name, 0755) < 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    if (unlink(name) < 0 && errno != ENOENT)
        return -1;
    _cleanup_close_ int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* An engine on another host, or in another mount namespace, has other files under the same name. */
static void order_checks(struct init *in, char *at)
{
    for (uint32_t i = 0; i < in->order->n_checks; i++) {
        char **path = order_strings(in, &at, 1);
        uint64_t inode;
        struct stat st;
        if (!path || in->end - at < (ptrdiff_t)sizeof(inode))
            init_fail(in, "order", EINVAL);
        memcpy(&inode, at, sizeof(inode));
        at += sizeof(inode);
        if (inode && (stat(path[0], &st) < 0 || st.st_ino != inode))
            init_fail(in, INIT_STAGE_FOREIGN, ENOENT);
        free(path);
    }
}

void order_files(struct init *in)
{
    char *at = in->files;
    for (uint32_t i = 0; i < in->order->n_files; i++) {
        char **name = order_strings(in, &at, 1);
        uint64_t len;
        if (!name || in->end - at < (ptrdiff_t)sizeof(len))
            init_fail(in, "order", EINVAL);
        memcpy(&len, at, sizeof(len));
        at += sizeof(len);
        if (len > (uint64_t)(in->end - at))
            init_fail(in, "order", EINVAL);
        if (order_file(name[0], at, (size_t)len) < 0)
            init_fail(in, "files", errno);
        at += len;
        free(name);
    }
    order_checks(in, at);
}
