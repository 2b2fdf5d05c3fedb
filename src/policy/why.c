/* Answers by the rules of a policy. Pure; mirrors what the plan mounts and what the broker checks.
 */
#include "policy/why.h"

#include <fnmatch.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/netset.h"
#include "policy/nethost.h"
#include "policy/show.h"
#include "policy/value.h"

static void answer(struct why *why, bool allowed, const char *rule)
{
    *why = (struct why){.allowed = allowed};
    snprintf(why->rule, sizeof(why->rule), "%s", rule);
}

static void answer_item(struct why *why, bool allowed, enum field_id id,
                        const struct policy_item *item)
{
    *why = (struct why){.allowed = allowed};
    snprintf(why->rule, sizeof(why->rule), "%s = %s", policy_shown_key(id), item->written);
    policy_origin_text(&item->origin, why->origin, sizeof(why->origin));
}

static void answer_value(struct why *why, bool allowed, enum field_id id,
                         const struct policy_value *v)
{
    *why = (struct why){.allowed = allowed};
    snprintf(why->rule, sizeof(why->rule), "%s = %s", policy_shown_key(id), v->written);
    policy_origin_text(&v->origin, why->origin, sizeof(why->origin));
}

/* ---- paths ------------------------------------------------------------------------------------
 */

static bool is_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);
    if (str_eq(folder, "/"))
        return true;
    return strncmp(path, folder, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static bool is_below_any(const char *path, const char *const *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_below(path, folders[i]))
            return true;
    }
    return false;
}

/* The grant that shows a path: the deepest one. */
struct shown {
    enum field_id id;
    const struct policy_item *item; /* NULL for the workspace */
    const char *source;             /* on the host */
    const char *target;             /* in the guest */
    bool writable;
};

static void consider(struct shown *best, const struct shown *one, const char *path)
{
    if (!is_below(path, one->target))
        return;
    size_t have = best->target ? strlen(best->target) : 0;
    if (!best->target || strlen(one->target) > have ||
        (strlen(one->target) == have && one->writable))
        *best = *one;
}

static const enum field_id grant_lists[] = {FIELD_ALLOW_READ, FIELD_ALLOW_WRITE, FIELD_MOUNTS};

static struct shown find_grant(const struct policy *p, const char *path)
{
    struct shown best = {0};
    for (size_t l = 0; l < ARRAY_SIZE(grant_lists); l++) {
        enum field_id id = grant_lists[l];
        const struct policy_value *v = policy_value(p, id);
        bool mounts = id == FIELD_MOUNTS;
        if (!mounts && policy_bool(p, FIELD_VIRTUAL_FS))
            continue;
        for (size_t i = 0; i < v->n_items; i++) {
            const struct policy_item *item = &v->items[i];
            struct shown one = {id, item, item->text, mounts ? item->extra : item->text,
                                mounts ? item->num != 0 : id == FIELD_ALLOW_WRITE};
            if (mounts || !str_eq(item->text, "/tmp")) /* /tmp means the private one */
                consider(&best, &one, path);
        }
    }
    const struct policy_value *w = policy_value(p, FIELD_WORKSPACE);
    if (w->set && w->num != WORKSPACE_NONE) {
        struct shown one = {FIELD_WORKSPACE, NULL, w->text, "/workspace", w->num != WORKSPACE_RO};
        consider(&best, &one, path);
    }
    return best;
}

/* A folder on the way to what is granted is there, and empty but for that. */
static bool leads_to_grant(const struct policy *p, const char *path)
{
    for (size_t l = 0; l < ARRAY_SIZE(grant_lists); l++) {
        const struct policy_value *v = policy_value(p, grant_lists[l]);
        for (size_t i = 0; i < v->n_items; i++)
            if (is_below(grant_lists[l] == FIELD_MOUNTS ? v->items[i].extra : v->items[i].text,
                         path))
                return true;
    }
    return false;
}

/* The pattern matches the path or a folder above it. */
static bool pattern_covers(const char *pattern, const char *path)
{
    char folder[4096], part[4096];
    if (strlen(pattern) >= sizeof(folder) || strlen(path) >= sizeof(part))
        return true; /* too long to tell: covered */
    size_t len = strlen(pattern);
    memcpy(folder, pattern, len + 1);
    if (len > 3 && str_eq(folder + len - 3, "/**"))
        folder[len - 3] = '\0';
    for (size_t end = 1;; end++) {
        if (path[end] != '/' && path[end] != '\0')
            continue;
        memcpy(part, path, end);
        part[end] = '\0';
        if (fnmatch(folder, part, FNM_PATHNAME) == 0)
            return true;
        if (!path[end])
            return false;
    }
}

