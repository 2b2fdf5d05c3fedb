/* What pid 1 of a container is told and what it reports: the format shared by `cordon-init` and the
 * executables that start containers.
 *
 * Both come from one build. The order arrives on standard input before the guest's own input; the
 * reports leave on standard error, each behind a secret of its own that the guest cannot know: the
 * first before the guest exists, the last when every process of the guest is gone. */
#ifndef INIT_INIT_H
#define INIT_INIT_H

#include <linux/filter.h>
#include <stdint.h>

#define INIT_MAGIC "cordon-init-3"
#define INIT_SECRET 16
#define INIT_ORDER_MAX (UINT32_C(512) << 20)
#define INIT_DENIALS 64
#define INIT_REFUSED 32      /* destinations */
#define INIT_END_SIGNAL 64   /* from outside: end everything and report */
#define INIT_CLEAR_SIGNAL 63 /* from outside, to one that holds: end everything else */
#define INIT_STAGE_FOREIGN "foreign files"
#define INIT_STAGE_GUARD "internal addresses"
#define INIT_PATH "/.cordon-init" /* where it appears in a container */
/* Folder with a socket on which one that holds is told of commands: SOCK_SEQPACKET, each message
 * with a socket of the command's own. The first answer on that are the ends of its three streams,
 * which belong to the guest's user; its end is the end of the command's pid 1. */
#define INIT_CHANNEL_DIR "/.cordon-channel"
#define INIT_CHANNEL_NAME "s"

/* Followed by: rlimits, filter, quiet filter, then strings with their NULs (working directory,
 * command and its arguments, environment), then the files (name with NUL, length in 8 bytes,
 * bytes), then the checks (path with NUL, the inode number it must have in 8 bytes); at the very
 * end the blocked addresses and the exceptions from them. */
struct init_order {
    char magic[16];
    uint8_t start_secret[INIT_SECRET];
    uint8_t end_secret[INIT_SECRET];
    uint32_t total;                                                /* bytes, this head included */
    uint32_t n_rlimits, n_filter, n_quiet, n_argv, n_env, n_files; /* n_argv 0: hold, see init.c */
    uint32_t n_checks;
    uint64_t cpu_ns;                 /* CPU time of everything, 0: no limit */
    uint64_t memory_bytes;           /* 0: no limit */
    uint32_t processes, cpu_percent; /* 0: no limit */
    uint64_t wall_ns;                /* 0: no limit */
    uint32_t n_blocked, n_passed;    /* packet rules; pid 1 is root then, until they stand */
    uint32_t uid, gid;               /* who a pid 1 that is root becomes */
    uint32_t sends_files;            /* the working directory follows the last report */
    uint32_t own_kernel; /* gVisor: pid 1 stays root of that kernel, the guest has the ids above */
    uint64_t disk_bytes, max_files; /* over all folders of the container's own, 0: no limit */
};

/* Nothing leaves for an address that is this net under this mask. IPv4 in the first four bytes. */
struct init_blocked {
    uint32_t is_v4;
    uint8_t net[16], mask[16];
};

/* But for this address and port; those of the container's resolvers are known to pid 1. */
struct init_passed {
    uint32_t is_v4;
    uint8_t addr[16];
    uint16_t port, reserved;
};

struct init_rlimit {
    uint32_t resource, reserved;
    uint64_t value;
};

enum init_kind {
    INIT_STARTED = 1,
    INIT_EXITED,      /* wstatus */
    INIT_EXEC_FAILED, /* error */
    INIT_FAILED,      /* of ours: stage, error */
    INIT_CPU_TIME,    /* the CPU time was used up */
    INIT_MEMORY,      /* seen over the limit, where no group holds it */
    INIT_PROCESSES,
    INIT_TIME,  /* the wall clock ended */
    INIT_ENDED, /* told to: INIT_END_SIGNAL */
    INIT_DISK,  /* the folders together were seen over disk_bytes */
    INIT_FILES, /* or over max_files */
};

/* Limits a control group of the container was seen to hold. */
enum init_held { INIT_HELD_MEMORY = 1, INIT_HELD_PIDS = 2, INIT_HELD_CPU = 4 };

struct init_denial {
    int32_t nr;
    uint32_t count;
};

/* Packets that the rules refused. */
struct init_refused {
    uint8_t addr[16]; /* IPv4 in the first four bytes */
    uint16_t is_v4, port;
    uint32_t count;
};

struct init_report {
    uint32_t kind;
    int32_t wstatus, error;
    uint32_t scratch_full; /* a folder of the container's own has no space left: 1, no inode: 2 */
    uint32_t user_ns;      /* the container has a user namespace of its own */
    uint32_t held;         /* enum init_held */
    uint32_t guarded;      /* blocked addresses are blocked */
    uint64_t wall_ns, cpu_user_ns, cpu_sys_ns;
    uint64_t peak_memory_bytes, processes_peak, processes_refused, oom_kills, throttled_ns;
    uint64_t memory_refused;
    uint32_t denials_unobserved;
    uint32_t n_denials;
    struct init_denial denials[INIT_DENIALS];
    uint32_t refused_unobserved; /* by rules that nobody could be told about */
    uint32_t n_refused, refused_more;
    struct init_refused refused[INIT_REFUSED];
    char stage[32];
};

/* What follows the last report where files were asked for: entries in the order of a walk, each
 * with its name behind it, a file with its pieces; nothing is sent of holes. */
enum init_entry_kind {
    INIT_ENTRY_END = 1, /* everything was sent */
    INIT_ENTRY_DIR,     /* what follows lies in it */
    INIT_ENTRY_UP,      /* the end of that */
    INIT_ENTRY_FILE,    /* pieces follow, an empty one is the end */
    INIT_ENTRY_OTHER,   /* only its kind is told */
};
#define INIT_FILES_DEPTH 128
#define INIT_FILES_BYTES (UINT64_C(4) << 30) /* of one file; a larger one comes without pieces */

struct init_entry {
    uint32_t kind, mode, name_len, reserved;
    uint64_t size;
};

struct init_piece {
    uint64_t offset, len;
};

#endif
