/* From a failed attempt to its cause and its smallest fix. Called by the doctor, and by a run whose
 * user namespace was refused; runs in the supervisor. */
#include "host/explain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "host/cgroups.h"
#include "host/read.h"
#include "host/text.h"

#define MOUNTINFO_MAX (1 << 20)
#define FILTER_FIX                                                                                 \
    "let the outer filter pass it; Docker: docker run --security-opt seccomp=unconfined"

static void set(struct host_item *item, enum host_state state, const char *fix, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));

static void set(struct host_item *item, enum host_state state, const char *fix, const char *fmt,
                ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(item->detail, sizeof(item->detail), fmt, ap);
    va_end(ap);
    item->state = state;
    snprintf(item->fix, sizeof(item->fix), "%s", fix);
}

void host_explain_general(const struct host *host, const struct host_facts *facts,
                          const struct host_outcome *out, struct host_item *item)
{
    const char *why = strerror(out->error);

    (void)host;
    switch (out->error) {
    case 0: set(item, HOST_WORKS, "", "%s", out->note); return;
    case ENOSYS:
        if (facts->seccomp == 2)
            set(item, HOST_BLOCKED, FILTER_FIX, "%s: refused by an outer seccomp filter",
                out->step);
        else
            set(item, HOST_MISSING, "use a kernel that has it", "%s: not in this kernel",
                out->step);
        return;
    case EPERM:
    case EACCES:
        if (facts->label[0] && out->error == EACCES)
            set(item, HOST_BLOCKED, "Docker: docker run --security-opt apparmor=unconfined",
                "%s: refused by the AppArmor profile %s", out->step, facts->label);
        else if (facts->seccomp == 2)
            set(item, HOST_BLOCKED, FILTER_FIX, "%s: refused by an outer seccomp filter",
                out->step);
        else if (facts->selinux && out->error == EACCES)
            set(item, HOST_BLOCKED, "ausearch -m avc -ts recent shows the rule that is missing",
                "%s: refused, probably by SELinux", out->step);
        else
            set(item, HOST_BLOCKED, "", "%s: %s", out->step, why);
        return;
    case ENOSPC:
    case EUSERS:
        set(item, HOST_BLOCKED, "raise user.max_*_namespaces (sysctl -a | grep namespaces)",
            "%s: the host's limit on namespaces is reached", out->step);
        return;
    case EINVAL:
    case ENODEV:
    case ENOENT:
    case ENOPROTOOPT:
    case EOPNOTSUPP:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
        set(item, HOST_MISSING, "modprobe what it needs, or use a kernel that has it", "%s: %s",
            out->step, why);
        return;
    default: set(item, HOST_BLOCKED, "", "%s: %s", out->step, why); return;
    }
}

