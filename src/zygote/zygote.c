/* A Python interpreter that others are forked from: the part that is not Python.
 *
 * Loaded as an extension module by sitecustomize.py beside it, in an interpreter that was started
 * as `python3 SCRIPT` in a pool's namespaces (backend/native/warm_spawner.c). The function below
 * stands among the path hooks. Python asks it about SCRIPT as the last thing before it runs it;
 * there the interpreter stays and forks. A child goes through the walls, receives its order, runs
 * SCRIPT as Python would, without a frame beneath it, and ends; what it cannot run itself it leaves
 * to Python, by answering as the hook whose place ours has.
 *
 * The forking interpreter runs no code of guests, and reads only fixed-size commands. A child reads
 * its order when every wall stands. Needs no headers of Python: what is used is its stable ABI. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/warm_wire.h"
#include "base/python.h"
#include "zygote/zygote.h"

/* ---- Python's stable ABI ---- */

PyObject *PyModule_Create2(struct py_module *def, int version);
PyObject *PyBytes_FromString(const char *text);
PyObject *PyList_New(ptrdiff_t size);
int PyList_Append(PyObject *list, PyObject *item);
PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
long PyLong_AsLong(PyObject *number);
const char *PyUnicode_AsUTF8AndSize(PyObject *text, ptrdiff_t *size);
int PyArg_ParseTuple(PyObject *args, const char *format, ...);
void PyErr_Print(void);
void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **trace);
void PyErr_NormalizeException(PyObject **type, PyObject **value, PyObject **trace);
int PyErr_ExceptionMatches(PyObject *type);
void PyErr_SetObject(PyObject *type, PyObject *value);
extern PyObject *PyExc_BaseException, *PyExc_KeyboardInterrupt, *PyExc_SystemExit;
extern struct py_object _Py_NoneStruct, PyLong_Type;
PyObject *PyLong_FromLong(long number);
PyObject *PyObject_Type(PyObject *object);
int PyObject_IsInstance(PyObject *object, PyObject *type);
PyObject *PyImport_AddModule(const char *name);
PyObject *PyModule_GetDict(PyObject *module);
PyObject *PyEval_EvalCode(PyObject *code, PyObject *globals, PyObject *locals);
void Py_IncRef(PyObject *object);
void Py_DecRef(PyObject *object);
void PyOS_BeforeFork(void);
void PyOS_AfterFork_Parent(void);
void PyOS_AfterFork_Child(void);
__attribute__((visibility("default"))) PyObject *PyInit_cordon_zygote(void);

#define CLOSE_FROM 3
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static PyObject *zygote_adopt, *zygote_status, *zygote_leave; /* of sitecustomize.py, in children */
static PyObject *zygote_instead;                              /* the hook whose place we have */
static char zygote_script[256], zygote_path[512]; /* as written, and as later Pythons make it */
static char *zygote_environ, *zygote_environ_end; /* what /proc/self/environ shows */
static bool zygote_is_done;                       /* this is a child that has its order */

/* ---- messages ---- */

static ssize_t zygote_recv(int sock, struct iovec *parts, size_t n_parts, int *fds, size_t *n_fds)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * ZYGOTE_FDS_MAX)];
        struct cmsghdr align;
    } control;
    struct msghdr msg = {.msg_iov = parts,
                         .msg_iovlen = n_parts,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;
    *n_fds = 0;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS) {
        *n_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(cmsg), *n_fds * sizeof(int));
    }
    return n;
}

static int zygote_hello(int sock, int listener, bool no_listener)
{
    struct zygote_hello hello = {.pid = getpid(), .no_listener = no_listener};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {&hello, sizeof(hello)};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};
    if (listener >= 0) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof(control.space);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &listener, sizeof(int));
    }
    return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/* ---- through the walls, in a child; any failure ends it, and pid 1 notices ---- */

static void must(long r)
{
    if (r < 0)
        _exit(120);
}

