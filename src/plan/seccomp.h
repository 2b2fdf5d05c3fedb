/* The system-call filter: which calls a guest may make, as a classic BPF program.
 *
 * Pure: builds programs, installs nothing. There is always one program: a user's profile is built
 * into it and can only tighten it. */
#ifndef PLAN_SECCOMP_H
#define PLAN_SECCOMP_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "base/buf.h"

struct seccomp_options {
    bool notify;       /* refused calls go to the listener (pid 1 answers EPERM and counts); else
                        * plain EPERM */
    bool refuse_memfd; /* no memory cgroup: memfds would escape the limit */
    bool refuse_suid_bits;   /* a writable host path is granted */
    bool refuse_inet;        /* no network namespace and no network granted */
    bool refuse_shared_ipc;  /* no ipc namespace: SysV ipc and POSIX message queues */
    bool refuse_new_session; /* no pid namespace and Landlock cannot scope signals: setsid, setpgid
                              */
    bool refuse_fork;        /* processes = 1 and no group that counts: fork, vfork, clone answer
                              * EAGAIN as a process limit does, through the listener so that the
                              * end can be judged by it */
    bool
        own_limits_only; /* no pid namespace: rlimits of the caller alone, our keeper has its uid */
    bool refuse_affinity; /* the CPU limit is held by the cores the guest was given */
    bool refuse_rulesets; /* the disk limit is held by looking: a rule of Landlock holds the file it
                           * names, also one without a name, and nothing shows which. To make rules
                           * answers ENOSYS; to be held by ours comes after this filter */
    /* A request for more private memory than this cannot succeed: answered ENOMEM, through the
     * listener so that the end can be judged by it. 0: not looked at. */
    uint64_t map_limit;
    bool pid1_netlink; /* profile around a container: its pid 1 makes packet rules; the guest's own
                        * program is not touched by it */
    bool allow_listener_setup; /* reserved for nested sandboxes; normally false */
};

struct seccomp_prog {
    struct sock_filter *insns;
    unsigned short len;
};

/* What the filter does with one call, for `explain` and for tests. */
enum seccomp_verdict {
    SECCOMP_ALLOWED,
    SECCOMP_CHECKED, /* depends on the arguments */
    SECCOMP_REFUSED, /* EPERM (or another plain error), listed in denials when `notify` */
    SECCOMP_UNKNOWN, /* ENOSYS */
};

int seccomp_build(const struct seccomp_options *options, struct seccomp_prog *ret_prog,
                  struct cordon_err *err);
void seccomp_done(struct seccomp_prog *prog);

/* A copy of a program with plain EPERM in place of the listener, for hosts where the listener is
 * taken. */
int seccomp_quiet(const struct seccomp_prog *prog, struct seccomp_prog *ret_prog,
                  struct cordon_err *err);

/* The program with a door in front (seccomp_keyed.c): namespaces, clone3 and prctl are let
 * through for who gives the key as fifth and sixth argument; and
 * calls that are to be noted go to the listener, which lets them through if seccomp_eval() says
 * that the program would. Writes to `insns`, which has `room`; -1: it is too small. */
int seccomp_keyed(const struct seccomp_prog *prog, const uint64_t key[2], bool notes_sockets,
                  struct sock_filter *insns, size_t room, struct seccomp_prog *ret_prog);
enum seccomp_note {
    SECCOMP_NOTE_NONE = 0,
    SECCOMP_NOTE_OBJECT = 1, /* that outlives its process */
    SECCOMP_NOTE_SOCKET = 2, /* of the network */
};
enum seccomp_note seccomp_note_of(const struct seccomp_data *data);

/* The built-in filter tightened by a Docker/OCI seccomp profile (JSON text): install this one
 * instead. KILL, TRAP, TRACE and NOTIFY become EPERM (a guest is never killed by SIGSYS), LOG
 * becomes ALLOW; what the profile refuses with EPERM goes to the listener like any other refusal.
 * Conditions compare all 64 bits, as in Docker. The guest has no capabilities: rules that need one
 * never apply. Names the table does not know are skipped and listed in *notes (one per line; may be
 * NULL), as are settings that have no effect here. `name` is the file's name for messages. */
int seccomp_profile_build(const struct seccomp_options *options, const char *name, const char *json,
                          size_t len, struct seccomp_prog *ret_prog, struct buf *notes,
                          struct cordon_err *err);

/* Runs a program in user space over one call: what the kernel would answer. */
uint32_t seccomp_eval(const struct seccomp_prog *prog, const struct seccomp_data *data);

/* The built-in filter as a Docker/OCI profile, one JSON object: what the engine or runtime puts
 * around everything in the container, our pid 1 included. Argument checks are there as far as the
 * format can say them; the exact program is installed inside as well. */
struct jsonw;
void seccomp_oci_write(struct jsonw *j, const char *key, const struct seccomp_options *options);

/* Name of a call number, or NULL; number of a name, or -1. */
const char *seccomp_call_name(int nr);
int seccomp_call_number(const char *name);
enum seccomp_verdict seccomp_call_verdict(const struct seccomp_options *options, int nr);

#endif
