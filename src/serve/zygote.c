/* The supervisor's side of a warm interpreter: starting it, and guests of it behind the vtable of a
 * backend. */
#include "serve/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/libexec.h"
#include "base/sys.h"
#include "base/util.h"
#include "lib/wire.h"

#define ZYGOTE_SETTINGS_MAX (200 * 1024)
#define ZYGOTE_WAIT_S 20

/* A guest that was made; its descriptors are ours. */
struct zygote_made {
    struct zygote_reply reply;
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
};

struct zygote {
    int fd;
    pid_t pid;
    enum zygote_role role;
    bool dead, ready;
    size_t n_asked; /* guests that were asked for and not answered yet */
    size_t left;    /* so many will be wanted, as far as that is known */
    struct zygote_made ahead[ZYGOTE_AHEAD];
    size_t n_ahead;
};

static struct zygote *zygote_current[ZYGOTE_ROLE_COUNT_];

/* ---- starting it ---- */

/* The interpreter a guest would find first; a search path of the caller's own is the cold start's.
 */
static const char *zygote_python(void)
{
    static const char *const places[] = {"/usr/local/bin/python3", "/usr/bin/python3"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

int zygote_library(char *ret_path, size_t size)
{
    return libexec_find(ZYGOTE_LIBRARY, ret_path, size);
}

static void zygote_add(struct buf *out, const char *name, const char *value)
{
    buf_add(out, name, strlen(name) + 1);
    buf_add(out, value, strlen(value) + 1);
}

/* Settings alone make the zygote's policy. What comes from files, the environment or as bytes is
 * not repeated there: such a policy starts cold. */
static int zygote_settings(enum zygote_role role, const struct policy *policy,
                           const struct policy_input *input, struct buf *out,
                           struct cordon_err *err)
{
    static const enum field_id not [] = {FIELD_VENV,  FIELD_ROOTFS, FIELD_WORKSPACE,
                                         FIELD_FILES, FIELD_ENV,    FIELD_OUTPUT};
    bool plain = !policy->config_file && !policy->user_file &&
                 policy_num(policy, FIELD_BACKEND) == BACKEND_NATIVE && !zygote_has_network(policy);
    for (size_t i = 0; i < ARRAY_SIZE(not ); i++)
        plain = plain && !policy_has(policy, not [i]);
    for (size_t i = 0; i < FIELD_COUNT_; i++)
        plain = plain && policy->values[i].origin.source != FROM_ENV;
    if (!plain)
        return err_set(err, CORDON_ERR_HOST, "zygote", 0, "a policy for cold starts");
    _cleanup_free_ char *cwd = input->cwd ? strdup(input->cwd) : getcwd(NULL, 0);
    zygote_add(out, "role", role == ZYGOTE_TESTS ? "tests" : "submission");
    zygote_add(out, "cwd", cwd ? cwd : "/");
    /* also where a variable chose it: the zygote has none */
    zygote_add(out, "profile", str_eq(policy->profile, "default") ? "\1" : policy->profile);
    for (size_t i = 0; i < input->n_settings; i++) {
        const struct policy_setting *s = &input->settings[i];
        if (s->data)
            return err_set(err, CORDON_ERR_HOST, "zygote", 0, "a policy for cold starts");
        zygote_add(out, s->name, s->value ? s->value : "\1");
    }
    return out->failed ? err_nomem(err, "zygote") : 0;
}

static _Noreturn void zygote_exec(const char *python, const struct zygote_program *program,
                                  int input, int sock, pid_t parent)
{
    /* symbols are looked up once, and not in every copy */
    static char *const env[] = {(char *)"LANG=C.UTF-8", (char *)"LD_BIND_NOW=1", NULL};
    char *const argv[] = {(char *)"python3", (char *)"-I",          (char *)"-S",
                          (char *)"-c",      (char *)program->boot, NULL};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    /* above the numbers they are to have */
    sock = fcntl(sock, F_DUPFD_CLOEXEC, 10);
    /* the caller's folder is not where it looks for anything; its settings name that folder */
    if (getppid() != parent || chdir("/") < 0 || null < 0 || sock < 0 || dup2(input, 0) < 0 ||
        dup2(null, 1) < 0 || dup2(null, 2) < 0 || dup2(sock, ZYGOTE_FD) < 0 ||
        sys_close_range(ZYGOTE_FD + 1, ~0U) < 0)
        _exit(1);
    execve(python, argv, env);
    _exit(1);
}

/* Its standard input: a file, so that nobody has to wait until it reads. */
static int zygote_input(const void *data, size_t len)
{
    int fd = memfd_create("cordon-zygote", MFD_CLOEXEC);
    if (fd >= 0 && pwrite(fd, data, len, 0) != (ssize_t)len)
        util_close(&fd);
    return fd;
}

static void zygote_drop_fds(struct zygote_made *m)
{
    while (m->n_fds > 0)
        util_close(&m->fds[--m->n_fds]);
}

/* One answer on one of its sockets, with its descriptors; a zygote that does not answer is ended
 * and not asked again. */
static int zygote_receive(struct zygote *z, int fd, struct zygote_made *ret)
{
    ssize_t n;
    ret->n_fds = 0;
    do
        n = wire_recv(fd, &ret->reply, sizeof(ret->reply), ret->fds, &ret->n_fds, 0);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(ret->reply))
        return 0;
    zygote_drop_fds(ret);
    z->dead = true;
    kill(z->pid, SIGKILL);
    return -1;
}

static int zygote_ask(struct zygote *z, enum zygote_kind kind, uint32_t index)
{
    struct zygote_request req = {.kind = (uint32_t)kind, .index = index};
    struct iovec part = {&req, sizeof(req)};
    if (!z->dead && wire_send(z->fd, &part, 1, NULL, 0, 0) == 0)
        return 0;
    z->dead = true;
    return -1;
}

/* It serves, or never will. */
static bool zygote_is_ready(struct zygote *z)
{
    if (!z->ready && !z->dead) {
        struct zygote_made first;
        z->ready = zygote_receive(z, z->fd, &first) == 0 && first.reply.kind == ZYGOTE_READY &&
                   first.reply.ok;
        z->dead = !z->ready;
    }
    return z->ready && !z->dead;
}

/* Asks for what will be wanted next. */
static void zygote_ask_ahead(struct zygote *z)
{
    while (z->n_ahead + z->n_asked < MIN((size_t)ZYGOTE_AHEAD, z->left) &&
           zygote_ask(z, ZYGOTE_START, 0) == 0)
        z->n_asked++;
}

/* The guest that was asked for first and not answered yet. */
static int zygote_next(struct zygote *z, struct zygote_made *ret)
{
    if (zygote_receive(z, z->fd, ret) < 0)
        return -1;
    if (z->n_asked > 0)
        z->n_asked--;
    if (ret->reply.kind == ZYGOTE_START)
        return 0;
    z->dead = true;
    zygote_drop_fds(ret);
    return -1;
}

static int zygote_take(struct zygote *z, struct zygote_made *ret)
{
    if (!zygote_is_ready(z))
        return -1;
    if (z->n_ahead > 0) {
        *ret = z->ahead[0];
        memmove(z->ahead, z->ahead + 1, --z->n_ahead * sizeof(z->ahead[0]));
    } else {
        if (z->n_asked == 0) {
            if (zygote_ask(z, ZYGOTE_START, 0) < 0)
                return -1;
            z->n_asked++;
        }
        if (zygote_next(z, ret) < 0)
            return -1;
    }
    if (z->left > 0)
        z->left--;
    zygote_ask_ahead(z);
    return 0;
}

int zygote_open(enum zygote_role role, const struct policy *policy,
                const struct policy_input *input, const struct zygote_program *program,
                struct zygote **ret, struct cordon_err *err)
{
    _cleanup_buf_ struct buf settings = BUF_INIT(ZYGOTE_SETTINGS_MAX);
    _cleanup_close_ int text = -1, ours = -1, theirs = -1;
    const char *python = zygote_python();
    int pair[2];
    if (zygote_settings(role, policy, input, &settings, err) < 0)
        return -1;
    if (!python || zygote_current[role])
        return err_set(err, CORDON_ERR_HOST, "zygote", ENOENT, "python3");
    if ((text = zygote_input(program->input, program->input_len)) < 0)
        return err_set(err, CORDON_ERR_HOST, "zygote", errno, "memory file");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "zygote", errno, "socket");
    ours = pair[0];
    theirs = pair[1];
    struct timeval patience = {.tv_sec = ZYGOTE_WAIT_S};
    setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    struct zygote *z = calloc(1, sizeof(*z));
    if (!z)
        return err_nomem(err, "zygote");
    z->role = role;
    pid_t self = getpid();
    z->pid = fork();
    if (z->pid == 0)
        zygote_exec(python, program, text, theirs, self);
    z->fd = TAKE_FD(ours);
    util_close(&theirs);
    struct iovec part = {settings.data, settings.len};
    if (z->pid < 0 || wire_send(z->fd, &part, 1, NULL, 0, 0) < 0) {
        err_set(err, CORDON_ERR_HOST, "zygote", 0, "it did not start");
        zygote_close(z);
        return -1;
    }
    zygote_current[role] = *ret = z;
    return 0;
}