static void apparmor_fix(const struct host_facts *facts, struct host_item *item)
{
    const char *exe = facts->exe[0] ? facts->exe : "/usr/bin/cordon";
    set(item, HOST_BLOCKED, "", "AppArmor (kernel.apparmor_restrict_unprivileged_userns=1)");
    snprintf(
        item->fix, sizeof(item->fix),
        "for Cordon alone, write to /etc/apparmor.d/cordon: abi <abi/4.0>, profile cordon %s "
        "flags=(unconfined) { userns, } - then: sudo apparmor_parser -r /etc/apparmor.d/cordon; "
        "for all programs: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        exe);
}

void host_explain_user_ns(const struct host *host, const struct host_facts *facts,
                          const struct host_outcome *out, struct host_item *item)
{
    int e = out->error;
    bool refused = e == EPERM || e == EACCES;

    if (e == 0) {
        set(item, HOST_WORKS, "", "%s", out->note);
    } else if (facts->max_user_ns == 0 && e == ENOSPC) {
        set(item, HOST_BLOCKED, "sudo sysctl user.max_user_namespaces=15000",
            "switched off (user.max_user_namespaces=0)");
    } else if (e == ENOSPC || e == EUSERS) {
        set(item, HOST_BLOCKED,
            "start Cordon from less deep inside other sandboxes, or raise "
            "user.max_user_namespaces",
            "the limit on nested or counted user namespaces is reached");
    } else if (refused && !host->is_root && facts->userns_clone == 0) {
        set(item, HOST_BLOCKED, "sudo sysctl kernel.unprivileged_userns_clone=1",
            "switched off for users (kernel.unprivileged_userns_clone=0)");
    } else if (refused && !host->is_root && facts->apparmor_restrict == 1) {
        apparmor_fix(facts, item);
    } else if (refused && facts->seccomp == 2 && str_eq(out->step, "unshare")) {
        const char *fix = "docker run --security-opt seccomp=unconfined --security-opt "
                          "apparmor=unconfined --security-opt systempaths=unconfined";
        set(item, HOST_BLOCKED,
            facts->container[0] ? fix
                                : "let the outer seccomp filter pass "
                                  "clone and unshare with CLONE_NEWUSER",
            "an outer seccomp filter%s%s%s", facts->container[0] ? " (" : "", facts->container,
            facts->container[0] ? ")" : "");
    } else if (refused && facts->chrooted) {
        set(item, HOST_BLOCKED, "enter the tree with pivot_root instead of chroot",
            "the kernel refuses user namespaces inside a chroot");
    } else if (refused && str_starts(out->step, "write ")) {
        set(item, HOST_BLOCKED,
            "map the user's own id in the outer user namespace, or run outside it", "%s: %s",
            out->step, strerror(e));
    } else {
        host_explain_general(host, facts, out, item);
        if (e == EINVAL)
            snprintf(item->detail, sizeof(item->detail), "this kernel was built without them");
    }
}

void host_explain_proc(const struct host *host, const struct host_facts *facts,
                       const struct host_outcome *out, struct host_item *item)
{
    if (out->error != EPERM || facts->proc_masks == 0) {
        host_explain_general(host, facts, out, item);
        return;
    }
    char more[32] = "";
    if (facts->proc_masks > 1)
        snprintf(more, sizeof(more), " and %u more", facts->proc_masks - 1);
    set(item, HOST_BLOCKED,
        "Docker: docker run --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked",
        "the outer /proc is masked (%s%s), so the kernel refuses a new one",
        facts->proc_mask[0] ? facts->proc_mask : "/proc", more);
}

void host_explain_notify(const struct host *host, const struct host_facts *facts,
                         const struct host_outcome *out, struct host_item *item)
{
    if (out->error == EBUSY)
        set(item, HOST_BLOCKED, "start Cordon where no outer sandbox listens to system calls",
            "an outer sandbox already listens (EBUSY)");
    else
        host_explain_general(host, facts, out, item);
}

void host_explain_landlock(const struct host *host, const struct host_facts *facts,
                           const struct host_outcome *out, struct host_item *item)
{
    if (out->error == EOPNOTSUPP)
        set(item, HOST_BLOCKED, "add landlock to the lsm= list on the kernel's command line",
            "in the kernel, but switched off at boot");
    else if (out->error == ENOSYS && facts->seccomp != 2)
        set(item, HOST_MISSING, "use a kernel with CONFIG_SECURITY_LANDLOCK=y",
            "this kernel was built without it");
    else
        host_explain_general(host, facts, out, item);
}

void host_explain_guest_id(const struct host *host, const struct host_facts *facts,
                           const struct host_outcome *out, struct host_item *item)
{
    if (out->error == EINVAL)
        set(item, HOST_BLOCKED, "start Cordon as an ordinary user",
            "root of a user namespace without an id to give away");
    else if (out->error == EPERM)
        set(item, HOST_BLOCKED,
            "start Cordon as an ordinary user, or as root with CAP_CHOWN, CAP_SETUID and "
            "CAP_SETGID",
            "root without the right to change ids");
    else
        host_explain_general(host, facts, out, item);
}

static void cgroup_words(const struct host_cgroups *c, char *ret, size_t size)
{
    bool v1 = c->kind == HOST_CGROUP_V1;
    bool on[] = {v1 ? c->memory[0] : c->v2_memory, v1 ? c->pids[0] : c->v2_pids,
                 v1 ? c->cpu[0] : c->v2_cpu};
    static const char *const names[] = {"memory", "pids", "cpu"};

    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        size_t n = strlen(ret);
        if (on[i])
            snprintf(ret + n, size - n, "%s%s", n ? "," : "", names[i]);
    }
}

