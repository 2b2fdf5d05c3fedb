/*
 * Starts one program and waits for it: the clock, the fixed environment, the time-out, and what
 * a program may leave behind. Called by sample.c, from several threads in throughput mode.
 *
 * The clock runs from just before posix_spawn to just after the wait returned. Everything that
 * can be done outside that time (search of PATH, arguments, descriptors) is done outside.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int null_fd = -1;
static int stop_fd = -1;
static volatile sig_atomic_t stopped;
static const char *scratch_dir;
static char **child_env;

uint64_t proc_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void proc_request_stop(void)
{
    uint64_t one = 1;
    int saved = errno;

    stopped = 1;
    if (write(stop_fd, &one, sizeof(one)) < 0)
        errno = saved; /* the flag alone still stops the next run */
    errno = saved;
}

const char *proc_scratch(void)
{
    return scratch_dir;
}

bool proc_is_stopped(void)
{
    return stopped;
}

/* A fixed environment: variables of the caller (CORDON_*, LD_*) would change what is measured. */
static int build_env(void)
{
    static const char *const kept[] = {"HOME", "USER", "DOCKER_HOST", "XDG_RUNTIME_DIR"};
    const char *path = getenv("PATH");
    size_t n = 0;

    child_env = calloc(sizeof(kept) / sizeof(kept[0]) + 4, sizeof(*child_env));
    if (!child_env ||
        asprintf(&child_env[n++], "PATH=%s:/usr/local/sbin:/usr/sbin:/sbin",
                 path ? path : "/usr/bin:/bin") < 0 ||
        asprintf(&child_env[n++], "XDG_CONFIG_HOME=%s", scratch_dir) < 0 ||
        !(child_env[n++] = strdup("LANG=C.UTF-8")))
        return -1;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        const char *value = getenv(kept[i]);

        if (value && asprintf(&child_env[n++], "%s=%s", kept[i], value) < 0)
            return -1;
    }
    return 0;
}

int proc_init(const char *scratch, char *err, size_t err_size)
{
    scratch_dir = scratch;
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* The working directory is ours and empty, so that no configuration file is found there. */
    if (null_fd < 0 || stop_fd < 0 || chdir(scratch) < 0 || build_env() < 0) {
        snprintf(err, err_size, "prepare runs in %s: %s", scratch, strerror(errno));
        return -1;
    }
    /* What a timed-out program leaves behind comes to us and can be ended by its id. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return 0;
}

/* Waits for pid to end, for the time-out or for the user's interrupt; reaps in every case. */
static void wait_for(pid_t pid, uint64_t deadline, struct outcome *ret_out)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    struct outcome out = {.kind = OUT_EXITED};
    int status;

    while (pidfd >= 0) {
        uint64_t now = proc_now_ns();
        int left_ms = now < deadline ? (int)((deadline - now) / 1000000u) + 1 : 0;
        int n = poll(p, 2, left_ms);

        if (n < 0 && errno == EINTR)
            continue;
        if (p[0].revents)
            break;
        if (n == 0 || p[1].revents) {
            out.kind = n == 0 ? OUT_TIMEOUT : OUT_STOPPED;
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            break;
        }
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pidfd >= 0)
        close(pidfd);
    if (out.kind == OUT_EXITED) {
        out.kind = WIFSIGNALED(status) ? OUT_SIGNALED : OUT_EXITED;
        out.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    }
    *ret_out = out;
}

void proc_run(char *const *argv, uint64_t timeout_ns, int out_fd, int err_fd,
              struct outcome *ret_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    uint64_t start;
    pid_t pid;
    int rc;

    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, null_fd, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd >= 0 ? out_fd : null_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, err_fd >= 0 ? err_fd : null_fd, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);

    start = proc_now_ns();
    rc = posix_spawn(&pid, argv[0], &actions, &attr, argv, child_env);
    if (rc == 0) {
        wait_for(pid, start + timeout_ns, ret_out);
        ret_out->ns = proc_now_ns() - start;
    } else {
        *ret_out = (struct outcome){.kind = OUT_NOT_STARTED, .code = rc};
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
}

void proc_reap_strays(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool kill_children_once(void)
{
    char path[64];
    bool found = false;
    FILE *f;
    int pid;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
    f = fopen(path, "re");
    if (!f)
        return false;
    while (fscanf(f, "%d", &pid) == 1 && pid > 1) {
        kill(pid, SIGKILL);
        found = true;
    }
    fclose(f);
    return found;
}

/* Only while no worker runs: every child we have left is then a leftover of a time-out. */
void proc_kill_strays(void)
{
    struct timespec pause = {.tv_nsec = 5000000};

    for (int i = 0; i < 100 && kill_children_once(); i++) {
        proc_reap_strays();
        nanosleep(&pause, NULL);
    }
}
