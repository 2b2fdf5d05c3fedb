/* A container as the engine is asked for it: SPEC's shape (read-only root, user sandbox, nothing of
 * the host but what was granted) and the request's values. Pure; runs in `cordon-docker`.
 *
 * The command is always our own pid 1; what the guest runs, its arguments and its environment go to
 * it through standard input and never to the engine, which would keep them on its disk. */
#include <inttypes.h>
#include <string.h>

#include "backend/docker/binds.h"
#include "backend/docker/image.h"
#include "backend/docker/request.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "init/init.h"

/* A kept container's pid 1, the command's own, and the runtime's threads while it starts one. pid 1
 * of a command sees that this is more than was asked for, and holds the limit by looking. */
#define CREATE_REUSE_PIDS 32

static void create_list(struct jsonw *j, const char *key, const char *const *list, size_t n)
{
    jsonw_open(j, key, '[');
    for (size_t i = 0; i < n; i++)
        jsonw_str(j, NULL, list[i]);
    jsonw_close(j, ']');
}

static void create_one(struct jsonw *j, const char *key, const char *value)
{
    create_list(j, key, &value, value ? 1 : 0);
}

/* exec: what is compiled in /tmp runs there, as it does natively. */
static void create_tmpfs(struct jsonw *j, const struct request *r, uid_t uid, gid_t gid)
{
    char options[256];
    int n = snprintf(options, sizeof(options), "rw,exec,nosuid,nodev,mode=1777");
    if (r->scratch_bytes)
        n += snprintf(options + n, sizeof(options) - (size_t)n, ",size=%" PRIu64, r->scratch_bytes);
    /* each has its own root as an inode; what all of them hold together is pid 1's to look at */
    uint64_t inodes = r->max_files ? MIN(r->max_files + 1, r->scratch_inodes) : r->scratch_inodes;
    if (inodes)
        n += snprintf(options + n, sizeof(options) - (size_t)n, ",nr_inodes=%" PRIu64, inodes);
    jsonw_open(j, "Tmpfs", '{');
    jsonw_str(j, "/tmp", options);
    jsonw_str(j, "/dev/shm", options);
    memcpy(strstr(options, "mode=1777"), "mode=0755", 9);
    snprintf(options + n, sizeof(options) - (size_t)n, ",uid=%u,gid=%u", (unsigned)uid,
             (unsigned)gid);
    jsonw_str(j, "/home/sandbox", options);
    jsonw_close(j, '}');
}

static void create_bind(struct jsonw *j, const char *src, const char *slash, const char *dst,
                        bool write, struct buf *scratch)
{
    scratch->len = 0;
    buf_printf(scratch, "%s%s", slash, dst);
    jsonw_open(j, NULL, '{');
    jsonw_str(j, "Type", "bind");
    jsonw_str(j, "Source", src);
    jsonw_str(j, "Target", scratch->data);
    jsonw_bool(j, "ReadOnly", !write);
    jsonw_open(j, "BindOptions", '{');
    jsonw_str(j, "Propagation", "rprivate");
    jsonw_close(j, '}');
    jsonw_close(j, '}');
}

static void create_mounts(struct jsonw *j, const struct request *r, const char *init_path,
                          const struct binds *b)
{
    _cleanup_buf_ struct buf from = BUF_INIT(8192);
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    jsonw_open(j, "Mounts", '[');
    create_bind(j, init_path, "", INIT_PATH, false, &path);
    if (b->channel)
        create_bind(j, b->channel, "", INIT_CHANNEL_DIR, false, &path);
    static const char *const accounts[] = {"passwd", "group"};
    for (size_t i = 0; b->accounts && i < ARRAY_SIZE(accounts); i++) {
        char target[32];
        from.len = 0;
        buf_printf(&from, "%s/%s", b->accounts, accounts[i]);
        snprintf(target, sizeof(target), "/etc/%s", accounts[i]);
        create_bind(j, from.data, "", target, false, &path);
    }
    for (size_t i = 0; i < r->n_binds; i++)
        create_bind(j, r->binds[i].src, "/", r->binds[i].dst, r->binds[i].write, &path);
    jsonw_close(j, ']');
    if (path.failed)
        j->out->failed = true;
}

/* The engine's own lists are replaced by ours, which hold theirs. */
static void create_masks(struct jsonw *j, const struct request *r)
{
    static const char *const masked[] = {"/proc/asound",
                                         "/proc/acpi",
                                         "/proc/kcore",
                                         "/proc/keys",
                                         "/proc/latency_stats",
                                         "/proc/timer_list",
                                         "/proc/timer_stats",
                                         "/proc/sched_debug",
                                         "/proc/scsi",
                                         "/sys/firmware",
                                         "/sys/devices/virtual/powercap",
                                         "/proc/kallsyms",
                                         "/proc/key-users",
                                         "/proc/kmsg",
                                         "/proc/config.gz",
                                         "/proc/cmdline",
                                         "/proc/iomem",
                                         "/proc/ioports",
                                         "/proc/interrupts",
                                         "/proc/modules",
                                         "/proc/slabinfo",
                                         "/proc/vmallocinfo",
                                         "/proc/pagetypeinfo",
                                         "/proc/kpagecount",
                                         "/proc/kpageflags",
                                         "/proc/kpagecgroup",
                                         "/proc/driver",
                                         "/proc/pressure",
                                         "/proc/tty"};
    static const char *const readonly[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                           "/proc/sysrq-trigger"};
    _cleanup_buf_ struct buf path = BUF_INIT(8192);
    jsonw_open(j, "MaskedPaths", '[');
    for (size_t i = 0; i < ARRAY_SIZE(masked); i++)
        jsonw_str(j, NULL, masked[i]);
    for (size_t i = 0; i < r->n_masks; i++) {
        path.len = 0;
        buf_printf(&path, "/%s", r->masks[i]);
        jsonw_str(j, NULL, path.data);
    }
    jsonw_close(j, ']');
    create_list(j, "ReadonlyPaths", readonly, ARRAY_SIZE(readonly));
    if (path.failed)
        j->out->failed = true;
}

