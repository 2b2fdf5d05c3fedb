/* Calls of the Docker engine's API, each one request with a deadline. Used by `cordon-docker`. */
#ifndef BACKEND_DOCKER_ENGINE_H
#define BACKEND_DOCKER_ENGINE_H

#include "backend/docker/http.h"
#include "base/arena.h"
#include "base/jsonr.h"

#define ENGINE_IMAGE "cordon-sandbox:latest"
#define ENGINE_LABEL "cordon"
#define ENGINE_API_MIN 140 /* 1.40: Docker 19.03 */
#define ENGINE_CALL_MS 30000
#define ENGINE_SLOW_MS 120000 /* create and start on a busy machine */

struct engine {
    struct http_host host;
};

/* From DOCKER_HOST. */
int engine_open(struct engine *e, struct cordon_err *err);

/* One call. The body (may be NULL) is JSON; the answer's text goes to *out (may be NULL) whatever
 * the status, which is returned; -1: no answer, err is set. */
int engine_call(const struct engine *e, const char *method, const char *path,
                const struct buf *body, int timeout_ms, struct buf *out, struct cordon_err *err);
/* The same, with anything but 2xx as an error in the engine's own words behind `what`. */
int engine_ask(const struct engine *e, const char *method, const char *path, const struct buf *body,
               struct buf *out, const char *what, struct cordon_err *err);
/* Error from an answer that is not 2xx. */
int engine_fail(int status, const struct buf *answer, const char *what, struct cordon_err *err);
/* Is the engine's API new enough? */
int engine_check_version(const char *api_version, struct cordon_err *err);

/* Parses an answer. */
int engine_parse(const struct buf *text, struct arena *arena, const struct jsonr_node **ret_root,
                 struct cordon_err *err);
/* Appends a value for a query string. */
void engine_escape(struct buf *out, const char *value);

/* Removes a container, running or not, and its anonymous volumes; one that is gone is no error. */
int engine_remove(const struct engine *e, const char *name, struct cordon_err *err);
/* Ends its processes; one that is not running is no error. */
int engine_kill(const struct engine *e, const char *name, const char *signal,
                struct cordon_err *err);

#endif
