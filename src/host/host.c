/* The quick probe: what a run needs to know of this host before it makes a plan. Runs in the
 * supervisor before anything of a guest exists; a few dozen cheap system calls, no allocation. */
#include "host/host.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/err.h"
#include "base/nsnum.h"
#include "base/util.h"
#include "host/read.h"
#include "host/text.h"

/* Inode of the first user namespace in nsfs, fixed since Linux 3.8. */
#define INIT_USER_NS_INO 0xEFFFFFFDU

/* Fewer ids than this cannot give guests an id of their own: a container that maps only its root.
 */
#define MIN_IDS_FOR_ROOT 65536

static bool has_caps(bool *ret_any_file)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    const unsigned want = 1U << CAP_SYS_ADMIN | 1U << CAP_SETUID | 1U << CAP_SETGID;

    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    *ret_any_file = data[0].effective & 1U << CAP_DAC_OVERRIDE;
    return (data[0].effective & want) == want;
}

static bool may_map_ids(bool *ret_init_user_ns)
{
    char map[4096];

    *ret_init_user_ns = namespace_number("/proc/self/ns/user") == INIT_USER_NS_INO;
    return *ret_init_user_ns || (host_read("/proc/self/uid_map", map, sizeof(map)) >= 0 &&
                                 host_text_id_count(map) >= MIN_IDS_FOR_ROOT);
}

int host_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return abi > 0 ? (int)abi : 0;
}

static bool is_merged(const char *path)
{
    char target[64];
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return str_starts(target, "usr/") || str_starts(target, "/usr/");
}

static void probe_layout(struct host *h)
{
    struct stat st;

    h->merged_bin = is_merged("/bin");
    h->merged_sbin = is_merged("/sbin");
    h->merged_lib = is_merged("/lib");
    h->merged_lib64 = is_merged("/lib64");
    h->has_lib64 = h->merged_lib64 || lstat("/lib64", &st) == 0;
}

int host_probe_quick(struct host *ret_host, struct cordon_err *err)
{
    struct host h = {.uid = geteuid(), .gid = getegid(), .user_ns = true};
    struct utsname uts;
    char text[16];

    if (uname(&uts) < 0 || !host_text_kernel(uts.release, &h.kernel_major, &h.kernel_minor))
        return err_set(err, CORDON_ERR_HOST, "host", 0, "the kernel does not tell its version");
    if (h.kernel_major < 5 || (h.kernel_major == 5 && h.kernel_minor < 13))
        return err_set(err, CORDON_ERR_HOST, "host", 0, "Linux %s: Cordon needs 5.13 or newer",
                       uts.release);
    bool any_file = false;
    h.is_root = h.uid == 0 && has_caps(&any_file) && may_map_ids(&h.init_user_ns);
    h.landlock_abi = host_landlock_abi();
    /* Cheaper than /proc/self/ns/time: each first look below /proc/self costs microseconds. */
    h.time_ns = access("/proc/self/timens_offsets", F_OK) == 0;
    if (!h.time_ns && access("/proc/self/status", F_OK) < 0) {
        err_set(err, CORDON_ERR_HOST, "host", errno, "/proc/self");
        return err_hint(err, "mount -t proc proc /proc");
    }
    h.apparmor = host_read("/sys/module/apparmor/parameters/enabled", text, sizeof(text)) > 0 &&
                 text[0] == 'Y';
    struct sysinfo info;
    if (sysinfo(&info) == 0)
        h.memory_bytes = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    probe_layout(&h);
    host_cgroups_find_quick(any_file && h.init_user_ns, &h.cgroups);

    *ret_host = h;
    return 0;
}
