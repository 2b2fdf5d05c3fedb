/* Derived policies. Pure; used by the command and the supervisor before a guest starts. */
#include "lang/derive.h"

#include <string.h>

#include "base/err.h"
#include "base/util.h"

/* What compilers need whatever the program itself may have: gcc alone is four processes. */
#define COMPILE_PROCESSES 256
#define COMPILE_DESCRIPTORS 1024
#define COMPILE_SCRATCH ((uint64_t)1 << 30)
#define COMPILE_INODES 65536
#define CHECK_OUTPUT 65536

static struct policy_item *derive_items(const struct policy_value *old, size_t more,
                                        struct arena *arena)
{
    return arena_alloc(arena, (old->n_items + more + 1) * sizeof(struct policy_item));
}

static int derive_pair(struct policy_item *item, const char *pair, struct arena *arena)
{
    const char *equals = strchr(pair, '=');
    char *name = arena_strdup(arena, pair);
    if (!equals || !name)
        return -1;
    name[equals - pair] = '\0';
    *item =
        (struct policy_item){.text = name, .extra = (char *)equals + 1, .written = (char *)pair};
    return 0;
}

/* Folders of programs that are in nobody's default PATH. A virtual environment comes first, what
 * was merely found comes last: it must not hide what the guest has already. */
static const char *derive_path(const struct policy *from, const struct lang_tools *tools,
                               const char *venv, struct arena *arena)
{
    const struct policy_value *env = policy_value(from, FIELD_ENV);
    const char *path = LANG_GUEST_PATH, *before = path;
    for (size_t i = 0; i < env->n_items; i++)
        if (str_eq(env->items[i].text, "PATH"))
            before = path = env->items[i].extra;
    for (size_t i = 0; path && i < tools->n; i++)
        if (tools->list[i].dir && !strstr(path, tools->list[i].dir))
            path = venv && i == 0 ? arena_printf(arena, "%s:%s", tools->list[i].dir, path)
                                  : arena_printf(arena, "%s:%s", path, tools->list[i].dir);
    if (!path || path == before)
        return path ? "" : NULL;
    return arena_printf(arena, "PATH=%s", path);
}

static int derive_env(const struct policy *from, const struct lang *lang,
                      const struct lang_tools *tools, const char *venv, const char *const *guard,
                      struct arena *arena, struct policy_value *ret)
{
    const struct policy_value *old = policy_value(from, FIELD_ENV);
    size_t more = 2, n = 0;
    for (size_t i = 0; lang && lang->env && lang->env[i]; i++)
        more++;
    for (size_t i = 0; guard && guard[i]; i++)
        more++;
    struct policy_item *items = derive_items(old, more, arena);
    const char *path = derive_path(from, tools, venv, arena);
    const char *own = venv ? arena_printf(arena, "VIRTUAL_ENV=%s", venv) : "";
    if (!items || !path || !own)
        return -1;
    /* later ones win: what the caller says counts more than the table, module control and the
     * found folders more than the caller */
    for (size_t i = 0; lang && lang->env && lang->env[i]; i++)
        if (derive_pair(&items[n++], lang->env[i], arena) < 0)
            return -1;
    if (*own && derive_pair(&items[n++], own, arena) < 0)
        return -1;
    if (old->n_items > 0)
        memcpy(items + n, old->items, old->n_items * sizeof(*items));
    n += old->n_items;
    if (*path && derive_pair(&items[n++], path, arena) < 0)
        return -1;
    for (size_t i = 0; guard && guard[i]; i++)
        if (derive_pair(&items[n++], guard[i], arena) < 0)
            return -1;
    ret->items = items;
    ret->n_items = n;
    ret->set = n > 0;
    return 0;
}

/* The folders are shown where they are, so that links and compiled-in paths inside them hold. */
static int derive_mounts(struct policy *p, const struct lang_tools *tools, struct arena *arena)
{
    enum field_id id = policy_bool(p, FIELD_VIRTUAL_FS) ? FIELD_MOUNTS : FIELD_ALLOW_READ;
    struct policy_value *v = &p->values[id];
    struct policy_item *items = derive_items(v, tools->n, arena);
    if (!items)
        return -1;
    if (v->n_items > 0)
        memcpy(items, v->items, v->n_items * sizeof(*items));
    size_t n = v->n_items;
    for (size_t i = 0; i < tools->n; i++) {
        const char *path = tools->list[i].mount;
        bool there = !path;
        for (size_t k = 0; k < n && !there; k++)
            there = str_eq(items[k].text, path);
        if (!there)
            items[n++] = (struct policy_item){.text = (char *)path,
                                              .extra = (char *)path,
                                              .written = (char *)path,
                                              .origin = {.name = "language"}};
    }
    v->items = items;
    v->n_items = n;
    v->set = v->set || n > 0;
    return 0;
}