static void walls_groups(const int *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        must(write(entries[i], "0", 1));
    must(unshare(CLONE_NEWCGROUP));
}

static void walls_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno != EINVAL)
                _exit(121);
            break;
        }
    must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    must(syscall(SYS_capset, &header, none));
    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

static int walls_filter(const void *insns, size_t bytes, unsigned flags)
{
    struct sock_fprog prog = {.len = (unsigned short)(bytes / sizeof(struct sock_filter)),
                              .filter = (struct sock_filter *)insns};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

static void walls_seal(const struct zygote_walls *w, const char *filters, int join)
{
    int listener = -1;
    bool no_listener = false;
    if (!w->notify) {
        must(walls_filter(filters, w->filter_bytes, 0));
    } else {
        listener = walls_filter(filters, w->filter_bytes, SECCOMP_FILTER_FLAG_NEW_LISTENER);
        if (listener < 0) {
            if (errno == ENOMEM)
                _exit(122);
            no_listener = true;
            must(walls_filter(filters + w->filter_bytes, w->quiet_bytes, 0));
        }
    }
    must(zygote_hello(join, listener, no_listener));
    if (listener >= 0)
        close(listener);
}

/* The guest's own user namespace last: the others belong to the pool, and no right in it reaches
 * them. */
static void walls_spaces(const int *fds)
{
    static const int kinds[ZYGOTE_SPACES] = {CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET,
                                             CLONE_NEWUSER};
    for (int i = 0; i < ZYGOTE_SPACES; i++)
        must(setns(fds[i], kinds[i]));
}

static void walls_enter(int join)
{
    static char filters[2 * ZYGOTE_FILTER_MAX] __attribute__((aligned(8)));
    struct zygote_walls w;
    struct iovec parts[2] = {{&w, sizeof(w)}, {filters, sizeof(filters)}};
    int fds[ZYGOTE_FDS_MAX];
    size_t n_fds, at = ZYGOTE_SPACES;
    ssize_t n = zygote_recv(join, parts, 2, fds, &n_fds);
    if (n < (ssize_t)sizeof(w) || (size_t)n != sizeof(w) + w.filter_bytes + w.quiet_bytes ||
        n_fds != ZYGOTE_SPACES + w.has_fence + w.has_time + w.n_entries)
        _exit(123);
    int fence = w.has_fence ? fds[at++] : -1;
    int clocks = w.has_time ? fds[at++] : -1;
    walls_spaces(fds);
    if (clocks >= 0)
        must(setns(clocks, CLONE_NEWTIME));
    must(syscall(SYS_setresgid, w.gid, w.gid, w.gid));
    must(syscall(SYS_setresuid, w.uid, w.uid, w.uid));
    must(chdir(w.cwd));
    must(setsid());
    syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, NULL);
    umask(022);
    walls_groups(fds + at, w.n_entries);
    walls_capabilities();
    if (fence >= 0)
        must(syscall(446, fence, 0));
    /* only the streams and the socket, which gets the lowest number */
    must(dup3(join, CLOSE_FROM, O_CLOEXEC));
    must(syscall(SYS_close_range, CLOSE_FROM + 1, ~0U, 0));
    must(prctl(PR_SET_DUMPABLE, 1));
    walls_seal(&w, filters, CLOSE_FROM);
}

/* ---- the order ---- */

/* Where the kernel put our own variables. Nothing refers to them once adopt() has replaced all. */
static void environ_find(void)
{
    char text[1024], *at;
    unsigned long start = 0, end = 0;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    at = strrchr(text, ')');
    for (int field = 2; at && field < 50; field++)
        at = strchr(at + 1, ' ');
    if (!at || sscanf(at, "%lu %lu", &start, &end) != 2 || start == 0 || end <= start)
        return;
    zygote_environ = (char *)start;
    zygote_environ_end = (char *)end;
}

