/* Host paths of prepared guests. Runs in the supervisor.
 *
 * A guest that waits has the caller's paths bound already; what a name means when the run starts
 * counts. So each is looked up again when the guest is taken, by the same rule that a start from
 * nothing has, and must be the very file or folder that was bound. Changes of the host's mounts,
 * which this would not show, end all guests that have paths of it (run/pool.c). */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

int warm_grants_copy(struct warm *w, const struct plan *plan, struct cordon_err *err)
{
    size_t n = plan->own_host_ids ? plan_count_grants(plan) : 0;
    if (n == 0)
        return 0;
    w->grants.ops = calloc(n, sizeof(*w->grants.ops));
    for (size_t i = 0; w->grants.ops && i < plan->n_ops; i++) {
        if (!plan_is_grant(&plan->ops[i]))
            continue;
        struct plan_op *op = &w->grants.ops[w->grants.n_ops++];
        /* all that native_idmap_open() looks at; mode and data are of other kinds */
        *op = (struct plan_op){.kind = PLAN_OP_BIND,
                               .flags = plan->ops[i].flags,
                               .src = strdup(plan->ops[i].src),
                               .dst = strdup(plan->ops[i].dst)};
        if (!op->src || !op->dst)
            return err_nomem(err, "pool");
    }
    return w->grants.ops ? 0 : err_nomem(err, "pool");
}

void warm_grants_free(struct warm *w)
{
    for (size_t i = 0; i < w->grants.n_ops; i++) {
        free((char *)w->grants.ops[i].src);
        free((char *)w->grants.ops[i].dst);
    }
    free(w->grants.ops);
    w->grants = (struct plan){0};
}

int warm_grants_open(const struct warm_guest *g, struct warm_spawn *m, int *ret_fds, size_t *ret_n,
                     struct cordon_err *err)
{
    const struct plan *p = &g->warm->grants;
    int fds[PLAN_PARKED_GRANTS];
    for (size_t i = 0; i < p->n_ops; i++)
        fds[i] = -1;
    int r = p->n_ops > 0 ? native_idmap_open(p, g->id, 0, fds, err) : 0;
    for (size_t i = 0; i < p->n_ops; i++) {
        if (r < 0) {
            util_close(&fds[i]);
        } else if (fds[i] >= 0) {
            m->grants |= 1u << i;
            ret_fds[(*ret_n)++] = fds[i];
        }
    }
    m->n_grants = (uint32_t)p->n_ops;
    return r;
}

static bool grants_is_same(const struct plan_op *op, const struct native_bound *bound)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    struct stat st;
    _cleanup_close_ int fd = sys_openat2(AT_FDCWD, op->src, &how);
    if (fd < 0)
        return errno == ENOENT && (op->flags & PLAN_BIND_OPTIONAL) && bound->inode == 0;
    return fstat(fd, &st) == 0 && st.st_dev == bound->device && st.st_ino == bound->inode;
}

bool warm_is_current(const struct warm_guest *g, const struct plan *plan)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_ops; i++)
        if (plan_is_grant(&plan->ops[i]) && !grants_is_same(&plan->ops[i], &g->status->bound[n++]))
            return false;
    return true;
}
