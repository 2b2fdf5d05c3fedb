/* Reads Docker/OCI seccomp profiles; with seccomp_json.c the only part of the filter that knows
 * JSON. Called by the planner when a policy names a profile, in the parent process. Strict:
 * a key, action, operator or architecture that is not understood is an error with its place,
 * because a rule that is silently skipped is a wall that silently is not there. */
#include "plan/seccomp_profile.h"

#include <errno.h>
#include <stdio.h>
#include <sys/utsname.h>

#include "base/err.h"
#include "base/util.h"
#include "plan/seccomp_json.h"

#define PROFILE_MAX_BYTES (4 << 20)
#define PROFILE_MAX_RULES 4096 /* each takes instructions; a program has as many at most */
#define CONDITIONS_MAX 32
#define NO_ERRNO (-1)

struct reader {
    struct seccomp_json json;
    struct seccomp_profile *profile;
    size_t rules_cap;
    struct buf *notes;
};

/* A list of our own, in the order of the numbers: not every C library knows the names. */
static int errno_by_name(const char *name)
{
    static const char names[] =
        "EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES "
        "EFAULT ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY "
        "ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK "
        "ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH "
        "ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT - EBFONT ENOSTR ENODATA ETIME "
        "ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG "
        "EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ "
        "ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT "
        "EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE "
        "EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN "
        "ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY "
        "EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM "
        "EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD "
        "ENOTRECOVERABLE ERFKILL EHWPOISON";
    size_t len = strlen(name);
    const char *s = names;
    for (int number = 1; name[0] == 'E'; number++) {
        size_t n = strcspn(s, " ");
        if (n == len && memcmp(s, name, n) == 0)
            return number;
        if (s[n] == '\0')
            break;
        s += n + 1;
    }
    return -1;
}

/* The number under `number_key` (Docker, OCI) or the name under `name_key` (Podman, which lets the
 * name win); NO_ERRNO if neither is there. */
static int read_errno(const struct reader *r, const struct seccomp_json_place *at,
                      const struct jsonr_node *object, const char *number_key, const char *name_key,
                      int *ret)
{
    uint64_t number;
    bool given;
    const char *text;
    if (seccomp_json_unsigned(&r->json, at, object, number_key, 4095, &number, &given) < 0 ||
        seccomp_json_string(&r->json, at, object, name_key, &text) < 0)
        return -1;
    int error = given ? (int)number : NO_ERRNO;
    if (text && text[0]) {
        error = errno_by_name(text);
        if (error < 0)
            return seccomp_json_fail(&r->json, SECCOMP_JSON_KEY(at, name_key),
                                     "unknown error \"%.32s\"", text);
    }
    *ret = error;
    return 0;
}

/* An action as an errno or SECCOMP_PROFILE_ALLOW. */
static int read_action(const struct reader *r, const struct seccomp_json_place *at,
                       const struct jsonr_node *object, const char *key, int error, int *ret)
{
    static const struct {
        const char *name;
        bool allows, takes_errno;
    } actions[] = {
        {"SCMP_ACT_ALLOW", true, false},        {"SCMP_ACT_LOG", true, false},
        {"SCMP_ACT_ERRNO", false, true},        {"SCMP_ACT_TRACE", false, true},
        {"SCMP_ACT_TRAP", false, false},        {"SCMP_ACT_KILL", false, false},
        {"SCMP_ACT_KILL_THREAD", false, false}, {"SCMP_ACT_KILL_PROCESS", false, false},
        {"SCMP_ACT_NOTIFY", false, false},
    };
    const struct seccomp_json_place *here = SECCOMP_JSON_KEY(at, key);
    const char *text;
    if (seccomp_json_string(&r->json, at, object, key, &text) < 0)
        return -1;
    if (!text)
        return seccomp_json_fail(&r->json, here, "is missing");
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        if (!str_eq(text, actions[i].name))
            continue;
        if (error != NO_ERRNO && !actions[i].takes_errno)
            return seccomp_json_fail(&r->json, here, "%s takes no error number", text);
        if (actions[i].allows)
            *ret = SECCOMP_PROFILE_ALLOW;
        else
            *ret = str_eq(text, "SCMP_ACT_ERRNO") && error != NO_ERRNO ? error : EPERM;
        return 0;
    }
    return seccomp_json_fail(&r->json, here, "unknown action \"%.64s\"", text);
}