/* As many of the guest's as fit, in the place of ours. */
static void environ_show(const char *base, size_t len, uint64_t at, uint64_t n)
{
    const uint64_t *offsets = (const uint64_t *)(const void *)(base + at);
    char *to = zygote_environ;
    if (!to)
        return;
    memset(to, 0, (size_t)(zygote_environ_end - to));
    for (uint64_t i = 0; i < n && offsets[i] < len; i++) {
        size_t size = strlen(base + offsets[i]) + 1;
        if (size > (size_t)(zygote_environ_end - to))
            return;
        memcpy(to, base + offsets[i], size);
        to += size;
    }
}

static PyObject *order_list(const char *base, size_t len, uint64_t at, uint64_t n)
{
    PyObject *list = PyList_New(0);
    const uint64_t *offsets = (const uint64_t *)(const void *)(base + at);
    for (uint64_t i = 0; list && i < n; i++) {
        PyObject *word = offsets[i] < len ? PyBytes_FromString(base + offsets[i]) : NULL;
        if (!word || PyList_Append(list, word) < 0)
            return NULL;
    }
    return list;
}

/* What adopt() made of it. */
static PyObject *order_take(int join)
{
    static char body[WARM_INLINE_MAX] __attribute__((aligned(8)));
    struct warm_order order;
    struct iovec parts[2] = {{&order, sizeof(order)}, {body, sizeof(body)}};
    int fds[ZYGOTE_FDS_MAX];
    size_t n_fds;
    if (zygote_recv(join, parts, 2, fds, &n_fds) < (ssize_t)sizeof(order) ||
        n_fds != order.is_memfd)
        _exit(0); /* not wanted any more */
    char *bytes = body;
    if (order.is_memfd) {
        bytes = mmap(NULL, order.len, PROT_READ, MAP_PRIVATE, fds[0], 0);
        if (bytes == MAP_FAILED)
            _exit(124);
        close(fds[0]);
    }
    const struct warm_order_body *b = (const void *)bytes;
    PyObject *argv = order_list(bytes, order.len, b->argv, b->n_argv);
    PyObject *env = order_list(bytes, order.len, b->env, b->n_env);
    PyObject *r = argv && env
                      ? PyObject_CallFunctionObjArgs(zygote_adopt, argv, env, (PyObject *)NULL)
                      : NULL;
    if (!r) {
        PyErr_Print();
        _exit(125);
    }
    environ_show(bytes, order.len, b->env, b->n_env);
    if (order.is_memfd)
        munmap(bytes, order.len);
    else
        memset(body, 0, sizeof(body)); /* what the guest changes in its variables is changed */
    return r;
}

/* Runs the code and ends the process. No frame of Python lies beneath it. */
static void order_run(PyObject *code)
{
    PyObject *names = PyModule_GetDict(PyImport_AddModule("__main__"));
    PyObject *type = PyObject_Type(code), *value = NULL, *trace = NULL, *done = NULL;
    long status = 0;
    if (PyObject_IsInstance(code, PyExc_BaseException) == 1)
        PyErr_SetObject(type, code);
    else
        done = PyEval_EvalCode(code, names, names);
    bool interrupted = !done && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    if (!done && PyErr_ExceptionMatches(PyExc_SystemExit)) {
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        PyObject *r = PyObject_CallFunctionObjArgs(zygote_status, value, (PyObject *)NULL);
        status = r ? PyLong_AsLong(r) : 1;
        Py_DecRef(type);
        Py_DecRef(value);
        Py_DecRef(trace);
    } else if (!done) {
        PyErr_Print();
        status = interrupted ? 130 : 1;
    }
    PyObject *number = PyLong_FromLong(status);
    if (interrupted) {
        signal(SIGINT, SIG_DFL);
        kill(getpid(), SIGINT);
    }
    PyObject_CallFunctionObjArgs(zygote_leave, number, (PyObject *)NULL);
    PyErr_Print();
    _exit(1);
}

