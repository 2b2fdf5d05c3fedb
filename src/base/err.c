/* Errors. Leaf code, runs in every process of ours; never allocates. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* musl has no words for one that a guest of the same user can bring about. */
static const char *err_text(int sys_errno)
{
    return sys_errno == ETOOMANYREFS ? "this user has too many descriptors under way"
                                     : strerror(sys_errno);
}

int err_set(struct cordon_err *err, int code, const char *stage, int sys_errno, const char *fmt,
            ...)
{
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);

    err->code = code;
    err->sys_errno = sys_errno;
    /* cron, systemd and shells give little; which descriptor was the last one says nothing */
    snprintf(err->hint, sizeof(err->hint), "%s",
             sys_errno == EMFILE ? "raise the limit of descriptors (ulimit -n)" : "");
    snprintf(err->stage, sizeof(err->stage), "%s", stage);
    if (sys_errno && n >= 0 && (size_t)n < sizeof(err->message))
        snprintf(err->message + n, sizeof(err->message) - (size_t)n, ": %s", err_text(sys_errno));
    return -1;
}

int err_prefix(struct cordon_err *err, const char *fmt, ...)
{
    if (!err)
        return -1;

    char old[sizeof(err->message)];
    memcpy(old, err->message, sizeof(old));

    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->message))
        snprintf(err->message + n, sizeof(err->message) - (size_t)n, ": %.*s", (int)sizeof(old) - 3,
                 old);
    return -1;
}

int err_hint(struct cordon_err *err, const char *fmt, ...)
{
    if (!err)
        return -1;

    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
    va_end(ap);
    return -1;
}

int err_nomem(struct cordon_err *err, const char *stage)
{
    return err_set(err, CORDON_ERR_INTERNAL, stage, ENOMEM, "out of memory");
}
