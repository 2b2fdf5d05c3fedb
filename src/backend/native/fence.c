/* What fences the guest in: capabilities, Landlock, an AppArmor profile. Runs in the guest's pid 1;
 * capabilities and profile also in the process that becomes its program, which shares pid 1's
 * memory: hence the bare calls.
 */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#define FENCE_READ (SYS_LANDLOCK_FS_EXECUTE | SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_READ_DIR)
#define FENCE_FILE                                                                                 \
    (SYS_LANDLOCK_FS_EXECUTE | SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_WRITE_FILE |            \
     SYS_LANDLOCK_FS_TRUNCATE | SYS_LANDLOCK_FS_IOCTL_DEV)

void native_set_capabilities(struct native_child *c, unsigned set)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = set, .permitted = set}};
    long r = raw_call(SYS_capset, &header, data);
    if (r < 0)
        native_child_fail(c, "capabilities", (int)-r, "capset");
}

void native_drop_last_capability(struct native_child *c)
{
    native_set_capabilities(c, 0);
}

/* Needs CAP_SETPCAP, takes nothing we hold away, and is inherited. */
void native_drop_bounding_set(struct native_child *c)
{
    for (int cap = 0; cap < 64; cap++) {
        long r = native_keyed_call(c, SYS_prctl, PR_CAPBSET_DROP, cap, 0);
        if (r == -EINVAL)
            break; /* past the last capability this kernel knows */
        if (r == -EPERM && c->plan->tier == TIER_LANDLOCK)
            break; /* an ordinary user cannot; nothing can be gained from it with no_new_privs */
        if (r < 0)
            native_child_fail(c, "capabilities", (int)-r, "bounding set");
    }
}

void native_drop_capabilities(struct native_child *c, unsigned keep)
{
    long r = raw_call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
    if (r < 0)
        native_child_fail(c, "capabilities", (int)-r, "ambient set");
    native_set_capabilities(c, keep);
    r = raw_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1);
    if (r < 0)
        native_child_fail(c, "no_new_privs", (int)-r, "prctl");
}

/* Of plain files and folders, which programs open, make and remove all the time. Not to write to
 * files: a pipe of the host's is written to through a mount that is read-only. */
#define FENCE_PLAIN                                                                                \
    (SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_TRUNCATE | SYS_LANDLOCK_FS_MAKE_REG |             \
     SYS_LANDLOCK_FS_REMOVE_FILE | SYS_LANDLOCK_FS_READ_DIR | SYS_LANDLOCK_FS_MAKE_DIR |           \
     SYS_LANDLOCK_FS_REMOVE_DIR)

/* All file rights of the kernel's ABI are handled, so what no rule allows is refused; light: but
 * those of plain files and folders (plan.h). */
uint64_t native_fence_handled(int abi, bool light)
{
    uint64_t fs = (SYS_LANDLOCK_FS_MAKE_SYM << 1) - 1;
    if (abi >= 2)
        fs |= SYS_LANDLOCK_FS_REFER;
    if (abi >= 3)
        fs |= SYS_LANDLOCK_FS_TRUNCATE;
    if (abi >= 5)
        fs |= SYS_LANDLOCK_FS_IOCTL_DEV;
    if (abi >= PLAN_ABI_SOCKETS)
        fs |= SYS_LANDLOCK_FS_RESOLVE_UNIX;
    return light ? fs & ~FENCE_PLAIN : fs;
}

/* What a rule gives. Sockets of the host are no part of a folder, writable or not; those the guest
 * makes need no rule: the kernel lets connections within the domain through. */
uint64_t native_fence_allowed(const struct plan_fence *f, bool is_dir, uint64_t handled)
{
    uint64_t allowed = f->write ? ~(uint64_t)SYS_LANDLOCK_FS_RESOLVE_UNIX : FENCE_READ;
    if (!is_dir)
        allowed &= FENCE_FILE;
    if (f->connects)
        allowed |= SYS_LANDLOCK_FS_RESOLVE_UNIX;
    return allowed & handled;
}

/* A place as the guest will see it, while its root is still to be entered. */
static int fence_open(int root_fd, const char *path)
{
    if (root_fd < 0)
        return open(path, O_PATH | O_CLOEXEC);
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    return sys_openat2(root_fd, path, &how);
}

/* Makes the ruleset; -1 when the plan has no fence. */
int native_fence_make(struct native_child *c, int root_fd)
{
    const struct plan *p = c->plan;
    if (p->landlock_abi == 0)
        return -1;

    struct sys_landlock_ruleset_attr attr = {
        .handled_access_fs = native_fence_handled(p->landlock_abi, p->fence_light)};
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
        int fd = fence_open(root_fd, f->path);
        if (fd < 0 && f->optional && errno == ENOENT)
            continue;
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            native_child_fail(c, "landlock", errno, f->path);
        struct sys_landlock_path_beneath rule = {.parent_fd = fd};
        rule.allowed_access = native_fence_allowed(f, S_ISDIR(st.st_mode), attr.handled_access_fs);
        if (sys_landlock_add_rule(ruleset, SYS_LANDLOCK_RULE_PATH_BENEATH, &rule) < 0)
            native_child_fail(c, "landlock", errno, f->path);
        /* entries of /proc are forgotten, and their rules with them, when nothing refers to them */
        if (p->tier == TIER_FULL || !str_starts(f->path, "/proc/"))
            close(fd);
    }
    return ruleset;
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

    long fd = raw_call(SYS_openat, AT_FDCWD, "/proc/thread-self/attr/apparmor/exec",
                       O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return (int)fd;
    /* one write is one request: a short one must not be continued */
    long n = raw_call(SYS_write, fd, text, len);
    raw_call(SYS_close, fd);
    return n == (long)len ? 0 : n < 0 ? (int)n : -EIO;
}