static const struct policy_item *find_denial(const struct policy *p, const struct shown *shown,
                                             const char *path)
{
    const struct policy_value *v = policy_value(p, FIELD_DENY_PATTERNS);
    char host[4096];
    const char *rest = path + strlen(shown->target);
    int n = snprintf(host, sizeof(host), "%s%s%s", str_eq(shown->source, "/") ? "" : shown->source,
                     *rest && *rest != '/' ? "/" : "", rest);
    for (size_t i = 0; i < v->n_items; i++) {
        if (n < 0 || (size_t)n >= sizeof(host) || pattern_covers(v->items[i].text, host))
            return &v->items[i];
    }
    return NULL;
}

static void why_granted(const struct policy *p, const struct shown *shown, const char *path,
                        bool write, struct why *ret)
{
    const struct policy_item *denial = find_denial(p, shown, path);
    bool allowed = !write || shown->writable;
    if (denial)
        answer_item(ret, false, FIELD_DENY_PATTERNS, denial);
    else if (shown->item)
        answer_item(ret, allowed, shown->id, shown->item);
    else
        answer_value(ret, allowed, shown->id, policy_value(p, shown->id));
}

/* What every guest has, whatever the policy grants. */
static void why_built_in(const struct policy *p, const char *path, bool write, struct why *ret)
{
    static const char *const scratch[] = {"/tmp", "/home/sandbox", "/dev/shm"};
    static const char *const runtime[] = {"/usr",   "/bin",   "/sbin",  "/lib",
                                          "/lib32", "/lib64", "/libx32"};
    static const char *const etc[] = {"/etc/passwd",
                                      "/etc/group",
                                      "/etc/hosts",
                                      "/etc/hostname",
                                      "/etc/environment",
                                      "/etc/resolv.conf",
                                      "/etc/nsswitch.conf",
                                      "/etc/services",
                                      "/etc/protocols",
                                      "/etc/localtime",
                                      "/etc/os-release",
                                      "/etc/ld.so.cache",
                                      "/etc/alternatives",
                                      "/etc/ssl/certs",
                                      "/etc/ssl/openssl.cnf",
                                      "/etc/pki/ca-trust",
                                      "/etc/pki/tls/certs",
                                      "/etc/crypto-policies",
                                      "/etc/java-11-openjdk",
                                      "/etc/java-17-openjdk",
                                      "/etc/java-21-openjdk",
                                      "/etc/php",
                                      "/etc/R",
                                      "/etc/perl",
                                      "/etc/fonts"};
    static const char *const devices[] = {
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
        "/dev/ptmx", "/dev/pts",  "/dev/fd",   "/dev/stdin",  "/dev/stdout",  "/dev/stderr"};
    const char *temp = policy_text(p, FIELD_TEMP_DIR);

    for (size_t i = 0; i < ARRAY_SIZE(scratch); i++) {
        char rule[64];
        snprintf(rule, sizeof(rule), "private %s", scratch[i]);
        if (is_below(path, scratch[i])) {
            answer(ret, true, rule);
            ret->is_scratch = !str_eq(path, scratch[i]) && !leads_to_grant(p, path);
            return;
        }
    }
    if (policy_bool(p, FIELD_TEMP_DIR) && temp[0] && is_below(path, temp))
        answer_value(ret, true, FIELD_TEMP_DIR, policy_value(p, FIELD_TEMP_DIR));
    else if (is_below_any(path, devices, ARRAY_SIZE(devices)))
        answer(ret, true, "private /dev");
    else if (is_below_any(path, runtime, ARRAY_SIZE(runtime)))
        answer(ret, !write, write ? "runtime is read-only" : "runtime");
    else if (is_below_any(path, etc, ARRAY_SIZE(etc)))
        answer(ret, !write, write ? "/etc is read-only" : "private /etc");
    else if (is_below(path, "/proc"))
        answer(ret, !write, write ? "/proc is read-only" : "private /proc, dangerous parts masked");
    else if (str_eq(path, "/") || str_eq(path, "/etc") || str_eq(path, "/etc/ssl") ||
             str_eq(path, "/dev") || str_eq(path, "/home"))
        answer(ret, !write, write ? "root is read-only" : "root");
    else
        answer(ret, false, "default");
}

