/* What the caller grants: host paths, files to copy in, deny patterns, a seccomp profile. Looks at
 * the host's files (stat, glob) but opens none of them except a named profile. */
#include "plan/plan_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"

#define PROFILE_MAX (4u << 20)

/* p is below dir, or dir itself; both absolute and normalised. */
static bool grants_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    if (str_eq(dir, "/"))
        return true;
    return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static const char *grants_origin(struct plan *p, const struct policy_item *item)
{
    char where[PATH_MAX + 32];
    policy_origin_place(&item->origin, where, sizeof(where));
    return arena_strdup(&p->arena, where);
}

static bool grants_is_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
}

/* Devices every guest has: the same, whoever opens them. */
static bool grants_has_already(const char *path)
{
    static const char *const own[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        if (str_eq(path, own[i]))
            return true;
    return false;
}

/* What lies in /sys, and a device, may be meant if it is named itself: /sys to look at, a device to
 * use, since a read-only mount does not keep anybody from writing to one. */
static bool grants_is_meant(const struct policy_item *item, const struct stat *st, bool write)
{
    return (grants_below(item->text, "/sys") && !write) || (grants_is_device(st) && write);
}

/* Kernel file systems and devices of the host are no data: a grant of them, or of a tree that holds
 * them, would hand the guest a way around the wall. */
static int grants_refuse(struct plan *p, const struct policy_item *item, const struct stat *st,
                         struct cordon_err *err)
{
    static const struct {
        const char *dir, *hint;
    } never[] = {{"/proc", "a guest has a /proc of its own"},
                 {"/sys", "--allow-read /sys/PATH shows that path, by its own name and read-only"},
                 {"/dev", "--allow-write /dev/NAME shows that device, by its own name"}};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        if (grants_below(item->text, never[i].dir) || str_eq(item->text, "/")) {
            err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                    "%s: %s cannot be granted: it exposes the host's %s", grants_origin(p, item),
                    item->text, never[i].dir);
            return err_hint(err, "%s", never[i].hint);
        }
    /* a connection needs no write access: a folder of the host's services is their whole surface */
    static const char *const sockets[] = {"/run", "/var/run", "/run/user", "/var/run/user"};
    for (size_t i = 0; i < ARRAY_SIZE(sockets); i++)
        if (str_eq(item->text, sockets[i]))
            return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                           "%s: %s cannot be granted: it holds the sockets of the host's services",
                           grants_origin(p, item), item->text);
    if (grants_is_device(st)) {
        err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                "%s: %s is a device of the host and cannot be granted like this",
                grants_origin(p, item), item->text);
        return err_hint(err, "--allow-write shows a device by its own name");
    }
    return 0;
}

/* What would be mounted over something every guest has: what covers the denied, which must stay
 * empty, and the folders that the guest's own home and devices are in. */
static int grants_refuse_place(struct plan *p, const struct policy_item *item, const char *dst,
                               struct cordon_err *err)
{
    static const struct {
        const char *dir, *own, *hint;
    } tops[] = {{"/home", "home", "grant the folders in it, /home/NAME each"},
                {"/dev", "devices", "mount it at another place"}};
    if (str_eq(dst, "/") || grants_below(dst, "/proc") || grants_below(dst, "/" PLAN_EMPTY_DIR) ||
        grants_below(dst, "/" PLAN_EMPTY_FILE))
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0, "%s: nothing can be mounted at %s",
                       grants_origin(p, item), dst);
    for (size_t i = 0; i < ARRAY_SIZE(tops) && p->tier == TIER_FULL; i++)
        if (str_eq(dst, tops[i].dir)) {
            err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                    "%s: nothing can be mounted at %s: the guest's own %s must be in it",
                    grants_origin(p, item), dst, tops[i].own);
            return err_hint(err, "%s", tops[i].hint);
        }
    return 0;
}

struct grants {
    struct plan *p;
    struct plan_grant *list;
    size_t n, cap;
};

