/* Argument checks of the built-in filter: one small function per family of calls, each writing its
 * code backwards (see seccomp_asm.h) and returning where it starts. Pure, runs in the parent
 * process.
 *
 * Only the low 32 bits of an argument are looked at, but for lengths: the kernel's own handlers
 * take these arguments as int, so a guest that sets high bits must meet the same answer
 * (CVE-2019-10063). */
#include "plan/seccomp_check.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/util.h"

/* Numbers of the kernel's interface that Debian 12's headers lack, or that clash between libc's and
 * the kernel's headers. */
enum {
    /* CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; NEWTIME's bit is part of the signal number here */
    NS_FLAGS = 0x7e020000,
    UNSHARE_OK = 0x00040600, /* CLONE_FILES, CLONE_FS, CLONE_SYSVSEM */
    SETID_BITS = 06000,
    OPEN_CREATES = 0x00400040, /* O_CREAT, O_TMPFILE's own bit; else the mode is garbage */
    SOCK_TYPE_BITS = 0xf,
    FLAG_NEW_LISTENER = 8,
    REQ_SETOPTIONS = 0x4200,
    REQ_SEIZE = 0x4206,
    OPT_SUSPEND_SECCOMP = 1 << 21,
    /* protections and flags of mmap */
    MAP_WRITE = 2,
    MAP_IS_PRIVATE = 0x02,
    MAP_IS_ANONYMOUS = 0x20,
    MAP_RESERVES = 0x104010, /* MAP_FIXED, MAP_NORESERVE, MAP_FIXED_NOREPLACE */
    MAP_IS_HUGE = 0x40000,
    /* the same for memfd_create and shmget */
    MEMFD_IS_HUGE = 4,
    SHM_IS_HUGE = 04000,
};

static uint32_t plain(int error)
{
    return SECCOMP_RET_ERRNO | (uint32_t)error;
}

static unsigned allow(struct seccomp_asm *a)
{
    return seccomp_asm_ret(a, SECCOMP_RET_ALLOW);
}

static unsigned refuse(struct seccomp_asm *a, const struct seccomp_options *o)
{
    return seccomp_asm_ret(a, seccomp_check_refusal(o));
}

static unsigned error(struct seccomp_asm *a, int error_number)
{
    return seccomp_asm_ret(a, plain(error_number));
}

struct range {
    uint32_t first, last;
};

/* Accumulator in one of the ranges (ascending, disjoint)? */
static unsigned in_ranges(struct seccomp_asm *a, const struct range *ranges, size_t n, unsigned yes,
                          unsigned no)
{
    unsigned label = no;
    for (size_t i = n; i-- > 0;) {
        if (ranges[i].first == ranges[i].last) {
            label = seccomp_asm_if(a, BPF_JEQ, ranges[i].first, yes, label);
        } else {
            unsigned above = seccomp_asm_if(a, BPF_JGT, ranges[i].last, label, yes);
            label = seccomp_asm_if(a, BPF_JGE, ranges[i].first, above, no);
        }
    }
    return label;
}

static unsigned check_bits(struct seccomp_asm *a, unsigned arg, uint32_t bits, unsigned set)
{
    unsigned test = seccomp_asm_if(a, BPF_JSET, bits, set, allow(a));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(arg), test);
}

/* What a process limit answers. */
static uint32_t no_process(const struct seccomp_options *o)
{
    return o->notify ? SECCOMP_RET_USER_NOTIF : plain(EAGAIN);
}

static unsigned check_clone(struct seccomp_asm *a, const struct seccomp_options *o)
{
    unsigned label = o->refuse_fork ? seccomp_asm_ret(a, no_process(o)) : allow(a);
    label = seccomp_asm_if(a, BPF_JSET, NS_FLAGS, refuse(a, o), label);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), label);
}

/* Families but ours are refused. Netlink as a kernel built without it would: every look-up of a
 * name asks for it, and getaddrinfo then assumes that both IPv4 and IPv6 exist; getifaddrs fails.
 */
static unsigned other_family(struct seccomp_asm *a, const struct seccomp_options *o)
{
    return seccomp_asm_if(a, BPF_JEQ, AF_NETLINK, error(a, EAFNOSUPPORT), refuse(a, o));
}

