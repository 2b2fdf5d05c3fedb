/* What a wall builder offers. A backend executes a plan and may do nothing the plan does not say.
 *
 * A started guest is a set of descriptors the supervisor's loop watches; how it ended is asked for
 * once, after `event_fd` became readable or after `kill`. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <cordon.h>

#include "plan/plan.h"

#define BACKEND_DENIALS_MAX 64

#define BACKEND_REFUSED_MAX 32

/* A destination that packet rules of a container refused. */
struct backend_refused {
    uint8_t addr[16]; /* IPv4 in the first four bytes */
    bool is_v4;
    uint16_t port; /* 0: none */
    uint32_t count;
};

struct backend_denial {
    int nr; /* system call number; -1: any number past the table */
    uint32_t count;
};

enum backend_end {
    BACKEND_EXITED,       /* the guest's main process ended: wstatus */
    BACKEND_EXEC_FAILED,  /* the wall stood, the command could not be executed: exec_errno */
    BACKEND_KILLED,       /* ended by us or together with its pid 1 */
    BACKEND_SETUP_FAILED, /* the wall could not be built: the error says why */
};

struct backend_usage {
    uint64_t cpu_user_ns, cpu_sys_ns;
    uint64_t peak_memory_bytes;
    uint64_t processes_peak;
    uint64_t processes_refused; /* forks refused at the limit */
    uint64_t oom_kills;
    uint64_t throttled_ns;
};

struct backend_outcome {
    enum backend_end end;
    int wstatus;
    int exec_errno;
    uint64_t started_ns, ended_ns; /* CLOCK_MONOTONIC; started_ns 0: never started */
    struct backend_usage usage;
    uint64_t memory_refused; /* requests for more memory than can be given */
    uint64_t static_bytes;   /* what the program's own file asks for, known after a signal */
    bool rejected;     /* the source was refused before anything of it ran; its stderr says why */
    bool scratch_full; /* no space or no inode was left on the guest's tmpfs */
    bool scratch_by_files; /* there was space */
    struct backend_denial denials[BACKEND_DENIALS_MAX];
    size_t n_denials;
    bool denials_unobserved;
    struct backend_refused refused[BACKEND_REFUSED_MAX];
    size_t n_refused;
    uint64_t refused_more;   /* to others than those */
    bool refused_unobserved; /* the rules of a container refuse without a word */
    char cgroup[64];         /* for the enforcement report; "none" without */
    int cwd_fd; /* the working directory, if the plan wants it back, else -1; the taker closes it */
    bool time_hit, cpu_time_hit;    /* the backend itself ended the guest at that limit */
    bool memory_hit, processes_hit; /* the same where no group holds these */
    bool disk_hit, files_hit;       /* and where no one file system does */
    /* of a container: it has a user namespace of its own; limits that were held by looking */
    bool reused;           /* it served other commands before */
    bool internal_blocked; /* packet rules refuse internal addresses */
    bool user_ns, memory_sampled, processes_sampled, cpu_sampled;
    bool host_refused; /* SETUP_FAILED because the host forbids this tier: another may work */
};

struct netclient;

/* Another process of ours whose children are the guest's, and which has had other guests. */
struct backend_beside {
    pid_t pid;                /* host's view; 0: there is none */
    uint64_t user_ns, sys_ns; /* of all it had waited for before this one started */
};

struct guest {
    const struct backend *backend;
    const struct plan *plan;
    int event_fd; /* readable when the guest has ended, or has begun: see tells_begun */
    int stdio[3]; /* our ends: write to 0, read from 1 and 2; -1 when closed */
    pid_t pid;    /* host's view of the guest's first process of ours; 0 when there is none */
    const struct backend_beside *beside; /* valid when it has started; NULL: there is none */
    struct netclient *net; /* its broker, NULL: none; belongs to who supervises the guest */
    bool tells_begun;      /* event_fd also says when its program runs: see begun */
    bool is_last; /* the caller ends after it, and calls settle before: finish need not wait for
                     the kernel to take the namespaces of a guest without processes apart */
    bool wants_nothing; /* of a guest that is_last: it gets no input, and nobody waits for its first
                           output. Then a start may wait a moment for its end: */
    bool has_ended;     /* it has, and nothing is left but to read its streams and finish */
    void *priv;
};

struct warm_guest;

struct backend {
    const char *name;
    /* On success the guest runs or is about to; the plan must outlive it. Of *ret_guest is_last and
     * wants_nothing are set before. host_refused as above. */
    int (*start)(const struct plan *plan, struct guest *ret_guest, bool *ret_host_refused,
                 struct cordon_err *err);
    /* The same with a guest that was prepared for a plan of the same key (native/warm.h); it is
     * used up either way. */
    int (*claim)(struct warm_guest *prepared, const struct plan *plan, struct guest *ret_guest,
                 struct cordon_err *err);
    /* Ends every process of the guest; returns at once, event_fd tells when it is done. */
    void (*kill)(struct guest *guest);
    /* Sends a signal to the guest's main process. */
    int (*signal)(struct guest *guest, int sig);
    /* When did the guest's own code start? 0: not yet. */
    uint64_t (*started)(struct guest *guest);
    /* Numbers while it runs. */
    int (*measure)(struct guest *guest, struct backend_usage *ret_usage);
    /* Stops or continues every process of the guest, unseen by it. -1: not possible here. */
    int (*pause)(struct guest *guest, bool pause);
    /* After event_fd of a guest that tells was readable: true when that was the news that its
     * program runs; it has not ended. */
    bool (*begun)(struct guest *guest);
    /* After event_fd was readable: -1 when every process of the guest is gone, else a descriptor
     * that becomes readable when they are. */
    int (*lingers)(struct guest *guest);
    /* After that: collects the outcome, removes every trace, closes the descriptors. */
    void (*finish)(struct guest *guest, struct backend_outcome *ret_outcome,
                   struct cordon_err *err);
    /* What finish left to do for a last guest. May be NULL. */
    void (*settle)(void);
};

extern const struct backend backend_native;
/* Around the starts of a process that makes many guests of one plan (plan.enter): its groups and
 * network namespaces are used again where they are as new, and what is read-only in its root is
 * made once; the second removes what is kept. The process must stay in its working directory. */
void native_again_init(const struct plan *plan);
void native_again_done(void);

#endif
