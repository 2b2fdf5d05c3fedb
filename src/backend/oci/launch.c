/* The launcher: lays the bundle out in a tmpfs of its own, runs the runtime, reaps. Runs after the
 * clone as pid 1 of its namespaces, root only there; it allocates nothing and decides nothing. */
#include "backend/oci/oci.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

static void launch_proc(struct native_child *c, const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        native_child_fail(c, str_starts(path, "/proc/self") ? "ids" : "proc", errno, path);
    close(fd);
}

/* The one map that nobody needs help for. */
static void launch_map_self(struct native_child *c)
{
    char map[48];
    launch_proc(c, "/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)c->plan->host_uid);
    launch_proc(c, "/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)c->plan->host_gid);
    launch_proc(c, "/proc/self/gid_map", map);
}

static void launch_become_root(struct native_child *c)
{
    prctl(PR_SET_DUMPABLE, 1);
    native_child_wait(c);
    if (c->plan->oci->alone)
        launch_map_self(c);
    /* where the kernel was told to refuse it there are no other groups to leave */
    if (syscall(SYS_setgroups, 0, NULL) < 0 && errno != EPERM)
        native_child_fail(c, "ids", errno, "setgroups");
    if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
        native_child_fail(c, "ids", errno, "setresuid");
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void launch_mount(struct native_child *c, const char *type, const char *at,
                         unsigned long flags, const char *options)
{
    if (mount(type, at, type, flags, options) < 0)
        native_child_fail(c, str_eq(type, "proc") ? "proc" : "root", errno, at);
}

static void launch_mkdir(struct native_child *c, const char *path, mode_t mode)
{
    if (mkdir(path, mode) < 0 || chmod(path, mode) < 0)
        native_child_fail(c, "bundle", errno, path);
}

static void launch_write(struct native_child *c, const char *path, const char *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    for (size_t done = 0; fd >= 0 && done < len;) {
        ssize_t n = write(fd, data + done, len - done);
        if (n <= 0)
            native_child_fail(c, "bundle", errno, path);
        done += (size_t)n;
    }
    if (fd < 0)
        native_child_fail(c, "bundle", errno, path);
    close(fd);
}

/* Our own program as far as it is loaded: by name it may be out of the guest's reach. */
static void launch_put_init(struct native_child *c)
{
    int fd = open(PLAN_OCI_ROOT PLAN_OCI_INIT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    off_t at = 0;
    while (fd >= 0 && (size_t)at < c->oci->exe_len) {
        ssize_t n = sendfile(fd, c->oci->exe_fd, &at, c->oci->exe_len - (size_t)at);
        if (n <= 0)
            native_child_fail(c, "bundle", n < 0 ? errno : EIO, "init");
    }
    if (fd < 0 || fchmod(fd, 0755) < 0)
        native_child_fail(c, "bundle", errno, "init");
    close(fd);
}

static void launch_place(struct native_child *c)
{
    const struct plan_limits *l = &c->plan->limits;
    char options[96];
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        native_child_fail(c, "propagation", errno, "/");
    launch_mount(c, "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    /* A tree of mixed versions makes crun give up; the limits are ours, so no runtime needs one. */
    if (c->plan->oci->runtime == PLAN_RUNTIME_CRUN)
        mount("tmpfs", "/sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
              NULL);
    launch_mount(c, "tmpfs", PLAN_OCI_PLACE, MS_NOSUID | MS_NODEV,
                 "size=128m,nr_inodes=16384,mode=0755");
    launch_mkdir(c, PLAN_OCI_STATE, 0700);
    launch_mkdir(c, PLAN_OCI_BINDS, 0755);
    launch_mkdir(c, PLAN_OCI_OVERLAY, 0755);
    launch_mkdir(c, PLAN_OCI_SCRATCH, 0755);
    launch_mkdir(c, PLAN_OCI_BUNDLE, 0755);
    launch_mkdir(c, PLAN_OCI_ROOT, 0755);
    launch_mkdir(c, PLAN_OCI_ROOT "/.cordon", 0755);
    snprintf(options, sizeof(options), "size=%llu,nr_inodes=%llu,mode=0755",
             (unsigned long long)l->scratch_bytes, (unsigned long long)l->scratch_inodes);
    launch_mount(c, "tmpfs", PLAN_OCI_SCRATCH, MS_NOSUID | MS_NODEV | MS_NOATIME, options);
    launch_write(c, PLAN_OCI_BUNDLE "/config.json", c->plan->oci->config,
                 strlen(c->plan->oci->config));
    launch_write(c, PLAN_OCI_ROOT "/.cordon/job", c->oci->job, c->oci->job_len);
    launch_put_init(c);
    if (oci_is_gvisor(c))
        oci_gvisor_prepare(c);
}

/* In the bundle's root itself, whose folders above it are ours. */
static void launch_lay(struct native_child *c, int rootfd, const char *dst, int tree)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    _cleanup_close_ int target = sys_openat2(rootfd, dst, &how);
    if (tree < 0 || target < 0 ||
        sys_move_mount(tree, "", target, "",
                       SYS_MOVE_MOUNT_F_EMPTY_PATH | SYS_MOVE_MOUNT_T_EMPTY_PATH) < 0)
        native_child_fail(c, "bind", errno, dst);
}

static void launch_lay_own(struct native_child *c, int rootfd, const char *src, const char *dst)
{
    _cleanup_close_ int tree =
        sys_open_tree(AT_FDCWD, src, SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC);
    launch_lay(c, rootfd, dst, tree);
}

/* Every flag is set here, on all mounts of the tree at once; the runtime's binds inherit them. */
static void launch_bind(struct native_child *c, size_t i, const char *at, int rootfd)
{
    const struct plan_op *op = &c->plan->ops[i];
    _cleanup_close_ int tree = c->mount_fds[i] >= 0 ? c->mount_fds[i] : native_open_source(op);
    if (tree < 0)
        native_child_fail(c, "bind", errno, op->src);
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV};
    if (!(op->flags & PLAN_BIND_RW))
        attr.attr_set |= SYS_MOUNT_ATTR_RDONLY;
    if (op->flags & PLAN_BIND_NOEXEC)
        attr.attr_set |= SYS_MOUNT_ATTR_NOEXEC;
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        native_child_fail(c, "bind", errno, op->src);
    if (rootfd >= 0) {
        native_root_make_target(c, rootfd, op, !(op->flags & PLAN_BIND_FILE));
        launch_lay(c, rootfd, op->dst, tree);
        return;
    }
    if ((op->flags & PLAN_BIND_FILE ? mknod(at, S_IFREG | 0644, 0) : mkdir(at, 0755)) < 0)
        native_child_fail(c, "bundle", errno, at);
    if (sys_move_mount(tree, "", AT_FDCWD, at, SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        native_child_fail(c, "bind", errno, op->dst);
}

static void launch_scratch(struct native_child *c, int rootfd, const struct plan_op *op)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), PLAN_OCI_SCRATCH "/%s", op->src);
    launch_mkdir(c, path, op->mode);
    if (!c->plan->oci->alone && chown(path, PLAN_GUEST_UID, PLAN_GUEST_GID) < 0)
        native_child_fail(c, "scratch", errno, path);
    if (op->flags & PLAN_SCRATCH_FOLDER)
        return;
    native_root_make_target(c, rootfd, op, true);
    if (plan_oci_is_laid(c->plan, op))
        launch_lay_own(c, rootfd, path, op->dst);
}

/* As the guest: what is made belongs to it. Rights, if wanted, stay in effect. */
static void launch_as_guest(struct native_child *c, bool rights)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_setresgid, -1, PLAN_GUEST_GID, -1) < 0 ||
        syscall(SYS_setresuid, -1, PLAN_GUEST_UID, -1) < 0)
        native_child_fail(c, "ids", errno, "setresuid");
    if (!rights)
        return;
    if (syscall(SYS_capget, &header, data) < 0)
        native_child_fail(c, "ids", errno, "capget");
    data[0].effective = data[0].permitted;
    data[1].effective = data[1].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        native_child_fail(c, "ids", errno, "capset");
}

