/* The Docker engine's API, call by call. Runs in `cordon-docker`. */
#include "backend/docker/engine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/util.h"

int engine_open(struct engine *e, struct cordon_err *err)
{
    const char *verify = getenv("DOCKER_TLS_VERIFY"), *tls = getenv("DOCKER_TLS");
    if (http_parse_host(getenv("DOCKER_HOST"), &e->host, err) < 0)
        return -1;
    if (e->host.tcp && !e->host.plain && ((verify && *verify) || (tls && *tls)))
        e->host.tls = true;
    return 0;
}

/* "1.41" → 141 */
int engine_check_version(const char *api_version, struct cordon_err *err)
{
    char *dot;
    long major = strtol(api_version, &dot, 10);
    long minor = *dot == '.' ? strtol(dot + 1, NULL, 10) : 0;
    if (!*api_version || major * 100 + minor >= ENGINE_API_MIN)
        return 0;
    return err_set(err, CORDON_ERR_HOST, "docker", 0,
                   "the Docker engine is too old: it speaks API %s, 1.40 is needed", api_version);
}

int engine_call(const struct engine *e, const char *method, const char *path,
                const struct buf *body, int timeout_ms, struct buf *out, struct cordon_err *err)
{
    struct http h = HTTP_INIT;
    _cleanup_buf_ struct buf drop = BUF_INIT(HTTP_BODY_MAX);
    int status = -1;
    if (http_open(&h, &e->host, timeout_ms, err) < 0)
        return -1;
    /* an engine that refuses early hangs up before it has read everything, and has said why */
    struct cordon_err sent = {0};
    bool cut = http_send(&h, method, path, body ? "application/json" : NULL,
                         body ? body->data : NULL, body ? body->len : 0, false, &sent) < 0;
    if (http_read_head(&h, err) == 0 && http_read_body(&h, out ? out : &drop, err) == 0 &&
        engine_check_version(h.api_version, err) == 0)
        status = h.status;
    if (cut && (status < 0 || status / 100 == 2)) {
        *err = sent;
        status = -1;
    }
    http_close(&h);
    return status;
}

int engine_parse(const struct buf *text, struct arena *arena, const struct jsonr_node **ret_root,
                 struct cordon_err *err)
{
    struct jsonr_source source = {.name = "the Docker engine's answer",
                                  .text = text->data ? text->data : "",
                                  .len = text->len,
                                  .max_bytes = HTTP_BODY_MAX,
                                  .code = CORDON_ERR_INTERNAL,
                                  .stage = "docker"};
    return jsonr_parse(&source, arena, ret_root, err);
}

int engine_fail(int status, const struct buf *answer, const char *what, struct cordon_err *err)
{
    struct arena arena = {0};
    struct cordon_err drop;
    const struct jsonr_node *root = NULL;
    const char *text = NULL;
    if (engine_parse(answer, &arena, &root, &drop) == 0)
        text = jsonr_cstr(jsonr_get(root, "message"));
    if (text)
        err_set(err, CORDON_ERR_HOST, "docker", 0, "%s: %.800s", what, text);
    else
        err_set(err, CORDON_ERR_HOST, "docker", 0, "%s: the engine answers with status %d", what,
                status);
    for (char *c = err->message; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    arena_done(&arena);
    return -1;
}

int engine_ask(const struct engine *e, const char *method, const char *path, const struct buf *body,
               struct buf *out, const char *what, struct cordon_err *err)
{
    _cleanup_buf_ struct buf own = BUF_INIT(HTTP_BODY_MAX);
    int status = engine_call(e, method, path, body, ENGINE_SLOW_MS, out ? out : &own, err);
    if (status < 0)
        return -1;
    return status / 100 == 2 ? 0 : engine_fail(status, out ? out : &own, what, err);
}

void engine_escape(struct buf *out, const char *value)
{
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (isalnum(c) || strchr("-_.~", c))
            buf_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

int engine_remove(const struct engine *e, const char *name, struct cordon_err *err)
{
    char path[160];
    _cleanup_buf_ struct buf answer = BUF_INIT(65536);
    snprintf(path, sizeof(path), "/containers/%s?force=1&v=1", name);
    int status = engine_call(e, "DELETE", path, NULL, ENGINE_CALL_MS, &answer, err);
    if (status < 0)
        return -1;
    /* 409: somebody, often the engine itself, is removing it already */
    if (status / 100 == 2 || status == 404 || status == 409)
        return 0;
    return engine_fail(status, &answer, "container could not be removed", err);
}

int engine_kill(const struct engine *e, const char *name, const char *signal,
                struct cordon_err *err)
{
    char path[160];
    _cleanup_buf_ struct buf answer = BUF_INIT(65536);
    snprintf(path, sizeof(path), "/containers/%s/kill?signal=%s", name, signal);
    int status = engine_call(e, "POST", path, NULL, ENGINE_CALL_MS, &answer, err);
    if (status < 0)
        return -1;
    if (status / 100 == 2 || status == 404 || status == 409)
        return 0;
    return engine_fail(status, &answer, "container could not be killed", err);
}
