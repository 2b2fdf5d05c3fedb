/* `cordon image status` and `clean`: what is there, and its end. Runs in `cordon-docker`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/docker/binds.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "cli/docker.h"
#include "cli/fail.h"

struct status {
    bool running; /* the engine answers */
    char version[64], api[16], runtimes[256], default_runtime[64];
    bool has_image;
    struct image_info image;
    struct image_container *containers;
    size_t n_containers;
    uint64_t store_bytes; /* archive for backends without an engine; 0: none */
};

static void status_copy(char *ret, size_t size, const struct jsonr_node *node)
{
    const char *text = jsonr_cstr(node);
    snprintf(ret, size, "%s", text ? text : "");
}

static int status_engine(struct status *s, const struct engine *e, struct cordon_err *err)
{
    _cleanup_buf_ struct buf version = BUF_INIT(1 << 20), info = BUF_INIT(4 << 20);
    struct arena arena = {0};
    const struct jsonr_node *root;
    int r = engine_ask(e, "GET", "/version", NULL, &version, "the engine has no version", err);
    if (r == 0)
        r = engine_parse(&version, &arena, &root, err);
    if (r == 0) {
        status_copy(s->version, sizeof(s->version), jsonr_get(root, "Version"));
        status_copy(s->api, sizeof(s->api), jsonr_get(root, "ApiVersion"));
        r = engine_ask(e, "GET", "/info", NULL, &info, "the engine does not tell about itself",
                       err);
    }
    if (r == 0)
        r = engine_parse(&info, &arena, &root, err);
    if (r == 0) {
        status_copy(s->default_runtime, sizeof(s->default_runtime),
                    jsonr_get(root, "DefaultRuntime"));
        const struct jsonr_node *n = jsonr_first(jsonr_get(root, "Runtimes"));
        for (size_t len = 0; n && len < sizeof(s->runtimes); n = n->next)
            if (!str_starts(n->key, "io.containerd.")) /* the same under internal names */
                len += (size_t)snprintf(s->runtimes + len, sizeof(s->runtimes) - len, "%s%s",
                                        len ? " " : "", n->key);
        s->running = true;
    }
    arena_done(&arena);
    return r;
}

static int status_fill(struct status *s, const struct docker_options *o, struct cordon_err *err)
{
    struct engine engine;
    char store[4096];
    struct stat st;
    if (docker_store(o->name, store, sizeof(store) - 16, err) < 0 || engine_open(&engine, err) < 0)
        return -1;
    strcat(store, "/rootfs.tar");
    if (stat(store, &st) == 0)
        s->store_bytes = (uint64_t)st.st_size;
    if (status_engine(s, &engine, err) < 0)
        return str_eq(err->message, "Docker is not running") ? 0 : -1;
    if (image_find(&engine, o->name, &s->image, &s->has_image, err) < 0)
        return -1;
    return image_containers(&engine, &s->containers, &s->n_containers, err);
}

static void status_text(const struct status *s, const struct docker_options *o)
{
    if (s->running)
        printf("engine: Docker %s (API %s)\nruntimes: %s (default %s)\n", s->version, s->api,
               s->runtimes, s->default_runtime);
    else
        printf("engine: Docker is not running\n");
    if (s->has_image)
        printf("image: %s %.19s, %llu MiB, created %.19s, %s%.12s\n", o->name, s->image.id,
               (unsigned long long)(s->image.bytes >> 20), s->image.created,
               s->image.recipe[0] ? "recipe " : "not made by Cordon", s->image.recipe);
    else
        printf("image: %s not found (cordon image build makes it)\n", o->name);
    if (s->store_bytes)
        printf("archive: %llu MiB for the native and oci backends\n",
               (unsigned long long)(s->store_bytes >> 20));
    printf("containers: %zu\n", s->n_containers);
    for (size_t i = 0; i < s->n_containers; i++)
        printf("  %.12s %s %s%s\n", s->containers[i].id, s->containers[i].state,
               s->containers[i].image,
               owner_is_alive(s->containers[i].owner) ? "" : " (left behind)");
}