int why_path(const struct policy *policy, const char *path, bool write, struct why *ret_why,
             struct cordon_err *err)
{
    const struct policy_value *w = policy_value(policy, FIELD_WORKSPACE);
    const char *cwd = w->set && w->num != WORKSPACE_NONE ? "/workspace" : "/home/sandbox";
    if (!*path)
        return err_set(err, CORDON_ERR_USAGE, "usage", 0, "--path: the value is empty");
    _cleanup_free_ char *full = value_path(cwd, path);
    if (!full)
        return err_nomem(err, "policy");
    struct shown shown = find_grant(policy, full);
    if (shown.target)
        why_granted(policy, &shown, full, write, ret_why);
    else
        why_built_in(policy, full, write, ret_why);
    if (*path != '/' && !w->set)
        ret_why->note = "a relative path is the guest's own, below its working directory; give "
                        "the whole path of a file of the host";
    return 0;
}

/* ---- hosts ------------------------------------------------------------------------------------
 */

/* HOST[:PORT] as a rule or a program would write it; V6 also without brackets. */
static int read_target(const char *text, struct nethost *ret_host, uint16_t *ret_port,
                       enum netrule_proto *ret_proto, struct cordon_err *err)
{
    struct netrule rule;
    char why[NETRULE_WHY_MAX];
    *ret_proto = NETRULE_TCP;
    if (nethost_parse_written(text, strlen(text), ret_host, ret_port))
        return 0;
    if (netrule_parse(text, &rule, why) < 0) {
        err_set(err, CORDON_ERR_USAGE, "usage", 0, "--host: '%.200s' %s", text, why);
        policy_err_clean(err);
        return -1;
    }
    if (!netrule_is_exact(&rule))
        return err_set(err, CORDON_ERR_USAGE, "usage", 0,
                       "--host: '%.200s' is a pattern; write HOST:PORT", text);
    *ret_host = (struct nethost){.is_addr = rule.kind == NETRULE_ADDRESS};
    memcpy(ret_host->name, rule.host, sizeof(rule.host));
    memcpy(ret_host->addr, rule.addr, sizeof(rule.addr));
    *ret_port = rule.port;
    *ret_proto = rule.proto;
    return 0;
}

/* A rule may name the host's loopback so, but no guest gets there by that name or address. */
static bool is_guests_own(const struct nethost *asked)
{
    return asked->is_addr ? netset_is_loopback(asked->addr) : str_eq(asked->name, "localhost");
}

int why_host(const struct policy *policy, const char *host, struct why *ret_why,
             struct cordon_err *err)
{
    struct nethost asked;
    struct netset set;
    uint16_t port;
    enum netrule_proto proto;
    if (read_target(host, &asked, &port, &proto, err) < 0)
        return -1;
    if (policy_num(policy, FIELD_NETWORK) == NETWORK_HOST) {
        answer_value(ret_why, true, FIELD_NETWORK, policy_value(policy, FIELD_NETWORK));
        return 0;
    }
    if (netset_make(policy, &set, err) < 0)
        return -1;
    struct netset_verdict v = asked.is_addr ? netset_addr(&set, asked.addr, proto, port)
                                            : netset_name(&set, asked.name, proto, port);
    if (v.allowed && asked.is_addr && !set.everything && !netset_has_route(&set, asked.addr))
        v = (struct netset_verdict){.rule = "default", .origin = ""};
    answer(ret_why, v.allowed, v.rule);
    snprintf(ret_why->origin, sizeof(ret_why->origin), "%s", v.origin);
    bool by_default = !v.allowed && str_eq(v.rule, "default");
    netset_done(&set); /* and the rule's text with it */
    const struct policy_value *none = policy_value(policy, FIELD_NETWORK);
    /* that nothing is allowed is the default, unless somebody said so */
    if (by_default && none->num == NETWORK_NONE && none->set && none->origin.source != FROM_BUILTIN)
        answer_value(ret_why, false, FIELD_NETWORK, none);
    if (is_guests_own(&asked))
        ret_why->note = "inside, this is the guest's own loopback; the host's is " NETSET_HOST_NAME;
    return 0;
}
