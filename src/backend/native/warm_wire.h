/* The order of a prepared guest, as it travels: from the supervisor to pid 1, and on to a program
 * that is there already (zygote/zygote.c). */
#ifndef NATIVE_WARM_WIRE_H
#define NATIVE_WARM_WIRE_H

#include <stdint.h>

#define WARM_INLINE_MAX 49152

/* supervisor → prepared guest: the order's head, its bytes behind it or in the first descriptor,
 * then the open files, [three streams, v2 group, entries of v1 groups] */
struct warm_order {
    uint64_t len;
    uint32_t n_files; /* descriptors of files */
    uint32_t is_memfd;
    uint32_t n_streams; /* of a room: its guest's standard streams, 3 or none, behind the files */
    uint32_t has_group; /* then its v2 group, which it is born in, */
    uint32_t n_entries; /* and the entries of its v1 groups */
};

/* What an order's bytes begin with. Offsets are from there; lists of strings are lists of offsets
 * that the receiver turns into pointers in place. */
struct warm_order_body {
    uint64_t n_argv, argv;
    uint64_t n_env, env;
    uint64_t n_rlimits, rlimits;
    uint64_t n_files, files;
};

#endif