static void zygote_child(const int *fds)
{
    PyOS_AfterFork_Child();
    for (int i = 0; i < 3; i++)
        must(dup2(fds[2 + i], i));
    walls_enter(fds[1]);
    PyObject *code = order_take(CLOSE_FROM);
    zygote_is_done = true;
    if (PyObject_IsInstance(code, (PyObject *)&PyLong_Type) == 1) {
        char refused = ZYGOTE_REFUSED;
        must(send(CLOSE_FROM, &refused, 1, MSG_NOSIGNAL));
        _exit((int)PyLong_AsLong(code));
    }
    close(CLOSE_FROM);
    if (code != &_Py_NoneStruct)
        order_run(code);
}

/* One fork of the large process: the first one shares our memory and only stands in the guest's pid
 * namespace, so that the second one's child is an orphan there and its pid 1 takes it. */
static bool zygote_fork(const int *fds)
{
    if (setns(fds[0], CLONE_NEWPID) < 0)
        return false;
    PyOS_BeforeFork();
    pid_t between = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork): a fork copies us
    if (between == 0) {
        pid_t pid = fork(); // NOLINT(clang-analyzer-unix.Vfork): a bare system call, no handlers
        if (pid != 0)
            _exit(pid < 0 ? 1 : 0);
        zygote_child(fds);
        return true;
    }
    PyOS_AfterFork_Parent();
    while (between > 0 && waitpid(between, NULL, 0) < 0 && errno == EINTR)
        ;
    return false;
}

static void zygote_serve(void)
{
    for (;;) {
        struct zygote_fork m;
        struct iovec part = {&m, sizeof(m)};
        int fds[ZYGOTE_FDS_MAX];
        size_t n_fds;
        if (zygote_recv(ZYGOTE_SOCKET, &part, 1, fds, &n_fds) != sizeof(m) ||
            m.magic != ZYGOTE_MAGIC || n_fds != ZYGOTE_FORK_FDS)
            _exit(0);
        if (zygote_fork(fds))
            return;
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
    }
}

/* hook(path): only SCRIPT is ours, once; the answer is always that of the hook whose place in
 * Python's list we have (the list must not change while it is asked). */
static PyObject *zygote_hook(PyObject *self, PyObject *args)
{
    const char *path = NULL;
    PyObject *asked = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "O", &asked) || !(path = PyUnicode_AsUTF8AndSize(asked, NULL)))
        return NULL;
    if (!zygote_is_done && (strcmp(path, zygote_script) == 0 || strcmp(path, zygote_path) == 0))
        zygote_serve();
    return PyObject_CallFunctionObjArgs(zygote_instead, asked, (PyObject *)NULL);
}

/* prepare(script, its absolute path, adopt, status, leave, the hook in whose place ours goes) */
static PyObject *zygote_prepare(PyObject *self, PyObject *args)
{
    const char *script = NULL, *path = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "ssOOOO", &script, &path, &zygote_adopt, &zygote_status,
                          &zygote_leave, &zygote_instead))
        return NULL;
    PyObject *const kept[] = {zygote_adopt, zygote_status, zygote_leave, zygote_instead};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        Py_IncRef(kept[i]);
    environ_find();
    strncpy(zygote_path, path, sizeof(zygote_path) - 1);
    strncpy(zygote_script, script, sizeof(zygote_script) - 1);
    return PyList_New(0);
}

PyObject *PyInit_cordon_zygote(void)
{
    static struct py_method methods[] = {{"hook", zygote_hook, PY_VARARGS, NULL},
                                         {"prepare", zygote_prepare, PY_VARARGS, NULL},
                                         {NULL, NULL, 0, NULL}};
    static struct py_module module = {
        .refs = 1, .name = "cordon_zygote", .size = -1, .methods = methods};
    return PyModule_Create2(&module, PY_API);
}
