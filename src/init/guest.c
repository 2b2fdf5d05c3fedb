/* The guest's process until its execve: resource limits, the exact filter, the search for the
 * command. Runs in a child of a container's pid 1 that still shares its table of descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "init/init_internal.h"

#define INIT_OOM_SCORE "300" /* the guest goes before its pid 1 */

static _Noreturn void guest_fail(struct init *in, const char *stage, int error)
{
    strcpy(in->shared->stage, stage);
    in->shared->error = error;
    _exit(127);
}

/* With a listener refused calls are counted; where there is none (gVisor) they are plain errors. */
static void guest_filter(struct init *in)
{
    struct sock_fprog loud = {(unsigned short)in->order->n_filter, in->filter};
    struct sock_fprog quiet = {(unsigned short)in->order->n_quiet, in->quiet};
    long fd = in->order->n_filter ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                            SECCOMP_FILTER_FLAG_NEW_LISTENER, &loud)
                                  : -1;
    if (fd >= 0) {
        in->shared->listener = (int)fd;
        return;
    }
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &quiet) < 0)
        guest_fail(in, "seccomp", errno);
}

static const char *guest_path(struct init *in)
{
    for (char **e = in->env; *e; e++)
        if (str_starts(*e, "PATH="))
            return *e + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* As a shell finds it: in the guest's own PATH; what exists but cannot be executed is remembered.
 */
static int guest_exec(struct init *in)
{
    const char *name = in->argv[0];
    if (!*name)
        return ENOENT;
    if (strchr(name, '/')) {
        execve(name, in->argv, in->env);
        return errno;
    }
    int error = ENOENT;
    char path[4096];
    for (const char *dir = guest_path(in); dir; dir = strchr(dir, ':')) {
        dir += *dir == ':';
        int len = (int)strcspn(dir, ":");
        if (len == 0 ||
            snprintf(path, sizeof(path), "%.*s/%s", len, dir, name) >= (int)sizeof(path))
            continue;
        execve(path, in->argv, in->env);
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
    }
    return error;
}

/* gVisor has nothing these limits would bound, and refuses to set them. */
static bool guest_may_miss(int resource)
{
    return errno == EPERM && (resource == RLIMIT_RTPRIO || resource == RLIMIT_NICE ||
                              resource == RLIMIT_MSGQUEUE || resource == RLIMIT_SIGPENDING);
}

_Noreturn void guest_run(struct init *in)
{
    sigset_t none;
    sigemptyset(&none);
    setsid();
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, INIT_OOM_SCORE, strlen(INIT_OOM_SCORE));
        close(fd);
    }
    for (uint32_t i = 0; i < in->order->n_rlimits; i++) {
        struct rlimit now, want = {in->rlimits[i].value, in->rlimits[i].value};
        /* the runtime's own may be lower already: never raised */
        if (getrlimit((int)in->rlimits[i].resource, &now) == 0 && now.rlim_max < want.rlim_max)
            want.rlim_cur = want.rlim_max = now.rlim_max;
        if (setrlimit((int)in->rlimits[i].resource, &want) < 0 &&
            !guest_may_miss((int)in->rlimits[i].resource))
            guest_fail(in, "rlimit", errno);
    }
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &none, NULL);
    const char *failed = in->order->own_kernel ? guard_leave_root(in) : NULL;
    if (failed)
        guest_fail(in, failed, errno);
    guest_filter(in);
    in->shared->ready = 1;
    guest_fail(in, "exec", guest_exec(in));
}