static const char *cgroup_fix(const struct host_facts *facts)
{
    if (facts->cgroup_v1)
        return "run as root: v1 groups are root's alone (in a container: with /sys/fs/cgroup "
               "writable)";
    if (facts->systemd)
        return "systemd-run --user --scope -p Delegate=yes cordon run ... (over ssh or cron first: "
               "loginctl enable-linger), or run as root";
    if (facts->container[0])
        return "mount /sys/fs/cgroup writable, with a delegated group named by --cgroup PATH";
    return "run as root, or let root make a group, chown it, start Cordon below it and name it "
           "with "
           "--cgroup PATH";
}

void host_explain_cgroup(const struct host *host, const struct host_facts *facts,
                         const struct host_outcome *out, struct host_item *item)
{
    const struct host_cgroups *c = &host->cgroups;
    const char *fix = cgroup_fix(facts);
    char words[64], bus[128];

    cgroup_words(c, words, sizeof(words));
    if (c->kind == HOST_CGROUP_NONE && facts->own_controllers) {
        set(item, HOST_BLOCKED, "", "a cgroup is delegated, but this session sits in it itself");
        snprintf(
            item->fix, sizeof(item->fix),
            "G=%s; mkdir $G/shell && echo $$ >$G/shell/cgroup.procs && echo '+memory +pids +cpu' "
            ">$G/cgroup.subtree_control",
            c->v2);
    } else if (c->may_ask_scope && host_scope_bus(bus, sizeof(bus))) {
        set(item, HOST_BLOCKED, fix, "none is delegated; a run asks systemd for one (%s)", bus);
    } else if (c->kind == HOST_CGROUP_NONE) {
        set(item, HOST_BLOCKED, fix, "no cgroup is delegated");
    } else if (out->error) {
        set(item, HOST_BLOCKED, fix, "%s: %s", out->step, strerror(out->error));
    } else if (!str_eq(words, "memory,pids,cpu")) {
        set(item, HOST_BLOCKED, fix, "%s %s only", c->kind == HOST_CGROUP_V1 ? "v1" : "v2", words);
    } else {
        set(item, HOST_WORKS, "", "%s %s%s", c->kind == HOST_CGROUP_V1 ? "v1" : "v2", words,
            c->kind == HOST_CGROUP_V1 && c->v2[0] ? "; v2 beside it for tier landlock" : "");
    }
}

void host_explain_idmap(const struct host *host, const struct host_facts *facts,
                        const struct host_outcome *out, struct host_item *item)
{
    if (!host->is_root)
        set(item, HOST_WORKS, "", "not needed: the guest runs as the caller");
    else if (out->error == EINVAL)
        set(item, HOST_MISSING, "keep granted files on ext4, xfs, btrfs or (from Linux 6.3) tmpfs",
            "the root file system does not support them");
    else
        host_explain_general(host, facts, out, item);
}

void host_explain_overlay(const struct host *host, const struct host_facts *facts,
                          const struct host_outcome *out, struct host_item *item)
{
    host_explain_general(host, facts, out, item);
    if (out->error == ENODEV)
        set(item, HOST_MISSING, "sudo modprobe overlay",
            "the kernel's overlay module is not loaded");
}

void host_explain_core(const struct host *host, const struct host_facts *facts,
                       const struct host_outcome *out, struct host_item *item)
{
    (void)host;
    (void)out;
    if (facts->core_pattern[0] == '|')
        set(item, HOST_WORKS, "",
            "piped to %.100s: guests run with a core limit that never starts it",
            facts->core_pattern + 1);
    else
        set(item, HOST_WORKS, "", "to files; guests write none");
}

void host_explain_yama(const struct host *host, const struct host_facts *facts,
                       const struct host_outcome *out, struct host_item *item)
{
    (void)host;
    (void)out;
    if (facts->ptrace_scope < 0)
        set(item, HOST_WORKS, "", "no Yama; Cordon's own fences stand without it");
    else
        set(item, HOST_WORKS, "", "Yama ptrace_scope %d", facts->ptrace_scope);
}

void host_explain_apparmor(const struct host *host, const struct host_facts *facts,
                           const struct host_outcome *out, struct host_item *item)
{
    (void)out;
    if (host->apparmor)
        set(item, HOST_WORKS, "", "%s%s", facts->label[0] ? "this process runs under " : "enabled",
            facts->label);
    else
        set(item, HOST_MISSING, "add apparmor to the lsm= list on the kernel's command line",
            "not enabled on this host");
}