static bool is_architecture(const char *name)
{
    static const char known[] =
        " X86 X86_64 X32 ARM AARCH64 MIPS MIPS64 MIPS64N32 MIPSEL MIPSEL64 MIPSEL64N32 PPC PPC64 "
        "PPC64LE S390 S390X PARISC PARISC64 RISCV64 LOONGARCH64 M68K SH SHEB ";
    char padded[64];
    if (!str_starts(name, "SCMP_ARCH_") || strchr(name, ' '))
        return false;
    int n = snprintf(padded, sizeof(padded), " %s ", name + strlen("SCMP_ARCH_"));
    return n > 2 && n < (int)sizeof(padded) && strstr(known, padded);
}

static int check_architectures(const struct reader *r, const struct seccomp_json_place *at,
                               const struct jsonr_node *list)
{
    size_t i = 0;
    for (const struct jsonr_node *item = jsonr_first(list); item; item = item->next, i++) {
        const char *text = jsonr_cstr(item);
        if (!is_architecture(text))
            return seccomp_json_fail(&r->json, SECCOMP_JSON_ITEM(at, i),
                                     "unknown architecture \"%.64s\"", text);
    }
    return 0;
}

/* The profile must be meant for x86-64. Its other architectures make no difference: their entry
 * points are closed to the guest. */
static int read_architectures(const struct reader *r, const struct jsonr_node *root)
{
    static const char ours[] = "SCMP_ARCH_X86_64";
    const struct seccomp_json *j = &r->json;
    const struct seccomp_json_place *list_at = SECCOMP_JSON_KEY(NULL, "architectures");
    const struct seccomp_json_place *map_at = SECCOMP_JSON_KEY(NULL, "archMap");
    const struct jsonr_node *list, *map;
    if (seccomp_json_strings(j, NULL, root, "architectures", &list) < 0 ||
        seccomp_json_get(j, NULL, root, "archMap", JSONR_ARRAY, &map) < 0 ||
        check_architectures(r, list_at, list) < 0)
        return -1;
    bool found = seccomp_json_has(list, ours);
    const struct jsonr_node *entry = jsonr_first(map), *subs;
    for (size_t i = 0; entry; entry = entry->next, i++) {
        const struct seccomp_json_place *at = SECCOMP_JSON_ITEM(map_at, i);
        const char *text;
        if (seccomp_json_keys(j, at, entry, " architecture subArchitectures ") < 0 ||
            seccomp_json_string(j, at, entry, "architecture", &text) < 0 ||
            seccomp_json_strings(j, at, entry, "subArchitectures", &subs) < 0 ||
            check_architectures(r, SECCOMP_JSON_KEY(at, "subArchitectures"), subs) < 0)
            return -1;
        if (!text || !is_architecture(text))
            return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, "architecture"),
                                     "unknown architecture \"%.64s\"", text ? text : "");
        found = found || str_eq(text, ours) || seccomp_json_has(subs, ours);
    }
    if (!found && (jsonr_count(list) > 0 || jsonr_count(map) > 0))
        return seccomp_json_fail(j, list ? list_at : map_at, "does not include %s", ours);
    return 0;
}

/* "4.8": is the running kernel at least that? */
static int kernel_at_least(const struct reader *r, const struct seccomp_json_place *at,
                           const char *text, bool *ret)
{
    unsigned major, minor, have_major, have_minor;
    int end = 0;
    if (strspn(text, "0123456789.") != strlen(text) ||
        sscanf(text, "%5u.%5u%n", &major, &minor, &end) != 2 || text[end] != '\0')
        return seccomp_json_fail(&r->json, at, "\"%.32s\" is not a kernel version like \"4.8\"",
                                 text);
    struct utsname u;
    if (uname(&u) < 0 || sscanf(u.release, "%5u.%5u", &have_major, &have_minor) != 2)
        return err_set(r->json.err, CORDON_ERR_INTERNAL, "policy", 0, "uname: no kernel version");
    *ret = have_major != major ? have_major > major : have_minor >= minor;
    return 0;
}