static unsigned check_socket(struct seccomp_asm *a, const struct seccomp_options *o)
{
    static const struct range unix_types[] = {{SOCK_STREAM, SOCK_DGRAM},
                                              {SOCK_SEQPACKET, SOCK_SEQPACKET}};
    unsigned inet;
    if (o->refuse_inet) {
        inet = error(a, EACCES);
    } else {
        /* MPTCP, SCTP, UDP-Lite and ICMP are kernel surface and outside Landlock's TCP rules. */
        unsigned other = error(a, EPROTONOSUPPORT);
        unsigned tcp = seccomp_asm_if(a, BPF_JEQ, 6, allow(a), other);
        tcp = seccomp_asm_load(a, SECCOMP_ARG_LOW(2), seccomp_asm_if(a, BPF_JEQ, 0, allow(a), tcp));
        unsigned udp = seccomp_asm_if(a, BPF_JEQ, 17, allow(a), other);
        udp = seccomp_asm_load(a, SECCOMP_ARG_LOW(2), seccomp_asm_if(a, BPF_JEQ, 0, allow(a), udp));
        inet = seccomp_asm_if(a, BPF_JEQ, SOCK_DGRAM, udp, refuse(a, o));
        inet = seccomp_asm_if(a, BPF_JEQ, SOCK_STREAM, tcp, inet);
        inet = seccomp_asm_load(a, SECCOMP_ARG_LOW(1), seccomp_asm_and(a, SOCK_TYPE_BITS, inet));
    }
    unsigned local = in_ranges(a, unix_types, ARRAY_SIZE(unix_types), allow(a), refuse(a, o));
    local = seccomp_asm_load(a, SECCOMP_ARG_LOW(1), seccomp_asm_and(a, SOCK_TYPE_BITS, local));

    unsigned family = seccomp_asm_if(a, BPF_JEQ, AF_INET6, inet, other_family(a, o));
    family = seccomp_asm_if(a, BPF_JEQ, AF_INET, inet, family);
    family = seccomp_asm_if(a, BPF_JEQ, AF_UNIX, local, family);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), family);
}

static unsigned check_socketpair(struct seccomp_asm *a, const struct seccomp_options *o)
{
    static const struct range types[] = {{SOCK_STREAM, SOCK_DGRAM},
                                         {SOCK_SEQPACKET, SOCK_SEQPACKET}};
    unsigned local = in_ranges(a, types, ARRAY_SIZE(types), allow(a), refuse(a, o));
    local = seccomp_asm_load(a, SECCOMP_ARG_LOW(1), seccomp_asm_and(a, SOCK_TYPE_BITS, local));
    unsigned family = seccomp_asm_if(a, BPF_JEQ, AF_UNIX, local, other_family(a, o));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), family);
}

static unsigned option_in(struct seccomp_asm *a, const struct range *options, size_t n,
                          unsigned answer)
{
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(2), in_ranges(a, options, n, answer, allow(a)));
}

/* Options that are kernel surface and that no ordinary program sets: upper-layer protocols (kTLS,
 * espintcp), eBPF on sockets, TCP-AO keys, IPsec in UDP, multicast membership, xtables. */
