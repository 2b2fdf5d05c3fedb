/* What libcordon and its supervisor say to each other.
 *
 * One control socket per handle (SOCK_SEQPACKET, both ends on one machine and of one build: native
 * structs), and one socket of its own per job, which travels with the request. So nobody has to
 * sort replies: a job's socket carries its cancel and signals one way, its one reply the other way,
 * and its end of file means that the other side has lost interest or life.
 *
 *   supervisor → control   HELLO   once, with a pidfd of the supervisor; or ERROR
 *   library    → job       TICKET  before anything else, also before the job's socket travels
 *   library    → control   RUN     with descriptors: job, [body], [stdin], [stdout, stderr pipe]
 *   library    → job       CANCEL, SIGNAL
 *   supervisor → job       RESULT  [with the payload's memfd], or ERROR
 *
 * The supervisor takes the ticket when it takes the request. A socket that is closed with something
 * unread in it tells its other end so (ECONNRESET): of a request that was queued when the
 * supervisor died, the library knows that nothing was started, without an answer that would wake
 * it.
 *
 *   library    → control   STATS  with a socket for the answer, STATS again
 *
 * Whatever could be large travels in a memfd that cannot shrink, so that mapping it is safe. */
#ifndef LIB_WIRE_H
#define LIB_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cordon.h>

#define WIRE_MAGIC 0x6e647263u
#define WIRE_VERSION 3
#define WIRE_CONTROL_FD 3 /* in a supervisor that starts */
#define WIRE_HOST_FD 4    /* pidfd of the program it serves; may be missing */
#define WIRE_INLINE_MAX 32768
#define WIRE_FDS_MAX 6

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_RUN,
    WIRE_CANCEL,
    WIRE_SIGNAL,
    WIRE_RESULT,
    WIRE_ERROR,
    WIRE_TICKET,
    WIRE_STATS,
};

struct wire_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
};

struct wire_hello {
    struct wire_head head;
    int32_t pid;
};

enum wire_run_flag {
    WIRE_RUN_BODY_FD = 1 << 0,
    WIRE_RUN_STDIN_FD = 1 << 1,
    WIRE_RUN_STREAM = 1 << 2,
    WIRE_RUN_DISCOVER = 1 << 3,
    WIRE_RUN_BRIEF_JSON = 1 << 4,
};

/* Followed by the body unless that has a descriptor of its own. */
struct wire_run {
    struct wire_head head;
    uint32_t flags;
    uint32_t reserved;
    uint64_t body_len;
};

/* The body of a request is a row of records, each padded to 8 bytes. Strings carry their NUL. */
enum wire_tag {
    WIRE_TAG_SETTING = 1, /* name, value */
    WIRE_TAG_FLAG,        /* name of a setting without a value */
    WIRE_TAG_FILE,        /* name, bytes */
    WIRE_TAG_PROFILE,
    WIRE_TAG_CONFIG,
    WIRE_TAG_CWD,
    WIRE_TAG_COMMAND, /* first word of a new argument list; earlier ones no longer count */
    WIRE_TAG_ARG,
    WIRE_TAG_ENVIRON, /* one variable of the caller's environment */
    WIRE_TAG_STDIN,   /* bytes; the last one counts */
    WIRE_TAG_SOURCE,  /* language, name (each may be empty), bytes; in the place of a command */
    WIRE_TAG_PLACE,   /* one variable of the caller's that says where to look for tools */
};

struct wire_record {
    uint32_t tag;
    uint32_t reserved;
    uint64_t len;
};

struct wire_signal {
    struct wire_head head;
    int32_t sig;
};

enum wire_result_flag {
    WIRE_RESULT_TIMED_OUT = 1 << 0,
    WIRE_RESULT_TRUNCATED_OUT = 1 << 1,
    WIRE_RESULT_TRUNCATED_ERR = 1 << 2,
    WIRE_RESULT_PAYLOAD_FD = 1 << 3,
};

/* Followed by the payload unless that has a descriptor of its own: stdout, stderr and the JSON
 * text, each with a NUL behind it. */
struct wire_result {
    struct wire_head head;
    uint32_t flags;
    uint32_t verdict; /* enum cordon_verdict */
    int32_t exit_code;
    int32_t signal;
    uint64_t out_len[2], json_len;
    uint64_t out_bytes[2];
    uint64_t wall_ns, cpu_user_ns, cpu_sys_ns, throttled_ns;
    uint64_t peak_memory_bytes, processes_peak, oom_kills;
    char stage[16]; /* empty: a command */
    char limit_name[64];
    char limit_value[64];
    char error[1280];
};

struct wire_error {
    struct wire_head head;
    struct cordon_err err;
};

/* Answer to a STATS message, on the socket that came with it. */
struct wire_stats {
    struct wire_head head;
    uint64_t runs_now;
    uint64_t hits, spawned, cold, waiting;
    uint64_t start_p50_ns, start_p99_ns;
};

static inline struct wire_head wire_head(enum wire_type type)
{
    return (struct wire_head){WIRE_MAGIC, WIRE_VERSION, (uint16_t)type};
}

/* All return -1 with errno. wire_send() never raises SIGPIPE; flags as for sendmsg(2). */
int wire_send(int sock, const struct iovec *parts, size_t n_parts, const int *fds, size_t n_fds,
              int flags);
/* Length of the message, 0 at the end. Descriptors are close-on-exec and the caller's; -1 with
 * EMSGSIZE when the message or its descriptors did not fit. */
ssize_t wire_recv(int sock, void *buf, size_t size, int fds[static WIRE_FDS_MAX], size_t *ret_n_fds,
                  int flags);

/* A memfd that can be sealed. */
int wire_memfd(const char *name);
int wire_write_all(int fd, const void *data, size_t len);
/* Maps len bytes for reading after making sure they cannot go away. len > 0. */
void *wire_map(int fd, size_t len);

#endif
