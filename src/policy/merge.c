/* Merging of layers. Pure. The order of layers is the caller's; this file knows what one does to
 * the weaker ones. */
#include "policy/merge.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "policy/contradict.h"
#include "policy/fields.h"
#include "policy/netrule.h"

enum { WRITTEN_MAX = 4 * 1024 * 1024 };

/* Everything that lets a guest reach the network, and everything that shows it host files. */
static const enum field_id network_grants[] = {
    FIELD_ALLOW_NETWORK, FIELD_ALLOW_DOMAINS,   FIELD_ALLOW_PATTERNS,      FIELD_NETWORK,
    FIELD_PUBLISH,       FIELD_ALLOW_HOST_PORT, FIELD_UNSAFE_HOST_NETWORK,
};
static const enum field_id file_grants[] = {
    FIELD_ALLOW_READ, FIELD_ALLOW_WRITE, FIELD_MOUNTS, FIELD_WORKSPACE, FIELD_ALLOW_FILESYSTEM,
};
/* More ways to the same host files: copies put in, folders shown as a root or an environment, files
 * of the guest written back. Not taken away with the grants of weaker layers, since who runs
 * something names them on purpose; but no project's where its user denied files. */
static const enum field_id file_ways[] = {
    FIELD_FILES, FIELD_VENV, FIELD_ROOTFS, FIELD_IMAGE, FIELD_OUTPUT,
};
static const enum field_id network_lists[] = {
    FIELD_ALLOW_NETWORK,
    FIELD_ALLOW_DOMAINS,
    FIELD_ALLOW_PATTERNS,
};
/* If set, these and nothing else. */
static const enum field_id only_lists[] = {FIELD_ALLOWED_BINARIES, FIELD_ALLOWED_IMPORTS};

void merge_next_layer(struct merge *merge)
{
    merge->layer++;
}

