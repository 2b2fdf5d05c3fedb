/* DNS messages. Pure; runs in the broker on bytes of the guest and of servers. */
#include "net/dnsmsg.h"

#include "base/util.h"
#include "policy/netrule.h"

#define HEADER 12
#define FLAG_QR 0x8000
#define FLAG_OPCODE 0x7800
#define FLAG_AA 0x0400
#define FLAG_TC 0x0200
#define FLAG_RD 0x0100
#define FLAG_RA 0x0080
#define CLASS_IN 1
#define RECORDS_MAX 256 /* looked at in one answer */
#define CNAMES_MAX 16

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v >> 16);
    put16(p + 2, v & 0xffff);
}

/* ---- names ------------------------------------------------------------------------------------
 */

/* One label as text: what is not LDH becomes '?', which no canonical name contains. */
static void label_text(const uint8_t *label, size_t len, char *ret)
{
    for (size_t i = 0; i < len; i++) {
        uint8_t c = label[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_';
        ret[i] = plain ? (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c) : '?';
    }
}

/* The name at `at`, in lower case with dots, and where it ends. Pointers are followed only
 * backwards, so that no message makes a loop. False for anything broken. */
static bool read_name(const uint8_t *msg, size_t len, size_t at, bool may_point,
                      char ret_name[static DNSMSG_NAME_MAX + 1], size_t *ret_end)
{
    size_t out = 0, end = 0, limit = at;
    for (;;) {
        if (at >= len)
            return false;
        uint8_t n = msg[at];
        if (n >= 0xc0) {
            if (!may_point || at + 1 >= len)
                return false;
            size_t target = (size_t)(n & 0x3f) << 8 | msg[at + 1];
            if (target >= limit)
                return false;
            end = end ? end : at + 2;
            at = limit = target;
            continue;
        }
        if (n > 63 || at + 1 + n > len)
            return false;
        if (n == 0)
            break;
        if (out + n + 1 > DNSMSG_NAME_MAX + 1)
            return false;
        label_text(msg + at + 1, n, ret_name + out);
        out += n;
        ret_name[out++] = '.';
        at += 1 + (size_t)n;
    }
    if (out > 0)
        out--; /* the last dot */
    ret_name[out] = '\0';
    *ret_end = end ? end : at + 1;
    return true;
}

/* Returns the length in wire form, 0 when it does not fit or a label is bad. */
static size_t write_name(const char *name, uint8_t *ret, size_t max)
{
    size_t out = 0;
    for (;;) {
        size_t n = strcspn(name, ".");
        if (n == 0 || n > 63 || out + n + 2 > max)
            return 0;
        ret[out++] = (uint8_t)n;
        memcpy(ret + out, name, n);
        out += n;
        if (!name[n])
            break;
        name += n + 1;
    }
    ret[out++] = 0;
    return out;
}

/* ---- the guest's queries ----------------------------------------------------------------------
 */

/* A record's fixed part after its name; false when it leaves the message. */
struct record {
    uint16_t type, class;
    uint32_t ttl;
    size_t data, data_len, end;
};

static bool read_record(const uint8_t *msg, size_t len, size_t at, struct record *ret)
{
    if (at + 10 > len)
        return false;
    struct record r = {.type = get16(msg + at),
                       .class = get16(msg + at + 2),
                       .ttl = (uint32_t)get16(msg + at + 4) << 16 | get16(msg + at + 6),
                       .data = at + 10,
                       .data_len = get16(msg + at + 8)};
    r.end = r.data + r.data_len;
    if (r.end > len)
        return false;
    *ret = r;
    return true;
}

/* The records behind the question: one OPT at most, nothing else has business there. */
static bool read_edns(const uint8_t *msg, size_t len, size_t at, unsigned n_extra,
                      struct dnsmsg_query *q)
{
    q->udp_size = 512;
    for (unsigned i = 0; i < n_extra; i++) {
        struct record r;
        if (at >= len || msg[at] != 0 || !read_record(msg, len, at + 1, &r) ||
            r.type != DNSMSG_OPT || q->has_edns)
            return false;
        q->has_edns = true;
        q->udp_size = r.class < 512 ? 512 : r.class;
        at = r.end;
    }
    return at == len;
}

int dnsmsg_read_query(const uint8_t *msg, size_t len, struct dnsmsg_query *ret_query)
{
    struct dnsmsg_query q = {0};
    size_t end;
    char canonical[NETRULE_NAME_MAX + 1];
    if (len < HEADER || get16(msg + 2) & FLAG_QR)
        return -1;
    q.id = get16(msg);
    q.flags = get16(msg + 2);
    if (q.flags & FLAG_OPCODE)
        return DNSMSG_NOTIMP;
    if (get16(msg + 4) != 1 || get16(msg + 6) != 0 || get16(msg + 8) != 0 || get16(msg + 10) > 2)
        return DNSMSG_FORMERR;
    if (!read_name(msg, len, HEADER, false, q.name, &end) || end + 4 > len)
        return DNSMSG_FORMERR;
    q.type = get16(msg + end);
    q.class = get16(msg + end + 2);
    q.question_len = end + 4 - HEADER;
    if (q.question_len > sizeof(q.question) || !read_edns(msg, len, end + 4, get16(msg + 10), &q))
        return DNSMSG_FORMERR;
    memcpy(q.question, msg + HEADER, q.question_len);
    q.is_host =
        netrule_canonical_name(q.name, strlen(q.name), canonical) && str_eq(canonical, q.name);
    *ret_query = q;
    return DNSMSG_NOERROR;
}

/* ---- our answers ------------------------------------------------------------------------------
 */

static size_t write_address(const uint8_t addr[static 16], bool is_v4, uint32_t ttl_s, uint8_t *ret)
{
    unsigned n = is_v4 ? 4 : 16;
    put16(ret, 0xc000 | HEADER); /* the question's name */
    put16(ret + 2, is_v4 ? DNSMSG_A : DNSMSG_AAAA);
    put16(ret + 4, CLASS_IN);
    put32(ret + 6, ttl_s);
    put16(ret + 10, n);
    memcpy(ret + 12, addr + 16 - n, n);
    return 12 + n;
}

size_t dnsmsg_write_answer(const struct dnsmsg_query *query, enum dnsmsg_rcode rcode,
                           const uint8_t (*addrs)[16], size_t n_addrs, uint32_t ttl_s, uint8_t *ret,
                           size_t max)
{
    size_t at = HEADER + query->question_len, count = 0;
    size_t opt = query->has_edns ? 11 : 0;
    if (at + opt > max)
        return 0;
    memset(ret, 0, HEADER);
    memcpy(ret + HEADER, query->question, query->question_len);
    for (size_t i = 0; rcode == DNSMSG_NOERROR && i < n_addrs; i++) {
        bool is_v4 = memcmp(addrs[i], mapped_prefix, 12) == 0;
        if (query->class != CLASS_IN || query->type != (is_v4 ? DNSMSG_A : DNSMSG_AAAA))
            continue;
        if (at + opt + 28 > max)
            return 0;
        at += write_address(addrs[i], is_v4, ttl_s, ret + at);
        count++;
    }
    put16(ret, query->id);
    put16(ret + 2, FLAG_QR | FLAG_RA | (query->flags & FLAG_RD) | (unsigned)rcode);
    put16(ret + 4, 1);
    put16(ret + 6, (unsigned)count);
    if (opt) {
        memset(ret + at, 0, opt);
        put16(ret + at + 1, DNSMSG_OPT);
        put16(ret + at + 3, DNSMSG_UDP_MAX);
        put16(ret + 10, 1);
    }
    return at + opt;
}

size_t dnsmsg_write_error(const uint8_t *msg, size_t len, enum dnsmsg_rcode rcode, uint8_t *ret,
                          size_t max)
{
    if (len < HEADER || max < HEADER)
        return 0;
    memset(ret, 0, HEADER);
    memcpy(ret, msg, 2);
    put16(ret + 2,
          FLAG_QR | FLAG_RA | (get16(msg + 2) & (FLAG_OPCODE | FLAG_RD)) | (unsigned)rcode);
    return HEADER;
}

/* ---- our queries and their answers ------------------------------------------------------------
 */

size_t dnsmsg_write_query(uint16_t id, const char *name, enum dnsmsg_type type, uint8_t *ret,
                          size_t max)
{
    if (max < HEADER + 15)
        return 0;
    memset(ret, 0, HEADER);
    put16(ret, id);
    put16(ret + 2, FLAG_RD);
    put16(ret + 4, 1);
    put16(ret + 10, 1);
    size_t n = write_name(name, ret + HEADER, max - HEADER - 15);
    if (n == 0)
        return 0;
    size_t at = HEADER + n;
    put16(ret + at, type);
    put16(ret + at + 2, CLASS_IN);
    memset(ret + at + 4, 0, 11);
    put16(ret + at + 5, DNSMSG_OPT);
    put16(ret + at + 7, DNSMSG_UDP_MAX);
    return at + 15;
}

static void take_addr(const uint8_t *msg, const struct record *r, struct dnsmsg_reply *reply)
{
    if (reply->n_addrs == DNSMSG_ADDRS_MAX)
        return;
    uint8_t *addr = reply->addrs[reply->n_addrs++];
    if (r->data_len == 4) {
        memcpy(addr, mapped_prefix, 12);
        memcpy(addr + 12, msg + r->data, 4);
    } else {
        memcpy(addr, msg + r->data, 16);
    }
    reply->ttl_s = MIN(reply->ttl_s, r->ttl & 0x80000000 ? 0 : r->ttl);
}

/* One pass over the answers for `owner`: its addresses are taken, or *owner becomes the name its
 * CNAME leads to. 1: an alias was found, 0: not, -1: broken. */
static int scan_answers(const uint8_t *msg, size_t len, size_t at, unsigned count,
                        enum dnsmsg_type type, char owner[static DNSMSG_NAME_MAX + 1],
                        struct dnsmsg_reply *reply)
{
    char alias[DNSMSG_NAME_MAX + 1] = "";
    for (unsigned i = 0; i < count; i++) {
        char name[DNSMSG_NAME_MAX + 1];
        struct record r;
        size_t end;
        if (!read_name(msg, len, at, true, name, &end) || !read_record(msg, len, end, &r))
            return -1;
        at = r.end;
        if (r.class != CLASS_IN || !str_eq(name, owner))
            continue;
        if (r.type == type && r.data_len == (type == DNSMSG_A ? 4 : 16))
            take_addr(msg, &r, reply);
        else if (r.type == type)
            return -1;
        else if (r.type == DNSMSG_CNAME && !alias[0]) {
            if (!read_name(msg, len, r.data, true, alias, &end) || end != r.end)
                return -1;
            reply->ttl_s = MIN(reply->ttl_s, r.ttl & 0x80000000 ? 0 : r.ttl);
        }
    }
    if (reply->n_addrs > 0 || !alias[0])
        return 0;
    memcpy(owner, alias, sizeof(alias));
    return 1;
}

int dnsmsg_read_reply(const uint8_t *msg, size_t len, uint16_t id, const char *name,
                      enum dnsmsg_type type, struct dnsmsg_reply *ret_reply)
{
    struct dnsmsg_reply reply = {.ttl_s = UINT32_MAX};
    char owner[DNSMSG_NAME_MAX + 1];
    size_t at;
    if (len < HEADER || get16(msg) != id)
        return -1;
    uint16_t flags = get16(msg + 2);
    unsigned n_answers = MIN(get16(msg + 6), RECORDS_MAX);
    if (!(flags & FLAG_QR) || flags & FLAG_OPCODE || get16(msg + 4) != 1)
        return -1;
    if (!read_name(msg, len, HEADER, false, owner, &at) || at + 4 > len || !str_eq(owner, name) ||
        get16(msg + at) != type || get16(msg + at + 2) != CLASS_IN)
        return -1;
    reply.rcode = (enum dnsmsg_rcode)(flags & 0xf);
    reply.truncated = flags & FLAG_TC;
    if (!reply.truncated && reply.rcode == DNSMSG_NOERROR) {
        int r = 1;
        for (unsigned hops = 0; r == 1 && hops < CNAMES_MAX; hops++)
            r = scan_answers(msg, len, at + 4, n_answers, type, owner, &reply);
        if (r < 0)
            return -1;
    }
    *ret_reply = reply;
    return 0;
}
