/* What pid 1 of a container is told: the supervisor's order, or that of a container that only
 * holds, with the secrets of this run and the packet rules in it. Runs in `cordon-docker`. */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "backend/docker/session.h"
#include "base/err.h"
#include "base/util.h"
#include "net/proxyconnect.h"
#include "policy/netrule.h"

static struct init_order *order_head(struct session *s)
{
    return (void *)s->stdio.order.data;
}

static int order_secrets(struct session *s, struct cordon_err *err)
{
    struct stdio *io = &s->stdio;
    if (getrandom(io->start_secret, INIT_SECRET, 0) != INIT_SECRET ||
        getrandom(io->end_secret, INIT_SECRET, 0) != INIT_SECRET)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "getrandom");
    memcpy(order_head(s)->start_secret, io->start_secret, INIT_SECRET);
    memcpy(order_head(s)->end_secret, io->end_secret, INIT_SECRET);
    return 0;
}

int order_take(struct session *s, struct cordon_err *err)
{
    struct stdio *io = &s->stdio;
    char chunk[65536];
    ssize_t n;
    io->order.max = INIT_ORDER_MAX;
    while ((n = read(HELPER_ORDER_FD, chunk, sizeof(chunk))) > 0)
        if (buf_add(&io->order, chunk, (size_t)n) < 0)
            return err_nomem(err, "docker");
    if (n < 0 || io->order.len < sizeof(struct init_order))
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "order");
    return order_secrets(s, err);
}

int order_hold(struct session *s, struct cordon_err *err)
{
    struct init_order head = {.magic = INIT_MAGIC, .total = sizeof(head) + 2};
    struct stdio *io = &s->stdio;
    io->order.max = INIT_ORDER_MAX;
    if (buf_add(&io->order, &head, sizeof(head)) < 0 || buf_add(&io->order, "/", 2) < 0)
        return err_nomem(err, "docker");
    return order_secrets(s, err);
}

void order_user(struct session *s, const struct binds *binds)
{
    order_head(s)->uid = binds->uid;
    order_head(s)->gid = binds->gid;
    order_head(s)->own_kernel = s->request.gvisor;
}

static void order_address(const uint8_t addr[static 16], uint32_t *ret_is_v4,
                          uint8_t ret[static 16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    *ret_is_v4 = memcmp(addr, mapped, sizeof(mapped)) == 0;
    memset(ret, 0, 16);
    memcpy(ret, addr + (*ret_is_v4 ? 12 : 0), *ret_is_v4 ? 4 : 16);
}

/* The proxy the caller named by its address; one with a name is reached where its address may be.
 */
static uint32_t order_proxy(struct session *s)
{
    struct proxyconnect proxy;
    struct cordon_err drop;
    struct init_passed to = {0};
    if (!s->request.http_proxy ||
        proxyconnect_parse_url(s->request.http_proxy, &proxy, &drop) < 0 || !proxy.host.is_addr)
        return 0;
    order_address(proxy.host.addr, &to.is_v4, to.addr);
    to.port = proxy.port;
    buf_add(&s->stdio.order, &to, sizeof(to));
    return 1;
}

int order_guard(struct session *s, struct cordon_err *err)
{
    static struct netrule_internal list[NETRULE_INTERNAL_MAX];
    struct buf *out = &s->stdio.order;
    if (!s->request.block_internal)
        return 0;
    uint32_t n = (uint32_t)netrule_internal_list(list);
    for (uint32_t i = 0; i < n; i++) {
        struct init_blocked b = {.is_v4 = list[i].is_v4};
        memcpy(b.net, list[i].net, sizeof(b.net));
        memcpy(b.mask, list[i].mask, sizeof(b.mask));
        buf_add(out, &b, sizeof(b));
    }
    uint32_t n_passed = order_proxy(s);
    if (out->failed)
        return err_nomem(err, "docker");
    struct init_order *head = order_head(s);
    head->n_blocked = n;
    head->n_passed = n_passed;
    head->total = (uint32_t)out->len;
    return 0;
}
