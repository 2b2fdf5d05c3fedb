/* The last steps between the finished root and the guest's program: capabilities, Landlock, limits,
 * filter, execve. Runs in the guest's pid 1 and in the process that becomes the guest's program. */
#include "backend/native/native_internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

#define FENCE_READ (SYS_LANDLOCK_FS_EXECUTE | SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_READ_DIR)
#define FENCE_FILE                                                                                 \
    (SYS_LANDLOCK_FS_EXECUTE | SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_WRITE_FILE |            \
     SYS_LANDLOCK_FS_TRUNCATE | SYS_LANDLOCK_FS_IOCTL_DEV)

#define FENCE_WAIT_KILLABLE (1U << 5) /* SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV */

static void fence_capset(struct native_child *c, unsigned set)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = set, .permitted = set}};
    if (syscall(SYS_capset, &header, data) < 0)
        native_child_fail(c, "capabilities", errno, "capset");
}

void native_drop_last_capability(struct native_child *c)
{
    fence_capset(c, 0);
}

void native_drop_capabilities(struct native_child *c, bool keep_admin)
{
    /* The bounding set first: dropping from it needs CAP_SETPCAP, which the next step takes away.
     */
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* past the last capability this kernel knows */
            if (errno == EPERM && c->plan->tier == TIER_LANDLOCK)
                break; /* an ordinary user cannot; nothing can be gained from it with no_new_privs
                        */
            native_child_fail(c, "capabilities", errno, "bounding set");
        }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        native_child_fail(c, "capabilities", errno, "ambient set");
    fence_capset(c, keep_admin ? 1u << CAP_SYS_ADMIN : 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        native_child_fail(c, "no_new_privs", errno, "prctl");
}

/* All file rights of the kernel's ABI are handled, so what no rule allows is refused. */
static uint64_t fence_handled(int abi)
{
    uint64_t fs = (SYS_LANDLOCK_FS_MAKE_SYM << 1) - 1;
    if (abi >= 2)
        fs |= SYS_LANDLOCK_FS_REFER;
    if (abi >= 3)
        fs |= SYS_LANDLOCK_FS_TRUNCATE;
    if (abi >= 5)
        fs |= SYS_LANDLOCK_FS_IOCTL_DEV;
    return fs;
}

/* Makes the ruleset; -1 when the plan has no fence. */
int native_fence_make(struct native_child *c)
{
    const struct plan *p = c->plan;
    if (p->landlock_abi == 0)
        return -1;

    struct sys_landlock_ruleset_attr attr = {.handled_access_fs = fence_handled(p->landlock_abi)};
    if (p->scope_signals)
        attr.scoped = SYS_LANDLOCK_SCOPE_SIGNAL | SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX;
    if (p->tier == TIER_LANDLOCK && p->landlock_abi >= 4)
        attr.handled_access_net = SYS_LANDLOCK_NET_BIND_TCP | SYS_LANDLOCK_NET_CONNECT_TCP;
    size_t size = p->landlock_abi >= 6 ? sizeof(attr) : p->landlock_abi >= 4 ? 16 : 8;
    int ruleset = sys_landlock_create_ruleset(&attr, size, 0);
    if (ruleset < 0)
        native_child_fail(c, "landlock", errno, "create_ruleset");

    for (size_t i = 0; i < p->n_fences; i++) {
        const struct plan_fence *f = &p->fences[i];
        int fd = open(f->path, O_PATH | O_CLOEXEC);
        if (fd < 0 && f->optional && errno == ENOENT)
            continue;
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            native_child_fail(c, "landlock", errno, f->path);
        struct sys_landlock_path_beneath rule = {.parent_fd = fd};
        rule.allowed_access = f->write ? attr.handled_access_fs : FENCE_READ;
        if (!S_ISDIR(st.st_mode))
            rule.allowed_access &= FENCE_FILE;
        rule.allowed_access &= attr.handled_access_fs;
        if (sys_landlock_add_rule(ruleset, SYS_LANDLOCK_RULE_PATH_BENEATH, &rule) < 0)
            native_child_fail(c, "landlock", errno, f->path);
        /* entries of /proc are forgotten, and their rules with them, when nothing refers to them */
        if (p->tier == TIER_FULL || !str_starts(f->path, "/proc/"))
            close(fd);
    }
    return ruleset;
}

static int fence_filter(const struct seccomp_prog *prog, unsigned flags)
{
    struct sock_fprog fprog = {.len = prog->len, .filter = prog->insns};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &fprog);
}

/* Under a listener of somebody outside the kernel answers EBUSY; refusals are then plain
 * errors, and the result says that they were not observed. */