/* What a guest's own socket says; it says it in a while that is bounded. */
static int zygote_end(struct zygote *z, int fd, struct zygote_made *ret)
{
    struct timeval patience = {.tv_sec = ZYGOTE_WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return z->dead ? -1 : zygote_receive(z, fd, ret);
}

void zygote_expect(struct zygote *z, size_t guests)
{
    if (!z)
        return;
    z->left = guests;
    zygote_ask_ahead(z);
}

/* Guests nobody came for: they leave nothing behind, either. */
static void zygote_drop_ahead(struct zygote *z)
{
    struct zygote_made m;
    while (z->n_ahead + z->n_asked > 0 && zygote_is_ready(z)) {
        if (z->n_ahead > 0)
            m = z->ahead[--z->n_ahead];
        else if (zygote_next(z, &m) < 0)
            break;
        uint32_t index = m.reply.index;
        struct zygote_made end = {0};
        if (m.reply.ok && m.n_fds > ZYGOTE_END_AT && zygote_ask(z, ZYGOTE_KILL, index) == 0 &&
            zygote_ask(z, ZYGOTE_FINISH, index) == 0)
            zygote_end(z, m.fds[ZYGOTE_END_AT], &end);
        zygote_drop_fds(&m);
    }
    while (z->n_ahead > 0) /* of a zygote that is gone */
        zygote_drop_fds(&z->ahead[--z->n_ahead]);
}

void zygote_hang_up(struct zygote *z)
{
    if (!z || z->fd < 0)
        return;
    zygote_drop_ahead(z);
    util_close(&z->fd);
}

void zygote_close(struct zygote *z)
{
    if (!z)
        return;
    if (zygote_current[z->role] == z)
        zygote_current[z->role] = NULL;
    zygote_hang_up(z);
    if (z->pid > 0) {
        /* it ends by itself and takes along what it kept, unless it is stuck */
        _cleanup_close_ int pidfd = z->dead ? -1 : sys_pidfd_open(z->pid);
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        if (pidfd < 0 || poll(&end, 1, ZYGOTE_WAIT_S * 1000) != 1)
            kill(z->pid, SIGKILL);
        while (waitpid(z->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    free(z);
}

bool zygote_is_alive(const struct zygote *z)
{
    return z && !z->dead;
}

/* ---- guests ---- */

struct zygote_guest {
    struct zygote *zygote;
    uint32_t index;
    int pidfd, end_fd;
    bool finishing; /* its numbers were asked for */
    uint64_t started_ns;
};

/* Looking costs as much as a short guest does; what it may have used by then is not worth it. */
#define ZYGOTE_LOOK_NS 5000000u

static int zygote_guest_start(enum zygote_role role, const struct plan *plan, struct guest *ret,
                              bool *ret_host_refused, struct cordon_err *err)
{
    struct zygote *z = zygote_current[role];
    struct zygote_made m = {0};
    *ret_host_refused = false;
    struct zygote_guest *own = calloc(1, sizeof(*own));
    if (!own)
        return err_nomem(err, "zygote");
    if (!z || zygote_take(z, &m) < 0 || !m.reply.ok || m.n_fds <= ZYGOTE_END_AT) {
        bool said = z && !z->dead && !m.reply.ok;
        zygote_drop_fds(&m);
        if (said)
            *err = m.reply.err;
        free(own);
        return said
                   ? -1
                   : err_set(err, CORDON_ERR_INTERNAL, "zygote", 0, "the warm interpreter is gone");
    }
    *own = (struct zygote_guest){.zygote = z,
                                 .index = m.reply.index,
                                 .pidfd = m.n_fds == ZYGOTE_START_FDS ? m.fds[ZYGOTE_PID_AT] : -1,
                                 .end_fd = m.fds[ZYGOTE_END_AT],
                                 .started_ns = clock_ns()};
    *ret = (struct guest){.backend = &backend_zygote[role],
                          .plan = plan,
                          .event_fd = m.fds[0],
                          .stdio = {m.fds[1], m.fds[2], m.fds[3]},
                          .pid = m.reply.pid,
                          .priv = own};
    return 0;
}

static int zygote_start_submission(const struct plan *plan, struct guest *ret,
                                   bool *ret_host_refused, struct cordon_err *err)
{
    return zygote_guest_start(ZYGOTE_SUBMISSION, plan, ret, ret_host_refused, err);
}

static int zygote_start_tests(const struct plan *plan, struct guest *ret, bool *ret_host_refused,
                              struct cordon_err *err)
{
    return zygote_guest_start(ZYGOTE_TESTS, plan, ret, ret_host_refused, err);
}

static void zygote_guest_kill(struct guest *g)
{
    struct zygote_guest *own = g->priv;
    if (own->finishing) /* it is gone, and its place may be another's */
        return;
    /* the kernel ends the whole pid namespace with its pid 1, and needs no zygote for that */
    if (own->pidfd < 0 || (sys_pidfd_send_signal(own->pidfd, SIGKILL) < 0 && errno != ESRCH))
        zygote_ask(own->zygote, ZYGOTE_KILL, own->index);
}

static int zygote_guest_signal(struct guest *g, int sig)
{
    (void)g;
    (void)sig;
    return -1;
}

static uint64_t zygote_guest_started(struct guest *g)
{
    return ((struct zygote_guest *)g->priv)->started_ns;
}

static int zygote_guest_measure(struct guest *g, struct backend_usage *ret)
{
    struct zygote_guest *own = g->priv;
    struct zygote_made m;
    if (own->finishing || clock_ns() - own->started_ns < ZYGOTE_LOOK_NS ||
        zygote_ask(own->zygote, ZYGOTE_MEASURE, own->index) < 0 ||
        zygote_end(own->zygote, own->end_fd, &m) < 0 || !m.reply.ok)
        return -1;
    *ret = m.reply.usage;
    return 0;
}

static int zygote_guest_pause(struct guest *g, bool pause)
{
    (void)g;
    (void)pause;
    return -1;
}

static void zygote_guest_ask_end(struct zygote_guest *own)
{
    if (!own->finishing)
        zygote_ask(own->zygote, ZYGOTE_FINISH, own->index);
    own->finishing = true;
}

/* First for the end of pid 1, then for its numbers: the zygote may be making other guests. */
static int zygote_guest_lingers(struct guest *g)
{
    struct zygote_guest *own = g->priv;
    struct pollfd pid = {.fd = own->pidfd, .events = POLLIN};
    struct pollfd end = {.fd = own->end_fd, .events = POLLIN};
    if (own->pidfd >= 0 && poll(&pid, 1, 0) == 0)
        return own->pidfd;
    zygote_guest_ask_end(own);
    return own->zygote->dead || poll(&end, 1, 0) != 0 ? -1 : own->end_fd;
}

static void zygote_guest_finish(struct guest *g, struct backend_outcome *ret,
                                struct cordon_err *err)
{
    struct zygote_guest *own = g->priv;
    static struct zygote_made m;
    zygote_guest_ask_end(own);
    if (zygote_end(own->zygote, own->end_fd, &m) == 0) {
        *ret = m.reply.outcome;
        ret->cwd_fd = -1;
        if (m.reply.err.code)
            *err = m.reply.err;
    } else {
        *ret = (struct backend_outcome){.end = BACKEND_SETUP_FAILED, .cwd_fd = -1};
        err_set(err, CORDON_ERR_INTERNAL, "zygote", 0, "the warm interpreter is gone");
    }
    for (int i = 0; i < 3; i++)
        util_close(&g->stdio[i]);
    util_close(&g->event_fd);
    util_close(&own->pidfd);
    util_close(&own->end_fd);
    free(own);
    g->priv = NULL;
}

#define ZYGOTE_BACKEND(how)                                                                        \
    {                                                                                              \
        .name = "native", .start = (how), .kill = zygote_guest_kill,                               \
        .signal = zygote_guest_signal, .started = zygote_guest_started,                            \
        .measure = zygote_guest_measure, .pause = zygote_guest_pause,                              \
        .lingers = zygote_guest_lingers, .finish = zygote_guest_finish,                            \
    }

const struct backend backend_zygote[ZYGOTE_ROLE_COUNT_] = {
    [ZYGOTE_SUBMISSION] = ZYGOTE_BACKEND(zygote_start_submission),
    [ZYGOTE_TESTS] = ZYGOTE_BACKEND(zygote_start_tests),
};