static void create_security(struct jsonw *j, const struct request *r)
{
    _cleanup_buf_ struct buf text = BUF_INIT(2 << 20);
    jsonw_bool(j, "ReadonlyRootfs", true);
    create_one(j, "CapDrop", "ALL");
    /* what pid 1 needs to make packet rules and to be root no longer: gone before the guest */
    static const char *const guard[] = {"NET_ADMIN", "SETGID", "SETPCAP", "SETUID"};
    /* of gVisor's own kernel: there pid 1 stays root, which its guest is not, and has to end it */
    static const char *const inside[] = {"KILL", "SETGID", "SETPCAP", "SETUID"};
    if (r->block_internal || r->gvisor)
        create_list(j, "CapAdd", r->gvisor ? inside : guard, ARRAY_SIZE(guard));
    jsonw_open(j, "SecurityOpt", '[');
    jsonw_str(j, NULL, "no-new-privileges");
    buf_printf(&text, "seccomp=%s", r->seccomp.data);
    jsonw_str(j, NULL, text.data);
    if (r->apparmor) {
        text.len = 0;
        buf_printf(&text, "apparmor=%s", r->apparmor);
        jsonw_str(j, NULL, text.data);
    }
    jsonw_close(j, ']');
    if (text.failed)
        j->out->failed = true;
}

static void create_limits(struct jsonw *j, const struct request *r)
{
    if (r->memory_bytes) {
        jsonw_uint(j, "Memory", r->memory_bytes);
        jsonw_uint(j, "MemorySwap", r->memory_bytes); /* swap included: none beyond it */
    }
    if (r->cpu_percent)
        jsonw_uint(j, "NanoCpus", r->cpu_percent * 10000000u);
    /* Our pid 1 is not the guest's. gVisor's own threads count in the group: it would fall with the
     * limit that is meant for its guest, which pid 1 holds there by looking. */
    if (r->processes)
        jsonw_uint(j, "PidsLimit",
                   r->reuse    ? r->processes + CREATE_REUSE_PIDS
                   : r->gvisor ? 4 * r->processes + 4096
                               : r->processes + 1);
}

static void create_host_config(struct jsonw *j, const struct request *r, const char *init_path,
                               const struct binds *b)
{
    jsonw_open(j, "HostConfig", '{');
    jsonw_bool(j, "AutoRemove", true);
    jsonw_bool(j, "Privileged", false);
    jsonw_bool(j, "Init", false); /* ours is pid 1, whatever the engine's default */
    jsonw_str(j, "NetworkMode", r->network);
    jsonw_str(j, "IpcMode", "private");
    jsonw_str(j, "CgroupnsMode", "private");
    if (r->runtime)
        jsonw_str(j, "Runtime", r->runtime);
    if (r->dns)
        create_one(j, "Dns", r->dns);
    jsonw_open(j, "LogConfig", '{'); /* a flood of output must not fill the engine's disk */
    jsonw_str(j, "Type", "none");
    jsonw_close(j, '}');
    create_security(j, r);
    create_limits(j, r);
    create_tmpfs(j, r, b->uid, b->gid);
    create_mounts(j, r, init_path, b);
    create_masks(j, r);
    jsonw_close(j, '}');
}

int create_body(const struct request *r, const char *init_path, const struct binds *b,
                struct buf *out, struct cordon_err *err)
{
    struct jsonw j = {.out = out};
    char user[32];
    bool root = r->block_internal || r->gvisor; /* pid 1, to begin with */
    snprintf(user, sizeof(user), "%u:%u", root ? 0 : (unsigned)b->uid, root ? 0 : (unsigned)b->gid);
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "Image", r->image);
    jsonw_str(&j, "Hostname", "cordon");
    jsonw_str(&j, "User", user);
    jsonw_str(&j, "WorkingDir", "/");
    create_one(&j, "Entrypoint", INIT_PATH);
    create_one(&j, "Cmd", NULL);
    /* an engine that stops its containers ends the run; a guest that died of its SIGTERM would look
     * like one that died by itself */
    char stop[16];
    snprintf(stop, sizeof(stop), "%d", INIT_END_SIGNAL);
    jsonw_str(&j, "StopSignal", stop);
    jsonw_open(&j, "Healthcheck", '{');
    create_one(&j, "Test", "NONE");
    jsonw_close(&j, '}');
    jsonw_bool(&j, "AttachStdin", true);
    jsonw_bool(&j, "AttachStdout", true);
    jsonw_bool(&j, "AttachStderr", true);
    jsonw_bool(&j, "OpenStdin", true);
    jsonw_bool(&j, "StdinOnce", true);
    jsonw_bool(&j, "Tty", false);
    jsonw_open(&j, "Labels", '{');
    jsonw_str(&j, ENGINE_LABEL, "run");
    char owner[IMAGE_OWNER_MAX];
    owner_text(owner, sizeof(owner));
    jsonw_str(&j, IMAGE_OWNER_LABEL, owner);
    jsonw_close(&j, '}');
    create_host_config(&j, r, init_path, b);
    jsonw_close(&j, '}');
    return out->failed ? err_nomem(err, "docker") : 0;
}