static unsigned check_setsockopt(struct seccomp_asm *a, const struct seccomp_options *o)
{
    static const struct range socket_level[] = {{50, 50},
                                                {52, 52}};        /* SO_ATTACH{,_REUSEPORT}_*BPF */
    static const struct range tcp_level[] = {{31, 31}, {38, 41}}; /* TCP_ULP, TCP_AO_* */
    static const struct range udp_level[] = {{100, 100}};         /* UDP_ENCAP */
    static const struct range ip_level[] = {{35, 48},
                                            {64, 0xffffffff}}; /* membership; xtables, mroute */
    /* IPV6_JOIN_GROUP, LEAVE_GROUP; JOIN_ANYCAST, LEAVE_ANYCAST; MCAST_*; IP6T_SO_SET_* */
    static const struct range ipv6_level[] = {{20, 21}, {27, 28}, {42, 48}, {64, 65}};

    unsigned refused = refuse(a, o);
    unsigned ip = option_in(a, ip_level, ARRAY_SIZE(ip_level), refused);
    unsigned ipv6 = option_in(a, ipv6_level, ARRAY_SIZE(ipv6_level), refused);
    unsigned udp = option_in(a, udp_level, ARRAY_SIZE(udp_level), refused);
    unsigned sock = option_in(a, socket_level, ARRAY_SIZE(socket_level), refused);
    /* TLS libraries try TCP_ULP on every connection: not notified. */
    unsigned tcp = option_in(a, tcp_level, ARRAY_SIZE(tcp_level), error(a, EPERM));

    unsigned level = seccomp_asm_if(a, BPF_JEQ, 41, ipv6, allow(a));
    level = seccomp_asm_if(a, BPF_JEQ, 17, udp, level);
    level = seccomp_asm_if(a, BPF_JEQ, 0, ip, level);
    level = seccomp_asm_if(a, BPF_JEQ, 6, tcp, level);
    level = seccomp_asm_if(a, BPF_JEQ, SOL_SOCKET, sock, level);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(1), level);
}

static unsigned check_ioctl(struct seccomp_asm *a, const struct seccomp_options *o)
{
    /* TIOCSTI; TIOCLINUX, TIOCCONS; TIOCSETD (line disciplines load modules) */
    static const struct range commands[] = {{0x5412, 0x5412}, {0x541c, 0x541d}, {0x5423, 0x5423}};
    unsigned test = in_ranges(a, commands, ARRAY_SIZE(commands), refuse(a, o), allow(a));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(1), test);
}

/* F_SETLEASE, F_SETDELEG: whoever opens a file under lease waits in the kernel until its holder
 * lets go, for up to 45 seconds, and a read-only grant is enough for one: the host and other guests
 * would wait for this one. */
static unsigned check_fcntl(struct seccomp_asm *a, const struct seccomp_options *o)
{
    static const struct range commands[] = {{1024, 1024}, {1040, 1040}};
    unsigned test = in_ranges(a, commands, ARRAY_SIZE(commands), refuse(a, o), allow(a));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(1), test);
}

/* An allowlist: an option this list does not know answers EINVAL, as an older kernel does. Left out
 * on purpose: core scheduling, KSM (PR_SET_MEMORY_MERGE, a side channel between guests), system
 * call user dispatch, machine-check policy, other architectures' options. */
static unsigned check_prctl(struct seccomp_asm *a, const struct seccomp_options *o)
{
    static const struct range allowed[] = {
        {1, 4},   /* PDEATHSIG, DUMPABLE */
        {7, 8},   /* KEEPCAPS */
        {13, 16}, /* TIMING, NAME */
        {21, 30}, /* SECCOMP (cannot loosen), CAPBSET, TSC, SECUREBITS, TIMERSLACK */
        {36, 42}, /* CHILD_SUBREAPER, NO_NEW_PRIVS, TID_ADDRESS, THP_DISABLE */
        {47, 47}, /* CAP_AMBIENT */
        {52, 53}, /* SPECULATION_CTRL */
        {65, 66}, /* MDWE */
        {0x41555856, 0x41555856}, /* GET_AUXV */
        {0x53564d41, 0x53564d41}, /* SET_VMA */
        {0x59616d61, 0x59616d61}, /* SET_PTRACER */
    };
    unsigned test = in_ranges(a, allowed, ARRAY_SIZE(allowed), allow(a), error(a, EINVAL));
    test = seccomp_asm_if(a, BPF_JEQ, 35 /* PR_SET_MM */, refuse(a, o), test);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), test);
}

static unsigned check_arch_prctl(struct seccomp_asm *a)
{
    static const struct range allowed[] = {
        {0x1001, 0x1004}, /* FS and GS */
        {0x1011, 0x1012}, /* CPUID faulting of the caller */
        {0x1021, 0x1023}, /* extended state (AMX) */
        {0x5001, 0x5005}, /* shadow stack */
    };
    unsigned test = in_ranges(a, allowed, ARRAY_SIZE(allowed), allow(a), error(a, EINVAL));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), test);
}

