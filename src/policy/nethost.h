/* A host as the URL standard reads it, in one canonical form: a name, or the bytes of an address.
 *
 * Pure. Accepts less than the standard, never more: no underscore, no percent-encoding, no zone
 * ids. What people write (`explain --host`, a proxy's URL) may be in any script; what programs send
 * (HTTP's Host, TLS's server name) has other scripts as xn-- only, for nobody knows what a server
 * makes of the rest. */
#ifndef POLICY_NETHOST_H
#define POLICY_NETHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NETHOST_NAME_MAX 253
#define NETHOST_ADDR_TEXT_MAX 46

struct nethost {
    bool is_addr;
    char name[NETHOST_NAME_MAX + 1]; /* lower case, no final dot; empty for an address */
    uint8_t addr[16];                /* IPv4 in mapped form */
};

/* NAME, any spelling of an IPv4 address (decimal, octal, hexadecimal, short), [V6]. */
bool nethost_parse(const char *text, size_t len, struct nethost *ret_host);

/* HOST or HOST:PORT; *ret_port 0 where none is written. */
bool nethost_parse_port(const char *text, size_t len, struct nethost *ret_host, uint16_t *ret_port);

/* The same as a person writes it: names of other scripts are converted (idna.h). */
bool nethost_parse_written(const char *text, size_t len, struct nethost *ret_host,
                           uint16_t *ret_port);

bool nethost_equal(const struct nethost *a, const struct nethost *b);

/* "192.0.2.1", "2001:db8::1"; mapped addresses as IPv4. Returns buf. */
const char *nethost_addr_text(const uint8_t addr[static 16],
                              char buf[static NETHOST_ADDR_TEXT_MAX]);

#endif