static void launch_as_root(struct native_child *c)
{
    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || syscall(SYS_setresgid, -1, 0, -1) < 0)
        native_child_fail(c, "ids", errno, "setresuid");
    prctl(PR_SET_DUMPABLE, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* The kernel keeps a folder of its own beside the upper one, owned by who mounts: the caller must
 * be able to remove it. */
static void launch_overlay(struct native_child *c, int place, const struct plan_op *op)
{
    launch_as_guest(c, true);
    native_root_overlay(c, place, op);
    launch_as_root(c);
}

static bool launch_is_dev(const struct plan_op *op)
{
    return str_starts(op->dst, "dev/") || str_starts(op->dst, "proc/") || str_eq(op->dst, "proc");
}

static void launch_op(struct native_child *c, int rootfd, int overlay, size_t i)
{
    const struct plan_op *op = &c->plan->ops[i];
    char at[PATH_MAX];
    bool dir = op->kind == PLAN_OP_BIND   ? !(op->flags & PLAN_BIND_FILE)
               : op->kind == PLAN_OP_MASK ? (op->flags & PLAN_MASK_DIR) != 0
                                          : true;
    switch (op->kind) {
    case PLAN_OP_DIR:
        if (mkdirat(rootfd, op->dst, op->mode) < 0 && errno != EEXIST)
            native_child_fail(c, "root", errno, op->dst);
        return;
    case PLAN_OP_SYMLINK:
        if (!launch_is_dev(op) && symlinkat(op->src, rootfd, op->dst) < 0)
            native_child_fail(c, "root", errno, op->dst);
        return;
    case PLAN_OP_FILE: native_root_put_file(c, rootfd, op); return;
    case PLAN_OP_BIND:
        if (op->flags & PLAN_BIND_DEV)
            return;
        snprintf(at, sizeof(at), plan_oci_is_layer(op) ? PLAN_OCI_OVERLAY "/%s" : "%s", op->dst);
        if (!plan_oci_is_layer(op))
            snprintf(at, sizeof(at), PLAN_OCI_BINDS "/%zu", i);
        launch_bind(c, i, at, plan_oci_is_laid(c->plan, op) ? rootfd : -1);
        if (plan_oci_is_layer(op) || plan_oci_is_laid(c->plan, op))
            return;
        break;
    case PLAN_OP_OVERLAY: launch_overlay(c, overlay, op); break;
    case PLAN_OP_SCRATCH: launch_scratch(c, rootfd, op); return;
    case PLAN_OP_MASK:
    case PLAN_OP_PROC:
    case PLAN_OP_DEVPTS: break;
    }
    if (!launch_is_dev(op))
        native_root_make_target(c, rootfd, op, dir);
}

/* The folder that the guest will know as its working directory, from here. */
static void launch_enter_cwd(struct native_child *c)
{
    const struct plan *p = c->plan;
    char at[PATH_MAX] = "";
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (!str_eq(op->dst, p->cwd + 1))
            continue;
        if (op->kind == PLAN_OP_SCRATCH)
            snprintf(at, sizeof(at), PLAN_OCI_SCRATCH "/%s", op->src);
        else if (op->kind == PLAN_OP_OVERLAY)
            snprintf(at, sizeof(at), PLAN_OCI_OVERLAY "/%s", op->dst);
        else if (op->kind == PLAN_OP_BIND)
            snprintf(at, sizeof(at), PLAN_OCI_BINDS "/%zu", i);
    }
    if (!at[0] || chdir(at) < 0)
        native_child_fail(c, "working directory", at[0] ? errno : ENOENT, p->cwd);
}