struct filter {
    bool caps;             /* names capabilities */
    bool arches, our_arch; /* names architectures, ours among them */
    bool kernel, kernel_ok;
};

static int read_filter(const struct reader *r, const struct seccomp_json_place *at,
                       const struct jsonr_node *entry, const char *key, struct filter *ret)
{
    const struct seccomp_json *j = &r->json;
    const struct seccomp_json_place *here = SECCOMP_JSON_KEY(at, key);
    const struct jsonr_node *object, *caps, *arches;
    const char *kernel;
    *ret = (struct filter){0};
    if (seccomp_json_get(j, at, entry, key, JSONR_OBJECT, &object) < 0)
        return -1;
    if (!object)
        return 0;
    if (seccomp_json_keys(j, here, object, " caps arches minKernel ") < 0 ||
        seccomp_json_strings(j, here, object, "caps", &caps) < 0 ||
        seccomp_json_strings(j, here, object, "arches", &arches) < 0 ||
        seccomp_json_string(j, here, object, "minKernel", &kernel) < 0)
        return -1;
    ret->caps = jsonr_count(caps) > 0;
    ret->arches = jsonr_count(arches) > 0;
    ret->our_arch = seccomp_json_has(arches, "amd64");
    ret->kernel = kernel && kernel[0];
    if (!ret->kernel)
        return 0;
    return kernel_at_least(r, SECCOMP_JSON_KEY(here, "minKernel"), kernel, &ret->kernel_ok);
}

/* Does the entry apply here? The guest has no capability, so no `includes.caps` is met and no
 * `excludes.caps` excludes. */
static int read_applies(const struct reader *r, const struct seccomp_json_place *at,
                        const struct jsonr_node *entry, bool *ret)
{
    struct filter in, out;
    if (read_filter(r, at, entry, "includes", &in) < 0 ||
        read_filter(r, at, entry, "excludes", &out) < 0)
        return -1;
    bool included = !in.caps && (!in.arches || in.our_arch) && (!in.kernel || in.kernel_ok);
    bool excluded = out.our_arch || (out.kernel && out.kernel_ok);
    *ret = included && !excluded;
    return 0;
}

static int read_cmp(const struct reader *r, const struct seccomp_json_place *at,
                    const struct jsonr_node *object, struct seccomp_profile_cmp *ret)
{
    static const char *const ops[] = {
        [SECCOMP_CMP_EQ] = "SCMP_CMP_EQ",
        [SECCOMP_CMP_NE] = "SCMP_CMP_NE",
        [SECCOMP_CMP_LT] = "SCMP_CMP_LT",
        [SECCOMP_CMP_LE] = "SCMP_CMP_LE",
        [SECCOMP_CMP_GE] = "SCMP_CMP_GE",
        [SECCOMP_CMP_GT] = "SCMP_CMP_GT",
        [SECCOMP_CMP_MASKED_EQ] = "SCMP_CMP_MASKED_EQ",
    };
    const struct seccomp_json *j = &r->json;
    uint64_t index, value, value_two;
    bool has_index, has_value, has_two;
    const char *op;
    if (seccomp_json_keys(j, at, object, " index value valueTwo op ") < 0 ||
        seccomp_json_unsigned(j, at, object, "index", 5, &index, &has_index) < 0 ||
        seccomp_json_unsigned(j, at, object, "value", INT64_MAX, &value, &has_value) < 0 ||
        seccomp_json_unsigned(j, at, object, "valueTwo", INT64_MAX, &value_two, &has_two) < 0 ||
        seccomp_json_string(j, at, object, "op", &op) < 0)
        return -1;
    if (!has_index || !has_value || !op)
        return seccomp_json_fail(j, at, "needs \"index\", \"value\" and \"op\"");
    for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
        if (str_eq(op, ops[i])) {
            *ret = (struct seccomp_profile_cmp){i, (unsigned)index, value, value_two};
            return 0;
        }
    }
    return seccomp_json_fail(j, SECCOMP_JSON_KEY(at, "op"), "unknown operator \"%.64s\"", op);
}

