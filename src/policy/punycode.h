/* RFC 3492: code points in letters, digits and hyphens. Pure. */
#ifndef POLICY_PUNYCODE_H
#define POLICY_PUNYCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUNYCODE_MAX 63 /* of a label, in bytes and so in code points */

/* text is what follows xn--, in lower case. The number of code points; 0: none, or an error. */
size_t punycode_decode(const char *text, size_t len, uint32_t ret[static PUNYCODE_MAX]);

/* False when it does not fit into max bytes with its NUL. */
bool punycode_encode(const uint32_t *points, size_t count, char *ret, size_t max);

#endif
