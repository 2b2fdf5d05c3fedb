/* What pid 1 does as root, where it is root: packet rules that refuse internal addresses, then the
 * end of being root. Runs in a container's pid 1 before anything of the guest exists; the container
 * gives it the few capabilities for this, and they are gone from every set before the guest's files
 * are made.
 *
 * Rules on what leaves, not routes: the bridge's gateway must stay the way out and its neighbour,
 * while nobody may speak to it. The guest cannot go around them: it has no raw or packet sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/nft.h"
#include "base/util.h"
#include "init/init_internal.h"

#define GUARD_BATCH (96u << 10)
#define GUARD_RESOLVERS 8
#define GUARD_DNS_PORT 53
#define GUARD_LOOPBACK 1u /* the number of lo in every network namespace */
#define GUARD_V4_DST 16   /* offsets of the destination in a header */
#define GUARD_V6_DST 24

/* Only packets of this family have the header that is looked at next. */
static void guard_is_family(struct nft *n, bool is_v4)
{
    const uint8_t family = is_v4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
    nft_load_meta(n, NFT_META_NFPROTO);
    nft_compare(n, NFT_CMP_EQ, &family, sizeof(family));
}

static void guard_load_destination(struct nft *n, bool is_v4)
{
    nft_load_payload(n, NFT_PAYLOAD_NETWORK_HEADER, is_v4 ? GUARD_V4_DST : GUARD_V6_DST,
                     is_v4 ? 4 : 16);
}

/* As the end of a rule. */
static void guard_refuse(struct nft *n)
{
    if (denied_is_heard())
        nft_log(n, INIT_DENIED_GROUP);
    nft_reject(n, NFT_REJECT_ICMPX_UNREACH);
}

/* The guest's own loopback, and its own addresses, which lead there. */
static void guard_pass_loopback(struct nft *n)
{
    const uint32_t lo = GUARD_LOOPBACK;
    struct nlattr *rule = nft_rule(n);
    nft_load_meta(n, NFT_META_OIF);
    nft_compare(n, NFT_CMP_EQ, &lo, sizeof(lo));
    nft_accept(n);
    nft_rule_end(n, rule);
}

static void guard_pass(struct nft *n, const struct init_passed *to, uint8_t protocol)
{
    uint16_t port = htons(to->port);
    struct nlattr *rule = nft_rule(n);
    guard_is_family(n, to->is_v4);
    guard_load_destination(n, to->is_v4);
    nft_compare(n, NFT_CMP_EQ, to->addr, to->is_v4 ? 4 : 16);
    nft_is_protocol(n, protocol);
    nft_load_payload(n, NFT_PAYLOAD_TRANSPORT_HEADER, 2, sizeof(port));
    nft_compare(n, NFT_CMP_EQ, &port, sizeof(port));
    nft_accept(n);
    nft_rule_end(n, rule);
}

/* How neighbours find each other is ICMPv6 to multicast and link-local addresses, said by the
 * kernel: 130 to 137 and 143. The guest itself can send echo requests only. */
static void guard_pass_neighbours(struct nft *n)
{
    static const uint8_t ranges[][2] = {{130, 137}, {143, 143}};
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        struct nlattr *rule = nft_rule(n);
        guard_is_family(n, false);
        nft_is_protocol(n, IPPROTO_ICMPV6);
        nft_load_payload(n, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
        nft_compare(n, NFT_CMP_GTE, &ranges[i][0], 1);
        nft_compare(n, NFT_CMP_LTE, &ranges[i][1], 1);
        nft_accept(n);
        nft_rule_end(n, rule);
    }
}

