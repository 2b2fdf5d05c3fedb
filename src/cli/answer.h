/* Where the result of a run goes: standard output, a file, a descriptor. */
#ifndef CLI_ANSWER_H
#define CLI_ANSWER_H

#include <stdbool.h>

#include "base/err.h"
#include "cli/place.h"
#include "policy/options.h"
#include "run/result.h"

struct answer {
    bool json; /* on standard output, in the place of the guest's own */
    struct place file;
    int fd;
};

#define ANSWER_NONE ((struct answer){.file = PLACE_NONE, .fd = -1})

/* What the line asks for; opened before the guest exists: a typo costs nothing. */
int answer_open(struct answer *a, const struct options *options, struct cordon_err *err);
/* As much of it as can be had, for a line that is refused. */
void answer_open_what_can(struct answer *a, const struct options *options);
/* For a line that cannot be read. */
void answer_guess(struct answer *a, char **argv);
void answer_close(struct answer *a);

static inline bool answer_is_wanted(const struct answer *a)
{
    return a->json || place_is_open(&a->file) || a->fd >= 0;
}

/* The exit status: a result that cannot be delivered is our failure. */
int answer_write(const struct answer *a, const struct result *r);

/* A value of one of run's options, or of its variable, that cannot be used. */
int answer_refuse(const struct options *options, int id, const char *flag, const char *value,
                  int error, const char *why, struct cordon_err *err);

#endif
