/* Images and containers of ours: found by label, made from an archive, removed. Runs in
 * `cordon-docker image`. */
#include "backend/docker/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

#define IMAGE_IMPORT_MS 900000 /* a slow disk, a large root */

static void image_copy(char *ret, size_t size, const struct jsonr_node *node)
{
    const char *text = jsonr_cstr(node);
    snprintf(ret, size, "%s", text ? text : "");
}

int image_find(const struct engine *e, const char *name, struct image_info *ret_info,
               bool *ret_found, struct cordon_err *err)
{
    _cleanup_buf_ struct buf path = BUF_INIT(1024), answer = BUF_INIT(HTTP_BODY_MAX);
    buf_str(&path, "/images/");
    engine_escape(&path, name);
    buf_str(&path, "/json");
    if (path.failed)
        return err_nomem(err, "docker");
    int status = engine_call(e, "GET", path.data, NULL, ENGINE_CALL_MS, &answer, err);
    if (status < 0)
        return -1;
    *ret_found = status == 200;
    if (status == 404)
        return 0;
    if (status != 200)
        return engine_fail(status, &answer, "image could not be looked at", err);
    struct arena arena = {0};
    const struct jsonr_node *root;
    int r = engine_parse(&answer, &arena, &root, err);
    if (r == 0) {
        struct image_info info = {0};
        image_copy(info.id, sizeof(info.id), jsonr_get(root, "Id"));
        image_copy(info.created, sizeof(info.created), jsonr_get(root, "Created"));
        (void)jsonr_uint64(jsonr_get(root, "Size"), &info.bytes);
        const struct jsonr_node *labels = jsonr_get(jsonr_get(root, "Config"), "Labels");
        image_copy(info.recipe, sizeof(info.recipe), jsonr_get(labels, IMAGE_RECIPE_LABEL));
        *ret_info = info;
    }
    arena_done(&arena);
    return r;
}

static void import_path(struct buf *path, const char *name, const char *recipe)
{
    static const char label[] = "LABEL " ENGINE_LABEL "=image";
    static const char *const changes[] = {
        label,
        "USER 1000:1000",
        "WORKDIR /home/sandbox",
        "ENV PATH=/usr/local/bin:/usr/bin:/bin",
        "CMD [\"/bin/bash\"]",
    };
    const char *colon = strrchr(name, ':');
    char text[160];
    buf_str(path, "/images/create?fromSrc=-&repo=");
    snprintf(text, sizeof(text), "%.*s", (int)(colon ? colon - name : (int)strlen(name)), name);
    engine_escape(path, text);
    buf_str(path, "&tag=");
    engine_escape(path, colon ? colon + 1 : "latest");
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
        buf_str(path, "&changes=");
        engine_escape(path, changes[i]);
    }
    snprintf(text, sizeof(text), "LABEL " IMAGE_RECIPE_LABEL "=%.80s", recipe);
    buf_str(path, "&changes=");
    engine_escape(path, text);
}