/* A source route names its real destination behind the header; so does IPv6's routing header. */
static void guard_block_options(struct nft *n)
{
    const uint8_t mask = 0x0f, plain = 5;
    struct nlattr *rule = nft_rule(n);
    guard_is_family(n, true);
    nft_load_payload(n, NFT_PAYLOAD_NETWORK_HEADER, 0, 1);
    nft_mask(n, &mask, sizeof(mask));
    nft_compare(n, NFT_CMP_NEQ, &plain, sizeof(plain));
    guard_refuse(n);
    nft_rule_end(n, rule);
    rule = nft_rule(n);
    guard_is_family(n, false);
    nft_has_extension(n, IPPROTO_ROUTING);
    guard_refuse(n);
    nft_rule_end(n, rule);
}

static void guard_block(struct nft *n, const struct init_blocked *b)
{
    size_t len = b->is_v4 ? 4 : 16;
    struct nlattr *rule = nft_rule(n);
    guard_is_family(n, b->is_v4);
    guard_load_destination(n, b->is_v4);
    nft_mask(n, b->mask, len);
    nft_compare(n, NFT_CMP_EQ, b->net, len);
    guard_refuse(n);
    nft_rule_end(n, rule);
}

/* The engine wrote this file; a resolver may be internal, its port 53 is what the guest needs. */
static void guard_pass_resolvers(struct nft *n)
{
    char line[256], text[64];
    unsigned count = 0;
    _cleanup_fclose_ FILE *f = fopen("/etc/resolv.conf", "re");
    while (f && count < GUARD_RESOLVERS && fgets(line, sizeof(line), f)) {
        struct init_passed to = {.port = GUARD_DNS_PORT};
        if (sscanf(line, " nameserver %63[0-9a-fA-F.:]", text) != 1)
            continue;
        to.is_v4 = inet_pton(AF_INET, text, to.addr) == 1;
        if (!to.is_v4 && inet_pton(AF_INET6, text, to.addr) != 1)
            continue;
        guard_pass(n, &to, IPPROTO_UDP);
        guard_pass(n, &to, IPPROTO_TCP);
        count++;
    }
}

/* The bridge's own subnets, whatever their numbers: the gateway, which is the engine's host, and
 * other containers. Routes without a gateway name them. */
static void guard_block_link4(struct init *in, struct nft *n)
{
    char line[256];
    _cleanup_fclose_ FILE *f = fopen("/proc/net/route", "re");
    if (!f)
        init_fail(in, INIT_STAGE_GUARD, errno);
    while (f && fgets(line, sizeof(line), f)) {
        struct init_blocked b = {.is_v4 = 1};
        uint32_t net, gateway, mask; /* as they lie in memory */
        if (sscanf(line, "%*s %8x %8x %*x %*d %*d %*d %8x", &net, &gateway, &mask) != 3 ||
            gateway != 0 || mask == 0)
            continue;
        memcpy(b.net, &net, sizeof(net));
        memcpy(b.mask, &mask, sizeof(mask));
        guard_block(n, &b);
    }
}

static bool guard_hex(const char *text, uint8_t ret[static 16])
{
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        ret[i] = (uint8_t)byte;
    }
    return true;
}