static void launch_files(struct native_child *c)
{
    const struct plan *p = c->plan;
    if (p->n_files == 0 && !p->hands_back_cwd)
        return;
    launch_enter_cwd(c);
    launch_as_guest(c, false);
    native_child_copy_files(c);
    launch_as_root(c);
    if (p->hands_back_cwd)
        native_collect_send(c);
    if (chdir("/") < 0)
        native_child_fail(c, "working directory", errno, "/");
}

/* Second lock behind the filter, for runtimes that make no user namespace of their own; and the
 * caller's inotify instances are its own. */
static void launch_no_more_namespaces(struct native_child *c)
{
    launch_proc(c, "/proc/sys/user/max_user_namespaces", "0");
    launch_proc(c, "/proc/sys/user/max_inotify_instances", "64");
}

static void launch_layout(struct native_child *c)
{
    struct sys_mount_attr read_only = {.attr_set = SYS_MOUNT_ATTR_RDONLY};
    /* what is laid into the root needs it to be a mount, which the runtime takes as it is */
    if (oci_is_gvisor(c) && mount(PLAN_OCI_ROOT, PLAN_OCI_ROOT, NULL, MS_BIND, NULL) < 0)
        native_child_fail(c, "bundle", errno, PLAN_OCI_ROOT);
    int rootfd = open(PLAN_OCI_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int overlay = open(PLAN_OCI_OVERLAY, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (rootfd < 0 || overlay < 0)
        native_child_fail(c, "bundle", errno, PLAN_OCI_ROOT);
    umask(0);
    for (size_t i = 0; i < c->plan->n_ops; i++)
        launch_op(c, rootfd, overlay, i);
    umask(022);
    if (oci_is_gvisor(c)) {
        launch_lay_own(c, rootfd, PLAN_OCI_REPORT, &OCI_REPORT[1]);
        if (sys_mount_setattr(rootfd, "", AT_EMPTY_PATH, &read_only) < 0)
            native_child_fail(c, "bundle", errno, "mount_setattr");
    }
    close(rootfd);
    close(overlay);
    launch_files(c);
}

_Noreturn void oci_launch_main(struct native_child *c)
{
    bool gvisor = oci_is_gvisor(c);
    struct oci_spaces spaces = {0};
    native_child_begin(c);
    native_child_wipe_arguments(c);
    launch_become_root(c);
    launch_place(c);
    oci_spaces_begin(c, &spaces);
    launch_layout(c);
    native_child_plain_manners(c);
    native_child_plain_score(c, "/proc/self/oom_score_adj");
    native_child_leave_keyring(c);
    int sig_fd = native_child_signals(c, false);
    if (native_child_receive_groups(c) < 0)
        _exit(1); /* the supervisor gave up or died */
    oci_spaces_enter(c, &spaces);
    if (gvisor) {
        native_child_note_usage(c);
        atomic_store(&c->status->no_listener, 1);
    } else {
        launch_no_more_namespaces(c);
    }
    pid_t runtime = fork();
    if (runtime == 0)
        oci_runtime_exec(c);
    if (runtime < 0)
        native_child_fail(c, "fork", errno, "runtime");
    /* The guest's streams are its own now. */
    for (int i = 0; i < 3; i++)
        close(i);
    if (gvisor)
        oci_gvisor_watch(c, runtime, sig_fd);
    close(c->oci->status_fd);
    oci_runtime_reap(c, runtime);
}