static void fence_seal(struct native_guest *g)
{
    struct native_child *c = g->child;
    const struct plan *p = c->plan;

    if (!p->filter_options.notify) {
        if (fence_filter(&p->filter, 0) < 0)
            native_child_fail(c, "seccomp", errno, "filter");
        return;
    }
    /* The keeper carries some calls out: a signal must not start them a second time (since 5.19).
     */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int fd = -1;
    if (p->tier == TIER_LANDLOCK)
        fd = fence_filter(&p->filter, flags | FENCE_WAIT_KILLABLE);
    if (fd < 0 && (p->tier != TIER_LANDLOCK || errno == EINVAL))
        fd = fence_filter(&p->filter, flags);
    if (fd >= 0) {
        atomic_store(&c->status->listener_fd, fd);
        return;
    }
    if (errno != EBUSY)
        native_child_fail(c, "seccomp", errno, "filter");
    atomic_store(&c->status->no_listener, 1);
    if (fence_filter(&p->quiet_filter, 0) < 0)
        native_child_fail(c, "seccomp", errno, "filter");
}

/* Asks for an AppArmor profile at the next execve. The folder exists since Linux 5.8 wherever
 * AppArmor is in use; the older attr/exec beside it may belong to another security module and is
 * not tried. The kernel checks the name now (ENOENT) and the change at the execve, which then
 * fails: there is no way on without the profile. 0 or -errno. */
