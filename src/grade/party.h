/* One of the two sides of a graded test run: a Python interpreter in a sandbox of its own that
 * talks in frames. The tests' side is trusted with the tests, the submission's side with nothing.
 *
 * Runs in the supervisor. */
#ifndef GRADE_PARTY_H
#define GRADE_PARTY_H

#include <stdbool.h>
#include <stddef.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/jsonw.h"
#include "base/buf.h"
#include "grade/channel.h"
#include "serve/zygote.h"
#include "run/run.h"

/* Where and under which rules; borrowed until party_done(). */
struct party_place {
    struct loop *loop;
    const struct host *host;
    const struct policy *policy;
    char *const *vars; /* the caller's environment, for --venv */
    bool many;         /* the tests' side will serve many runs: it is worth preparing for */
    /* byte code of the submission's side, as the tests' side sent it; empty: its text serves */
    const struct buf *code;
    bool warm; /* both sides are copies of warm interpreters (party_warm_up) */
};

/* The interpreters that the sides of many runs are copied from. */
struct party_warm {
    struct zygote *desks, *submissions;
};

/* PARTY_BOTH: in-process mode. The tests' program, behind the wall of a submission. */
enum party_role { PARTY_TESTS, PARTY_SUBMISSION, PARTY_BOTH };

/* Zero-initialise, fill the callbacks, then party_start(). */
struct party {
    bool (*on_frame)(struct party *p, char kind, const char *data, size_t len);
    void (*on_end)(struct party *p);  /* it will say no more, though it may still run */
    void (*on_gone)(struct party *p); /* it ended: run.result is valid */
    void *owner;

    struct run_job run;
    struct channel channel;
    struct policy policy; /* derived; borrows */
    struct arena arena;
    const char *breach;          /* why its channel was ended, or NULL */
    bool warm;                   /* a copy of the warm interpreter: it gets no program */
    bool started, gone, stopped; /* stopped: its end was asked for */
};

/* guest_text.c, made from python/cordon/guest/ by tools/embed. */
extern const char grade_text_wire[], grade_text_side[], grade_text_words[], grade_text_tests[],
    grade_text_tame[], grade_text_plain[], grade_text_pytest[], grade_text_doctest[],
    grade_text_user[], grade_text_zygote[];

/* Starts them, side by side, for sides of this policy. Where that is not possible sides start cold.
 */
void party_warm_up(const struct policy *policy, const struct policy_input *input,
                   struct party_warm *ret);
bool party_is_warm(const struct party_warm *w);
void party_cool_down(struct party_warm *w);

/* The variables of its environment, for a side that has none of its own (warm): a tagged
 * dictionary. */
void party_environ(const struct party *p, struct jsonw *j);
/* Is this the byte code of the submission's side, in as many parts as it has? */
bool party_is_code(const char *data, size_t len);

/* -1: nothing runs and no callback is called. */
int party_start(struct party *p, enum party_role role, const struct party_place *place,
                struct cordon_err *err);
/* A text for the program that waits for it: length, bytes. */
void party_send_text(struct party *p, const char *data, size_t len);
void party_send(struct party *p, char kind, const void *data, size_t len);
/* Ends the guest; on_gone follows from the loop, unless it is gone already. */
void party_stop(struct party *p);
/* Frees everything; a guest that still runs is ended here and now. */
void party_done(struct party *p);

#endif
