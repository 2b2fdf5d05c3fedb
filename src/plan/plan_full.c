/* The guest's root in tier full, as a list of operations: SPEC section 4 line by line.
 *
 * Order matters where one thing lies inside another: folders and links, the runtime, /etc, /proc
 * with its masks, /dev, the scratch tmpfs, and last the caller's grants, parents before children.
 */
#include "plan/plan_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"

static struct plan_op *full_op(struct plan *p, enum plan_op_kind kind, const char *src,
                               const char *dst, unsigned flags, mode_t mode)
{
    struct plan_op *ops = plan_grow(p, p->ops, p->n_ops, &p->cap_ops, sizeof(*ops));
    if (!ops || !dst)
        return NULL;
    p->ops = ops;
    ops[p->n_ops] =
        (struct plan_op){.kind = kind, .src = src, .dst = dst, .flags = flags, .mode = mode};
    return &ops[p->n_ops++];
}

static int full_file(struct plan *p, const char *dst, const char *text)
{
    struct plan_op *op = full_op(p, PLAN_OP_FILE, NULL, dst, 0, 0644);
    if (!op)
        return -1;
    op->data = text;
    op->data_len = strlen(text);
    return 0;
}

int plan_full_op(struct plan *p, enum plan_op_kind kind, const char *src, const char *dst,
                 unsigned flags)
{
    return full_op(p, kind, src, dst, flags, 0) ? 0 : -1;
}

int plan_full_scratch(struct plan *p, const char *src, const char *dst, unsigned flags, mode_t mode)
{
    return full_op(p, PLAN_OP_SCRATCH, src, dst, flags, mode) ? 0 : -1;
}

static int full_folders(struct plan *p, bool image)
{
    static const char *const plain[] = {"etc", "home", "dev", "tmp", "var", "run", PLAN_EMPTY_DIR};
    static const char *const host[] = {"opt", "root"};
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        if (!full_op(p, PLAN_OP_DIR, NULL, plain[i], 0, 0755))
            return -1;
    for (size_t i = 0; !image && i < ARRAY_SIZE(host); i++)
        if (!full_op(p, PLAN_OP_DIR, NULL, host[i], 0, 0755))
            return -1;
    return 0;
}

/* /usr, and the top folders that are links into it on merged systems or folders of their own. Not
 * those of 32-bit programs, which the filter refuses. */
static int full_runtime(struct plan *p, const struct host *host)
{
    if (!full_op(p, PLAN_OP_BIND, "/usr", "usr", 0, 0))
        return -1;
    const struct {
        const char *name, *path, *link;
        bool present, merged;
    } tops[] = {
        {"bin", "/bin", "usr/bin", true, host->merged_bin},
        {"sbin", "/sbin", "usr/sbin", true, host->merged_sbin},
        {"lib", "/lib", "usr/lib", true, host->merged_lib},
        {"lib64", "/lib64", "usr/lib64", host->has_lib64, host->merged_lib64},
    };
    for (size_t i = 0; i < ARRAY_SIZE(tops); i++) {
        if (!tops[i].present)
            continue;
        bool ok = tops[i].merged
                      ? full_op(p, PLAN_OP_SYMLINK, tops[i].link, tops[i].name, 0, 0) != NULL
                      : full_op(p, PLAN_OP_BIND, tops[i].path, tops[i].name, PLAN_BIND_OPTIONAL,
                                0) != NULL;
        if (!ok)
            return -1;
    }
    return 0;
}