static int grants_add(struct grants *g, const struct policy_item *item, const char *dst, bool write,
                      struct cordon_err *err)
{
    struct stat st;
    if (stat(item->text, &st) < 0) {
        if (item->optional && errno == ENOENT)
            return 0;
        err_set(err, CORDON_ERR_CONFIG, "plan", errno, "%s: %s", grants_origin(g->p, item),
                item->text);
        return err_hint(err, "create it, or take the grant out");
    }
    /* "/tmp" in a grant means the guest's own */
    if (str_eq(dst, "/tmp") && str_eq(item->text, "/tmp"))
        return 0;
    char real[PATH_MAX];
    if (!realpath(item->text, real))
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "%s: %s", grants_origin(g->p, item),
                       item->text);
    bool outright = str_eq(real, item->text);
    if (outright && str_eq(dst, real) && grants_has_already(real))
        return 0;
    /* by its own name and by where links lead: /tmp/x -> /proc is /proc */
    const struct policy_item resolved = {.text = real, .origin = item->origin};
    bool meant = outright && grants_is_meant(item, &st, write);
    if (!meant &&
        (grants_refuse(g->p, item, &st, err) < 0 || grants_refuse(g->p, &resolved, &st, err) < 0))
        return -1;
    /* A link may be an earlier guest's doing: what is to be written, and a socket, is named by its
     * own name. */
    if ((write || S_ISSOCK(st.st_mode)) && !outright) {
        err_set(err, CORDON_ERR_CONFIG, "plan", 0, "%s: %s leads through a link to %s",
                grants_origin(g->p, item), item->text, real);
        return err_hint(err, "grant %s itself if that is meant", real);
    }
    if (grants_refuse_place(g->p, item, dst, err) < 0)
        return -1;
    struct plan_grant *list = plan_grow(g->p, g->list, g->n, &g->cap, sizeof(*list));
    if (!list)
        return err_nomem(err, "plan");
    g->list = list;
    /* copies: a plan may outlive its policy */
    const char *kept = arena_strdup(&g->p->arena, real), *place = arena_strdup(&g->p->arena, dst);
    if (!kept || !place)
        return err_nomem(err, "plan");
    list[g->n++] = (struct plan_grant){.src = kept,
                                       .real = kept,
                                       .dst = place,
                                       .write = write,
                                       .is_dir = S_ISDIR(st.st_mode),
                                       .is_socket = S_ISSOCK(st.st_mode),
                                       .is_device = grants_is_device(&st),
                                       .is_kernels = meant,
                                       .optional = item->optional};
    return 0;
}

static int grants_order(const void *a, const void *b)
{
    return strcmp(((const struct plan_grant *)a)->dst, ((const struct plan_grant *)b)->dst);
}

static int grants_workspace(struct grants *g, const struct policy *policy, struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_WORKSPACE);
    if (!v->set || v->num == WORKSPACE_NONE)
        return 0;
    const struct policy_item item = {.text = v->text, .origin = v->origin};
    if (grants_add(g, &item, "/workspace", v->num != WORKSPACE_RO, err) < 0)
        return -1;
    struct plan_grant *grant = &g->list[g->n - 1];
    if (!grant->is_dir)
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0, "%s: %s is not a folder",
                       grants_origin(g->p, &item), v->text);
    grant->overlay = v->num == WORKSPACE_OVERLAY;
    return 0;
}

int plan_grants(struct plan *p, const struct policy *policy, struct plan_grant **ret, size_t *ret_n,
                struct cordon_err *err)
{
    struct grants g = {.p = p};
    bool virtual_fs = policy_bool(policy, FIELD_VIRTUAL_FS);
    const struct policy_value *v = policy_value(policy, FIELD_ALLOW_READ);
    for (size_t i = 0; !virtual_fs && i < v->n_items; i++)
        if (grants_add(&g, &v->items[i], v->items[i].text, false, err) < 0)
            return -1;
    v = policy_value(policy, FIELD_ALLOW_WRITE);
    for (size_t i = 0; !virtual_fs && i < v->n_items; i++)
        if (grants_add(&g, &v->items[i], v->items[i].text, true, err) < 0)
            return -1;
    v = policy_value(policy, FIELD_MOUNTS);
    for (size_t i = 0; i < v->n_items; i++)
        if (grants_add(&g, &v->items[i], v->items[i].extra, v->items[i].num != 0, err) < 0)
            return -1;
    if (grants_workspace(&g, policy, err) < 0)
        return -1;

    /* parents before children; of two grants at one place the writable one, which says more, stays
     */
    if (g.n > 1)
        qsort(g.list, g.n, sizeof(*g.list), grants_order);
    size_t kept = 0;
    for (size_t i = 0; i < g.n; i++) {
        if (kept > 0 && str_eq(g.list[kept - 1].dst, g.list[i].dst)) {
            if (!str_eq(g.list[kept - 1].src, g.list[i].src))
                return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                               "%s and %s are both to appear at %s", g.list[kept - 1].src,
                               g.list[i].src, g.list[i].dst);
            g.list[kept - 1].write |= g.list[i].write;
            continue;
        }
        g.list[kept++] = g.list[i];
    }
    /* checked as what may be written to; a device is of no use otherwise */
    for (size_t i = 0; policy->looks_only && i < kept; i++)
        g.list[i].write = g.list[i].write && g.list[i].is_device;
    *ret = g.list;
    *ret_n = kept;
    return 0;
}

