/* The server name in a TLS ClientHello, read without decryption. Pure; runs in the broker.
 *
 * The caller holds the client's first bytes and asks again when there are more. */
#ifndef NET_TLSHELLO_H
#define NET_TLSHELLO_H

#include <stddef.h>
#include <stdint.h>

#define TLSHELLO_MAX 16384 /* bytes a caller must be able to hold; longer hellos are bad */
#define TLSHELLO_NAME_MAX 255

enum tlshello_state {
    TLSHELLO_MORE,    /* looks like a hello so far */
    TLSHELLO_NAME,    /* has a server name, as sent (not yet canonical) */
    TLSHELLO_NO_NAME, /* a whole hello without one */
    TLSHELLO_OTHER,   /* not TLS */
    TLSHELLO_BAD,     /* TLS, but broken, oversized, or with more than one name */
};

/* *ret_need: for MORE, the length below which asking again is no use. */
enum tlshello_state tlshello_read(const uint8_t *data, size_t len,
                                  char ret_name[static TLSHELLO_NAME_MAX + 1], size_t *ret_need);

#endif
