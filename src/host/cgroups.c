/* Where limits can be attached: finds v1 and v2 groups in which this process may make children.
 *
 * Reads only. The host's tree is never re-plumbed: no subtree_control is written, no process is
 * moved, nothing is made. Called by host_probe_quick() in the supervisor, so every system call here
 * is on the path of each cold start: the usual mount points are tried first, and mountinfo (long on
 * hosts with containers) is read only when they do not answer. */
#include "host/cgroups.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "host/read.h"
#include "host/text.h"

#define CGROUP_DIR "/sys/fs/cgroup"
#define MOUNTINFO_MAX (1 << 20)

/* What is read at most once during one search. */
struct search {
    char own[4096];  /* /proc/self/cgroup */
    char *mountinfo; /* allocated when first needed */
    bool mountinfo_tried;
    bool may_all;   /* no owner and no mode keeps the caller from anything */
    bool read_only; /* the folder that was looked at last */
};

static const char *search_mountinfo(struct search *s)
{
    if (!s->mountinfo_tried) {
        s->mountinfo_tried = true;
        s->mountinfo = malloc(MOUNTINFO_MAX);
        if (s->mountinfo && host_read("/proc/self/mountinfo", s->mountinfo, MOUNTINFO_MAX) < 0) {
            free(s->mountinfo);
            s->mountinfo = NULL;
        }
    }
    return s->mountinfo;
}

static bool is_fs_of(struct search *s, const char *path, long magic)
{
    struct statfs st;
    if (statfs(path, &st) < 0 || (long)st.f_type != magic)
        return false;
    s->read_only = st.f_flags & ST_RDONLY;
    return true;
}

static bool is_fs(const char *path, long magic)
{
    struct search ignored;
    return is_fs_of(&ignored, path, magic);
}

/* Our own group's folder in one hierarchy; controller NULL is v2. usual is the mount point to try
 * first, guessing that the mount shows the hierarchy from where our path starts. */
static bool own_dir(struct search *s, const char *controller, const char *usual, char *ret_mount,
                    char *ret_dir, size_t size)
{
    long magic = controller ? CGROUP_SUPER_MAGIC : CGROUP2_SUPER_MAGIC;
    char path[HOST_PATH_MAX], root[HOST_PATH_MAX];

    if (!host_text_cgroup_path(s->own, controller, path, sizeof(path)))
        return false;
    if (host_text_cgroup_join(usual, "/", path, ret_dir, size) && is_fs_of(s, ret_dir, magic)) {
        return str_join(ret_mount, size, usual, "", "");
    }

    /* Mounted elsewhere, or a container sees only its own part at the usual place. */
    const char *mountinfo = search_mountinfo(s);
    return mountinfo && host_text_cgroup_mount(mountinfo, controller, ret_mount, root, size) &&
           host_text_cgroup_join(ret_mount, root, path, ret_dir, size) &&
           is_fs_of(s, ret_dir, magic);
}

static void find_v1(struct search *s, const char *controller, char *ret_dir, size_t size)
{
    char usual[64], mount[HOST_PATH_MAX], dir[HOST_PATH_MAX];

    str_join(usual, sizeof(usual), CGROUP_DIR, "/", controller);
    /* an ordinary user's usual answer, in one call */
    if (geteuid() != 0 && host_text_cgroup_path(s->own, controller, mount, sizeof(mount)) &&
        host_text_cgroup_join(usual, "/", mount, dir, sizeof(dir)) && !host_is_writable(dir) &&
        errno == EACCES)
        return;
    /* whom nothing else keeps out need not ask twice */
    if (own_dir(s, controller, usual, mount, dir, sizeof(dir)) &&
        (s->may_all ? !s->read_only : host_is_writable(dir)))
        str_join(ret_dir, size, dir, "", "");
}

static bool may_hold_children(const char *dir)
{
    char procs[HOST_PATH_MAX + 16];

    /* Moving a process (or cloning it) into a group needs write access to cgroup.procs of the
     * common ancestor of both groups; the ancestors walked here are just those. */
    str_join(procs, sizeof(procs), dir, "/", "cgroup.procs");
    return host_is_writable(dir) && host_is_writable(procs);
}

/* A group with processes of its own may hand down only "threaded" controllers, and then its
 * children cannot hold whole processes. The hierarchy's root is exempt and has no cgroup.type. */
static bool is_plain_domain(const char *dir)
{
    char type[64];
    if (host_read_at(dir, "cgroup.type", type, sizeof(type)) < 0)
        return errno == ENOENT;
    return str_eq(type, "domain\n");
}

static int worth(bool memory, bool pids, bool cpu)
{
    return memory && pids ? 4 + cpu : memory + pids + cpu;
}