/* Parts of the host's /etc that runtimes cannot do without; everything else there is ours. */
static int full_etc_binds(struct plan *p)
{
    static const struct {
        const char *src, *dst;
        bool file;
    } rows[] = {
        {"/etc/ld.so.cache", "etc/ld.so.cache", true},
        {"/etc/alternatives", "etc/alternatives", false},
        {"/etc/ssl/certs", "etc/ssl/certs", false},
        {"/etc/ssl/openssl.cnf", "etc/ssl/openssl.cnf", true},
        {"/etc/pki/ca-trust", "etc/pki/ca-trust", false},
        {"/etc/pki/tls/certs", "etc/pki/tls/certs", false},
        {"/etc/crypto-policies", "etc/crypto-policies", false},
        {"/etc/java-11-openjdk", "etc/java-11-openjdk", false},
        {"/etc/java-17-openjdk", "etc/java-17-openjdk", false},
        {"/etc/java-21-openjdk", "etc/java-21-openjdk", false},
        {"/etc/php", "etc/php", false},
        {"/etc/R", "etc/R", false},
        {"/etc/perl", "etc/perl", false},
        {"/etc/fonts", "etc/fonts", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (access(rows[i].src, F_OK) < 0)
            continue;
        unsigned flags =
            PLAN_BIND_OPTIONAL | PLAN_BIND_NOEXEC | (rows[i].file ? PLAN_BIND_FILE : 0);
        if (!full_op(p, PLAN_OP_BIND, rows[i].src, rows[i].dst, flags, 0))
            return -1;
    }
    return 0;
}

/* Links of the host's /etc that point into /usr are made again with the same target. */
static int full_etc_link(struct plan *p, const char *host_path, const char *dst)
{
    char target[256];
    ssize_t n = readlink(host_path, target, sizeof(target) - 1);
    if (n <= 0)
        return 0;
    target[n] = '\0';
    if (!str_starts(target, "/usr/") && !str_starts(target, "../usr/"))
        return 0;
    return full_op(p, PLAN_OP_SYMLINK, arena_strdup(&p->arena, target), dst, 0, 0) ? 0 : -1;
}

/* Names that programs ask for by getservbyname() and getprotobyname(). Ours, not the host's: many
 * hosts have none, and a file costs a start less than a bind mount. */
static const char full_services[] =
    "tcpmux 1/tcp\necho 7/tcp\necho 7/udp\ndiscard 9/tcp sink null\ndiscard 9/udp sink null\n"
    "systat 11/tcp users\ndaytime 13/tcp\ndaytime 13/udp\nqotd 17/tcp quote\n"
    "chargen 19/tcp ttytst source\nchargen 19/udp ttytst source\nftp-data 20/tcp\nftp 21/tcp\n"
    "ssh 22/tcp\ntelnet 23/tcp\nsmtp 25/tcp mail\ntime 37/tcp timserver\ntime 37/udp timserver\n"
    "whois 43/tcp nicname\ndomain 53/tcp\ndomain 53/udp\nbootps 67/udp\nbootpc 68/udp\n"
    "tftp 69/udp\ngopher 70/tcp\nfinger 79/tcp\nhttp 80/tcp www\nkerberos 88/tcp krb5\n"
    "kerberos 88/udp krb5\npop3 110/tcp pop-3\nsunrpc 111/tcp portmapper\n"
    "sunrpc 111/udp portmapper\nauth 113/tcp ident\nnntp 119/tcp readnews\nntp 123/udp\n"
    "imap2 143/tcp imap\nsnmp 161/tcp\nsnmp 161/udp\nbgp 179/tcp\nirc 194/tcp\nldap 389/tcp\n"
    "ldap 389/udp\nhttps 443/tcp\nhttps 443/udp\nsyslog 514/udp\nprinter 515/tcp spooler\n"
    "submission 587/tcp\nipp 631/tcp\nldaps 636/tcp\ndomain-s 853/tcp\nrsync 873/tcp\n"
    "imaps 993/tcp\npop3s 995/tcp\nsocks 1080/tcp\nnfs 2049/tcp\nnfs 2049/udp\nmysql 3306/tcp\n"
    "postgresql 5432/tcp postgres\nx11 6000/tcp x11-0\nredis 6379/tcp\nhttp-alt 8080/tcp\n";
static const char full_protocols[] =
    "ip 0 IP\nicmp 1 ICMP\nigmp 2 IGMP\nipencap 4 IP-ENCAP\ntcp 6 TCP\negp 8 EGP\nudp 17 UDP\n"
    "ipv6 41 IPv6\nipv6-route 43 IPv6-Route\nipv6-frag 44 IPv6-Frag\ngre 47 GRE\n"
    "esp 50 IPSEC-ESP\nah 51 IPSEC-AH\nipv6-icmp 58 IPv6-ICMP\nipv6-nonxt 59 IPv6-NoNxt\n"
    "ipv6-opts 60 IPv6-Opts\nospf 89 OSPFIGP\nsctp 132 SCTP\nudplite 136 UDPLite\n";

/* How names are found: on the host's own network as the host does, else by the broker or not at
 * all. */
static int full_names(struct plan *p)
{
    static const char *const files[][2] = {{"/etc/hosts", "etc/hosts"},
                                           {"/etc/resolv.conf", "etc/resolv.conf"}};
    if (!p->host_network)
        return full_file(p, "etc/hosts", "127.0.0.1 localhost cordon\n::1 localhost cordon\n") |
               full_file(p, "etc/resolv.conf",
                         p->net ? "nameserver " PLAN_NET_DNS "\noptions timeout:2 attempts:2\n"
                                : "# no network\n");
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (access(files[i][0], F_OK) == 0 &&
            !full_op(p, PLAN_OP_BIND, files[i][0], files[i][1],
                     PLAN_BIND_OPTIONAL | PLAN_BIND_NOEXEC | PLAN_BIND_FILE, 0))
            return -1;
    return 0;
}

static int full_etc(struct plan *p)
{
    int r = 0;
    r |= full_file(p, "etc/passwd",
                   "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
    r |= full_file(p, "etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n");
    r |= full_file(p, "etc/hostname", PLAN_HOSTNAME "\n");
    r |= full_file(p, PLAN_EMPTY_FILE, "");
    r |= full_names(p);
    r |= full_file(p, "etc/nsswitch.conf",
                   "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"
                   "protocols: files\n");
    r |= full_file(p, "etc/services", full_services);
    r |= full_file(p, "etc/protocols", full_protocols);
    return r;
}

/* What is not ours: the host's own runtime, or the image that stands in for it. */
static int full_outside(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    if (req->rootfs) {
        p->rootfs = arena_strdup(&p->arena, req->rootfs);
        return p->rootfs ? plan_rootfs(p, p->rootfs, err) : err_nomem(err, "plan");
    }
    if (full_runtime(p, req->host) < 0 || full_etc_link(p, "/etc/localtime", "etc/localtime") < 0 ||
        full_etc_link(p, "/etc/os-release", "etc/os-release") < 0 || full_etc_binds(p) < 0)
        return err_nomem(err, "plan");
    return 0;
}

/* What /proc shows of the host's kernel and devices; an entry this kernel does not have is skipped
 * when it is to be covered. Files that every kernel closes to all but root (kcore, kmsg,
 * timer_list, slabinfo, vmallocinfo, pagetypeinfo, kpage*, sysrq-trigger) are left as they are: no
 * guest is host root or has a capability there, and each cover costs every start a few
 * microseconds. */
static int full_proc(struct plan *p)
{
    static const struct {
        const char *path;
        unsigned flags;
    } covers[] = {
        {"proc/kallsyms", 0},
        {"proc/keys", 0},
        {"proc/key-users", 0},
        {"proc/config.gz", 0},
        {"proc/cmdline", 0},
        {"proc/iomem", 0},
        {"proc/ioports", 0},
        {"proc/interrupts", 0},
        {"proc/modules", 0},
        {"proc/sched_debug", PLAN_MASK_RARE},
        {"proc/latency_stats", PLAN_MASK_RARE},
        {"proc/sys/kernel/random/boot_id", 0},
        {"proc/acpi", PLAN_MASK_DIR},
        {"proc/asound", PLAN_MASK_DIR},
        {"proc/bus", PLAN_MASK_DIR},
        {"proc/driver", PLAN_MASK_DIR},
        {"proc/fs", PLAN_MASK_DIR},
        {"proc/irq", PLAN_MASK_DIR},
        /* everybody may write there, each write makes a watch over the whole host */
        {"proc/pressure", PLAN_MASK_DIR},
        {"proc/scsi", PLAN_MASK_DIR},
        {"proc/tty", PLAN_MASK_DIR},
    };

    if (!full_op(p, PLAN_OP_PROC, NULL, "proc", 0, 0))
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(covers); i++)
        if (!full_op(p, PLAN_OP_MASK, NULL, covers[i].path, covers[i].flags, 0))
            return -1;
    return 0;
}

static int full_dev(struct plan *p)
{
    static const char *const nodes[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                        "/dev/random", "/dev/urandom", "/dev/tty"};
    static const char *const links[][2] = {
        {"/proc/self/fd", "dev/fd"},       {"/proc/self/fd/0", "dev/stdin"},
        {"/proc/self/fd/1", "dev/stdout"}, {"/proc/self/fd/2", "dev/stderr"},
        {"pts/ptmx", "dev/ptmx"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
        if (!full_op(p, PLAN_OP_BIND, nodes[i], nodes[i] + 1,
                     PLAN_BIND_DEV | PLAN_BIND_FILE | PLAN_BIND_RW, 0))
            return -1;
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (!full_op(p, PLAN_OP_SYMLINK, links[i][0], links[i][1], 0, 0))
            return -1;
    return full_op(p, PLAN_OP_DEVPTS, NULL, "dev/pts", 0, 0) ? 0 : -1;
}

/* tmp comes last: its folder covers the place the tmpfs itself is mounted on (see root.c). */
static int full_scratch(struct plan *p)
{
    if (!full_op(p, PLAN_OP_SCRATCH, "home", "home/sandbox", 0, 0755) ||
        !full_op(p, PLAN_OP_SCRATCH, "shm", "dev/shm", 0, 01777) ||
        !full_op(p, PLAN_OP_SCRATCH, "tmp", "tmp", 0, 01777))
        return -1;
    return 0;
}

/* The lower folder and the layer are bound at places of their own first: both may need the caller's
 * identity mapped, and the overlay takes them by name. */
static int full_overlay(struct plan *p, const struct plan_request *req, const struct plan_grant *g)
{
    struct plan_op *op;
    const char *layer = req->workspace_layer ? req->workspace_layer : "(made for the run)";
    unsigned owners = req->workspace_owners ? PLAN_BIND_OWNERS : 0;
    if (!full_op(p, PLAN_OP_BIND, g->src, PLAN_LOWER, PLAN_BIND_GRANT | owners, 0) ||
        !full_op(p, PLAN_OP_BIND, layer, PLAN_LAYER, PLAN_BIND_GRANT | PLAN_BIND_RW, 0) ||
        !(op = full_op(p, PLAN_OP_OVERLAY, g->src, g->dst + 1, PLAN_BIND_GRANT | PLAN_BIND_RW, 0)))
        return -1;
    /* volatile: without it the end of every run would write the host's whole file system out */
    op->data = "lowerdir=" PLAN_LOWER ",upperdir=" PLAN_LAYER "/upper,workdir=" PLAN_LAYER
               "/work,userxattr,volatile";
    return 0;
}

/* One grant; src is replaced where the guest works on a copy. */
static int full_grant(struct plan *p, const struct plan_request *req, const struct plan_grant *g)
{
    unsigned flags = (g->is_kernels ? PLAN_BIND_KERNELS | PLAN_BIND_NOEXEC : PLAN_BIND_GRANT) |
                     (g->write ? PLAN_BIND_RW : 0) | (g->is_dir ? 0 : PLAN_BIND_FILE) |
                     (g->optional ? PLAN_BIND_OPTIONAL : 0) | (g->is_device ? PLAN_BIND_DEV : 0);
    if (g->overlay && !req->workspace_copy)
        return full_overlay(p, req, g);
    const char *src = g->overlay && req->workspace_layer ? req->workspace_layer : g->src;
    if (g->overlay && !req->workspace_layer)
        flags &=
            ~(unsigned)PLAN_BIND_RW; /* a copy nobody has made yet: never the original itself */
    else if (g->overlay)
        flags |= PLAN_BIND_COPY;
    return full_op(p, PLAN_OP_BIND, src, g->dst + 1, flags, 0) ? 0 : -1;
}

/* Records of kept workspaces say where changes are applied to: they are nobody's to see or change.
 * A copy is mostly made without them. */
static int full_cover_state(struct plan *p, const struct plan_grant *g)
{
    struct stat st;
    const char *path = arena_printf(&p->arena, "%s/" PLAN_STATE_DIR, g->copy ? g->copy : g->src);
    if (!path)
        return -1;
    if (!g->is_dir || lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    path = arena_printf(&p->arena, "%s/" PLAN_STATE_DIR, g->dst);
    return path ? plan_full_mask(p, path, PLAN_MASK_DIR | (g->overlay ? PLAN_MASK_OPTIONAL : 0))
                : -1;
}

/* A policy that a guest could write would be obeyed by the next run in that folder: the one that is
 * there is shown read-only, and cannot be replaced since something is mounted on it. */
static int full_keep_policy(struct plan *p, const struct plan_grant *g)
{
    struct stat st;
    const char *src = arena_printf(&p->arena, "%s/cordon.toml", g->src);
    const char *dst = arena_printf(&p->arena, "%s/cordon.toml", g->dst);
    if (!src || !dst)
        return -1;
    if (!g->write || !g->is_dir || g->overlay || lstat(src, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    return full_op(p, PLAN_OP_BIND, src, dst + 1, PLAN_BIND_GRANT | PLAN_BIND_FILE, 0) ? 0 : -1;
}

/* A folder of the host that serves as the root is shown like a grant; one made of an archive is
 * nobody's files. */
static int full_deny_in_root(struct plan *p, const struct policy *policy, struct cordon_err *err)
{
    enum field_id id = policy_has(policy, FIELD_IMAGE) ? FIELD_IMAGE : FIELD_ROOTFS;
    char named[PATH_MAX], real[PATH_MAX];
    if (!policy_has(policy, id) || !realpath(policy_text(policy, id), named) ||
        !realpath(p->rootfs, real) || !str_eq(named, real))
        return 0;
    if (plan_deny_named(p, policy, policy_fields[id].key, real, err) < 0)
        return -1;
    struct plan_grant root = {.src = real, .dst = "", .real = real, .is_dir = true};
    return plan_deny_masks(p, policy, &root, 1, err);
}

int plan_full_grants(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    struct plan_grant *grants;
    size_t n;
    if (plan_grants(p, policy, &grants, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct plan_grant *g = &grants[i];
        g->copy = g->overlay && req->workspace_copy ? req->workspace_layer : NULL;
        if (plan_state_refuse(g, true, err) < 0)
            return -1;
        if (full_grant(p, req, g) < 0 || full_cover_state(p, g) < 0 || plan_state_cover(p, g) < 0 ||
            full_keep_policy(p, g) < 0)
            return err_nomem(err, "plan");
        if (g->is_socket && plan_socket_grant(p, g, err) < 0)
            return -1;
        if (g->is_kernels && p->backend != BACKEND_NATIVE) {
            err_set(err, CORDON_ERR_HOST, "plan", 0,
                    "%s: devices and /sys are shown to a guest of the native backend only", g->src);
            return err_hint(err, "use the native backend, or take the grant out");
        }
        if (g->write && !g->is_socket) {
            p->writes_host = p->writes_host || !g->is_device;
            if (plan_add_fence(p, g->dst, true, g->optional) < 0)
                return err_nomem(err, "plan");
        }
    }
    if (plan_sockets(p, grants, n, err) < 0)
        return -1;
    if (plan_deny_masks(p, policy, grants, n, err) < 0)
        return -1;
    return p->rootfs ? full_deny_in_root(p, policy, err) : 0;
}

int plan_full_mask(struct plan *p, const char *path, unsigned flags)
{
    return full_op(p, PLAN_OP_MASK, NULL, arena_strdup(&p->arena, path + 1), flags, 0) ? 0 : -1;
}

static int full_fences(struct plan *p)
{
    static const char *const writable[] = {"/tmp", PLAN_HOME, "/dev", "/proc"};
    if (plan_add_fence(p, "/", false, false) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(writable); i++)
        if (plan_add_fence(p, writable[i], true, false) < 0)
            return -1;
    return 0;
}

/* What was granted, from the first of its operations on, is only looked at: mounted read-only as
 * the system's files are, and no socket, device or part of /sys, nothing that a layer or an image
 * is made of. */
static bool full_is_looked_at(const struct plan *p, size_t first)
{
    const unsigned other = PLAN_BIND_RW | PLAN_BIND_DEV | PLAN_BIND_OWNERS | PLAN_BIND_HELD |
                           PLAN_BIND_KERNELS | PLAN_BIND_COPY;
    for (size_t i = first; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind != PLAN_OP_MASK && (op->kind != PLAN_OP_BIND || op->flags & other))
            return false;
    }
    for (size_t i = 0; i < p->n_fences; i++)
        if (p->fences[i].connects)
            return false;
    return true;
}

int plan_full(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    const struct policy *policy = req->policy;
    const char *tmp;

    p->host_network = policy_num(policy, FIELD_NETWORK) == NETWORK_HOST;
    if (plan_net(p, policy, err) < 0)
        return -1;
    if (full_folders(p, req->rootfs != NULL) < 0 || full_etc(p) < 0)
        return err_nomem(err, "plan");
    if (full_outside(p, req, err) < 0)
        return -1;
    if (full_proc(p) < 0 || full_dev(p) < 0)
        return err_nomem(err, "plan");
    if (full_scratch(p) < 0 || full_fences(p) < 0)
        return err_nomem(err, "plan");
    if (plan_temp_dir(p, policy, &tmp, err) < 0)
        return -1;
    size_t own = p->n_ops;
    if (plan_full_grants(p, req, err) < 0 || plan_temp_check(p, policy, own, err) < 0)
        return -1;
    p->fence_light = full_is_looked_at(p, own) && !p->rootfs && p->backend == BACKEND_NATIVE;
    const struct policy_value *ws = policy_value(policy, FIELD_WORKSPACE);
    p->cwd = ws->set && ws->num != WORKSPACE_NONE ? "/workspace" : PLAN_HOME;
    p->hands_back_cwd = policy_value(policy, FIELD_OUTPUT)->n_items > 0;
    if (plan_set_env(p, policy, PLAN_HOME, tmp, err) < 0 || plan_collect_files(p, req, err) < 0)
        return -1;
    struct plan_limits *l = &p->limits;
    if (l->max_files)
        l->scratch_inodes = MIN(l->scratch_inodes, l->max_files + plan_scratch_own(p));
    return 0;
}
