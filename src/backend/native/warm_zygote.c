/* A warm interpreter: started by the spawner, let into a guest by its pid 1.
 *
 * It is a child of the spawner, in the pool's namespaces and with the pool's rights, and lives
 * there until the pool ends. What is forked from it becomes a guest's program: it joins the
 * namespaces that the guest's pid 1 has made, and closes the walls behind itself (zygote/zygote.c).
 */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"
#include "zygote/zygote.h"

/* For setns, the change of user, and what goes with it; they are the pool's, and end at its edge.
 */
static const unsigned zygote_caps[] = {CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_SYS_CHROOT,
                                       CAP_SYS_ADMIN};

static int zygote_keep_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -1;
    data[0].inheritable = 0;
    for (size_t i = 0; i < ARRAY_SIZE(zygote_caps); i++)
        data[0].inheritable |= 1u << zygote_caps[i];
    data[1].inheritable = 0;
    if (syscall(SYS_capset, &header, data) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(zygote_caps); i++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, zygote_caps[i], 0, 0) < 0)
            return -1;
    return 0;
}

/* Standard streams are pipes, as every guest's are: the interpreter looks at them when it starts.
 * Nobody reads them; what a module prints when it is imported must not hold it up. */
static int zygote_streams(void)
{
    int pair[2];
    if (pipe2(pair, O_NONBLOCK) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (dup2(pair[i != 0], i) < 0)
            return -1;
    return 0;
}

static _Noreturn void zygote_exec(struct native_child *c, int zygote_fd, int folder_fd)
{
    static const char *const places[] = {"/usr/local/bin/python3", "/usr/bin/python3",
                                         "/bin/python3"};
    static char home[128];
    const char *name = c->plan->argv[1];
    char *argv[] = {"python3", (char *)name, NULL};
    char *env[] = {"PATH=/usr/local/bin:/usr/bin:/bin",
                   home,
                   "USER=sandbox",
                   "LANG=C.UTF-8",
                   "TMPDIR=/tmp",
                   "PYTHONPATH=/proc/self/fd/9",
                   "OPENBLAS_NUM_THREADS=1",
                   "OMP_NUM_THREADS=1",
                   "MKL_NUM_THREADS=1",
                   NULL};
    snprintf(home, sizeof(home), "HOME=%s", PLAN_HOME);
    sigset_t none;
    sigemptyset(&none);
    if (zygote_streams() < 0 || dup2(zygote_fd, ZYGOTE_SOCKET) < 0 ||
        dup2(folder_fd, ZYGOTE_FOLDER) < 0 || sys_close_range(ZYGOTE_FOLDER + 1, ~0U) < 0 ||
        sys_close_range(3, ZYGOTE_SOCKET - 1) < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0 ||
        setsid() < 0 || chdir(c->plan->cwd) < 0 || zygote_keep_rights() < 0)
        _exit(1);
    umask(022);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        execve(places[i], argv, env);
    _exit(1);
}

int warm_zygote_start(struct native_child *c, int folder_fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        native_child_fail(c, "interpreter", errno, "socketpair");
    pid_t pid = fork();
    if (pid == 0)
        zygote_exec(c, pair[1], folder_fd);
    if (pid < 0)
        native_child_fail(c, "interpreter", errno, "fork");
    close(pair[1]);
    /* what it is to be, once: variables would stay in its /proc/self/environ, and so in the guests'
     */
    char words[ZYGOTE_WORDS_MAX];
    int len = snprintf(words, sizeof(words), "%s\n%s", c->plan->argv[1],
                       c->plan->preload ? c->plan->preload : "");
    if (len >= (int)sizeof(words) || send(pair[0], words, (size_t)len, MSG_NOSIGNAL) != len)
        native_child_fail(c, "interpreter", EMSGSIZE, "words");
    return pair[0];
}

static int zygote_space(struct native_child *c, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        native_child_fail(c, "interpreter", errno, path);
    return fd;
}

/* Asks for a fork; the socket to it takes the place of the interpreter's own. */
static void zygote_ask(struct native_child *c)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        native_child_fail(c, "interpreter", errno, "socketpair");
    struct zygote_fork m = {ZYGOTE_MAGIC};
    struct iovec part = {&m, sizeof(m)};
    int fds[ZYGOTE_FORK_FDS] = {zygote_space(c, "/proc/self/ns/pid"), pair[1], 0, 1, 2};
    if (warm_send(c->join_fd, &part, 1, fds, ZYGOTE_FORK_FDS, 0) < 0)
        native_child_fail(c, "interpreter", errno, "fork");
    close(fds[0]);
    close(pair[1]);
    close(c->join_fd);
    c->join_fd = pair[0];
}

pid_t warm_zygote_admit(struct native_child *c, const struct native_guest *g, int time_fd)
{
    static const char *const spaces[ZYGOTE_SPACES] = {"/proc/self/ns/mnt", "/proc/self/ns/ipc",
                                                      "/proc/self/ns/uts", "/proc/self/ns/net",
                                                      "/proc/self/ns/user"};
    const struct plan *p = c->plan;
    int fds[WARM_FDS_MAX];
    size_t n = 0;
    zygote_ask(c);
    for (; n < ZYGOTE_SPACES; n++)
        fds[n] = zygote_space(c, spaces[n]);
    struct zygote_walls w = {
        .has_fence = g->fence_fd >= 0,
        .has_time = time_fd >= 0,
        .n_entries = (uint32_t)c->n_entries,
        .notify = p->filter_options.notify,
        .filter_bytes = (uint32_t)(p->filter.len * sizeof(*p->filter.insns)),
        .quiet_bytes = (uint32_t)(p->quiet_filter.len * sizeof(*p->quiet_filter.insns)),
        .uid = PLAN_GUEST_UID,
        .gid = PLAN_GUEST_GID,
    };
    snprintf(w.cwd, sizeof(w.cwd), "%s", p->cwd);
    if (w.has_fence)
        fds[n++] = g->fence_fd;
    if (w.has_time)
        fds[n++] = time_fd;
    for (size_t i = 0; i < c->n_entries; i++)
        fds[n++] = c->entries[i];
    struct iovec parts[3] = {
        {&w, sizeof(w)}, {p->filter.insns, w.filter_bytes}, {p->quiet_filter.insns, w.quiet_bytes}};
    if (warm_send(c->join_fd, parts, 3, fds, n, 0) < 0)
        native_child_fail(c, "interpreter", errno, "walls");
    for (size_t i = 0; i < ZYGOTE_SPACES; i++)
        close(fds[i]);
    struct zygote_hello hello;
    struct iovec part = {&hello, sizeof(hello)};
    if (warm_recv(c->join_fd, &part, 1, fds, &n, 0) != sizeof(hello) || n > 1)
        native_child_fail(c, "interpreter", EPROTO, "it did not come");
    if (n == 1)
        atomic_store(&c->status->listener_fd, fds[0]);
    if (hello.no_listener)
        atomic_store(&c->status->no_listener, 1);
    return hello.pid;
}

void warm_zygote_order(struct native_child *c, const struct warm_order *order, const void *body,
                       int memfd)
{
    struct warm_order head = {.len = order->len, .is_memfd = memfd >= 0};
    struct iovec parts[2] = {{&head, sizeof(head)}, {(void *)body, memfd >= 0 ? 0 : order->len}};
    if (warm_send(c->join_fd, parts, 2, &memfd, memfd >= 0 ? 1 : 0, 0) < 0)
        native_child_fail(c, "interpreter", errno, "order");
}
