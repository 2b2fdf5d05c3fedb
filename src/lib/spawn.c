/* Starting the supervisor from a program we know nothing about. Runs in the calling program.
 *
 * The program may be large (fork would copy its page tables), have threads (after fork only
 * async-signal-safe calls are allowed), wait for its own children (it must not find ours), or
 * ignore SIGCHLD. So: a helper that borrows our memory while this thread is suspended (vfork
 * semantics), with no exit signal, starts the supervisor the same way and ends. The supervisor is
 * then an orphan, and the helper can be waited for only by those who ask for it. */
#include "lib/lib.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"
#include "lib/wire.h"

#define SPAWN_STACK 65536
#define SPAWN_HIGH_FD 10 /* above every number we give a meaning */

struct spawn {
    const char *binary;
    int control_fd, host_fd;
    char *inner_stack;
    char *env[6];
    int error; /* written by the helpers: they share our memory */
};

/* Where the caller's caches, notes and temporary files lie: what the supervisor keeps there it
 * keeps from guests, too. Nothing else of the environment: it may hold secrets. */
static int spawn_environment(struct spawn *s)
{
    static const char *const names[] = {"HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"};
    _Static_assert(ARRAY_SIZE(names) < ARRAY_SIZE(s->env), "the list ends with NULL");
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = secure_getenv(names[i]);
        if (value && asprintf(&s->env[n++], "%s=%s", names[i], value) < 0) {
            s->env[n - 1] = NULL;
            return -1;
        }
    }
    return 0;
}

static void spawn_done(struct spawn *s)
{
    for (size_t i = 0; s->env[i]; i++)
        free(s->env[i]);
    munmap(s->inner_stack - 2 * SPAWN_STACK, 2 * SPAWN_STACK);
}

/* Puts the two descriptors at their numbers and nothing else anywhere. */
static int spawn_descriptors(const struct spawn *s)
{
    int control = fcntl(s->control_fd, F_DUPFD, SPAWN_HIGH_FD);
    int host = s->host_fd < 0 ? -1 : fcntl(s->host_fd, F_DUPFD, SPAWN_HIGH_FD);
    int null = open("/dev/null", O_RDWR);
    if (control < 0 || (s->host_fd >= 0 && host < 0) || null < 0)
        return -1;
    for (int fd = 0; fd < 3; fd++)
        if (dup2(null, fd) < 0)
            return -1;
    if (dup2(control, WIRE_CONTROL_FD) < 0 || (host >= 0 && dup2(host, WIRE_HOST_FD) < 0))
        return -1;
    return sys_close_range(host < 0 ? WIRE_HOST_FD : WIRE_HOST_FD + 1, ~0U);
}

/* The sanitizer takes the foreign stack for damage. */
#define SPAWN_HELPER __attribute__((no_sanitize("address"))) static int

SPAWN_HELPER spawn_inner(void *data)
{
    struct spawn *s = data;
    char *const argv[] = {(char *)"cordon", (char *)"supervise", NULL};
    if (spawn_descriptors(s) == 0)
        execve(s->binary, argv, s->env);
    s->error = errno;
    _exit(127);
}

SPAWN_HELPER spawn_outer(void *data)
{
    struct spawn *s = data;
    pid_t pid = clone(spawn_inner, s->inner_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
    if (pid < 0)
        s->error = errno;
    else if (s->error)
        waitpid(pid, NULL, __WALL);
    _exit(0);
}

int spawn_supervisor(const char *binary, int control_fd, int host_fd)
{
    char *stacks = mmap(NULL, 2 * SPAWN_STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED)
        return -1;
    struct spawn s = {.binary = binary,
                      .control_fd = control_fd,
                      .host_fd = host_fd,
                      .inner_stack = stacks + 2 * SPAWN_STACK};
    if (spawn_environment(&s) < 0) {
        spawn_done(&s);
        errno = ENOMEM;
        return -1;
    }

    /* A handler or a cancellation must not run in the helpers, on memory that is ours. */
    sigset_t all, old;
    int cancel;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    pid_t pid = clone(spawn_outer, stacks + SPAWN_STACK, CLONE_VM | CLONE_VFORK, &s);
    int error = pid < 0 ? errno : s.error;
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_setcancelstate(cancel, NULL);

    spawn_done(&s);
    if (error) {
        errno = error;
        return -1;
    }
    return 0;
}
