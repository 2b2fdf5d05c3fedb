/* What `cordon run` says on stderr about a run: the verbose log, the messages of limits, warnings.
 * The text is made apart from the writing, so that it can be tested. */
#ifndef CLI_LOG_H
#define CLI_LOG_H

#include "base/buf.h"
#include "policy/policy.h"
#include "run/result.h"

/* Lines before the guest starts: nothing but at LOG_VERBOSE. argv ends with NULL. */
void log_begin_text(enum log_level level, const struct policy *policy, char *const *argv,
                    struct buf *out);

/* Lines after it ended, or after it could not be started. hint may be empty. At LOG_QUIET only
 * failures and refusals of Cordon itself. */
void log_end_text(enum log_level level, const struct policy *policy, const struct result *result,
                  const char *hint, struct buf *out);

/* One attempt on the network while the guest runs: refused ones at LOG_VERBOSE, with log_network
 * all of them with details. */
struct netwire_record;
void log_network_text(enum log_level level, const struct policy *policy,
                      const struct netwire_record *record, struct buf *out);

/* The same on stderr. A log that cannot be written does not change how a run ended. */
void log_begin(enum log_level level, const struct policy *policy, char *const *argv);
/* tells_cuts: nobody gets a result that says that less was passed on than the guest wrote. A line
 * that the guest left unfinished on our stderr is ended first. */
void log_end(enum log_level level, const struct policy *policy, const struct result *result,
             const char *hint, bool tells_cuts);
/* A hint where the command lies here and not in the guest's world: the usual first mistake. */
#define LOG_HINT_MAX 700
const char *log_not_found(const struct result *result, char ret_hint[static LOG_HINT_MAX]);

#endif