/* The conditions of an entry. */
struct conditions {
    struct seccomp_profile_cmp list[CONDITIONS_MAX];
    size_t len;
    bool repeat; /* two of them look at the same argument */
};

static int read_conditions(const struct reader *r, const struct seccomp_json_place *at,
                           const struct jsonr_node *entry, struct conditions *ret)
{
    const struct seccomp_json_place *list = SECCOMP_JSON_KEY(at, "args");
    const struct jsonr_node *args;
    if (seccomp_json_get(&r->json, at, entry, "args", JSONR_ARRAY, &args) < 0)
        return -1;
    if (jsonr_count(args) > CONDITIONS_MAX)
        return seccomp_json_fail(&r->json, list, "more than %d conditions", CONDITIONS_MAX);
    unsigned seen = 0;
    ret->len = jsonr_count(args);
    ret->repeat = false;
    const struct jsonr_node *arg = jsonr_first(args);
    for (size_t i = 0; arg; arg = arg->next, i++) {
        if (read_cmp(r, SECCOMP_JSON_ITEM(list, i), arg, &ret->list[i]) < 0)
            return -1;
        unsigned bit = 1u << ret->list[i].index;
        ret->repeat = ret->repeat || (seen & bit);
        seen |= bit;
    }
    return 0;
}

static int add_rule(struct reader *r, const struct seccomp_json_place *at,
                    const struct seccomp_profile_rule *rule)
{
    struct seccomp_profile *p = r->profile;
    if (p->rules_len == PROFILE_MAX_RULES)
        return seccomp_json_fail(&r->json, at, "more than %d rules with conditions",
                                 PROFILE_MAX_RULES);
    if (p->rules_len == r->rules_cap) {
        size_t cap = r->rules_cap ? r->rules_cap * 2 : 32;
        struct seccomp_profile_rule *rules = realloc(p->rules, cap * sizeof(*rules));
        if (!rules)
            return err_nomem(r->json.err, "policy");
        p->rules = rules;
        r->rules_cap = cap;
    }
    p->rules[p->rules_len++] = *rule;
    p->calls[rule->nr].has_rules = true;
    return 0;
}

/* One call of an entry: its conditions together, or, as the OCI runtimes do it, each on its own
 * when two of them look at the same argument. */
static int add_call(struct reader *r, const struct seccomp_json_place *at, const char *name,
                    int action, const struct conditions *c)
{
    int nr = seccomp_call_number(name);
    if (nr < 0) {
        char shown[65];
        snprintf(shown, sizeof(shown), "%s", name);
        seccomp_json_defuse(shown);
        if (r->notes)
            buf_printf(r->notes, "syscalls[%zu]: no call \"%s\" on x86-64\n", at->index, shown);
        return 0;
    }
    struct seccomp_profile_call *call = &r->profile->calls[nr];
    struct seccomp_profile_rule rule = {.nr = (unsigned)nr, .action = action};
    if (c->len == 0 && action == SECCOMP_PROFILE_ALLOW) {
        call->allow = true;
    } else if (c->len == 0 && !call->deny) {
        call->deny = true;
        call->error = (uint16_t)action;
    } else if (c->len > 0 && !c->repeat) {
        rule.cmps_len = (unsigned)c->len; /* at most six, one per argument */
        memcpy(rule.cmps, c->list, c->len * sizeof(c->list[0]));
        return add_rule(r, at, &rule);
    }
    rule.cmps_len = 1;
    for (size_t i = 0; i < c->len; i++) {
        rule.cmps[0] = c->list[i];
        if (add_rule(r, at, &rule) < 0)
            return -1;
    }
    return 0;
}

