/* SPDX-License-Identifier: Apache-2.0
 *
 * libcordon - run code nobody trusts, get an honest result.
 *
 * Rules that hold for every function here:
 *  - Nothing exits, logs, prints, installs a signal handler or changes the caller's process state.
 *  - Functions that can fail return 0 or -1 (or NULL) and fill *err exactly once; err may be NULL.
 *    Out-parameters are untouched on failure.
 *  - Handles are opaque. One handle may be used from many threads at once; one run belongs to one
 *    thread at a time.
 *  - "Cordon failed" (an error) and "the guest ended so" (a result) never share a channel: a function
 *    that gives a result has run the guest behind the whole wall the policy asked for.
 */
#ifndef CORDON_H
#define CORDON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORDON_API __attribute__((visibility("default")))

#define CORDON_VERSION_MAJOR 0
#define CORDON_VERSION_MINOR 1
#define CORDON_VERSION_PATCH 0

/* Why Cordon itself could not do what was asked. The values are the exit statuses of the command. */
enum cordon_code {
    CORDON_OK = 0,
    CORDON_ERR_USAGE = 64,    /* the call or the command line is wrong */
    CORDON_ERR_HOST = 69,     /* this host cannot build the wall that was asked for */
    CORDON_ERR_INTERNAL = 70, /* a failure of Cordon or of the host while running */
    CORDON_ERR_REJECTED = 77, /* the policy refused the request before the start */
    CORDON_ERR_CONFIG = 78,   /* a configuration file or value is wrong */
    CORDON_ERR_CANCELLED = 130,
};

/* Owned by the caller; no allocation behind it. All strings are NUL-terminated. */
struct cordon_err {
    int code;           /* enum cordon_code */
    int sys_errno;      /* errno of the failing system call, or 0 */
    char stage[32];     /* "policy", "plan", "clone", "mount", "exec" ... */
    char message[1024]; /* one line, names the file, key, option or path */
    char hint[512];     /* the smallest fix, or empty */
};

#ifdef __cplusplus
}
#endif

#endif
