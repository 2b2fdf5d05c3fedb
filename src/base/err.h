/* Errors: one caller-owned struct, set exactly once, context added on the way up. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <cordon.h>

/* Fills *err (NULL is accepted) and returns -1, so that callers write `return err_set(...)`.
 * sys_errno != 0 appends ": strerror" to the message. */
int err_set(struct cordon_err *err, int code, const char *stage, int sys_errno, const char *fmt,
            ...) __attribute__((format(printf, 5, 6)));

/* Puts "context: " before the message; returns -1. */
int err_prefix(struct cordon_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Sets the hint; returns -1. */
int err_hint(struct cordon_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory, said the same way everywhere; returns -1. */
int err_nomem(struct cordon_err *err, const char *stage);

#endif