/* Docker's list. gdb tries ADDR_NO_RANDOMIZE, warns and goes on: not notified. */
static unsigned check_personality(struct seccomp_asm *a)
{
    static const struct range allowed[] = {
        {0, 0}, {8, 8}, {0x20000, 0x20000}, {0x20008, 0x20008}, {0xffffffff, 0xffffffff}};
    unsigned test = in_ranges(a, allowed, ARRAY_SIZE(allowed), allow(a), error(a, EPERM));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), test);
}

/* Kernels before 5.17.2 let anyone suspend the filter of a tracee with PTRACE_SEIZE
 * (CVE-2022-30594). */
static unsigned check_ptrace(struct seccomp_asm *a, const struct seccomp_options *o)
{
    unsigned options = check_bits(a, 3, OPT_SUSPEND_SECCOMP, refuse(a, o));
    unsigned request = seccomp_asm_if(a, BPF_JEQ, REQ_SETOPTIONS, options, allow(a));
    request = seccomp_asm_if(a, BPF_JEQ, REQ_SEIZE, options, request);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), request);
}

/* Devices are refused by nodev and missing capabilities too; this makes it visible, and covers the
 * whiteout (character device 0:0) that needs no capability. */
static unsigned check_mknod(struct seccomp_asm *a, const struct seccomp_options *o, unsigned arg)
{
    unsigned refused = refuse(a, o);
    unsigned type = seccomp_asm_if(a, BPF_JEQ, S_IFBLK, refused, allow(a));
    type = seccomp_asm_if(a, BPF_JEQ, S_IFCHR, refused, type);
    type = seccomp_asm_load(a, SECCOMP_ARG_LOW(arg), seccomp_asm_and(a, S_IFMT, type));
    if (!o->refuse_suid_bits)
        return type;
    unsigned bits = seccomp_asm_if(a, BPF_JSET, SETID_BITS, refused, type);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(arg), bits);
}

static unsigned check_open(struct seccomp_asm *a, const struct seccomp_options *o,
                           unsigned flags_arg)
{
    unsigned mode = check_bits(a, flags_arg + 1, SETID_BITS, refuse(a, o));
    unsigned flags = seccomp_asm_if(a, BPF_JSET, OPEN_CREATES, mode, allow(a));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(flags_arg), flags);
}

/* Lengths are 64 bits wide to the kernel: the one place where the high word counts. */
static unsigned check_length(struct seccomp_asm *a, unsigned arg, uint64_t limit, unsigned above)
{
    unsigned allowed = allow(a);
    unsigned low = seccomp_asm_if(a, BPF_JGT, (uint32_t)limit, above, allowed);
    low = seccomp_asm_load(a, SECCOMP_ARG_LOW(arg), low);
    unsigned high = seccomp_asm_if(a, BPF_JEQ, (uint32_t)(limit >> 32), low, allowed);
    high = seccomp_asm_if(a, BPF_JGT, (uint32_t)(limit >> 32), above, high);
    return seccomp_asm_load(a, SECCOMP_ARG_HIGH(arg), high);
}

static uint32_t no_memory(const struct seccomp_options *o)
{
    return o->notify ? SECCOMP_RET_USER_NOTIF : plain(ENOMEM);
}

/* Pages that the administrator set aside are no control group's memory, and few: a guest that takes
 * them passes its limit and leaves none to the host's own programs. Answered as where there are
 * none. */
static unsigned check_huge(struct seccomp_asm *a, unsigned arg, uint32_t bit, unsigned other)
{
    unsigned test = seccomp_asm_if(a, BPF_JSET, bit, error(a, ENOMEM), other);
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(arg), test);
}

/* Only what an allocator asks for. Runtimes that reserve address space they never fill do it
 * unwritable, without reserve, or at a fixed place inside an earlier reservation. */
