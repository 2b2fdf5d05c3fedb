/* The zygote's loop. Runs in the zygote: a Python interpreter that loaded this file as a library
 * and holds its lock. One request after the other; a guest leaves through zygote_enter(). */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "host/host.h"
#include "serve/zygote.h"
#include "lib/wire.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "run/run.h"

#define ZYGOTE_SETTINGS_MAX (256 * 1024)

__attribute__((visibility("default"))) int zygote_main(void);

static struct plan *zygote_plans[ZYGOTE_ROLE_COUNT_];
static struct guest zygote_guests[ZYGOTE_GUESTS_MAX];
static bool zygote_used[ZYGOTE_GUESTS_MAX];
static int zygote_ends[ZYGOTE_GUESTS_MAX]; /* where a guest's numbers are wanted */

/* In the guest, behind its wall. data: a statement. */
static void zygote_enter(void *data)
{
    void (*after_fork)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "PyOS_AfterFork_Child");
    int (*run)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    if (!after_fork || !run)
        return;
    after_fork();
    run(data);
}

/* ---- the plan ---- */

/* The settings as one message: count, then name NUL value NUL each; a flag has no value but "\1".
 */
static int zygote_read_settings(char *buf, size_t len, struct policy_setting *settings, size_t max,
                                size_t *ret_n)
{
    size_t n = 0;
    for (char *p = buf, *end = buf + len; p < end; n++) {
        char *value = p + strlen(p) + 1;
        if (n == max || value >= end)
            return -1;
        settings[n] =
            (struct policy_setting){.name = p, .value = str_eq(value, "\1") ? NULL : value};
        p = value + strlen(value) + 1;
    }
    *ret_n = n;
    return 0;
}

static int zygote_plan(enum zygote_role role, const struct policy *from, const struct host *host,
                       struct plan **ret, struct cordon_err *err)
{
    static const char *const statements[ZYGOTE_ROLE_COUNT_] = {"_enter_submission()",
                                                               "_enter_tests()"};
    static char *const argv[] = {(char *)"python3", NULL};
    static struct policy policies[ZYGOTE_ROLE_COUNT_];
    zygote_policy(role, from, &policies[role]);
    struct plan_request request = {.policy = &policies[role], .host = host, .argv = argv};
    if (plan_make(&request, ret, err) < 0)
        return -1;
    if ((*ret)->tier != TIER_FULL || (*ret)->backend != BACKEND_NATIVE)
        return err_set(err, CORDON_ERR_HOST, "zygote", 0, "tier full only");
    /* a group beside those of version 1 is for quicker killing; without it they are used again */
    if ((*ret)->cgroups.kind == HOST_CGROUP_V1)
        (*ret)->cgroups.v2[0] = '\0';
    (*ret)->enter = zygote_enter;
    (*ret)->enter_data = (void *)statements[role];
    return 0;
}

static int zygote_make_plans(struct cordon_err *err)
{
    static char buf[ZYGOTE_SETTINGS_MAX];
    static struct policy_setting settings[1024];
    static struct host host;
    struct policy_input input = {.settings = settings, .no_discovery = true};
    struct policy *policy;
    size_t n = 0;
    ssize_t len = recv(ZYGOTE_FD, buf, sizeof(buf) - 1, 0);
    if (len <= 0 || zygote_read_settings(buf, (size_t)len, settings, ARRAY_SIZE(settings), &n) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "zygote", errno, "settings");
    /* the first two stand for what is no setting */
    input.cwd = settings[0].value;
    input.profile = settings[1].value;
    input.settings = settings + 2;
    input.n_settings = n - 2;
    if (policy_resolve(&input, &policy, err) < 0 || host_probe_quick(&host, err) < 0 ||
        run_place(policy, &host, err) < 0)
        return -1;
    for (int role = 0; role < ZYGOTE_ROLE_COUNT_; role++)
        if (zygote_plan(role, policy, &host, &zygote_plans[role], err) < 0)
            return -1;
    return 0;
}

/* ---- requests ---- */

/* What one guest's end was is not for the next one's memory. */
static int zygote_tell(int fd, struct zygote_reply *reply, const int *fds, size_t n_fds)
{
    struct iovec part = {reply, sizeof(*reply)};
    int r = wire_send(fd, &part, 1, fds, n_fds, 0);
    memset(reply, 0, sizeof(*reply));
    return r;
}

