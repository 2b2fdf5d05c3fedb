/* Tier landlock: what it fences, and what it must refuse. */
#include "plan/plan_internal.h"

#include "base/err.h"

int plan_landlock(struct plan *p, const struct plan_request *req, struct cordon_err *err)
{
    (void)p;
    return err_set(err, CORDON_ERR_HOST, "plan", 0, "user namespaces are refused here (%s)",
                   req->host->user_ns_why);
}