static unsigned check_mmap(struct seccomp_asm *a, const struct seccomp_options *o)
{
    if (!o->map_limit)
        return check_huge(a, 3, MAP_IS_HUGE, allow(a));
    unsigned refused = seccomp_asm_ret(a, no_memory(o)), allowed = allow(a);
    unsigned flags = seccomp_asm_if(a, BPF_JSET, MAP_IS_PRIVATE, refused, allowed);
    flags = seccomp_asm_if(a, BPF_JSET, MAP_IS_ANONYMOUS, flags, allowed);
    flags = seccomp_asm_if(a, BPF_JSET, MAP_RESERVES, allowed, flags);
    flags = seccomp_asm_load(a, SECCOMP_ARG_LOW(3), flags);
    unsigned write = seccomp_asm_if(a, BPF_JSET, MAP_WRITE, flags, allow(a));
    write = seccomp_asm_load(a, SECCOMP_ARG_LOW(2), write);
    return check_huge(a, 3, MAP_IS_HUGE, check_length(a, 1, o->map_limit, write));
}

/* Our pid 1 has the guest's uid, which is all the kernel asks for: with fewer descriptors than it
 * polls, or no CPU time left, it would end and the run with it. */
static unsigned check_prlimit(struct seccomp_asm *a, const struct seccomp_options *o)
{
    unsigned test = o->own_limits_only ? seccomp_asm_if(a, BPF_JEQ, 0, allow(a), refuse(a, o))
                                       : seccomp_asm_if(a, BPF_JEQ, 1, refuse(a, o), allow(a));
    return seccomp_asm_load(a, SECCOMP_ARG_LOW(0), test);
}

unsigned seccomp_check_emit(struct seccomp_asm *a, const struct seccomp_options *o,
                            enum seccomp_table_check check)
{
    switch (check) {
    case SECCOMP_CHECK_CLONE: return check_clone(a, o);
    case SECCOMP_CHECK_UNSHARE: return check_bits(a, 0, ~(uint32_t)UNSHARE_OK, refuse(a, o));
    case SECCOMP_CHECK_SOCKET: return check_socket(a, o);
    case SECCOMP_CHECK_SOCKETPAIR: return check_socketpair(a, o);
    case SECCOMP_CHECK_SETSOCKOPT: return check_setsockopt(a, o);
    /* Out-of-band data on unix sockets is a line of exploited flaws (CVE-2025-38236). The family is
     * not visible, so no socket has it. Only sending is checked: without it nothing can be
     * received, and the receiving calls stay in the kernel's cache of allowed calls. About 20 ns
     * per send. */
    case SECCOMP_CHECK_SEND_FLAGS2: return check_bits(a, 2, MSG_OOB, error(a, EOPNOTSUPP));
    case SECCOMP_CHECK_SEND_FLAGS3: return check_bits(a, 3, MSG_OOB, error(a, EOPNOTSUPP));
    case SECCOMP_CHECK_IOCTL: return check_ioctl(a, o);
    case SECCOMP_CHECK_FCNTL: return check_fcntl(a, o);
    case SECCOMP_CHECK_PRCTL: return check_prctl(a, o);
    case SECCOMP_CHECK_ARCH_PRCTL: return check_arch_prctl(a);
    case SECCOMP_CHECK_PERSONALITY: return check_personality(a);
    case SECCOMP_CHECK_PTRACE: return check_ptrace(a, o);
    /* A listener of the guest's own would take over answering its calls, ours included. */
    case SECCOMP_CHECK_SECCOMP: return check_bits(a, 1, FLAG_NEW_LISTENER, refuse(a, o));
    case SECCOMP_CHECK_MKNOD: return check_mknod(a, o, 1);
    case SECCOMP_CHECK_MKNODAT: return check_mknod(a, o, 2);
    case SECCOMP_CHECK_MODE1: return check_bits(a, 1, SETID_BITS, refuse(a, o));
    case SECCOMP_CHECK_MODE2: return check_bits(a, 2, SETID_BITS, refuse(a, o));
    case SECCOMP_CHECK_OPEN: return check_open(a, o, 1);
    case SECCOMP_CHECK_OPENAT: return check_open(a, o, 2);
    case SECCOMP_CHECK_MMAP: return check_mmap(a, o);
    case SECCOMP_CHECK_MEMFD: return check_huge(a, 1, MEMFD_IS_HUGE, allow(a));
    case SECCOMP_CHECK_SHMGET: return check_huge(a, 2, SHM_IS_HUGE, allow(a));
    case SECCOMP_CHECK_PRLIMIT: return check_prlimit(a, o);
    case SECCOMP_CHECK_MREMAP:
        return check_length(a, 2, o->map_limit, seccomp_asm_ret(a, no_memory(o)));
    case SECCOMP_CHECK_OPENAT2:
    case SECCOMP_CHECK_AFFINITY:
    case SECCOMP_CHECK_RULESET:
    case SECCOMP_CHECK_FORK:
    case SECCOMP_CHECK_SESSION:
    case SECCOMP_CHECK_IPC: break; /* decided by options alone, see seccomp_check_resolve */
    }
    return error(a, ENOSYS);
}

