/* One container: create, attach, wait, start, carry bytes, end, remove. Runs in `cordon-docker
 * run`, one process per guest.
 *
 * Whatever happens the container goes: the engine removes it when it ends, we remove it when we are
 * told to or when the supervisor is gone, the supervisor asks again should we die, and its own pid
 * 1 ends it should all of Cordon be dead. */
#include "backend/docker/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fdsend.h"
#include "base/jsonw.h"
#include "base/sys.h"
#include "base/util.h"
#include "plan/plan.h"

#define SESSION_PATIENCE_NS (300 * UINT64_C(1000000)) /* for pid 1 to end everything by itself */
#define SESSION_END_NS (30 * UINT64_C(1000000000))    /* after a kill the engine may take so long */

static void session_say(struct helper_message *m, int fd)
{
    union helper_rights rights = {0};
    struct iovec iov = {m, sizeof(*m)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    m->magic = HELPER_MAGIC;
    if (fd >= 0) {
        msg.msg_control = rights.space;
        msg.msg_controllen = sizeof(rights.space);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        *cmsg = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    }
    (void)fdsend(HELPER_CONTROL_FD, &msg, 0);
}

static void session_fail(const struct cordon_err *err)
{
    struct helper_message m = {.type = HELPER_FAILED, .err = *err};
    session_say(&m, -1);
}

/* What the engine warns of is a limit it will not hold: refused, never weakened. */
static int session_check_warnings(const struct jsonr_node *root, struct cordon_err *err)
{
    for (const struct jsonr_node *n = jsonr_first(jsonr_get(root, "Warnings")); n; n = n->next) {
        const char *text = jsonr_cstr(n);
        if (!text)
            continue;
        if (strstr(text, "platform"))
            return err_set(err, CORDON_ERR_HOST, "docker", 0,
                           "the image is of another architecture: %.600s", text);
        if (strstr(text, "iscarded") || strstr(text, "not support") || strstr(text, "ignored"))
            return err_set(err, CORDON_ERR_HOST, "docker", 0,
                           "the Docker engine cannot hold a limit: %.600s", text);
    }
    return 0;
}

static int session_create_failed(const struct session *s, int status, const struct buf *answer,
                                 struct cordon_err *err)
{
    engine_fail(status, answer, "container could not be created", err);
    if (status == 404 && strstr(err->message, "image"))
        return err_set(err, CORDON_ERR_HOST, "docker", 0,
                       "Image not found: %s (cordon image build makes it)", s->request.image);
    if (strstr(err->message, "nknown runtime") || strstr(err->message, "runtime name"))
        err_hint(err, "register the runtime with the engine (daemon.json, \"runtimes\")");
    return -1;
}

static int session_create(struct session *s, const char *init_path, struct cordon_err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(8 << 20), answer = BUF_INIT(1 << 20);
    char path[128];
    if (create_body(&s->request, init_path, &s->binds, &body, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/containers/create?name=%s", s->request.name);
    int status = engine_call(&s->engine, "POST", path, &body, ENGINE_SLOW_MS, &answer, err);
    if (status < 0)
        return -1;
    if (status != 201)
        return session_create_failed(s, status, &answer, err);
    struct arena arena = {0};
    const struct jsonr_node *root;
    int r = engine_parse(&answer, &arena, &root, err);
    const char *id = r == 0 ? jsonr_cstr(jsonr_get(root, "Id")) : NULL;
    if (r == 0 && (!id || strlen(id) >= sizeof(s->id)))
        r = err_set(err, CORDON_ERR_INTERNAL, "docker", 0, "the Docker engine's answer has no Id");
    if (r == 0) {
        strcpy(s->id, id);
        r = session_check_warnings(root, err);
    }
    arena_done(&arena);
    return r;
}

/* Two connections that stay: the streams, and the question when it is over. */
static int session_connect(struct session *s, struct cordon_err *err)
{
    char path[160];
    _cleanup_buf_ struct buf answer = BUF_INIT(1 << 20);
    snprintf(path, sizeof(path), "/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1", s->id);
    if (http_open(&s->attach, &s->engine.host, ENGINE_CALL_MS, err) < 0 ||
        http_send(&s->attach, "POST", path, NULL, NULL, 0, true, err) < 0 ||
        http_read_head(&s->attach, err) < 0)
        return -1;
    if (s->attach.status != 101 && s->attach.status != 200) {
        if (http_read_body(&s->attach, &answer, err) < 0)
            return -1;
        return engine_fail(s->attach.status, &answer, "container could not be attached to", err);
    }
    snprintf(path, sizeof(path), "/containers/%s/wait?condition=removed", s->id);
    if (http_open(&s->wait, &s->engine.host, ENGINE_CALL_MS, err) < 0 ||
        http_send(&s->wait, "POST", path, NULL, NULL, 0, false, err) < 0 ||
        http_read_head(&s->wait, err) < 0)
        return -1;
    if (s->wait.status / 100 != 2) {
        if (http_read_body(&s->wait, &answer, err) < 0)
            return -1;
        return engine_fail(s->wait.status, &answer, "container could not be waited for", err);
    }
    return 0;
}

/* A command in a container that is kept. -1: it could not be begun there. */
static int session_inside_engine(struct session *s, struct cordon_err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(4096), answer = BUF_INIT(1 << 20);
    char path[160];
    struct jsonw j = {.out = &body};
    jsonw_open(&j, NULL, '{');
    jsonw_bool(&j, "AttachStdin", true);
    jsonw_bool(&j, "AttachStdout", true);
    jsonw_bool(&j, "AttachStderr", true);
    if (s->request.block_internal || s->request.gvisor) {
        struct binds ids;
        binds_ids(&ids, &s->request);
        order_user(s, &ids);
        jsonw_str(&j, "User", "0:0"); /* for as long as it takes to empty the bounding set */
    }
    jsonw_open(&j, "Cmd", '[');
    jsonw_str(&j, NULL, INIT_PATH);
    jsonw_close(&j, ']');
    jsonw_close(&j, '}');
    snprintf(path, sizeof(path), "/containers/%.64s/exec", s->request.inside);
    if (engine_ask(&s->engine, "POST", path, &body, &answer, "no command could be begun", err) < 0)
        return -1;
    struct arena arena = {0};
    const struct jsonr_node *root;
    const char *id =
        engine_parse(&answer, &arena, &root, err) == 0 ? jsonr_cstr(jsonr_get(root, "Id")) : NULL;
    snprintf(path, sizeof(path), "/exec/%.100s/start", id ? id : "");
    arena_done(&arena);
    static const char start[] = "{\"Detach\":false,\"Tty\":false}";
    if (!id || http_open(&s->attach, &s->engine.host, ENGINE_CALL_MS, err) < 0 ||
        http_send(&s->attach, "POST", path, "application/json", start, sizeof(start) - 1, true,
                  err) < 0 ||
        http_read_head(&s->attach, err) < 0 || (s->attach.status != 101 && s->attach.status != 200))
        return -1;
    s->inside = true;
    snprintf(s->id, sizeof(s->id), "%.64s", s->request.inside);
    size_t early = s->attach.in.len - s->attach.in_done;
    return stdio_begin(&s->stdio, s->attach.fd, s->attach.in.data + s->attach.in_done, early);
}

/* Straight to its pid 1, where there is a way. */
static int session_inside(struct session *s, struct cordon_err *err)
{
    if (channel_begin(&s->stdio) < 0)
        return session_inside_engine(s, err);
    s->inside = true;
    snprintf(s->id, sizeof(s->id), "%.64s", s->request.inside);
    return 0;
}

static int session_start(struct session *s, struct cordon_err *err)
{
    char path[128];
    snprintf(path, sizeof(path), "/containers/%s/start", s->id);
    size_t early = s->attach.in.len - s->attach.in_done;
    if (stdio_begin(&s->stdio, s->attach.fd, s->attach.in.data + s->attach.in_done, early) < 0)
        return err_nomem(err, "docker");
    if (s->holds) { /* its input stays open for as long as we live */
        s->stdio.in_fd = -1;
        s->stdio.in_closed = true;
    }
    return engine_ask(&s->engine, "POST", path, NULL, NULL, "container could not be started", err);
}

static void session_force(struct session *s)
{
    struct cordon_err drop;
    s->forced = true;
    if (s->inside) {
        char clear[16];
        snprintf(clear, sizeof(clear), "%d", INIT_CLEAR_SIGNAL);
        (void)engine_kill(&s->engine, s->id, clear, &drop);
        return;
    }
    if (engine_kill(&s->engine, s->id, "KILL", &drop) < 0)
        engine_remove(&s->engine, s->id, &drop);
}

static void session_kill(struct session *s)
{
    struct cordon_err drop;
    if (s->killed)
        return;
    s->killed = true;
    s->killed_ns = clock_ns();
    char signal[16];
    snprintf(signal, sizeof(signal), "%d", INIT_END_SIGNAL);
    if (!s->stdio.started || s->inside || engine_kill(&s->engine, s->id, signal, &drop) < 0)
        session_force(s);
}

/* What pid 1 sends is not kept any more: it need not go on. The engine answers when the container
 * has ended, which it does when somebody has read what is on its way: that is us, so a child asks.
 */
static void session_check_files(struct session *s)
{
    if (!s->files.failed || s->forced)
        return;
    if (!s->killed)
        s->killed_ns = clock_ns();
    s->killed = s->forced = true;
    if (fork() != 0)
        return;
    sys_close_range(0, ~0u); /* the guest's streams end with us */
    for (int i = 0; i < 3; i++)
        (void)!open("/dev/null", O_RDWR);
    session_force(s);
    _exit(0);
}

/* pid 1 was told to end everything; when it does not, the engine does. */
static int session_check_end(struct session *s, struct cordon_err *err)
{
    uint64_t now = clock_ns();
    if (!s->killed)
        return 0;
    /* what it sends when everything has ended takes as long as it takes */
    bool sends = s->stdio.ended && s->stdio.files && s->control_open;
    if (!s->forced && !sends && now >= s->killed_ns + SESSION_PATIENCE_NS)
        session_force(s);
    if (now >= s->killed_ns + SESSION_END_NS)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", 0,
                       "the Docker engine did not end the container");
    return 0;
}

static void session_listen(struct session *s)
{
    struct helper_message m;
    char signal[16];
    struct cordon_err drop;
    ssize_t n = recv(HELPER_CONTROL_FD, &m, sizeof(m), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        s->control_open = false;
        session_kill(s);
    } else if (n == (ssize_t)sizeof(m) && m.magic == HELPER_MAGIC) {
        if (m.type == HELPER_KILL)
            session_kill(s);
        if (m.type == HELPER_SIGNAL && !s->inside) {
            snprintf(signal, sizeof(signal), "%d", m.signal);
            (void)engine_kill(&s->engine, s->id, signal, &drop);
        }
    }
}

/* The answer to the question when it is over. -1: the engine is gone. */
static int session_take_end(struct session *s, struct cordon_err *err)
{
    _cleanup_buf_ struct buf answer = BUF_INIT(65536);
    s->wait.deadline_ns = clock_ns() + ENGINE_CALL_MS * UINT64_C(1000000);
    if (http_read_body(&s->wait, &answer, err) < 0)
        return -1;
    struct arena arena = {0};
    const struct jsonr_node *root;
    int64_t code = -1;
    int r = engine_parse(&answer, &arena, &root, err);
    if (r == 0 && jsonr_int64(jsonr_get(root, "StatusCode"), &code))
        s->exit_code = (int)code;
    arena_done(&arena);
    s->gone = true;
    return r;
}

static int session_step(struct session *s, struct cordon_err *err)
{
    struct pollfd fds[STDIO_FDS + 2];
    stdio_poll(&s->stdio, fds);
    struct pollfd *control = &fds[STDIO_FDS], *wait = control + 1;
    *control = (struct pollfd){.fd = s->control_open ? HELPER_CONTROL_FD : -1, .events = POLLIN};
    *wait = (struct pollfd){.fd = s->gone || s->inside ? -1 : s->wait.fd, .events = POLLIN};
    if (poll(fds, ARRAY_SIZE(fds), s->killed ? 50 : -1) < 0)
        return errno == EINTR ? 0 : err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "poll");
    if (stdio_step(&s->stdio, fds) < 0)
        return err_nomem(err, "docker");
    session_check_files(s);
    if (s->stdio.started && !s->started_ns) {
        struct helper_message m = {.type = HELPER_STARTED, .time_ns = clock_ns()};
        _cleanup_close_ int channel = s->holds ? channel_accept(&s->channel) : -1;
        s->started_ns = m.time_ns;
        session_say(&m, channel);
    }
    if (control->revents)
        session_listen(s);
    if (wait->revents && session_take_end(s, err) < 0)
        return -1;
    if (s->inside && s->stdio.attach_ended && !s->gone) {
        s->gone = true; /* as far as we are concerned */
        s->ended_ns = clock_ns();
    }
    return session_check_end(s, err);
}

static int session_loop(struct session *s, struct cordon_err *err)
{
    while (!s->gone || !stdio_is_drained(&s->stdio)) {
        if (session_step(s, err) < 0)
            return -1;
        /* a supervisor that is gone reads no output */
        if (s->gone && !s->control_open)
            break;
    }
    return 0;
}

/* Our pid 1 lies beside us. */
static int session_init_path(char *path, size_t size, struct cordon_err *err)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 16);
    if (n <= 0)
        return err_set(err, CORDON_ERR_HOST, "docker", errno, "/proc/self/exe");
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, "cordon-init");
    if (access(path, X_OK) < 0)
        return err_set(err, CORDON_ERR_HOST, "docker", errno, "%.900s", path);
    return 0;
}