static void zygote_reply(struct zygote_reply *reply, const int *fds, size_t n_fds)
{
    if (zygote_tell(ZYGOTE_FD, reply, fds, n_fds) < 0)
        _exit(1);
}

static void zygote_start(enum zygote_role role)
{
    static struct zygote_reply reply;
    memset(&reply, 0, sizeof(reply));
    reply.kind = ZYGOTE_START;
    reply.role = role;
    size_t i = 0;
    bool refused = false;
    while (i < ZYGOTE_GUESTS_MAX && zygote_used[i])
        i++;
    struct guest *g = &zygote_guests[i % ZYGOTE_GUESTS_MAX];
    int pair[2] = {-1, -1};
    if (i == ZYGOTE_GUESTS_MAX)
        err_set(&reply.err, CORDON_ERR_INTERNAL, "zygote", 0, "too many guests");
    else if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        err_set(&reply.err, CORDON_ERR_INTERNAL, "zygote", errno, "socket");
    else if (backend_native.start(zygote_plans[role], g, &refused, &reply.err) == 0)
        reply.ok = 1;
    reply.host_refused = refused;
    if (!reply.ok) {
        zygote_reply(&reply, NULL, 0);
        util_close(&pair[0]);
        util_close(&pair[1]);
        return;
    }
    zygote_used[i] = true;
    zygote_ends[i] = pair[0];
    reply.index = (uint32_t)i;
    reply.pid = g->pid;
    /* the last one is not there when it is gone already */
    int fds[ZYGOTE_START_FDS] = {g->event_fd, g->stdio[0], g->stdio[1],
                                 g->stdio[2], pair[1],     backend_native.lingers(g)};
    zygote_reply(&reply, fds,
                 fds[ZYGOTE_START_FDS - 1] >= 0 ? ZYGOTE_START_FDS : ZYGOTE_START_FDS - 1);
    util_close(&pair[1]);
    for (int k = 0; k < 3; k++)
        util_close(&g->stdio[k]);
}

static void zygote_finish(uint32_t index)
{
    static struct zygote_reply reply;
    memset(&reply, 0, sizeof(reply));
    reply.kind = ZYGOTE_FINISH;
    struct guest *g = &zygote_guests[index];
    int fd;
    while ((fd = backend_native.lingers(g)) >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, -1) > 0)
            break;
    }
    backend_native.finish(g, &reply.outcome, &reply.err);
    util_close(&reply.outcome.cwd_fd);
    zygote_used[index] = false;
    reply.ok = 1;
    zygote_tell(zygote_ends[index], &reply, NULL, 0);
    util_close(&zygote_ends[index]);
}

static void zygote_measure(uint32_t index)
{
    static struct zygote_reply reply;
    memset(&reply, 0, sizeof(reply));
    reply.kind = ZYGOTE_MEASURE;
    reply.ok = backend_native.measure(&zygote_guests[index], &reply.usage) == 0;
    zygote_tell(zygote_ends[index], &reply, NULL, 0);
}

int zygote_main(void)
{
    static struct zygote_reply ready;
    prctl(PR_SET_DUMPABLE, 0);
    native_again_init();
    bool serves = zygote_make_plans(&ready.err) == 0;
    ready.ok = serves;
    zygote_reply(&ready, NULL, 0);
    if (!serves)
        return 1;
    for (;;) {
        struct zygote_request req;
        ssize_t n = recv(ZYGOTE_FD, &req, sizeof(req), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof(req)) {
            native_again_done();
            _exit(0); /* the supervisor is gone; its guests end with us */
        }
        if (req.kind == ZYGOTE_START && req.index < ZYGOTE_ROLE_COUNT_)
            zygote_start(req.index);
        else if (req.index >= ZYGOTE_GUESTS_MAX || !zygote_used[req.index])
            _exit(1);
        else if (req.kind == ZYGOTE_KILL)
            backend_native.kill(&zygote_guests[req.index]);
        else if (req.kind == ZYGOTE_MEASURE)
            zygote_measure(req.index);
        else if (req.kind == ZYGOTE_FINISH)
            zygote_finish(req.index);
        else
            _exit(1);
    }
}