uint32_t seccomp_check_refusal(const struct seccomp_options *options)
{
    return options->notify ? SECCOMP_RET_USER_NOTIF : plain(EPERM);
}

uint16_t seccomp_check_resolve(const struct seccomp_options *o, uint16_t rule)
{
    const uint16_t allowed = SECCOMP_RULE(SECCOMP_TABLE_ALLOW, 0);
    const uint16_t refused = SECCOMP_RULE(SECCOMP_TABLE_REFUSE, 0);
    const uint16_t nosys = SECCOMP_RULE(SECCOMP_TABLE_ERRNO, ENOSYS);

    if (SECCOMP_RULE_KIND(rule) == SECCOMP_TABLE_NONE)
        return nosys;
    if (SECCOMP_RULE_KIND(rule) != SECCOMP_TABLE_CHECK)
        return rule;
    switch ((enum seccomp_table_check)SECCOMP_RULE_PARAM(rule)) {
    case SECCOMP_CHECK_MODE1:
    case SECCOMP_CHECK_MODE2:
    case SECCOMP_CHECK_OPEN:
    case SECCOMP_CHECK_OPENAT: return o->refuse_suid_bits ? rule : allowed;
    case SECCOMP_CHECK_OPENAT2:
        return o->refuse_suid_bits ? nosys : allowed; /* mode behind a pointer */
    case SECCOMP_CHECK_MEMFD: return o->refuse_memfd ? refused : rule;
    case SECCOMP_CHECK_SHMGET: return o->refuse_shared_ipc ? refused : rule;
    case SECCOMP_CHECK_FORK:
        if (!o->refuse_fork)
            return allowed;
        return o->notify ? refused : SECCOMP_RULE(SECCOMP_TABLE_ERRNO, EAGAIN);
    case SECCOMP_CHECK_SESSION: return o->refuse_new_session ? refused : allowed;
    case SECCOMP_CHECK_IPC: return o->refuse_shared_ipc ? refused : allowed;
    case SECCOMP_CHECK_SECCOMP: return o->allow_listener_setup ? allowed : rule;
    case SECCOMP_CHECK_MREMAP: return o->map_limit ? rule : allowed;
    case SECCOMP_CHECK_AFFINITY: return o->refuse_affinity ? refused : allowed;
    case SECCOMP_CHECK_RULESET: return o->refuse_rulesets ? nosys : allowed;
    case SECCOMP_CHECK_CLONE:
    case SECCOMP_CHECK_UNSHARE:
    case SECCOMP_CHECK_SOCKET:
    case SECCOMP_CHECK_SOCKETPAIR:
    case SECCOMP_CHECK_SETSOCKOPT:
    case SECCOMP_CHECK_SEND_FLAGS2:
    case SECCOMP_CHECK_SEND_FLAGS3:
    case SECCOMP_CHECK_IOCTL:
    case SECCOMP_CHECK_FCNTL:
    case SECCOMP_CHECK_PRCTL:
    case SECCOMP_CHECK_ARCH_PRCTL:
    case SECCOMP_CHECK_PERSONALITY:
    case SECCOMP_CHECK_PTRACE:
    case SECCOMP_CHECK_PRLIMIT:
    case SECCOMP_CHECK_MMAP:
    case SECCOMP_CHECK_MKNOD:
    case SECCOMP_CHECK_MKNODAT: return rule;
    }
    return nosys;
}
