/* SHA-256 (FIPS 180-4), for names of cached artefacts. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX (2 * SHA256_BYTES + 1) /* with its NUL */

struct sha256 {
    uint32_t state[8];
    uint64_t total;
    unsigned char block[64];
    size_t fill;
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
/* A field with its length in front, so that no two lists of fields look alike. */
void sha256_field(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, unsigned char ret[SHA256_BYTES]);
void sha256_hex(struct sha256 *s, char ret[SHA256_HEX]);

#endif
