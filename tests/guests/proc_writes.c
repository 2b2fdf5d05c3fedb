/* K18, D23: writes to the files of our own /proc that change rules: id maps, OOM order, sysctls. */
#include "guest.h"

#include <sys/prctl.h>

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        report(path, -1);
        return;
    }
    report(path, write(fd, text, strlen(text)) < 0 ? -1 : 0);
    close(fd);
}

int main(void)
{
    guest_deadline(10);
    put("/proc/self/uid_map", "0 0 1\n");
    put("/proc/self/gid_map", "0 0 1\n");
    put("/proc/self/setgroups", "allow\n");
    put("/proc/self/oom_score_adj", "-1000\n");
    put("/proc/self/oom_adj", "-17\n");
    put("/proc/self/attr/current", "unconfined\n");
    put("/proc/self/attr/exec", "unconfined\n");
    put("/proc/self/timens_offsets", "monotonic 100 0\n");
    put("/proc/self/coredump_filter", "0x7f\n");
    put("/proc/self/loginuid", "0\n");
    put("/proc/1/oom_score_adj", "1000\n");
    put("/proc/sys/kernel/core_pattern", "|/tmp/evil\n");
    put("/proc/sys/kernel/hostname", "evil\n");
    put("/proc/sys/kernel/modprobe", "/tmp/evil\n");
    put("/proc/sys/user/max_user_namespaces", "1000\n");
    put("/proc/sys/net/ipv4/ip_forward", "1\n");
    put("/proc/sys/fs/binfmt_misc/register", ":e:M::x::/tmp/evil:\n");
    put("/proc/sys/vm/overcommit_memory", "1\n");
    put("/proc/sysrq-trigger", "h\n");
    TRY("prctl_dumpable", prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    TRY("prctl_dumpable_root", prctl(PR_SET_DUMPABLE, 2, 0, 0, 0));
    TRY("prctl_capbset_drop", prctl(PR_CAPBSET_DROP, 0, 0, 0, 0));
    TRY("prctl_seccomp_off", prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
    TRY("prctl_subreaper", prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    TRY("prctl_tsc", prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0));
    return 0;
}
