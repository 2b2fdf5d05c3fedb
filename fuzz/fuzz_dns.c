/* libFuzzer entry for DNS messages, both directions: what is read as a query can be answered, and
 * the answer can be read again. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "net/dnsmsg.h"
#include "policy/netrule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void fuzz_query(const uint8_t *data, size_t size)
{
    static const uint8_t addrs[2][16] = {{[10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18},
                                         {0xfd, 1}};
    struct dnsmsg_query q;
    struct dnsmsg_reply reply;
    uint8_t out[DNSMSG_UDP_MAX];
    int r = dnsmsg_read_query(data, size, &q);
    if (r > 0)
        check(dnsmsg_write_error(data, size, (enum dnsmsg_rcode)r, out, sizeof(out)) == 12);
    if (r != DNSMSG_NOERROR)
        return;
    check(strlen(q.name) <= DNSMSG_NAME_MAX && q.udp_size >= 512);
    char name[NETRULE_NAME_MAX + 1];
    check(!q.is_host || netrule_canonical_name(q.name, strlen(q.name), name));
    size_t n = dnsmsg_write_answer(&q, DNSMSG_NOERROR, addrs, 2, 1, out, sizeof(out));
    check(n > 0 && n <= 512);
    if (q.is_host && q.class == 1 && (q.type == DNSMSG_A || q.type == DNSMSG_AAAA)) {
        check(dnsmsg_read_reply(out, n, q.id, q.name, (enum dnsmsg_type)q.type, &reply) == 0);
        check(reply.n_addrs == 1);
    }
}

static void fuzz_reply(const uint8_t *data, size_t size)
{
    struct dnsmsg_reply reply;
    if (size < 2)
        return;
    uint16_t id = (uint16_t)(data[0] << 8 | data[1]);
    for (int i = 0; i < 2; i++) {
        if (dnsmsg_read_reply(data, size, id, "www.ok.test", i ? DNSMSG_AAAA : DNSMSG_A, &reply) ==
            0)
            check(reply.n_addrs <= DNSMSG_ADDRS_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 1)
        fuzz_query(data + 1, size - 1);
    else
        fuzz_reply(data + 1, size - 1);
    return 0;
}
