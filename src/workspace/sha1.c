/* SHA-1 (RFC 3174). Leaf code on our side; not used for anything that must withstand collisions. */
#include "workspace/sha1.h"

#include <stdio.h>
#include <string.h>

static uint32_t sha1_rol(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static void sha1_block(struct sha1 *s, const unsigned char *p)
{
    uint32_t w[80];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = sha1_rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t t = sha1_rol(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = sha1_rol(b, 30);
        b = a;
        a = t;
    }
    s->h[0] += a;
    s->h[1] += b;
    s->h[2] += c;
    s->h[3] += d;
    s->h[4] += e;
}

void sha1_begin(struct sha1 *s)
{
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_add(struct sha1 *s, const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t have = s->len % 64;
    s->len += len;
    while (len > 0) {
        if (have == 0 && len >= 64) {
            sha1_block(s, p);
            p += 64;
            len -= 64;
            continue;
        }
        size_t n = 64 - have < len ? 64 - have : len;
        memcpy(s->block + have, p, n);
        have += n;
        p += n;
        len -= n;
        if (have == 64) {
            sha1_block(s, s->block);
            have = 0;
        }
    }
}

void sha1_end(struct sha1 *s, char ret_hex[SHA1_HEX])
{
    static const unsigned char pad[64] = {0x80};
    uint64_t bits = s->len * 8;
    unsigned char tail[8];
    for (int i = 0; i < 8; i++)
        tail[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha1_add(s, pad, 1 + (119 - s->len % 64) % 64);
    sha1_add(s, tail, 8);
    for (int i = 0; i < 5; i++)
        snprintf(ret_hex + 8 * i, 9, "%08x", s->h[i]);
}

void sha1_blob(const void *data, size_t len, char ret_hex[SHA1_HEX])
{
    struct sha1 s;
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %zu", len);
    sha1_begin(&s);
    sha1_add(&s, head, (size_t)n + 1);
    sha1_add(&s, data, len);
    sha1_end(&s, ret_hex);
}