static int import_send(struct http *h, int tar_fd,
                       void (*on_progress)(uint64_t done, uint64_t total), struct cordon_err *err)
{
    char chunk[262144];
    struct stat st = {0};
    uint64_t done = 0;
    ssize_t n;
    (void)fstat(tar_fd, &st);
    while ((n = read(tar_fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "archive");
        if (http_send_chunk(h, chunk, (size_t)n, err) < 0)
            return -1;
        done += (uint64_t)n;
        if (on_progress)
            on_progress(done, (uint64_t)st.st_size);
    }
    return http_send_chunk(h, "", 0, err);
}

/* The engine answers 200 first and reports a failure in a line of its progress. */
static int import_check(const struct buf *answer, struct cordon_err *err)
{
    const char *at = answer->data ? strstr(answer->data, "\"error\":\"") : NULL;
    if (!at)
        return 0;
    at += strlen("\"error\":\"");
    return err_set(err, CORDON_ERR_HOST, "docker", 0, "image could not be made: %.*s",
                   (int)MIN(strcspn(at, "\""), 700u), at);
}

int image_import(const struct engine *e, const char *name, int tar_fd, const char *recipe,
                 void (*on_progress)(uint64_t done, uint64_t total), struct cordon_err *err)
{
    _cleanup_buf_ struct buf path = BUF_INIT(4096), answer = BUF_INIT(HTTP_BODY_MAX);
    struct http h = HTTP_INIT;
    import_path(&path, name, recipe);
    if (path.failed)
        return err_nomem(err, "docker");
    int r = -1;
    if (http_open(&h, &e->host, IMAGE_IMPORT_MS, err) == 0 &&
        http_send(&h, "POST", path.data, "application/x-tar", NULL, 0, false, err) == 0) {
        /* an engine that gives up early has said why */
        struct cordon_err sent = {0};
        int s = import_send(&h, tar_fd, on_progress, &sent);
        r = http_read_head(&h, err) < 0 || http_read_body(&h, &answer, err) < 0 ? -1 : 0;
        if (r == 0 && h.status / 100 != 2)
            r = engine_fail(h.status, &answer, "image could not be made", err);
        else if (r == 0)
            r = import_check(&answer, err);
        if (r == 0 && s < 0) {
            *err = sent;
            r = -1;
        }
    }
    http_close(&h);
    return r;
}

int image_remove(const struct engine *e, const char *id, bool *ret_removed, struct cordon_err *err)
{
    _cleanup_buf_ struct buf path = BUF_INIT(1024), answer = BUF_INIT(1 << 20);
    buf_str(&path, "/images/");
    engine_escape(&path, id);
    int status = engine_call(e, "DELETE", path.data, NULL, ENGINE_SLOW_MS, &answer, err);
    if (status < 0)
        return -1;
    *ret_removed = status == 200;
    if (status == 200 || status == 404 || status == 409)
        return 0;
    return engine_fail(status, &answer, "image could not be removed", err);
}

static int image_list(const struct engine *e, const char *path, const char *filter,
                      struct arena *arena, const struct jsonr_node **ret_root,
                      struct cordon_err *err)
{
    _cleanup_buf_ struct buf full = BUF_INIT(1024), answer = BUF_INIT(HTTP_BODY_MAX);
    buf_printf(&full, "%s?all=1&filters=", path);
    engine_escape(&full, filter);
    if (engine_ask(e, "GET", full.data, NULL, &answer, "the engine does not list", err) < 0)
        return -1;
    return engine_parse(&answer, arena, ret_root, err);
}

int image_containers(const struct engine *e, struct image_container **ret_list, size_t *ret_n,
                     struct cordon_err *err)
{
    struct arena arena = {0};
    const struct jsonr_node *root;
    if (image_list(e, "/containers/json", "{\"label\":[\"" ENGINE_LABEL "=run\"]}", &arena, &root,
                   err) < 0) {
        arena_done(&arena);
        return -1;
    }
    struct image_container *list = calloc(jsonr_count(root) + 1, sizeof(*list));
    size_t n = 0;
    for (const struct jsonr_node *c = jsonr_first(root); list && c; c = c->next, n++) {
        image_copy(list[n].id, sizeof(list[n].id), jsonr_get(c, "Id"));
        image_copy(list[n].state, sizeof(list[n].state), jsonr_get(c, "State"));
        image_copy(list[n].image, sizeof(list[n].image), jsonr_get(c, "Image"));
        image_copy(list[n].name, sizeof(list[n].name), jsonr_first(jsonr_get(c, "Names")));
        image_copy(list[n].owner, sizeof(list[n].owner),
                   jsonr_get(jsonr_get(c, "Labels"), IMAGE_OWNER_LABEL));
    }
    arena_done(&arena);
    if (!list)
        return err_nomem(err, "docker");
    *ret_list = list;
    *ret_n = n;
    return 0;
}

int image_dangling(const struct engine *e, char (**ret_ids)[80], size_t *ret_n,
                   struct cordon_err *err)
{
    struct arena arena = {0};
    const struct jsonr_node *root;
    if (image_list(e, "/images/json",
                   "{\"label\":[\"" ENGINE_LABEL "=image\"],\"dangling\":[\"true\"]}", &arena,
                   &root, err) < 0) {
        arena_done(&arena);
        return -1;
    }
    char(*ids)[80] = calloc(jsonr_count(root) + 1, sizeof(*ids));
    size_t n = 0;
    for (const struct jsonr_node *i = jsonr_first(root); ids && i; i = i->next, n++)
        image_copy(ids[n], sizeof(ids[n]), jsonr_get(i, "Id"));
    arena_done(&arena);
    if (!ids)
        return err_nomem(err, "docker");
    *ret_ids = ids;
    *ret_n = n;
    return 0;
}
