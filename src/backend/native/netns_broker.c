/* The broker of a guest with a way out, at the start. Runs in the supervisor. */
#include "backend/native/native_internal.h"

#include <errno.h>

#include "base/util.h"
#include "net/netclient.h"

#define BROKER_PORTS_MAX 256

int native_broker_begin(const struct plan_net *net, struct netclient *client,
                        struct cordon_err *err)
{
    uint16_t ports[BROKER_PORTS_MAX];
    size_t n = MIN(net->n_publish, ARRAY_SIZE(ports));
    for (size_t i = 0; i < n; i++)
        ports[i] = net->publish[i].host_port;
    return netclient_begin(client, net->policy, ports, n, err);
}

int native_broker_start(const struct plan_net *net, struct native_child *c,
                        struct netclient **ret_client, struct cordon_err *err)
{
    if (netclient_start(ret_client, err) < 0)
        return -1;
    c->broker_fd = (*ret_client)->setup_fd;
    return native_broker_begin(net, *ret_client, err);
}

void native_broker_started(struct netclient *client)
{
    if (client)
        util_close(&client->setup_fd);
}

bool native_stage_is_netless(const struct native_status *status)
{
    static const int lacks[] = {EPERM,  EACCES,       EOPNOTSUPP,  ENODEV,
                                ENOENT, EAFNOSUPPORT, ENOPROTOOPT, EINVAL};
    if (!str_eq(status->stage, "network"))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(lacks); i++)
        if (status->fail_errno == lacks[i])
            return true;
    return false;
}