int lang_derive_run(const struct policy *from, const struct lang *lang,
                    const struct lang_tools *tools, const char *venv, const char *const *guard,
                    struct arena *arena, struct policy *ret, struct cordon_err *err)
{
    *ret = *from;
    if (derive_env(from, lang, tools, venv, guard, arena, &ret->values[FIELD_ENV]) < 0 ||
        derive_mounts(ret, tools, arena) < 0)
        return err_nomem(err, "source");
    /* checked by name before (lang_derive_binaries); the artefact has a name of its own */
    if (lang)
        ret->values[FIELD_ALLOWED_BINARIES] = (struct policy_value){0};
    return 0;
}

static void derive_number(struct policy *p, enum field_id id, uint64_t num, const char *written)
{
    struct policy_value *v = &p->values[id];
    v->set = true;
    v->num = num;
    v->written = (char *)written;
}

/* A step looks at the workspace and at what is granted, the run changes them: outputs are opened
 * after the step, which must not have put a link where they go. What a step makes does not depend
 * on the network, and what the run leaves is not the step's to hand out. */
static void derive_look_only(struct policy *p)
{
    static const enum field_id none[] = {
        FIELD_NETWORK,         FIELD_UNSAFE_HOST_NETWORK, FIELD_ALLOW_NETWORK,
        FIELD_ALLOW_DOMAINS,   FIELD_ALLOW_PATTERNS,      FIELD_PUBLISH,
        FIELD_ALLOW_HOST_PORT, FIELD_LOG_NETWORK,         FIELD_OUTPUT};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        p->values[none[i]] = (struct policy_value){0};
    struct policy_value *ws = &p->values[FIELD_WORKSPACE];
    if (ws->set && ws->num != WORKSPACE_NONE)
        ws->num = WORKSPACE_RO;
    p->looks_only = true;
}

static void derive_at_least(struct policy *p, enum field_id id, uint64_t num, const char *written)
{
    if (policy_num(p, id) < num)
        derive_number(p, id, num, written);
}

void lang_derive_compile(const struct policy *run, uint64_t artifact_bytes, struct policy *ret)
{
    static const enum field_id none[] = {FIELD_CPU_TIME, FIELD_MAX_FILE_SIZE, FIELD_MAX_FILES,
                                         FIELD_DISK_LIMIT, FIELD_KILL_ON_OUTPUT_LIMIT};
    *ret = *run;
    ret->values[FIELD_TIME_LIMIT] = run->values[FIELD_COMPILE_TIME_LIMIT];
    ret->values[FIELD_MEMORY_LIMIT] = run->values[FIELD_COMPILE_MEMORY_LIMIT];
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        ret->values[none[i]] = (struct policy_value){0};
    derive_at_least(ret, FIELD_PROCESSES, COMPILE_PROCESSES, "256");
    derive_at_least(ret, FIELD_FILE_DESCRIPTORS, COMPILE_DESCRIPTORS, "1024");
    derive_at_least(ret, FIELD_SCRATCH_SIZE, COMPILE_SCRATCH, "1G");
    derive_at_least(ret, FIELD_SCRATCH_INODES, COMPILE_INODES, "65536");
    if (policy_num(ret, FIELD_CPU_LIMIT))
        derive_at_least(ret, FIELD_CPU_LIMIT, 100, "100");
    derive_number(ret, FIELD_MAX_OUTPUT, artifact_bytes, "");
    derive_look_only(ret);
}

void lang_derive_check(const struct policy *run, struct policy *ret)
{
    *ret = *run;
    ret->values[FIELD_KILL_ON_OUTPUT_LIMIT] = (struct policy_value){0};
    derive_number(ret, FIELD_MAX_OUTPUT, CHECK_OUTPUT, "64K");
    derive_look_only(ret);
}

int lang_derive_binaries(const struct policy *policy, const struct lang *lang,
                         struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_ALLOWED_BINARIES);
    const char *tool;
    for (size_t i = 0; v->set && (tool = lang_registry_tool(lang, i)); i++) {
        bool listed = false;
        for (size_t k = 0; k < v->n_items; k++)
            listed = listed || str_eq(v->items[k].text, tool);
        if (!listed)
            return err_set(err, CORDON_ERR_REJECTED, "policy", 0,
                           "command not allowed: %s (allowed_binaries)", tool);
    }
    return 0;
}