static int64_t read_number(const char *path)
{
    char text[64], *end;
    if (host_read(path, text, sizeof(text)) <= 0)
        return -1;
    long long value = strtoll(text, &end, 10);
    return end == text ? -1 : value;
}

static void read_line(const char *path, char *ret, size_t size)
{
    char text[512];
    ret[0] = '\0';
    if (host_read(path, text, sizeof(text)) <= 0)
        return;
    text[strcspn(text, "\n")] = '\0';
    snprintf(ret, size, "%.*s", (int)size - 1, text);
}

static void read_container(struct host_facts *f)
{
    static const struct {
        const char *path, *name;
    } marks[] = {{"/.dockerenv", "docker"},
                 {"/run/.containerenv", "podman"},
                 {"/var/run/secrets/kubernetes.io", "kubernetes"},
                 {"/dev/lxd", "lxc"}};

    for (size_t i = 0; i < ARRAY_SIZE(marks) && !f->container[0]; i++) {
        if (access(marks[i].path, F_OK) == 0)
            snprintf(f->container, sizeof(f->container), "%s", marks[i].name);
    }
    if (!f->container[0])
        read_line("/run/systemd/container", f->container, sizeof(f->container));
}

static void read_mounts(struct host_facts *f)
{
    _cleanup_free_ char *text = malloc(MOUNTINFO_MAX);
    if (!text || host_read("/proc/self/mountinfo", text, MOUNTINFO_MAX) < 0)
        return;
    f->proc_masks = host_text_proc_masks(text, f->proc_mask, sizeof(f->proc_mask));
    f->chrooted = !host_text_has_root_mount(text);
}

/* Delegation that cannot be used yet: v2 limits children only of groups without processes, and who
 * sits there is not ours to move. */
static bool has_own_controllers(const struct host_cgroups *c)
{
    char text[512];
    return c->kind == HOST_CGROUP_NONE && c->v2[0] &&
           host_read_at(c->v2, "cgroup.controllers", text, sizeof(text)) > 0 &&
           host_text_has_word(text, "memory") && host_text_has_word(text, "pids");
}

void host_facts_read(const struct host *host, struct host_facts *ret_facts)
{
    struct host_facts f = {.seccomp = -1, .own_controllers = has_own_controllers(&host->cgroups)};
    char status[8192];

    f.apparmor_restrict =
        (int)read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    f.userns_clone = (int)read_number("/proc/sys/kernel/unprivileged_userns_clone");
    f.max_user_ns = read_number("/proc/sys/user/max_user_namespaces");
    f.ptrace_scope = (int)read_number("/proc/sys/kernel/yama/ptrace_scope");
    f.selinux = read_number("/sys/fs/selinux/enforce") == 1;
    f.cgroup_v1 = access("/sys/fs/cgroup/memory/cgroup.procs", F_OK) == 0;
    f.systemd = access("/run/systemd/system", F_OK) == 0;
    if (host_read("/proc/self/status", status, sizeof(status)) > 0)
        f.seccomp = (int)host_text_status(status, "Seccomp", 10);
    read_line("/proc/sys/kernel/core_pattern", f.core_pattern, sizeof(f.core_pattern));
    read_line("/proc/self/attr/apparmor/current", f.label, sizeof(f.label));
    f.label[strcspn(f.label, " ")] = '\0';
    if (str_eq(f.label, "unconfined"))
        f.label[0] = '\0';
    read_container(&f);
    read_mounts(&f);
    ssize_t n = readlink("/proc/self/exe", f.exe, sizeof(f.exe) - 1);
    f.exe[n > 0 ? n : 0] = '\0';
    *ret_facts = f;
}

void host_user_ns_refused(struct host *host, const char *step, int sys_errno, char *ret_fix,
                          size_t fix_size)
{
    struct host_facts facts;
    struct host_outcome out = {.error = sys_errno ? sys_errno : EPERM};
    struct host_item item = {0};

    snprintf(out.step, sizeof(out.step), "%s", step);
    host_facts_read(host, &facts);
    host_explain_fn *explain =
        str_eq(step, "mount proc") ? host_explain_proc : host_explain_user_ns;
    explain(host, &facts, &out, &item);
    host->user_ns = false;
    snprintf(host->user_ns_why, sizeof(host->user_ns_why), "%s", item.detail);
    snprintf(ret_fix, fix_size, "%s", item.fix);
}