int native_fence_apparmor(const char *name)
{
    static const char word[] = "exec ";
    char text[sizeof(word) + PATH_MAX];
    size_t len = strlen(name);
    if (len == 0 || len >= PATH_MAX)
        return -EINVAL;
    memcpy(text, word, sizeof(word) - 1);
    memcpy(text + sizeof(word) - 1, name, len);
    len += sizeof(word) - 1;

    int fd = open("/proc/thread-self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* one write is one request: a short one must not be continued */
    ssize_t n = write(fd, text, len);
    int r = n == (ssize_t)len ? 0 : n < 0 ? -errno : -EIO;
    close(fd);
    return r;
}

/* Looks the command up in the guest's own PATH, as a shell would: a name that exists but cannot be
 * run wins over one that does not exist. try() gives an errno, or 0 to end the search. */
static int fence_find(const struct plan *p,
                      int (*try)(const struct plan *p, const char *path, void *data), void *data)
{
    const char *name = p->argv[0];
    if (strchr(name, '/'))
        return try(p, name, data);
    if (!*name)
        return ENOENT;
    const char *path = "";
    for (char **e = p->env; *e; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            path = *e + 5;
    int best = ENOENT;
    size_t len = strlen(name);
    while (*path) {
        size_t n = strcspn(path, ":");
        char full[PATH_MAX];
        if (n > 0 && n + len + 2 <= sizeof(full)) {
            memcpy(full, path, n);
            full[n] = '/';
            memcpy(full + n + 1, name, len + 1);
            int r = try(p, full, data);
            if (r == 0)
                return 0;
            if (r != ENOENT && r != ENOTDIR)
                best = r;
        }
        path += n + (path[n] == ':');
    }
    return best;
}

static int fence_exec(const struct plan *p, const char *path, void *unused)
{
    (void)unused;
    execve(path, p->argv, p->env);
    return errno;
}

/* The file may be the guest's own: a pipe must not hold pid 1 up, and no number in it is believed
 * further than the judgement of this one guest. */
static int fence_static_size(const struct plan *p, const char *path, void *data)
{
    uint64_t *ret_bytes = data, sum = 0;
    Elf64_Ehdr head;
    Elf64_Phdr part[64];
    struct stat st;
    (void)p;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(part[0]) || head.e_phnum > ARRAY_SIZE(part))
        return 0;
    ssize_t size = (ssize_t)(head.e_phnum * sizeof(part[0]));
    if (pread(fd, part, (size_t)size, (off_t)head.e_phoff) != size)
        return 0;
    for (int i = 0; i < head.e_phnum; i++)
        if (part[i].p_type == PT_LOAD && (part[i].p_flags & PF_W) &&
            __builtin_add_overflow(sum, part[i].p_memsz, &sum))
            sum = UINT64_MAX;
    *ret_bytes = sum;
    return 0;
}

void native_fence_note_static(const struct plan *p, struct native_status *status)
{
    uint64_t bytes = 0;
    fence_find(p, fence_static_size, &bytes);
    status->static_bytes = bytes;
}

/* So many of the cores we have ourselves; which ones is left to chance, so that guests spread. */
static void fence_cores(struct native_child *c, unsigned cores)
{
    cpu_set_t have, mine;
    if (sched_getaffinity(0, sizeof(have), &have) < 0)
        native_child_fail(c, "cores", errno, "sched_getaffinity");
    unsigned n = (unsigned)CPU_COUNT(&have);
    if (n <= cores)
        return;
    CPU_ZERO(&mine);
    unsigned skip = (unsigned)(native_now_ns() / 1000 % n);
    for (int cpu = 0; cores > 0; cpu = (cpu + 1) % CPU_SETSIZE) {
        if (!CPU_ISSET(cpu, &have))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        CPU_SET(cpu, &mine);
        cores--;
    }
    if (sched_setaffinity(0, sizeof(mine), &mine) < 0)
        native_child_fail(c, "cores", errno, "sched_setaffinity");
}

/* What the caller, or we, ignore or block is nothing the guest should know of. */
static void fence_reset_signals(void)
{
    for (int sig = 1; sig < 65; sig++)
        signal(sig,
               SIG_DFL); /* fails for the two that have no other way, and for the C library's own */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Becomes the guest's program. Its memory is pid 1's until the execve, so it may only store into
 * the status page and its own stack. */
static int fence_guest_main(void *arg)
{
    struct native_guest *g = arg;
    struct native_child *c = g->child;
    const struct plan *p = c->plan;

    if (setsid() < 0)
        native_child_fail(c, "session", errno, "setsid");
    if (p->terminal && native_pty_control() < 0)
        native_child_fail(c, "session", errno, "controlling terminal");
    fence_reset_signals();
    for (size_t i = 0; i < p->n_rlimits; i++) {
        uint64_t lim[2] = {p->rlimits[i].value, p->rlimits[i].value};
        uint64_t old[2];
        if (syscall(SYS_prlimit64, 0, p->rlimits[i].resource, lim, old) == 0)
            continue;
        /* not ours to raise: what stands is tighter than what was asked for */
        if (errno != EPERM || syscall(SYS_prlimit64, 0, p->rlimits[i].resource, NULL, old) < 0 ||
            old[1] > lim[0])
            native_child_fail(c, "rlimit", errno, "setrlimit");
        old[0] = old[1];
        if (syscall(SYS_prlimit64, 0, p->rlimits[i].resource, old, NULL) < 0)
            native_child_fail(c, "rlimit", errno, "setrlimit");
    }
    if (p->cores)
        fence_cores(c, p->cores);
    int r = cgroup_enter(c->entries, c->n_entries);
    if (r < 0)
        native_child_fail(c, "cgroup", -r, "enter");
    if (p->tier == TIER_FULL) {
        /* Only now are we in the groups that hold the limits, so only now is their root ours to
         * hide: a namespace made by the clone would show the host's path. */
        if (unshare(CLONE_NEWCGROUP) < 0)
            native_child_fail(c, "cgroup namespace", errno, "unshare");
        native_drop_last_capability(c);
    }
    /* before Landlock and the filter, which would refuse the file */
    r = p->apparmor ? native_fence_apparmor(p->apparmor) : 0;
    if (r < 0)
        native_child_fail(c, "apparmor", -r, p->apparmor);
    if (p->tier == TIER_LANDLOCK)
        native_keeper_guest(g);
    /* Only the guest is fenced, pid 1 is not: the kernel then also refuses it to trace or signal
     * anything outside its own domain, pid 1 included. */
    if (g->fence_fd >= 0 && sys_landlock_restrict_self(g->fence_fd) < 0)
        native_child_fail(c, "landlock", errno, "restrict_self");
    fence_seal(g);
    /* Who may not share memory with us on the way into a time namespace (before Linux 6.3) is in it
     * already, where the clock has begun anew. */
    uint64_t now_ns = native_now_ns();
    c->status->started_ns = now_ns < g->cloned_ns ? now_ns + c->clock_offset_ns : now_ns;
    atomic_store(&c->status->state, NATIVE_STARTED);
    c->status->exec_errno = fence_find(p, fence_exec, NULL);
    atomic_store(&c->status->state, NATIVE_EXEC_FAILED);
    _exit(127);
}

/* The descriptor table is shared so that the filter's listener, made by the guest's side, appears
 * in pid 1 and vanishes from the guest at execve. Memory is shared too where the kernel lets a
 * process with a pending time namespace do so: no page table is copied. */
pid_t native_guest_clone(struct native_guest *g)
{
    static char stack[32768] __attribute__((aligned(64)));
    int flags = CLONE_VFORK | CLONE_FILES | SIGCHLD;
    g->cloned_ns = native_now_ns();
    pid_t pid = clone(fence_guest_main, stack + sizeof(stack), flags | CLONE_VM, g);
    if (pid < 0 && errno == EINVAL)
        pid = clone(fence_guest_main, stack + sizeof(stack), flags, g);
    return pid;
}
