/* Leftovers anywhere in the trees of groups: a Cordon that was killed may have been started in
 * another group than the one that looks. Too slow for a run, so only `doctor` and `workspace gc`
 * look this far; they run in a process of their own. */
#include "backend/native/cgroup_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define SWEEP_DEPTH 16
#define SWEEP_FOLDERS 20000
#define SWEEP_WAIT_NS 100000000u

struct sweep {
    struct cgroup_owner self;
    char path[PATH_MAX];
    size_t len;
    int budget;
    int removed;
};

/* The highest folder of the same file system: the tree as far as this mount shows it. */
static bool sweep_top(const char *from, char *ret_top, size_t size)
{
    struct stat here, above;
    if ((size_t)snprintf(ret_top, size, "%s", from) >= size || stat(ret_top, &here) < 0)
        return false;
    for (char *slash; (slash = strrchr(ret_top, '/')) != NULL && slash != ret_top;) {
        *slash = '\0';
        if (stat(ret_top, &above) < 0 || above.st_dev != here.st_dev) {
            *slash = '/';
            return true;
        }
    }
    return true;
}

static void sweep_remove(struct sweep *s, int list_fd, const char *name,
                         const struct cgroup_owner *owner)
{
    bool may_kill;
    if (!cgroup_is_stale(owner, &s->self, list_fd, name, &may_kill))
        return;
    _cleanup_close_ int fd = openat(list_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (may_kill)
        cgroup_kill_dir(fd, name);
    /* whose owner cannot be asked is removed only if it is empty */
    if ((may_kill ? cgroup_rmdir_pool(s->path, clock_ns() + SWEEP_WAIT_NS)
                  : cgroup_rmdir(s->path, 0)) == 0)
        s->removed++;
}

/* Below s->path. Groups may come and go meanwhile: whatever cannot be opened is passed over. */
static void sweep_below(struct sweep *s, int depth)
{
    DIR *list = opendir(s->path);
    if (!list)
        return;
    size_t len = s->len;
    struct dirent *entry;
    while ((entry = readdir(list)) != NULL && s->budget > 0) {
        struct cgroup_owner owner;
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        int n = snprintf(s->path + len, sizeof(s->path) - len, "/%s", entry->d_name);
        if (n < 0 || (size_t)n >= sizeof(s->path) - len)
            continue;
        s->budget--;
        s->len = len + (size_t)n;
        if (cgroup_name_parse(entry->d_name, &owner) == 0)
            sweep_remove(s, dirfd(list), entry->d_name, &owner);
        else if (depth < SWEEP_DEPTH)
            sweep_below(s, depth + 1);
    }
    s->len = len;
    s->path[len] = '\0';
    closedir(list);
}

int cgroup_gc_everywhere(const struct host_cgroups *where)
{
    struct sweep s = {0};
    char tops[SLOT_COUNT][HOST_PATH_MAX] = {0};
    if (cgroup_owner_self(&s.self) < 0)
        return 0;
    for (int slot = SLOT_COUNT - 1; slot >= 0; slot--) {
        const char *parent = cgroup_slot_left(where, (enum cgroup_slot)slot);
        bool known = false;
        if (!parent[0] || !sweep_top(parent, tops[slot], sizeof(tops[slot])))
            continue;
        for (int i = slot + 1; i < SLOT_COUNT && !known; i++)
            known = str_eq(tops[i], tops[slot]);
        if (known)
            continue;
        s.budget = SWEEP_FOLDERS;
        s.len = (size_t)snprintf(s.path, sizeof(s.path), "%s", tops[slot]);
        sweep_below(&s, 0);
    }
    return s.removed;
}
