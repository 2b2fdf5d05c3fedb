/* The zygote's loop. Runs in the zygote: a Python interpreter that loaded this file as a module and
 * holds its lock. One request after the other; a guest leaves through zygote_enter(). */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/python.h"
#include "base/util.h"
#include "host/host.h"
#include "serve/zygote.h"
#include "serve/zygote_code.h"
#include "lib/wire.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "run/run.h"

#define ZYGOTE_SETTINGS_MAX (256 * 1024)
#define ZYGOTE_STACK (128 * 1024) /* more than making a plan takes */

__attribute__((visibility("default"))) PyObject *PyInit_cordon_grade_zygote(void);

static struct plan *zygote_the_plan;
static struct guest zygote_guests[ZYGOTE_GUESTS_MAX];
static bool zygote_used[ZYGOTE_GUESTS_MAX];
static int zygote_ends[ZYGOTE_GUESTS_MAX]; /* where a guest's numbers are wanted */

/* The interpreter's own functions, as far as its stable ABI goes. */
static struct {
    PyObject *(*module)(struct py_module *def, int version);
    PyObject *(*bytes)(const char *data, ptrdiff_t len);
    PyObject *(*list)(ptrdiff_t size);
    int (*append)(PyObject *list, PyObject *item);
    PyObject *(*call)(PyObject *callable, ...);
    int (*parse)(PyObject *args, const char *format, ...);
    void (*print_error)(void);
    void (*after_fork)(void);
} py;

/* In the guest, behind its wall. */
static void zygote_enter(void *data)
{
    py.after_fork();
    if (!py.call(data, (PyObject *)NULL))
        py.print_error();
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
                       struct cordon_err *err)
{
    static char *const argv[] = {(char *)"python3", NULL};
    struct policy policy;
    zygote_policy(role, from, &policy);
    struct plan_request request = {.policy = &policy, .host = host, .argv = argv};
    struct plan *plan;
    if (plan_make(&request, &plan, err) < 0)
        return -1;
    if (plan->tier != TIER_FULL || plan->backend != BACKEND_NATIVE || plan->net ||
        plan->host_network)
        return err_set(err, CORDON_ERR_HOST, "zygote", 0, "tier full without a network only");
    plan->enter = zygote_enter;
    zygote_the_plan = plan;
    return 0;
}

static int zygote_resolve_plan(char *buf, size_t len, struct cordon_err *err)
{
    static struct policy_setting settings[1024];
    static struct host host;
    struct policy_input input = {.no_discovery = true};
    struct policy *policy;
    size_t n = 0;
    if (zygote_read_settings(buf, len, settings, ARRAY_SIZE(settings), &n) < 0 || n < 3)
        return err_set(err, CORDON_ERR_INTERNAL, "zygote", errno, "settings");
    /* the first three stand for what is no setting */
    enum zygote_role role = str_eq(settings[0].value, "tests") ? ZYGOTE_TESTS : ZYGOTE_SUBMISSION;
    input.cwd = settings[1].value;
    input.profile = settings[2].value;
    input.settings = settings + 3;
    input.n_settings = n - 3;
    if (policy_resolve(&input, &policy, err) < 0)
        return -1;
    int r = host_probe_quick(&host, err);
    if (r == 0)
        r = run_place(policy, &host, err);
    if (r == 0)
        r = zygote_plan(role, policy, &host, err);
    policy_free(policy);
    return r;
}

/* What was called before may have left there. */
static __attribute__((noinline)) void zygote_wipe_stack(void)
{
    char below[ZYGOTE_STACK];
    explicit_bzero(below, sizeof(below));
}

/* Only the plan stays: the settings, and copies of them on the heap (zygote_heap.c) and the stack,
 * would be in the memory of every guest. */
static int zygote_make_plan(struct cordon_err *err)
{
    static char buf[ZYGOTE_SETTINGS_MAX];
    ssize_t len = recv(ZYGOTE_FD, buf, sizeof(buf) - 1, 0);
    if (len <= 0)
        return err_set(err, CORDON_ERR_INTERNAL, "zygote", errno, "settings");
    int r = zygote_resolve_plan(buf, (size_t)len, err);
    explicit_bzero(buf, (size_t)len);
    zygote_wipe_stack();
    return r;
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

static void zygote_start(void)
{
    static struct zygote_reply reply;
    memset(&reply, 0, sizeof(reply));
    reply.kind = ZYGOTE_START;
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
    else if (backend_native.start(zygote_the_plan, g, &refused, &reply.err) == 0)
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

static _Noreturn void zygote_serve(void)
{
    for (;;) {
        struct zygote_request req;
        ssize_t n = recv(ZYGOTE_FD, &req, sizeof(req), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof(req)) {
            native_again_done();
            _exit(0); /* the supervisor is gone; its guests end with us */
        }
        if (req.kind == ZYGOTE_START)
            zygote_start();
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

/* ---- the module ---- */

static struct zygote_reply zygote_ready;

/* code(magic): the runner as byte code, for interpreters with this magic number only */
static PyObject *module_code(PyObject *self, PyObject *args)
{
    int magic = 0;
    (void)self;
    if (!py.parse(args, "i", &magic))
        return NULL;
    bool same = magic == zygote_code_magic;
    return py.bytes((const char *)zygote_code, same ? (ptrdiff_t)zygote_code_len : 0);
}

/* plan(): the variables its guests will have. Without a plan it says so and ends. */
static PyObject *module_plan(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    prctl(PR_SET_DUMPABLE, 0);
    if (zygote_make_plan(&zygote_ready.err) < 0) {
        zygote_reply(&zygote_ready, NULL, 0);
        _exit(1);
    }
    native_again_init(zygote_the_plan);
    PyObject *list = py.list(0);
    for (char **e = zygote_the_plan->env; list && *e; e++) {
        PyObject *variable = py.bytes(*e, (ptrdiff_t)strlen(*e));
        if (!variable || py.append(list, variable) < 0)
            return NULL;
    }
    return list;
}

/* serve(enter): does not return; enter is called in each guest */
static PyObject *module_serve(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *enter = NULL;
    if (!py.parse(args, "O", &enter) || !zygote_the_plan)
        return NULL;
    zygote_the_plan->enter_data = enter; /* the arguments hold it as long as we are here */
    zygote_ready.ok = 1;
    zygote_reply(&zygote_ready, NULL, 0);
    zygote_serve();
}

PyObject *PyInit_cordon_grade_zygote(void)
{
    static struct py_method methods[] = {{"code", module_code, PY_VARARGS, NULL},
                                         {"plan", module_plan, PY_VARARGS, NULL},
                                         {"serve", module_serve, PY_VARARGS, NULL},
                                         {NULL, NULL, 0, NULL}};
    static struct py_module module = {
        .refs = 1, .name = "cordon_grade_zygote", .size = -1, .methods = methods};
    const struct {
        void **at;
        const char *name;
    } wanted[] = {
        {(void **)&py.module, "PyModule_Create2"},
        {(void **)&py.bytes, "PyBytes_FromStringAndSize"},
        {(void **)&py.list, "PyList_New"},
        {(void **)&py.append, "PyList_Append"},
        {(void **)&py.call, "PyObject_CallFunctionObjArgs"},
        {(void **)&py.parse, "PyArg_ParseTuple"},
        {(void **)&py.print_error, "PyErr_Print"},
        {(void **)&py.after_fork, "PyOS_AfterFork_Child"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (!(*wanted[i].at = dlsym(RTLD_DEFAULT, wanted[i].name)))
            return NULL;
    return py.module(&module, PY_API);
}