void host_cgroups_walk_v2(const char *mount, const char *own, struct host_cgroups *ret_cgroups)
{
    char dir[HOST_PATH_MAX], control[512];
    size_t top = strlen(mount);
    int best = 0;

    if (!str_join(dir, sizeof(dir), own, "", "") || strncmp(dir, mount, top) != 0)
        return;
    for (bool is_own = true; may_hold_children(dir); is_own = false) {
        /* Our own group can always hold a child without controllers: enough for cgroup.kill. */
        if (is_own)
            str_join(ret_cgroups->v2, sizeof(ret_cgroups->v2), dir, "", "");
        if (host_read_at(dir, "cgroup.subtree_control", control, sizeof(control)) >= 0) {
            bool memory = host_text_has_word(control, "memory");
            bool pids = host_text_has_word(control, "pids");
            bool cpu = host_text_has_word(control, "cpu");
            if (worth(memory, pids, cpu) > best && is_plain_domain(dir)) {
                best = worth(memory, pids, cpu);
                snprintf(ret_cgroups->v2, sizeof(ret_cgroups->v2), "%s", dir);
                ret_cgroups->v2_memory = memory;
                ret_cgroups->v2_pids = pids;
                ret_cgroups->v2_cpu = cpu;
            }
        }
        char *slash = strrchr(dir, '/');
        if (best == 5 || strlen(dir) <= top || !slash || (size_t)(slash - dir) < top)
            break;
        *slash = '\0';
    }
}

/* With v1 controllers the v2 tree beside them has none to hand down; a child of our own group, or
 * of the nearest ancestor, still answers cgroup.kill. */
static void find_v2(struct search *s, const char *usual, struct host_cgroups *ret_cgroups)
{
    char mount[HOST_PATH_MAX], dir[HOST_PATH_MAX];
    const struct host_cgroups *v1 = ret_cgroups;
    if (!own_dir(s, NULL, usual, mount, dir, sizeof(dir)))
        return;
    /* a controller is in one tree only: here there is none to look for */
    if (!v1->memory[0] || !v1->pids[0] || !v1->cpu[0])
        host_cgroups_walk_v2(mount, dir, ret_cgroups);
    else if (may_hold_children(dir))
        str_join(ret_cgroups->v2, sizeof(ret_cgroups->v2), dir, "", "");
}

/* A delegated group that holds nobody but ourselves, as `systemd-run --user --scope` makes it: no
 * child of it may have controllers while we sit in it, but it is ours to divide, and stepping aside
 * moves nobody else. */
static void take_own_group(struct host_cgroups *found)
{
    char path[HOST_PATH_MAX + 32], have[256], procs[64], mine[32];
    if (!found->v2[0])
        return;
    snprintf(path, sizeof(path), "%s/cgroup.procs", found->v2);
    snprintf(mine, sizeof(mine), "%d\n", (int)getpid());
    if (host_read(path, procs, sizeof(procs)) < 0 || strcmp(procs, mine) != 0)
        return;
    snprintf(path, sizeof(path), "%s/cgroup.controllers", found->v2);
    if (host_read(path, have, sizeof(have)) < 0)
        return;
    bool memory = host_text_has_word(have, "memory"), pids = host_text_has_word(have, "pids");
    if (!memory || !pids)
        return;
    snprintf(path, sizeof(path), "%s/cgroup.subtree_control", found->v2);
    if (access(path, W_OK) < 0)
        return;
    found->kind = HOST_CGROUP_V2;
    found->v2_own = found->v2_memory = found->v2_pids = true;
    found->v2_cpu = host_text_has_word(have, "cpu");
}

static bool holds_all(const struct host_cgroups *found)
{
    return found->memory[0] && found->pids[0] && found->cpu[0] && found->cpuacct[0];
}

void host_cgroups_ask_v2(struct host_cgroups *cgroups)
{
    struct search s = {0};
    if (cgroups->v2_unasked && host_read("/proc/self/cgroup", s.own, sizeof(s.own)) >= 0)
        find_v2(&s, CGROUP_DIR "/unified", cgroups);
    cgroups->v2_unasked = false;
    free(s.mountinfo);
}

void host_cgroups_find(struct host_cgroups *ret_cgroups)
{
    host_cgroups_find_quick(false, ret_cgroups);
    host_cgroups_ask_v2(ret_cgroups);
}