static int session_all(struct session *s, struct cordon_err *err)
{
    char init_path[4096];
    clock_gettime(CLOCK_REALTIME, &s->began);
    if (request_read(HELPER_REQUEST_FD, &s->request, err) < 0)
        return -1;
    if (s->request.sends_files && !s->holds) {
        if (files_open(&s->files, s->request.scratch_bytes, s->request.scratch_inodes, err) < 0)
            return -1;
        s->stdio.files = &s->files;
    }
    if ((s->holds ? order_hold(s, err) : order_take(s, err)) < 0 ||
        session_init_path(init_path, sizeof(init_path), err) < 0 ||
        engine_open(&s->engine, err) < 0)
        return -1;
    /* a kept container that is gone: one of its own does as well */
    if (s->request.inside && session_inside(s, err) == 0)
        return session_loop(s, err);
    if (s->inside)
        return -1;
    http_close(&s->attach);
    s->attach = HTTP_INIT;
    if (binds_prepare(&s->binds, &s->request, err) < 0 || order_guard(s, err) < 0)
        return -1;
    order_user(s, &s->binds);
    if (s->holds)
        channel_open(&s->channel);
    s->binds.channel = s->channel.dir[0] ? s->channel.dir : NULL;
    if (session_create(s, init_path, err) < 0 || session_connect(s, err) < 0 ||
        session_start(s, err) < 0)
        return -1;
    binds_release(&s->binds);
    return session_loop(s, err);
}

