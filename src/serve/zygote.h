/* Warm Python interpreters on the host's side of the wall, from which guests are copied.
 *
 *   supervisor ──socket── zygote            python3 with the runner and the usual modules loaded;
 *                            └─ pid 1       it never runs a guest's code and never sees a guest's
 *                                  └─ guest text, values or environment
 *
 * A zygote is a process of its own, started with an empty environment; there is one for each role.
 * It makes one plan from the caller's settings, and for each guest clones itself into new
 * namespaces and builds the whole wall there (the native backend, plan.enter in the place of
 * execve). What a guest is to run it reads itself, behind its wall. Guests of one zygote share its
 * address layout and hash seed. The settings themselves are wiped when the plan is made, and what
 * needs a network has no zygote: a copy's memory is the guest's to read.
 *
 * zygote.c runs in the supervisor, zygote_serve.c in the zygote (cordon-grade-zygote.so). */
#ifndef SERVE_ZYGOTE_H
#define SERVE_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon.h>

#include "backend/backend.h"
#include "policy/policy.h"

#define ZYGOTE_LIBRARY "cordon-grade-zygote.so"
#define ZYGOTE_FD 3            /* the socket, in the zygote */
#define ZYGOTE_GUESTS_MAX 1024 /* three per job, and those made ahead */

#define ZYGOTE_AHEAD 3 /* guests that are made before they are wanted */

enum zygote_kind { ZYGOTE_READY, ZYGOTE_START, ZYGOTE_KILL, ZYGOTE_MEASURE, ZYGOTE_FINISH };
/* What a guest is for: its policy differs, and what its interpreter runs. */
enum zygote_role { ZYGOTE_SUBMISSION, ZYGOTE_TESTS, ZYGOTE_ROLE_COUNT_ };

/* Both ends are of one build on one machine: native structs, one message each. */
struct zygote_request {
    uint32_t kind;
    uint32_t index; /* of the guest */
};

/* In the order of the requests, but a guest's numbers, which come on a socket of its own: who waits
 * for them does not wait for what the zygote was asked before. ZYGOTE_START has descriptors with
 * it: the end of pid 1, its standard streams, that socket, and the process itself. */
enum { ZYGOTE_EVENT_AT, ZYGOTE_STREAMS_AT, ZYGOTE_END_AT = 4, ZYGOTE_PID_AT, ZYGOTE_START_FDS };
struct zygote_reply {
    uint32_t kind;
    int32_t ok;
    uint32_t index;
    int32_t pid;
    int32_t host_refused;
    uint64_t started_ns;
    struct cordon_err err;
    struct backend_outcome outcome;
    struct backend_usage usage;
};

/* Text the zygote's interpreter runs before it serves: it loads the library as a module, and calls
 * its plan() and its serve() with what is to run in each guest. */
struct zygote_program {
    const char *boot;  /* for -c */
    const void *input; /* for standard input */
    size_t input_len;
};

struct zygote;

/* Starts the one for guests of this role and policy, and does not wait until it serves. -1: not
 * here (the error says why); a cold start serves. */
int zygote_open(enum zygote_role role, const struct policy *policy,
                const struct policy_input *input, const struct zygote_program *program,
                struct zygote **ret, struct cordon_err *err);
/* Its guests are gone; it ends, and nobody waits for that yet. z may be NULL, as everywhere below.
 */
void zygote_hang_up(struct zygote *z);
void zygote_close(struct zygote *z);
bool zygote_is_alive(const struct zygote *z);
/* How many guests are still to come: some of them are made ahead, and no more. */
void zygote_expect(struct zygote *z, size_t guests);
/* The library's path, for the program. */
int zygote_library(char *ret_path, size_t size);

/* Something is said about a network. Its rules and a proxy's password are for a broker, which only
 * the command starts: such guests start cold. */
bool zygote_has_network(const struct policy *policy);
/* What guests of a role may use. The wall clock of both is that of the suite and is kept by the
 * grader. The tests' side serves many suites; it shares no place with a submission that either can
 * write to. ret borrows from `from`. */
void zygote_policy(enum zygote_role role, const struct policy *from, struct policy *ret);

/* Guests of the zygote of that role: there is one per process. */
extern const struct backend backend_zygote[ZYGOTE_ROLE_COUNT_];

#endif
