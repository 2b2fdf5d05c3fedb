/* The doctor's attempts at mounts, and at the parts of a guest's network. Runs in throw-away
 * children of the doctor: no allocation, no output, results only through *out. */
#include "host/probes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/nft.h"
#include "base/sys.h"
#include "base/util.h"

/* Covered by the attempts in their own mount namespace: a folder that every host has. */
#define PROBE_DIR "/proc"

static int enter_with_tmpfs(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWNS, out) < 0)
        return -1;
    if (mount("tmpfs", PROBE_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0)
        return host_probe_fail(out, "mount tmpfs");
    return 0;
}

void host_probe_tmpfs(const struct host *host, struct host_outcome *out)
{
    enter_with_tmpfs(host, out);
}

void host_probe_proc(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWNS | CLONE_NEWPID, out) < 0)
        return;
    pid_t pid = fork(); /* a /proc belongs to the pid namespace of who mounts it */
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
            host_probe_fail(out, "mount proc");
        _exit(0);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
        host_probe_fail(out, "fork");
}

void host_probe_devpts(const struct host *host, struct host_outcome *out)
{
    if (host_probe_enter(host, CLONE_NEWNS, out) == 0 &&
        mount("devpts", PROBE_DIR, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666") <
            0)
        host_probe_fail(out, "mount devpts");
}

void host_probe_pivot_root(const struct host *host, struct host_outcome *out)
{
    if (enter_with_tmpfs(host, out) < 0)
        return;
    if (chdir(PROBE_DIR) < 0)
        host_probe_fail(out, "chdir");
    else if (sys_pivot_root(".", ".") < 0)
        host_probe_fail(out, "pivot_root");
    else if (umount2(".", MNT_DETACH) < 0)
        host_probe_fail(out, "umount the old root");
}

void host_probe_mount_api(const struct host *host, struct host_outcome *out)
{
    struct sys_mount_attr ro = {.attr_set = SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID};
    int fs, mnt, tree;

    if (host_probe_enter(host, CLONE_NEWNS, out) < 0)
        return;
    if ((fs = sys_fsopen("tmpfs", SYS_FSOPEN_CLOEXEC)) < 0)
        host_probe_fail(out, "fsopen");
    else if (sys_fsconfig(fs, SYS_FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        host_probe_fail(out, "fsconfig");
    else if ((mnt = sys_fsmount(fs, SYS_FSMOUNT_CLOEXEC, SYS_MOUNT_ATTR_NOSUID)) < 0)
        host_probe_fail(out, "fsmount");
    else if (sys_move_mount(mnt, "", AT_FDCWD, PROBE_DIR, SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
        host_probe_fail(out, "move_mount");
    else if ((tree = sys_open_tree(AT_FDCWD, "/",
                                   SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_RECURSIVE)) < 0)
        host_probe_fail(out, "open_tree");
    else if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &ro) < 0)
        host_probe_fail(out, "mount_setattr");
}

/* A user namespace with a map, as the source of an identity map: the descriptor of it, or -1. */
static int user_ns_fd(struct host_outcome *out)
{
    int ready[2];
    char path[64], byte;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return host_probe_fail(out, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWUSER) == 0 && write(ready[1], "", 1) == 1)
            pause();
        _exit(0);
    }
    close(ready[1]); /* so that a child that failed is an end of file */
    int ns = -1;
    if (pid < 0 || read(ready[0], &byte, 1) != 1) {
        host_probe_fail(out, "unshare");
    } else {
        static const char *const maps[] = {"uid_map", "gid_map"};
        for (size_t i = 0; i < ARRAY_SIZE(maps) && !out->error; i++) {
            snprintf(path, sizeof(path), "/proc/%d/%s", pid, maps[i]);
            _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
            if (fd < 0 || write(fd, "0 65534 1\n", 10) != 10)
                host_probe_fail(out, "write id map");
        }
        snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
        if (!out->error && (ns = open(path, O_RDONLY | O_CLOEXEC)) < 0)
            host_probe_fail(out, "open user namespace");
    }
    close(ready[0]);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return ns;
}

void host_probe_idmap(const struct host *host, struct host_outcome *out)
{
    (void)host;
    int ns = user_ns_fd(out);
    if (ns < 0)
        return;
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns};
    int tree = sys_open_tree(AT_FDCWD, "/", SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC);
    if (tree < 0)
        host_probe_fail(out, "open_tree");
    else if (sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
        host_probe_fail(out, "mount_setattr");
}

void host_probe_overlay(const struct host *host, struct host_outcome *out)
{
    static const char *const dirs[] = {PROBE_DIR "/l", PROBE_DIR "/u", PROBE_DIR "/w",
                                       PROBE_DIR "/m"};

    if (enter_with_tmpfs(host, out) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        if (mkdir(dirs[i], 0755) < 0) {
            host_probe_fail(out, "mkdir");
            return;
        }
    }
    if (mount("overlay", dirs[3], "overlay", MS_NOSUID | MS_NODEV,
              "userxattr,lowerdir=" PROBE_DIR "/l,upperdir=" PROBE_DIR "/u,workdir=" PROBE_DIR
              "/w") < 0)
        host_probe_fail(out, "mount overlay");
    else if (setxattr(dirs[1], "user.overlay.probe", "y", 1, 0) < 0)
        snprintf(out->note, sizeof(out->note),
                 "with the changes on disk: tmpfs keeps no user "
                 "attributes before Linux 6.6");
}

void host_probe_veth(const struct host *host, struct host_outcome *out)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg info;
        struct rtattr link_info, kind;
        char name[4];
    } req = {
        .head = {.nlmsg_len = sizeof(req),
                 .nlmsg_type = RTM_NEWLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK},
        .link_info = {.rta_type = IFLA_LINKINFO, .rta_len = 2 * sizeof(struct rtattr) + 4},
        .kind = {.rta_type = IFLA_INFO_KIND, .rta_len = sizeof(struct rtattr) + 4},
        .name = "veth", /* the kernel takes names without a terminator */
    };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer;

    if (host_probe_enter(host, CLONE_NEWNET, out) < 0)
        return;
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &req, sizeof(req), 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.head) + 4) {
        host_probe_fail(out, "netlink");
        return;
    }
    errno = -answer.error.error;
    if (answer.head.nlmsg_type == NLMSG_ERROR && answer.error.error != 0)
        host_probe_fail(out, "make a veth pair");
}

/* The rule that a run with any port makes (netns_rules.c), in a network of its own. */
void host_probe_tproxy(const struct host *host, struct host_outcome *out)
{
    static char buf[4096] __attribute__((aligned(8)));
    struct nft n = {.buf = buf, .size = sizeof(buf), .table = "gate", .chain = "all"};

    if (host_probe_enter(host, CLONE_NEWNET, out) < 0)
        return;
    nft_begin(&n, NF_INET_PRE_ROUTING, 0);
    struct nlattr *rule = nft_rule(&n);
    nft_is_protocol(&n, IPPROTO_TCP);
    nft_redirect(&n, 1);
    nft_rule_end(&n, rule);
    if (nft_commit(&n) < 0)
        host_probe_fail(out, "nft_tproxy");
}