static void status_json(const struct status *s, const struct docker_options *o, struct buf *out)
{
    struct jsonw j = {.out = out};
    jsonw_open(&j, NULL, '{');
    jsonw_bool(&j, "running", s->running);
    jsonw_str(&j, "engine", s->running ? s->version : NULL);
    jsonw_str(&j, "api", s->running ? s->api : NULL);
    jsonw_str(&j, "runtimes", s->running ? s->runtimes : NULL);
    if (s->has_image) {
        jsonw_open(&j, "image", '{');
        jsonw_str(&j, "name", o->name);
        jsonw_str(&j, "id", s->image.id);
        jsonw_uint(&j, "bytes", s->image.bytes);
        jsonw_str(&j, "recipe", s->image.recipe[0] ? s->image.recipe : NULL);
        jsonw_close(&j, '}');
    } else {
        jsonw_null(&j, "image");
    }
    jsonw_uint(&j, "archive_bytes", s->store_bytes);
    jsonw_open(&j, "containers", '[');
    for (size_t i = 0; i < s->n_containers; i++) {
        jsonw_open(&j, NULL, '{');
        jsonw_str(&j, "id", s->containers[i].id);
        jsonw_str(&j, "state", s->containers[i].state);
        jsonw_bool(&j, "in_use", owner_is_alive(s->containers[i].owner));
        jsonw_close(&j, '}');
    }
    jsonw_close(&j, ']');
    jsonw_close(&j, '}');
    buf_char(out, '\n');
}

int docker_image_status(const struct docker_options *options)
{
    struct status s = {0};
    struct cordon_err err = {0};
    int r = status_fill(&s, options, &err);
    if (r == 0 && options->json) {
        _cleanup_buf_ struct buf out = BUF_INIT(4 << 20);
        status_json(&s, options, &out);
        if (!out.failed)
            fwrite(out.data, 1, out.len, stdout);
    } else if (r == 0) {
        status_text(&s, options);
    }
    free(s.containers);
    if (r < 0)
        return cli_fail(&err);
    return s.running ? 0 : CORDON_ERR_HOST;
}

struct clean {
    size_t containers, in_use, images;
};

static int clean_containers(struct clean *c, const struct engine *e, bool force,
                            struct cordon_err *err)
{
    struct image_container *list;
    size_t n;
    if (image_containers(e, &list, &n, err) < 0)
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        if (!force && owner_is_alive(list[i].owner)) {
            c->in_use++;
            continue;
        }
        r = engine_remove(e, list[i].id, err);
        c->containers += r == 0;
    }
    free(list);
    return r;
}

static int clean_images(struct clean *c, const struct engine *e, const struct docker_options *o,
                        struct cordon_err *err)
{
    char(*ids)[80];
    size_t n;
    if (image_dangling(e, &ids, &n, err) < 0)
        return -1;
    int r = 0;
    bool removed = false, found = false;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = image_remove(e, ids[i], &removed, err);
        c->images += r == 0 && removed;
    }
    free(ids);
    struct image_info info;
    if (r < 0 || !o->all || image_find(e, o->name, &info, &found, err) < 0)
        return r < 0 || o->all ? r : 0;
    /* somebody else's image may carry the name */
    if (!found || !info.recipe[0])
        return 0;
    r = image_remove(e, o->name, &removed, err);
    c->images += r == 0 && removed;
    return r;
}

static void clean_store(const struct docker_options *o)
{
    static const char *const names[] = {"/rootfs.tar", "/rootfs.tar.new", "/recipe", "/no-mirror",
                                        ""};
    char store[4096], path[4200];
    struct cordon_err drop;
    if (docker_store(o->name, store, sizeof(store), &drop) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s%s", store, names[i]);
        (void)remove(path);
    }
}

int docker_image_clean(const struct docker_options *options)
{
    struct engine engine;
    struct clean c = {0};
    struct cordon_err err = {0};
    if (options->all)
        clean_store(options);
    binds_sweep();
    if (engine_open(&engine, &err) < 0 || clean_containers(&c, &engine, options->force, &err) < 0 ||
        clean_images(&c, &engine, options, &err) < 0)
        return cli_fail(&err);
    printf("removed %zu containers, %zu images\n", c.containers, c.images);
    if (c.in_use)
        printf("kept %zu containers in use (--force removes them)\n", c.in_use);
    return 0;
}
