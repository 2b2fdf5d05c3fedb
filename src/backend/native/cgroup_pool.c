/* The v2 group of a pool whose guests have users of their own (root's): the spawner is born in a
 * leaf of it, the groups of its guests are made beside that leaf. Runs in the supervisor.
 *
 * A process may clone another one into a group only if it may write to the list of processes of
 * that group, and of the first one above both. The spawner is nobody on the host: it is given those
 * two lists and nothing else, and of the groups above nothing is changed. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

#define POOL_WAIT_NS 200000000u

struct cgroup_pool {
    char path[CGROUP_PATH_MAX];
    char leaf[CGROUP_PATH_MAX + CGROUP_NAME_MAX];
    int leaf_fd;
    uid_t owner;
};

static int pool_give(const struct cgroup_pool *pool, const char *path)
{
    char file[CGROUP_PATH_MAX + CGROUP_NAME_MAX];
    if (!str_join(file, sizeof(file), path, "/", "cgroup.procs"))
        return -ENAMETOOLONG;
    return lchown(file, pool->owner, (gid_t)-1) < 0 ? -errno : 0;
}

/* A folder of the next name that is free. */
static int pool_mkdir(const char *parent, char *ret_path, size_t size)
{
    char name[CGROUP_NAME_MAX];
    for (int tries = 0; tries < CGROUP_NAME_TRIES; tries++) {
        int r = cgroup_name_next(name);
        if (r < 0)
            return r;
        if (!str_join(ret_path, size, parent, "/", name))
            return -ENAMETOOLONG;
        if (mkdir(ret_path, 0755) == 0)
            return 0;
        int e = errno;
        *ret_path = '\0'; /* not ours */
        if (e != EEXIST)
            return -e;
    }
    return -EEXIST;
}

static int pool_fill(struct cgroup_pool *pool, const struct host_cgroups *above,
                     struct host_cgroups *ret_where, struct cordon_err *err)
{
    struct host_cgroups where = *above;
    int r = pool_mkdir(above->v2, pool->path, sizeof(pool->path));
    if (r < 0)
        return cgroup_err(err, -r, above->v2, NULL);
    if (!str_join(where.v2, sizeof(where.v2), pool->path, "", ""))
        return cgroup_err(err, ENAMETOOLONG, pool->path, NULL);
    where.v2_own = true;
    if (cgroup_v2_prepare(&where, err) < 0)
        return -1;
    where.v2_own = false; /* that was it */
    r = pool_mkdir(pool->path, pool->leaf, sizeof(pool->leaf));
    if (r == 0)
        r = pool_give(pool, pool->path);
    if (r < 0)
        return cgroup_err(err, -r, pool->path, NULL);
    pool->leaf_fd = sys_open(pool->leaf, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (pool->leaf_fd < 0)
        return cgroup_err(err, errno, pool->leaf, NULL);
    *ret_where = where;
    return 0;
}

int cgroup_pool_make(const struct host_cgroups *above, uid_t owner, struct cgroup_pool **ret_pool,
                     struct host_cgroups *ret_where, struct cordon_err *err)
{
    struct cgroup_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return err_nomem(err, "cgroup");
    pool->leaf_fd = -1;
    pool->owner = owner;
    if (cgroup_v2_prepare(above, err) < 0 || pool_fill(pool, above, ret_where, err) < 0) {
        cgroup_pool_remove(pool);
        return -1;
    }
    *ret_pool = pool;
    return 0;
}

int cgroup_pool_fd(const struct cgroup_pool *pool)
{
    return pool->leaf_fd;
}

int cgroup_pool_admit(const struct cgroup_pool *pool, struct cgroup *cg, struct cordon_err *err)
{
    int r = pool_give(pool, cg->dir[SLOT_V2].path);
    return r < 0 ? cgroup_err(err, -r, cg->dir[SLOT_V2].path, "cgroup.procs") : 0;
}

void cgroup_pool_remove(struct cgroup_pool *pool)
{
    if (!pool)
        return;
    util_close(&pool->leaf_fd);
    uint64_t deadline_ns = clock_ns() + POOL_WAIT_NS;
    if (pool->path[0])
        cgroup_rmdir_pool(pool->path, deadline_ns);
    free(pool);
}
