/* SHA-1, for the one thing that still asks for it: git's names of file contents. Pure. */
#ifndef WORKSPACE_SHA1_H
#define WORKSPACE_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define SHA1_HEX 41 /* digits and the final NUL */

struct sha1 {
    uint32_t h[5];
    uint64_t len;
    unsigned char block[64];
};

void sha1_begin(struct sha1 *s);
void sha1_add(struct sha1 *s, const void *data, size_t len);
void sha1_end(struct sha1 *s, char ret_hex[SHA1_HEX]);

/* Git's name of a blob: the digest of "blob LENGTH", NUL, and the bytes. */
void sha1_blob(const void *data, size_t len, char ret_hex[SHA1_HEX]);

#endif