static void guard_block_link6(struct nft *n)
{
    static const uint8_t none[16];
    char line[256], net[33], gateway[33], name[32];
    _cleanup_fclose_ FILE *f = fopen("/proc/net/ipv6_route", "re");
    while (f && fgets(line, sizeof(line), f)) { /* no file: no IPv6 */
        struct init_blocked b = {0};
        uint8_t via[16];
        unsigned bits;
        if (sscanf(line, "%32s %2x %*s %*s %32s %*s %*s %*s %*s %31s", net, &bits, gateway, name) !=
                4 ||
            !guard_hex(net, b.net) || !guard_hex(gateway, via) || bits == 0 || bits > 128 ||
            memcmp(via, none, sizeof(via)) != 0 || str_eq(name, "lo"))
            continue;
        for (unsigned bit = 0; bit < bits; bit++)
            b.mask[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
        guard_block(n, &b);
    }
}

/* One batch: the kernel takes all of it or nothing. */
static int guard_install(struct init *in, struct nft *n)
{
    const struct init_order *o = in->order;
    const struct init_passed *passed = (const void *)(in->end - o->n_passed * sizeof(*passed));
    const struct init_blocked *blocked =
        (const void *)((const char *)passed - o->n_blocked * sizeof(*blocked));
    nft_begin(n, NF_INET_LOCAL_OUT, 0);
    guard_pass_loopback(n);
    guard_block_options(n);
    guard_pass_neighbours(n);
    guard_pass_resolvers(n);
    for (uint32_t i = 0; i < o->n_passed; i++) {
        struct init_passed to;
        memcpy(&to, &passed[i], sizeof(to)); /* wherever the strings before it end */
        guard_pass(n, &to, IPPROTO_TCP);
    }
    for (uint32_t i = 0; i < o->n_blocked; i++) {
        struct init_blocked b;
        memcpy(&b, &blocked[i], sizeof(b));
        guard_block(n, &b);
    }
    guard_block_link4(in, n);
    guard_block_link6(n);
    return nft_commit(n);
}

static void guard_rules(struct init *in)
{
    struct nft n = {.buf = aligned_alloc(8, GUARD_BATCH),
                    .size = GUARD_BATCH,
                    .table = "cordon",
                    .chain = "out"};
    if (!n.buf)
        init_fail(in, INIT_STAGE_GUARD, errno);
    denied_listen();
    int r = guard_install(in, &n);
    if (r < 0 && denied_is_heard()) { /* a kernel whose rules cannot tell: they hold all the same */
        denied_deafen();
        r = guard_install(in, &n);
    }
    if (r < 0)
        init_fail(in, INIT_STAGE_GUARD, errno);
    free(n.buf);
    in->report.guarded = 1;
}

static bool guard_has_capability(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &head, data) < 0)
        return true;
    for (int i = 0; i < 2; i++)
        if (data[i].effective || data[i].permitted || data[i].inheritable)
            return true;
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1)
            return true;
    return false;
}

/* Every set, the bounding set included; looked at again before it is believed. */
const char *guard_leave_root(const struct init *in)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    uid_t uid = in->order->uid;
    gid_t gid = in->order->gid;
    errno = EINVAL;
    if (uid == 0 || gid == 0)
        return "user";
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return "capabilities";
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return "user";
    if (syscall(SYS_capset, &head, none) < 0)
        return "capabilities";
    errno = EPERM;
    return guard_has_capability() ? "capabilities" : NULL;
}

void guard_as_guest(struct init *in, bool guest)
{
    if (!in->order->own_kernel)
        return;
    uid_t uid = guest ? in->order->uid : 0;
    gid_t gid = guest ? in->order->gid : 0;
    /* root first and last: only root may change the group */
    if ((!guest && setresuid((uid_t)-1, uid, (uid_t)-1) < 0) ||
        setresgid((gid_t)-1, gid, (gid_t)-1) < 0 ||
        (guest && setresuid((uid_t)-1, uid, (uid_t)-1) < 0))
        init_fail(in, "user", errno);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void guard_settle(struct init *in)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const unsigned set = 1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID;
    struct __user_cap_data_struct keep[2] = {{.effective = set, .permitted = set}};
    if (in->order->own_kernel && syscall(SYS_capset, &head, keep) < 0)
        init_fail(in, "capabilities", errno);
}

void guard_raise(struct init *in)
{
    const struct init_order *o = in->order;
    uint64_t tables = (uint64_t)o->n_blocked * sizeof(struct init_blocked) +
                      (uint64_t)o->n_passed * sizeof(struct init_passed);
    if (tables > o->total - sizeof(*o))
        init_fail(in, "order", EINVAL);
    if (o->n_blocked > 0)
        guard_rules(in);
    if (o->own_kernel && (geteuid() != 0 || o->uid == 0 || o->gid == 0))
        init_fail(in, "user", EPERM);
    const char *failed = geteuid() == 0 && !o->own_kernel ? guard_leave_root(in) : NULL;
    if (failed)
        init_fail(in, failed, errno);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