void host_cgroups_find_quick(bool may_all, struct host_cgroups *ret_cgroups)
{
    struct search s = {.may_all = may_all};
    struct host_cgroups found = {0};
    struct statfs st;

    if (host_read("/proc/self/cgroup", s.own, sizeof(s.own)) >= 0) {
        bool unified = statfs(CGROUP_DIR, &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC;
        if (!unified) {
            find_v1(&s, "memory", found.memory, sizeof(found.memory));
            find_v1(&s, "pids", found.pids, sizeof(found.pids));
            find_v1(&s, "cpu", found.cpu, sizeof(found.cpu));
            if (host_text_cgroup_same(s.own, "cpu", "cpuacct"))
                memcpy(found.cpuacct, found.cpu, sizeof(found.cpuacct));
            else
                find_v1(&s, "cpuacct", found.cpuacct, sizeof(found.cpuacct));
        }
        found.v2_unasked = !unified && holds_all(&found);
        if (!found.v2_unasked)
            find_v2(&s, unified ? CGROUP_DIR : CGROUP_DIR "/unified", &found);
        found.may_ask_scope = unified && geteuid() != 0;
    }
    free(s.mountinfo);

    if (found.memory[0] || found.pids[0] || found.cpu[0])
        found.kind = HOST_CGROUP_V1;
    else if (found.v2_memory || found.v2_pids || found.v2_cpu)
        found.kind = HOST_CGROUP_V2;
    else
        take_own_group(&found);
    if (found.kind != HOST_CGROUP_NONE)
        found.may_ask_scope = false;
    *ret_cgroups = found;
}

/* The folder the caller means: a path on the host, or a group's name below the usual mount point.
 */
static int resolve_explicit(const char *path, char *ret_dir, struct cordon_err *err)
{
    char joined[HOST_PATH_MAX], real[PATH_MAX];

    if (!is_fs(path, CGROUP2_SUPER_MAGIC) &&
        snprintf(joined, sizeof(joined), CGROUP_DIR "%s%s", path[0] == '/' ? "" : "/", path) <
            (int)sizeof(joined) &&
        is_fs(joined, CGROUP2_SUPER_MAGIC))
        path = joined;
    if (!realpath(path, real))
        return err_set(err, CORDON_ERR_CONFIG, "cgroup", errno, "cgroup %s", path);
    if (!is_fs(real, CGROUP2_SUPER_MAGIC))
        return err_set(err, CORDON_ERR_CONFIG, "cgroup", 0, "cgroup %s: not a cgroup v2 folder",
                       path);
    if (strlen(real) >= HOST_PATH_MAX)
        return err_set(err, CORDON_ERR_CONFIG, "cgroup", ENAMETOOLONG, "cgroup %s", path);
    memcpy(ret_dir, real, strlen(real) + 1);
    return 0;
}

/* Write access to cgroup.procs of the deepest group that holds both the given one and our own. */
static int check_common_ancestor(const char *dir, struct cordon_err *err)
{
    struct search s = {0};
    char mount[HOST_PATH_MAX], own[HOST_PATH_MAX], common[HOST_PATH_MAX + 16];

    bool known = host_read("/proc/self/cgroup", s.own, sizeof(s.own)) >= 0 &&
                 own_dir(&s, NULL, CGROUP_DIR, mount, own, sizeof(own));
    free(s.mountinfo);
    if (!known)
        return 0; /* the move itself will tell */

    size_t same = 0, i = 0;
    for (; dir[i] && dir[i] == own[i]; i++) {
        if (dir[i] == '/')
            same = i;
    }
    if ((dir[i] == '/' || !dir[i]) && (own[i] == '/' || !own[i]))
        same = i;
    snprintf(common, sizeof(common), "%.*s/cgroup.procs", (int)same, dir);
    if (host_is_writable(common))
        return 0;
    err_set(err, CORDON_ERR_HOST, "cgroup", errno, "cgroup %s: moving a process there needs %s",
            dir, common);
    return err_hint(err, "start Cordon inside the same delegated tree: "
                         "systemd-run --user --scope -p Delegate=yes cordon ...");
}

int host_cgroups_explicit(const char *path, struct host_cgroups *ret_cgroups,
                          struct cordon_err *err)
{
    struct host_cgroups found = {.kind = HOST_CGROUP_V2, .v2_own = true};
    char controllers[512], control[512], procs[64];

    if (resolve_explicit(path, found.v2, err) < 0)
        return -1;
    if (!may_hold_children(found.v2)) {
        err_set(err, CORDON_ERR_HOST, "cgroup", errno, "cgroup %s: not delegated to this user",
                found.v2);
        return err_hint(err, "chown the folder, its cgroup.procs and its cgroup.subtree_control");
    }
    if (check_common_ancestor(found.v2, err) < 0)
        return -1;
    if (host_read_at(found.v2, "cgroup.controllers", controllers, sizeof(controllers)) < 0 ||
        host_read_at(found.v2, "cgroup.subtree_control", control, sizeof(control)) < 0)
        return err_set(err, CORDON_ERR_HOST, "cgroup", errno, "cgroup %s: controllers", found.v2);

    found.v2_memory = host_text_has_word(controllers, "memory");
    found.v2_pids = host_text_has_word(controllers, "pids");
    found.v2_cpu = host_text_has_word(controllers, "cpu");
    if (!found.v2_memory && !found.v2_pids && !found.v2_cpu) {
        err_set(err, CORDON_ERR_HOST, "cgroup", 0,
                "cgroup %s: has no memory, pids or cpu controller", found.v2);
        return err_hint(err,
                        "write \"+memory +pids +cpu\" to cgroup.subtree_control of its parent");
    }

    /* A group with processes cannot hand memory down; ours to say, not to move them away. */
    bool hands_down = host_text_has_word(control, "memory");
    ssize_t n = host_read_at(found.v2, "cgroup.procs", procs, sizeof(procs));
    if (found.v2_memory && !hands_down && (n > 0 || (n < 0 && errno == E2BIG))) {
        err_set(err, CORDON_ERR_HOST, "cgroup", 0, "cgroup %s: processes live in it", found.v2);
        return err_hint(err,
                        "give an empty group: v2 limits children only of groups without processes");
    }
    *ret_cgroups = found;
    return 0;
}