/* What a place on the host that a pattern matched, without links, means to whom. */
typedef int deny_fn(struct plan *p, const char *real, const struct policy_item *item, void *data,
                    struct cordon_err *err);

struct deny_grants {
    const struct plan_grant *list;
    size_t n;
};

/* In an overlay what is missing is gone: a guest could take away the folder around it, but a move
 * copies only what could be read. A copy is one file system, in which that folder may have another
 * name by now and the file still be in it: so there only what is never copied may be missing. */
static bool deny_can_be_missing(const struct plan_grant *g, const char *real, const struct stat *st)
{
    struct stat base;
    if (!g->copy || !grants_below(real, g->real))
        return g->overlay && !g->copy;
    const char *inside = real + strlen(g->real);
    return (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) ||
           (stat(g->real, &base) == 0 && base.st_dev != st->st_dev) ||
           grants_below(inside, "/" PLAN_STATE_DIR);
}

/* Covered wherever a grant shows it. */
static int deny_mask(struct plan *p, const char *real, const struct policy_item *item, void *data,
                     struct cordon_err *err)
{
    const struct deny_grants *grants = data;
    struct stat st;
    (void)item;
    if (stat(real, &st) < 0)
        return 0;
    for (size_t i = 0; i < grants->n; i++) {
        const struct plan_grant *g = &grants->list[i];
        const char *inside = NULL;
        if (grants_below(real, g->real))
            inside = arena_printf(&p->arena, "%s%s", g->dst,
                                  str_eq(g->real, "/") ? real : real + strlen(g->real));
        else if (grants_below(g->real, real))
            inside = g->dst; /* the grant itself lies in what is denied */
        else
            continue;
        if (!inside)
            return err_nomem(err, "plan");
        bool dir = str_eq(inside, g->dst) ? g->is_dir : S_ISDIR(st.st_mode);
        unsigned flags = (dir ? PLAN_MASK_DIR : 0) |
                         (deny_can_be_missing(g, real, &st) ? PLAN_MASK_OPTIONAL : 0);
        if (plan_full_mask(p, inside, flags) < 0)
            return err_nomem(err, "plan");
    }
    return 0;
}

struct deny_named {
    const char *what, *path, *real;
};

/* What was asked for by its own name and cannot be covered is refused. */
static int deny_refuse(struct plan *p, const char *real, const struct policy_item *item, void *data,
                       struct cordon_err *err)
{
    const struct deny_named *named = data;
    char by[512];
    (void)p;
    if (!grants_below(named->real, real))
        return 0;
    policy_origin_text(&item->origin, by, sizeof(by));
    return err_set(err, CORDON_ERR_CONFIG, "plan", 0, "%s: %s is denied by '%s' (%s)", named->what,
                   named->path, item->written, by);
}

/* Links are followed on both sides: a denied link denies what it names, and a grant that was named
 * through a link shows the same files. A link to nothing shows nothing. */
static int deny_each(struct plan *p, const struct policy *policy, deny_fn *fn, void *data,
                     struct cordon_err *err)
{
    const struct policy_value *v = policy_value(policy, FIELD_DENY_PATTERNS);
    for (size_t i = 0; i < v->n_items; i++) {
        _cleanup_free_ char *pattern = strdup(v->items[i].text);
        char real[PATH_MAX];
        if (!pattern)
            return err_nomem(err, "plan");
        size_t len = strlen(pattern);
        if (len > 3 && str_eq(pattern + len - 3, "/**"))
            pattern[len - 3] = '\0'; /* everything below: the folder itself is covered */
        glob_t found = {0};
        int r = glob(pattern, GLOB_NOSORT | GLOB_PERIOD, NULL, &found);
        if (r == GLOB_NOSPACE)
            return err_nomem(err, "plan");
        for (size_t k = 0; r == 0 && k < found.gl_pathc; k++) {
            const char *match = found.gl_pathv[k], *base = strrchr(match, '/');
            if (base && (str_eq(base, "/.") || str_eq(base, "/..")))
                continue;
            if (realpath(match, real))
                r = fn(p, real, &v->items[i], data, err);
        }
        globfree(&found);
        if (r < 0)
            return -1;
    }
    return 0;
}

/* Each folder before everything below it, and nothing else between them. */
static int deny_order(const void *one, const void *other)
{
    const unsigned char *a = (const unsigned char *)((const struct plan_op *)one)->dst;
    const unsigned char *b = (const unsigned char *)((const struct plan_op *)other)->dst;
    while (*a && *a == *b)
        a++, b++;
    int x = *a == '/' ? 1 : *a, y = *b == '/' ? 1 : *b;
    return x - y;
}