static int read_entry(struct reader *r, const struct seccomp_json_place *at,
                      const struct jsonr_node *entry)
{
    const struct seccomp_json *j = &r->json;
    int error, action;
    bool applies;
    const struct jsonr_node *names;
    const char *name, *comment;
    struct conditions conditions;
    if (seccomp_json_keys(j, at, entry,
                          " names name action errnoRet errno args comment includes excludes ") <
            0 ||
        read_errno(r, at, entry, "errnoRet", "errno", &error) < 0 ||
        read_action(r, at, entry, "action", error, &action) < 0 ||
        seccomp_json_strings(j, at, entry, "names", &names) < 0 ||
        seccomp_json_string(j, at, entry, "name", &name) < 0 ||
        seccomp_json_string(j, at, entry, "comment", &comment) < 0 ||
        read_conditions(r, at, entry, &conditions) < 0 || read_applies(r, at, entry, &applies) < 0)
        return -1;
    bool one = name && name[0]; /* Docker writes it empty beside "names" */
    if (one == (jsonr_count(names) > 0))
        return seccomp_json_fail(j, at, "needs either \"names\" or \"name\"");
    if (!applies)
        return 0;
    if (one)
        return add_call(r, at, name, action, &conditions);
    for (const struct jsonr_node *item = jsonr_first(names); item; item = item->next)
        if (add_call(r, at, jsonr_cstr(item), action, &conditions) < 0)
            return -1;
    return 0;
}

static int read_root(struct reader *r, const struct jsonr_node *root)
{
    const struct seccomp_json *j = &r->json;
    const struct seccomp_json_place *list = SECCOMP_JSON_KEY(NULL, "syscalls");
    int error;
    const struct jsonr_node *calls, *flags;
    const char *listener, *metadata;
    if (seccomp_json_keys(j, NULL, root,
                          " defaultAction defaultErrnoRet defaultErrno architectures archMap flags "
                          "syscalls listenerPath listenerMetadata ") < 0 ||
        read_errno(r, NULL, root, "defaultErrnoRet", "defaultErrno", &error) < 0 ||
        read_action(r, NULL, root, "defaultAction", error, &r->profile->default_action) < 0 ||
        read_architectures(r, root) < 0 ||
        seccomp_json_strings(j, NULL, root, "flags", &flags) < 0 ||
        seccomp_json_string(j, NULL, root, "listenerPath", &listener) < 0 ||
        seccomp_json_string(j, NULL, root, "listenerMetadata", &metadata) < 0 ||
        seccomp_json_get(j, NULL, root, "syscalls", JSONR_ARRAY, &calls) < 0)
        return -1;
    if (r->notes && jsonr_count(flags) > 0)
        buf_str(r->notes, "flags: no effect here\n");
    if (r->notes && listener && listener[0])
        buf_str(r->notes, "listenerPath: no effect here, notified calls answer EPERM\n");
    const struct jsonr_node *entry = jsonr_first(calls);
    for (size_t i = 0; entry; entry = entry->next, i++)
        if (read_entry(r, SECCOMP_JSON_ITEM(list, i), entry) < 0)
            return -1;

    uint16_t key = seccomp_profile_key(r->profile, (unsigned)seccomp_call_number("execve"));
    if (seccomp_profile_key_is_denial(key))
        return seccomp_json_fail(j, list, "execve is refused, so no command could be started");
    return 0;
}

int seccomp_profile_build(const struct seccomp_options *options, const char *name, const char *json,
                          size_t len, struct seccomp_prog *ret_prog, struct buf *notes,
                          struct cordon_err *err)
{
    const struct jsonr_source source = {
        .name = name,
        .text = json,
        .len = len,
        .max_bytes = PROFILE_MAX_BYTES,
        .code = CORDON_ERR_CONFIG,
        .stage = "policy",
    };
    struct arena arena = {0};
    const struct jsonr_node *root;
    if (jsonr_parse(&source, &arena, &root, err) < 0) {
        arena_done(&arena);
        return -1;
    }

    struct seccomp_profile profile = {0};
    struct reader r = {.json = {name, err}, .profile = &profile, .notes = notes};
    int result = read_root(&r, root);
    if (result == 0) {
        result = seccomp_build_with(options, &profile, ret_prog, err);
        if (result < 0)
            err_prefix(err, "%s", name);
    }
    free(profile.rules);
    arena_done(&arena);
    return result;
}
