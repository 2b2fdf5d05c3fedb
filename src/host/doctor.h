/* The doctor: what this host can enforce, what blocks the rest, the smallest fix.
 *
 * Every feature is tried in a throw-away child with a time-out, so nothing of the calling process
 * changes and a probe that hangs (autofs, a broken driver) is a finding, not a hang. Not for
 * threaded callers: it forks. Takes tens of milliseconds; a run uses host_probe_quick(). */
#ifndef HOST_DOCTOR_H
#define HOST_DOCTOR_H

#include <stddef.h>
#include <stdint.h>

#include "host/host.h"

#define HOST_ITEMS_MAX 40
#define HOST_LOST_MAX 16

enum host_state {
    HOST_WORKS,
    HOST_BLOCKED,   /* the kernel has it, something refuses it */
    HOST_MISSING,   /* this kernel or host does not have it */
    HOST_TIMED_OUT, /* the probe did not end */
};

/* What an item is good for; the report is grouped by it. */
enum host_need {
    HOST_NEED_FULL,     /* the walls of tier full */
    HOST_NEED_ANY,      /* every tier */
    HOST_NEED_LANDLOCK, /* tier landlock; second fence of tier full */
    HOST_NEED_LIMITS,
    HOST_NEED_NETWORK,
    HOST_NEED_OVERLAY,
    HOST_NEED_EXTRA, /* better, not needed */
    HOST_NEED_COUNT,
};

struct host_item {
    const char *name;  /* stable, for programs */
    const char *title; /* for people */
    enum host_state state;
    enum host_need need;
    bool required;    /* without it what it is needed for does not exist */
    bool full_only;   /* of no use in tier landlock */
    const char *lost; /* what is lost without it */
    char detail[256]; /* by what it is blocked; with HOST_WORKS a remark; may be empty */
    char fix[768];    /* smallest fix, one command or sentence; may be empty */
};

enum host_tier { HOST_TIER_NONE, HOST_TIER_LANDLOCK, HOST_TIER_FULL };

struct host_report {
    struct host host;
    struct host_item items[HOST_ITEMS_MAX];
    size_t n_items;
    enum host_tier tier; /* the best one available */
    bool default_run;    /* `cordon run -- CMD` with the default policy works here */
    bool limits_exact;
    const char *lost[HOST_LOST_MAX];
    size_t n_lost;
    char summary[512]; /* one line */
    char fix[768];     /* of what keeps the tier down, or empty */
    uint64_t took_ns;
};

int host_doctor(struct host_report *ret_report, struct cordon_err *err);

/* The verdict over finished items; pure, part of host_doctor(). */
void host_doctor_judge(struct host_report *report);

const char *host_state_name(enum host_state state);
const char *host_need_name(enum host_need need); /* "full tier", "limits exact" ... */
const char *host_tier_name(enum host_tier tier);

#endif