int session_hold(void)
{
    struct session s = {.attach = HTTP_INIT,
                        .wait = HTTP_INIT,
                        .files = FILES_INIT,
                        .channel = {.listen_fd = -1, .lock_fd = -1},
                        .control_open = true,
                        .holds = true,
                        .exit_code = -1};
    struct cordon_err err = {0}, drop;
    prctl(PR_SET_DUMPABLE, 0);
    (void)session_all(&s, &err);
    binds_release(&s.binds);
    channel_hide(&s.channel);
    if (s.id[0] && !s.gone)
        engine_remove(&s.engine, s.id, &drop);
    return 0;
}

int session_run(void)
{
    struct session s = {.attach = HTTP_INIT,
                        .wait = HTTP_INIT,
                        .files = FILES_INIT,
                        .channel = {.listen_fd = -1, .lock_fd = -1},
                        .control_open = true,
                        .exit_code = -1};
    struct cordon_err err = {0}, drop;
    prctl(PR_SET_DUMPABLE, 0); /* the request may hold the caller's secrets */
    int r = session_all(&s, &err);
    binds_release(&s.binds);
    if (s.id[0] && !s.gone && !s.inside)
        engine_remove(&s.engine, s.id, &drop);
    if (s.inside && !s.stdio.ended && !s.forced)
        session_force(
            &s); /* its own pid 1 is gone without a word: what it watched over may not be */
    if (r < 0) {
        session_fail(&err);
    } else {
        struct helper_message m = {0};
        outcome_fill(&s, &m);
        session_say(&m, m.type == HELPER_DONE ? m.outcome.cwd_fd : -1);
    }
    http_close(&s.attach);
    http_close(&s.wait);
    files_close(&s.files);
    stdio_done(&s.stdio);
    request_done(&s.request);
    return 0;
}