/* Below a folder that is covered no name is left that could be. Nothing is mounted between these
 * covers or after them. */
static void deny_drop_inner(struct plan *p)
{
    size_t first = p->n_ops, n;
    const struct plan_op *top = NULL;
    while (first > 0 && p->ops[first - 1].kind == PLAN_OP_MASK)
        first--;
    if (first == p->n_ops)
        return;
    qsort(&p->ops[first], p->n_ops - first, sizeof(*p->ops), deny_order);
    n = first;
    for (size_t i = first; i < p->n_ops; i++) {
        if (top && !str_eq(p->ops[i].dst, top->dst) && grants_below(p->ops[i].dst, top->dst))
            continue;
        p->ops[n] = p->ops[i];
        if (p->ops[n].flags & PLAN_MASK_DIR)
            top = &p->ops[n];
        n++;
    }
    p->n_ops = n;
}

int plan_deny_masks(struct plan *p, const struct policy *policy, const struct plan_grant *grants,
                    size_t n, struct cordon_err *err)
{
    struct deny_grants all = {grants, n};
    if (n == 0 || policy_value(policy, FIELD_DENY_PATTERNS)->n_items == 0)
        return 0;
    if (deny_each(p, policy, deny_mask, &all, err) < 0)
        return -1;
    deny_drop_inner(p);
    return 0;
}

int plan_deny_named(struct plan *p, const struct policy *policy, const char *what, const char *path,
                    struct cordon_err *err)
{
    char real[PATH_MAX];
    if (policy_value(policy, FIELD_DENY_PATTERNS)->n_items == 0 || !realpath(path, real))
        return 0; /* what is not there is an error of its own */
    struct deny_named named = {what, path, real};
    return deny_each(p, policy, deny_refuse, &named, err);
}

int plan_add_fence(struct plan *p, const char *path, bool write, bool optional)
{
    struct plan_fence *f = plan_grow(p, p->fences, p->n_fences, &p->cap_fences, sizeof(*f));
    if (!f)
        return -1;
    p->fences = f;
    f[p->n_fences++] = (struct plan_fence){.path = path, .write = write, .optional = optional};
    return 0;
}

int plan_collect_files(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy_value *v = policy_value(req->policy, FIELD_FILES);
    size_t n = v->n_items + req->n_files;
    if (n == 0)
        return 0;
    p->files = arena_alloc(&p->arena, n * sizeof(*p->files));
    if (!p->files)
        return err_nomem(err, "plan");
    for (size_t i = 0; i < v->n_items; i++) {
        const struct policy_item *item = &v->items[i];
        if (item->extra && plan_deny_named(p, req->policy, "filesystem", item->extra, err) < 0)
            return -1;
        p->files[p->n_files++] =
            (struct plan_file){item->text, item->extra, item->data, item->data_len};
    }
    for (size_t i = 0; i < req->n_files; i++)
        p->files[p->n_files++] = req->files[i];
    return 0;
}

int plan_check_network(const struct policy *policy, struct cordon_err *err)
{
    if (policy_num(policy, FIELD_NETWORK) != NETWORK_HOST ||
        policy_bool(policy, FIELD_UNSAFE_HOST_NETWORK))
        return 0;
    err_set(err, CORDON_ERR_USAGE, "plan", 0, "--network host shares the host's own network");
    return err_hint(err, "add --unsafe-host-network if that is meant");
}

int plan_build_filter(struct plan *p, const struct seccomp_options *options, const char *path,
                      struct seccomp_prog *ret_prog, struct cordon_err *err)
{
    if (!path)
        return seccomp_build(options, ret_prog, err);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "seccomp profile %s", path);
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > PROFILE_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "plan", 0,
                       "seccomp profile %s: not a regular file of at most 4 MiB", path);
    _cleanup_buf_ struct buf text = BUF_INIT(PROFILE_MAX);
    char chunk[16384];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (buf_add(&text, chunk, (size_t)n) < 0)
            return err_nomem(err, "plan");
    if (n < 0)
        return err_set(err, CORDON_ERR_CONFIG, "plan", errno, "seccomp profile %s", path);
    _cleanup_buf_ struct buf notes = BUF_INIT(65536);
    if (seccomp_profile_build(options, path, text.data ? text.data : "", text.len, ret_prog, &notes,
                              err) < 0)
        return -1;
    p->profile_notes = notes.len ? arena_strdup(&p->arena, notes.data) : NULL;
    return 0;
}