static bool is_one_of(enum field_id id, const enum field_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

static bool is_empty_list(const struct assign *a)
{
    return a->clear && a->value.n_items == 0 && a->value.num == 0;
}

/* ---- denials ----------------------------------------------------------------------------------
 */

static void deny(struct merge *m, const enum field_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        m->denied[ids[i]] = true;
}

/* Of fields that only take away; the others are told by their values above. */
static bool takes_away(const struct assign *a)
{
    if (a->id == FIELD_BLOCK_INTERNAL)
        return a->value.num == 1;
    if (a->id == FIELD_REQUIRE_TIER)
        return a->value.num == TIER_FULL;
    return policy_fields[a->id].risk == RISK_DENY && !is_empty_list(a);
}

bool merge_note_denial(struct merge *merge, const struct assign *assign)
{
    const struct field *field = &policy_fields[assign->id];
    uint64_t num = assign->value.num;
    bool *denied = &merge->denied[assign->id];

    if (!assign->value.set)
        return false; /* moved into the policy already, and noted then */
    if ((assign->id == FIELD_ALLOW_NETWORK && is_empty_list(assign)) ||
        (assign->id == FIELD_NETWORK && num == NETWORK_NONE)) {
        deny(merge, network_grants, ARRAY_SIZE(network_grants));
    } else if (assign->id == FIELD_ALLOW_FILESYSTEM && num == 0) {
        deny(merge, file_grants, ARRAY_SIZE(file_grants));
        deny(merge, file_ways, ARRAY_SIZE(file_ways));
    } else if ((assign->id == FIELD_WORKSPACE && num == WORKSPACE_NONE) ||
               (assign->id == FIELD_VIRTUAL_FS && num == 1) ||
               (field->risk == RISK_GRANT && field->type == FT_BOOL && num == 0) ||
               (field->risk == RISK_GRANT && fields_is_list(field->type) &&
                is_empty_list(assign))) {
        *denied = true;
    } else if (takes_away(assign)) {
        /* lists grow by what a project adds, but for those that are all there is: there, and in
         * the place of a value, it would be less that is taken away */
        if (!fields_is_list(field->type) ||
            is_one_of(assign->id, only_lists, ARRAY_SIZE(only_lists)))
            *denied = true;
    } else {
        return false;
    }
    return true;
}

/* ---- applying ---------------------------------------------------------------------------------
 */

static void drop_weaker(struct merge *m, enum field_id id, unsigned below)
{
    struct policy_value *v = &m->policy->values[id];
    for (size_t i = v->n_items; i-- > 0;) {
        if (v->items[i].origin.layer < below)
            policy_value_drop(v, i);
    }
    if (!v->set || v->origin.layer >= below)
        return;
    if (id != FIELD_NETWORK || v->num != NETWORK_NONE)
        policy_value_done(v);
}

static void drop_all_weaker(struct merge *m, const enum field_id *ids, size_t n, unsigned below)
{
    for (size_t i = 0; i < n; i++)
        drop_weaker(m, ids[i], below);
}

/* What this assignment does to other fields, and to its own before it is merged. */
static void apply_side_effects(struct merge *m, const struct assign *a)
{
    struct policy_value *all = &m->policy->values[FIELD_ALLOW_NETWORK];

    if (a->id == FIELD_ALLOW_NETWORK && is_empty_list(a))
        drop_all_weaker(m, network_grants, ARRAY_SIZE(network_grants), m->layer);
    if (a->id == FIELD_NETWORK && a->value.num == NETWORK_NONE &&
        a->value.origin.source != FROM_BUILTIN)
        drop_all_weaker(m, network_grants, ARRAY_SIZE(network_grants), m->layer);
    if (a->id == FIELD_ALLOW_FILESYSTEM && a->value.num == 0)
        drop_all_weaker(m, file_grants, ARRAY_SIZE(file_grants), m->layer);
    /* Naming hosts is narrower than the `true` of a weaker layer. */
    if (is_one_of(a->id, network_lists, ARRAY_SIZE(network_lists)) && a->value.n_items > 0 &&
        all->origin.layer < m->layer)
        all->num = 0;
}

static void list_clear(struct policy_value *v, const struct assign *a)
{
    bool keep_users =
        a->value.origin.source == FROM_PROJECT && policy_fields[a->id].risk == RISK_DENY;
    for (size_t i = v->n_items; i-- > 0;) {
        if (!keep_users || v->items[i].origin.source != FROM_USER)
            policy_value_drop(v, i);
    }
    v->num = 0;
}

/* What is said takes the place of a built-in default, and is added to what was said before. */
static void list_drop_default(struct policy_value *v)
{
    for (size_t i = v->n_items; i-- > 0;) {
        if (v->items[i].origin.source == FROM_BUILTIN)
            policy_value_drop(v, i);
    }
}

/* The item that the new one replaces or repeats; n_items when there is none. */
static size_t list_same(const struct policy_value *v, enum field_type type,
                        const struct policy_item *item)
{
    size_t i = 0;
    for (; i < v->n_items; i++) {
        if (type == FT_MOUNTS ? str_eq(v->items[i].extra, item->extra)
                              : str_eq(v->items[i].text, item->text))
            break;
    }
    return i;
}

static int list_merge(struct policy_value *v, struct assign *a, struct cordon_err *err)
{
    const struct field *field = &policy_fields[a->id];
    if (a->clear)
        list_clear(v, a);
    else if (field->merge == MERGE_REPLACE)
        list_drop_default(v);
    for (size_t i = 0; i < a->value.n_items; i++) {
        struct policy_item *item = &a->value.items[i];
        size_t same = list_same(v, field->type, item);
        /* who repeats a denial of the user's does not own it */
        if (same < v->n_items && field->risk == RISK_DENY && item->origin.source == FROM_PROJECT &&
            v->items[same].origin.source == FROM_USER)
            continue;
        if (same < v->n_items) {
            struct policy_item old = v->items[same];
            v->items[same] = *item;
            *item = old;
        } else if (policy_value_push(v, item) < 0) {
            return err_nomem(err, "policy");
        }
    }
    /* Items beside a `true` add nothing to it; the place is where `true` was said. */
    if (!v->num || a->value.num) {
        free(v->origin.name);
        v->origin = a->value.origin;
        a->value.origin.name = NULL;
    }
    v->num |= a->value.num;
    /* `false` leaves such a list as if nobody had said it; an empty one allows nothing */
    v->set = !(a->clear && v->n_items == 0 && is_one_of(a->id, only_lists, ARRAY_SIZE(only_lists)));
    return 0;
}

int merge_apply(struct merge *merge, struct assign *assign, struct cordon_err *err)
{
    int r = 0;
    struct policy_value *v = &merge->policy->values[assign->id];

    assign->value.origin.layer = merge->layer;
    for (size_t i = 0; i < assign->value.n_items; i++)
        assign->value.items[i].origin.layer = merge->layer;

    if (assign->value.origin.source == FROM_USER)
        merge_note_denial(merge, assign);
    if (assign->value.origin.source == FROM_PROJECT && merge->denied[assign->id]) {
        assign_done(assign);
        return 0;
    }
    apply_side_effects(merge, assign);
    if (fields_is_list(policy_fields[assign->id].type)) {
        r = list_merge(v, assign, err);
    } else {
        policy_value_done(v);
        *v = assign->value;
        assign->value = (struct policy_value){0};
    }
    assign_done(assign);
    return r;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

int merge_code(const struct origin *origin)
{
    return origin->source == FROM_COMMAND ? CORDON_ERR_USAGE : CORDON_ERR_CONFIG;
}

int merge_refuse_broad(const struct policy_item *item, int code, struct cordon_err *err)
{
    struct netrule rule;
    char why[NETRULE_WHY_MAX];
    if (netrule_parse(item->text, &rule, why) < 0 || !netrule_is_over_broad(&rule))
        return 0;
    const struct origin *o = &item->origin;
    if (o->line)
        err_set(err, code, "policy", 0, "%s:%u:%u: '%s' is too broad", o->name, o->line, o->column,
                item->written);
    else
        err_set(err, code, "policy", 0, "%s: '%s' is too broad", o->name, item->written);
    return err_hint(err, "name the hosts, or say allow_network = true to allow every public host");
}

int merge_check_broad(const struct merge *merge, struct cordon_err *err)
{
    if (merge->policy->values[FIELD_ALLOW_NETWORK].num == 1)
        return 0;
    for (size_t f = 0; f < ARRAY_SIZE(network_lists); f++) {
        const struct policy_value *v = &merge->policy->values[network_lists[f]];
        for (size_t i = 0; i < v->n_items; i++) {
            const struct origin *o = &v->items[i].origin;
            if (o->layer == merge->layer &&
                merge_refuse_broad(&v->items[i], merge_code(o), err) < 0)
                return -1;
        }
    }
    return 0;
}

/* Such a list of the user's is not lengthened by the project it is used on. */
static void finish_only(struct policy_value *v)
{
    bool has_users = false;
    for (size_t i = 0; i < v->n_items; i++)
        has_users |= v->items[i].origin.source != FROM_PROJECT;
    for (size_t i = v->n_items; has_users && i-- > 0;) {
        if (v->items[i].origin.source == FROM_PROJECT)
            policy_value_drop(v, i);
    }
}

static int finish_virtual_fs(struct merge *m, struct cordon_err *err)
{
    static const enum field_id grants[] = {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE};
    const struct policy_value *v = &m->policy->values[FIELD_VIRTUAL_FS];
    if (!v->set || v->num == 0)
        return 0;

    drop_all_weaker(m, grants, ARRAY_SIZE(grants), v->origin.layer);
    for (size_t g = 0; g < ARRAY_SIZE(grants); g++) {
        const struct policy_value *grant = &m->policy->values[grants[g]];
        if (grant->n_items == 0)
            continue;
        char a[512], b[512];
        const struct policy_item *item = &grant->items[0];
        policy_origin_place(&v->origin, a, sizeof(a));
        policy_origin_place(&item->origin, b, sizeof(b));
        err_set(err, merge_code(&item->origin), "policy", 0,
                "virtual_fs (%s) contradicts %s = %s (%s)", a, policy_fields[grants[g]].key,
                item->written, b);
        return err_hint(err, "with virtual_fs the guest sees only mounts: --mount %s:%s",
                        item->text, item->text);
    }
    return 0;
}

static int finish_scratch(const struct merge *m, struct cordon_err *err)
{
    struct policy_value *scratch = &m->policy->values[FIELD_SCRATCH_SIZE];
    const struct policy_value *memory = &m->policy->values[FIELD_MEMORY_LIMIT];
    if (m->scratch_capped == 0 || scratch->origin.layer != m->scratch_capped || !memory->set ||
        scratch->num <= memory->num)
        return 0;
    char *written = strdup(memory->written);
    if (!written)
        return err_nomem(err, "policy");
    free(scratch->written);
    scratch->written = written;
    scratch->num = memory->num;
    return 0;
}

/* allow_filesystem = true asks for a writable workspace; the working directory unless one is named.
 */
static int finish_workspace(struct merge *m, const char *cwd, struct cordon_err *err)
{
    struct policy_value *w = &m->policy->values[FIELD_WORKSPACE];
    const struct policy_value *all = &m->policy->values[FIELD_ALLOW_FILESYSTEM];
    if (!all->set || all->num == 0)
        return 0;
    if (w->set) {
        const char *colon = strrchr(w->written, ':');
        if (w->num == WORKSPACE_OVERLAY && !(colon && str_eq(colon, ":overlay")))
            w->num = WORKSPACE_RW;
        return 0;
    }
    struct policy_value v = {.set = true, .num = WORKSPACE_RW, .text = strdup(cwd)};
    if (asprintf(&v.written, "%s:rw", cwd) < 0)
        v.written = NULL;
    if (!v.text || !v.written || policy_origin_copy(&all->origin, &v.origin) < 0) {
        policy_value_done(&v);
        return err_nomem(err, "policy");
    }
    *w = v;
    return 0;
}

static int finish_written(struct policy_value *v, struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(WRITTEN_MAX);
    if (v->num)
        buf_str(&text, "true");
    for (size_t i = 0; i < v->n_items; i++) {
        if (text.len)
            buf_str(&text, ", ");
        buf_str(&text, v->items[i].written);
    }
    if (!text.len)
        buf_str(&text, "false");
    free(v->written);
    v->written = buf_take(&text);
    return v->written ? 0 : err_nomem(err, "policy");
}

/* The value's place is that of its last item. */
static int finish_list(struct policy_value *v, struct cordon_err *err)
{
    if (v->n_items > 0 && !v->num) {
        struct origin origin;
        if (policy_origin_copy(&v->items[v->n_items - 1].origin, &origin) < 0)
            return err_nomem(err, "policy");
        free(v->origin.name);
        v->origin = origin;
    }
    return finish_written(v, err);
}

int merge_finish(struct merge *merge, const char *cwd, struct cordon_err *err)
{
    struct policy *p = merge->policy;
    for (size_t i = 0; i < ARRAY_SIZE(only_lists); i++)
        finish_only(&p->values[only_lists[i]]);
    if (finish_virtual_fs(merge, err) < 0 || contradict_check(p, err) < 0 ||
        finish_scratch(merge, err) < 0 || finish_workspace(merge, cwd, err) < 0)
        return -1;
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        struct policy_value *v = &p->values[id];
        if (v->set && fields_is_list(policy_fields[id].type) && finish_list(v, err) < 0)
            return -1;
    }
    return 0;
}
