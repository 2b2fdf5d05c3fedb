/* SPDX-License-Identifier: Apache-2.0
 *
 * libcordon - run code nobody trusts, get an honest result.
 *
 * Rules that hold for every function here:
 *  - Nothing exits, logs, prints, installs a signal handler or changes the caller's process state.
 *  - Functions that can fail return 0 or -1 (or NULL) and fill *err exactly once; err may be NULL.
 *    Out-parameters are untouched on failure.
 *  - Handles are opaque. One handle may be used from many threads at once; one run belongs to one
 *    thread at a time.
 *  - "Cordon failed" (an error) and "the guest ended so" (a result) never share a channel: a
 * function that gives a result has run the guest behind the whole wall the policy asked for.
 */
#ifndef CORDON_H
#define CORDON_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CORDON_API __attribute__((visibility("default")))

#define CORDON_VERSION_MAJOR 0
#define CORDON_VERSION_MINOR 1
#define CORDON_VERSION_PATCH 0

/* Why Cordon itself could not do what was asked. The values are the exit statuses of the command.
 */
enum cordon_code {
    CORDON_OK = 0,
    CORDON_ERR_USAGE = 64,    /* the call or the command line is wrong */
    CORDON_ERR_HOST = 69,     /* this host cannot build the wall that was asked for */
    CORDON_ERR_INTERNAL = 70, /* a failure of Cordon or of the host while running */
    CORDON_ERR_REJECTED = 77, /* the policy refused the request before the start */
    CORDON_ERR_CONFIG = 78,   /* a configuration file or value is wrong */
    CORDON_ERR_CANCELLED = 130,
};

/* Owned by the caller; no allocation behind it. All strings are NUL-terminated. */
struct cordon_err {
    int code;           /* enum cordon_code */
    int sys_errno;      /* errno of the failing system call, or 0 */
    char stage[32];     /* "policy", "plan", "clone", "mount", "exec" ... */
    char message[1024]; /* one line, names the file, key, option or path */
    char hint[512];     /* the smallest fix, or empty */
};

/* ---- Handles ---------------------------------------------------------------------------------
 *
 * A handle is one small supervisor process of its own, the `cordon` program; it runs any number of
 * guests at once. The calling program itself is never forked into a guest. The supervisor is not a
 * child of the caller: no SIGCHLD, nothing for wait() to find. It ends with its handle and with the
 * calling process, however that ends, and takes every guest along. */

struct cordon;

/* Zero-initialise, then set `size`; fields may be added at the end. */
struct cordon_options {
    size_t size;        /* sizeof(struct cordon_options) */
    const char *binary; /* the `cordon` program; NULL: $CORDON_BINARY (not in a setuid program),
                           then bin/cordon beside the folder this library lies in, then where it was
                           installed. Copied. */
};

/* "0.1.0": of the library that runs, which may be newer than this header. */
CORDON_API const char *cordon_version(void);

/* Starts a supervisor and waits until it is ready (milliseconds). options may be NULL. Errors:
 * CORDON_ERR_USAGE (no such program, another version of it), CORDON_ERR_HOST (this host is not one
 * Cordon runs on), CORDON_ERR_INTERNAL. */
CORDON_API int cordon_open(const struct cordon_options *options, struct cordon **ret_handle,
                           struct cordon_err *err);

/* Ends every guest of the handle and its supervisor, and returns when they are gone. No other
 * thread may be inside a call with this handle. Jobs stay valid objects: each has its result
 * (`cancelled`) or an error, and must still be freed. In a forked child it only gives the memory
 * and descriptors back; the parent's guests are not touched. NULL is accepted. */
CORDON_API void cordon_close(struct cordon *handle);

/* Process id of the supervisor, for monitoring; -1 when there is none at the moment. A supervisor
 * that was killed is replaced by the next cordon_run() or cordon_start(). */
CORDON_API pid_t cordon_supervisor_pid(struct cordon *handle);

/* ---- Requests --------------------------------------------------------------------------------
 *
 * What to run and what it may use. A request is not bound to a handle and may be used for any
 * number of runs, also at once from many threads as long as nobody changes it. Everything given is
 * copied; sizes are limited only by memory. Values are checked when a run is started, by the same
 * rules as those of the command. */

struct cordon_request;

enum cordon_request_flags {
    /* Read the user's and the project's cordon.toml and the CORDON_* variables, as the command
     * does. Without it (the default) only what the request says counts. The environment is copied
     * when the flag is set. */
    CORDON_REQUEST_DISCOVER = 1 << 0,
    /* Output can be read while the guest runs: cordon_job_read(), cordon_job_stream_fd(). */
    CORDON_REQUEST_STREAM = 1 << 1,
    /* `stdout` and `stderr` stay empty in the JSON text; the bytes are in the result all the same.
     * Saves time with large outputs. */
    CORDON_REQUEST_BRIEF_JSON = 1 << 2,
};

/* An empty request: level `standard`, no command, no input. Relative paths in it start at the
 * working directory of this moment. NULL when memory is out. */
CORDON_API struct cordon_request *cordon_request_new(void);
CORDON_API void cordon_request_free(struct cordon_request *request); /* NULL is accepted */

/* One setting by the name of its flag or config key ("time_limit", "time-limit", "allow_read");
 * value as the command takes it, NULL for a flag without one. Lists append, others replace. "env"
 * without a "=" takes the variable's value at this moment. A wrong name or value shows at the
 * start. */
CORDON_API int cordon_request_set(struct cordon_request *request, const char *name,
                                  const char *value, struct cordon_err *err);
/* Level or profile. */
CORDON_API int cordon_request_set_profile(struct cordon_request *request, const char *name,
                                          struct cordon_err *err);
/* A configuration file to read as the project's. */
CORDON_API int cordon_request_set_config(struct cordon_request *request, const char *path,
                                         struct cordon_err *err);
/* Where relative paths in this request start; absolute. */
CORDON_API int cordon_request_set_cwd(struct cordon_request *request, const char *path,
                                      struct cordon_err *err);
/* enum cordon_request_flags; replaces what was set before. */
CORDON_API int cordon_request_set_flags(struct cordon_request *request, unsigned flags,
                                        struct cordon_err *err);
/* The command and its arguments, ending with NULL; at least one. Replaces an earlier one. */
CORDON_API int cordon_request_set_argv(struct cordon_request *request, char *const argv[],
                                       struct cordon_err *err);
/* Source text instead of a command. language is a name or alias of `cordon languages`; NULL: by the
 * suffix of name, or a "#!" line. name is what the text is called in the guest's working directory;
 * NULL: the language's usual name. args are the program's arguments, ending with NULL; NULL: none.
 * The last of set_source and set_argv counts. What comes before the program (a check of its
 * imports, a compiler) runs behind the same wall. Interpreters outside /usr and the cache of
 * compiled programs are looked for by the caller's PATH, HOME and XDG_CACHE_HOME of this moment. */
CORDON_API int cordon_request_set_source(struct cordon_request *request, const char *language,
                                         const char *name, const void *data, size_t len,
                                         char *const args[], struct cordon_err *err);
/* Standard input: bytes, or a descriptor (duplicated here, read by the supervisor from where it
 * stands; nobody else should read from it during the run). The last call counts. Without one the
 * guest reads end of file. */
CORDON_API int cordon_request_set_stdin(struct cordon_request *request, const void *data,
                                        size_t len, struct cordon_err *err);
CORDON_API int cordon_request_set_stdin_fd(struct cordon_request *request, int fd,
                                           struct cordon_err *err);
/* A file with these contents in the guest's working directory. name is relative. */
CORDON_API int cordon_request_add_file(struct cordon_request *request, const char *name,
                                       const void *data, size_t len, struct cordon_err *err);

/* ---- Prepared guests -------------------------------------------------------------------------
 *
 * A handle keeps guests ready for requests it has seen before: all walls stand, and command,
 * environment, files, standard streams, network rules and the values of limits are given to one
 * when it is wanted. Guests of one kind may follow each other in the same namespaces, if each left
 * all that the next one could see as it was; whatever was changed is given up. One with a network
 * or with host paths is used once. Granted host paths are bound ahead, and used if they still mean
 * the same file or folder when the run starts. Requests with an overlay workspace, something
 * mounted below a granted path, the host's own network, a terminal, a root file system of their own
 * or another backend always start from nothing; so does the first of its kind, and whatever finds
 * none ready. */

/* Zero-initialise, then set `size`; fields may be added at the end. */
struct cordon_stats {
    size_t size;       /* sizeof(struct cordon_stats) */
    uint64_t runs_now; /* not ended yet */
    uint64_t hits;     /* runs that found a guest ready */
    uint64_t spawned;  /* runs whose guest was made for them from the template of their kind */
    uint64_t cold;     /* runs that could have used one and started from nothing */
    uint64_t waiting;  /* guests that are ready or in the making now */
    uint64_t start_p50_ns,
        start_p99_ns; /* of the last 512 runs counted in hits and spawned: from
                         the request's arrival to the guest's own code; 0: none */
};

/* What the supervisor of this handle has seen; a supervisor that was replaced began anew. */
CORDON_API int cordon_stats(struct cordon *handle, struct cordon_stats *ret_stats,
                            struct cordon_err *err);

/* ---- Results ---------------------------------------------------------------------------------
 *
 * How a guest ended. Read-only, independent of handle and job. The fields are those of
 * cordon-result(5). Pointers live as long as the result. */

struct cordon_result;

enum cordon_verdict {
    CORDON_VERDICT_OK,
    CORDON_VERDICT_NONZERO_EXIT,
    CORDON_VERDICT_SIGNALED,
    CORDON_VERDICT_TIME_LIMIT,
    CORDON_VERDICT_CPU_TIME_LIMIT,
    CORDON_VERDICT_MEMORY_LIMIT,
    CORDON_VERDICT_OUTPUT_LIMIT,
    CORDON_VERDICT_PROCESS_LIMIT,
    CORDON_VERDICT_DISK_LIMIT,
    CORDON_VERDICT_REJECTED, /* the policy refused before the start: exit_code 77 */
    CORDON_VERDICT_CANCELLED,
    /* sandbox_error is never a result here: such runs return -1 with the error */
};

enum cordon_stream { CORDON_STDOUT = 1, CORDON_STDERR = 2 };

CORDON_API void cordon_result_free(struct cordon_result *result); /* NULL is accepted */

CORDON_API enum cordon_verdict cordon_result_verdict(const struct cordon_result *result);
/* "ok", "time_limit" ...; "unknown" for a number that is none. */
CORDON_API const char *cordon_verdict_name(enum cordon_verdict verdict);
/* The guest's status, 128+N after signal N, or Cordon's number for a limit (cordon(1)). */
CORDON_API int cordon_result_exit_code(const struct cordon_result *result);
CORDON_API int cordon_result_signal(const struct cordon_result *result);    /* 0: none */
CORDON_API int cordon_result_timed_out(const struct cordon_result *result); /* 0 or 1 */
/* The bytes that were kept (setting max_output), followed by a NUL that is not counted. ret_len may
 * be NULL. Never NULL. */
CORDON_API const char *cordon_result_output(const struct cordon_result *result,
                                            enum cordon_stream stream, size_t *ret_len);
CORDON_API int cordon_result_truncated(const struct cordon_result *result,
                                       enum cordon_stream stream);
/* All bytes the guest wrote, kept or not. */
CORDON_API uint64_t cordon_result_bytes(const struct cordon_result *result,
                                        enum cordon_stream stream);
CORDON_API uint64_t cordon_result_wall_ns(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_cpu_user_ns(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_cpu_sys_ns(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_throttled_ns(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_peak_memory_bytes(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_processes_peak(const struct cordon_result *result);
CORDON_API uint64_t cordon_result_oom_kills(const struct cordon_result *result);
/* One line, or NULL: "Execution exceeded time limit (1s)", "xyz: command not found". */
CORDON_API const char *cordon_result_error(const struct cordon_result *result);
/* How far source text came: "compile" or "run". NULL: it was a command. */
CORDON_API const char *cordon_result_stage(const struct cordon_result *result);
/* Config key and written value of the limit that ended the guest, or NULL. */
CORDON_API const char *cordon_result_limit_name(const struct cordon_result *result);
CORDON_API const char *cordon_result_limit_value(const struct cordon_result *result);
/* The whole result as one JSON object, NUL-terminated. ret_len may be NULL. Never NULL. */
CORDON_API const char *cordon_result_json(const struct cordon_result *result, size_t *ret_len);

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Runs the request and waits for its end. May be called from any number of threads at once.
 * Returns 0 with a result the caller frees, or -1: nothing ran to an end of its own, *err says why
 * (CORDON_ERR_USAGE and CORDON_ERR_CONFIG: the request, or NULL for it; CORDON_ERR_HOST: this host
 * cannot build the wall; CORDON_ERR_INTERNAL: Cordon or the host failed, the supervisor was
 * killed).
 */
CORDON_API int cordon_run(struct cordon *handle, const struct cordon_request *request,
                          struct cordon_result **ret_result, struct cordon_err *err);

/* A run that was started. Belongs to one thread at a time. */
struct cordon_job;

/* Starts the request and returns at once; whether it could be started shows in poll and wait. */
CORDON_API int cordon_start(struct cordon *handle, const struct cordon_request *request,
                            struct cordon_job **ret_job, struct cordon_err *err);

/* Readable when the run has ended (for poll, select, epoll; do not read from it). Belongs to the
 * job and stays the same. -1 when no descriptor could be made. */
CORDON_API int cordon_job_fd(struct cordon_job *job);

/* Has it ended? Never waits. *ret_done is 0 or 1. -1: the run failed (as with cordon_run), or this
 * is another process than the one that started it. */
CORDON_API int cordon_job_poll(struct cordon_job *job, int *ret_done, struct cordon_err *err);

/* Waits at most timeout_ms (-1: for ever). 0: *ret_result is the result, which the caller frees, or
 * NULL when the time was over first. The result is given once. -1: the run failed. With sys_errno
 * ECONNRESET the supervisor was killed before it took the request: nothing was started, and the
 * same request may be started again (cordon_run() does so by itself). */
CORDON_API int cordon_job_wait(struct cordon_job *job, int timeout_ms,
                               struct cordon_result **ret_result, struct cordon_err *err);

/* With CORDON_REQUEST_STREAM: the next bytes of a stream, as far as they are there. Returns how
 * many, 0 at the end of the stream, -1 with errno EAGAIN when there is nothing yet (or EINVAL
 * without the flag). Never waits. Same bytes and same cap as in the result; a slow reader holds up
 * nothing. */
CORDON_API ssize_t cordon_job_read(struct cordon_job *job, enum cordon_stream stream, void *buf,
                                   size_t len);
/* Readable when cordon_job_read() has something, the end included. Belongs to the job. -1 without
 * CORDON_REQUEST_STREAM. */
CORDON_API int cordon_job_stream_fd(struct cordon_job *job, enum cordon_stream stream);

/* Sends a signal to the guest's main process. Lost when the guest has not begun or has ended. */
CORDON_API int cordon_job_signal(struct cordon_job *job, int sig, struct cordon_err *err);
/* Ends the guest; its result follows with verdict `cancelled`, unless it ended before. */
CORDON_API int cordon_job_cancel(struct cordon_job *job, struct cordon_err *err);
/* Gives the job back. A run that has not ended is cancelled. NULL is accepted. */
CORDON_API void cordon_job_free(struct cordon_job *job);

/* ---- Task workspaces -------------------------------------------------------------------------
 *
 * A folder per task, WORK_ROOT/ID/, with files put into it by relative names; allow-listed commands
 * run in it, each behind the whole wall with the folder at /workspace, and each gives back what it
 * changed: a patch for `git apply` and a list. Every step is a line in LOGS_DIR/ID.jsonl (event,
 * timestamp, task_id, cmd, exit_code, duration_sec, error, changed_files, diff_len; never output).
 *
 * A task is not bound to a handle and may be used by many threads at once; the commands of one
 * workspace run one after the other, across processes too. */

struct cordon_task;

/* Zero-initialise, then set `size`; fields may be added at the end. Everything is copied. NULL
 * takes the default. Values are texts as the command takes them. */
struct cordon_task_options {
    size_t size;                         /* sizeof(struct cordon_task_options) */
    const char *work_root;               /* ".sandbox"; relative ones start at the working directory
                                            of the moment the task is made or opened */
    const char *logs_dir;                /* "logs/sandbox" */
    const char *const *allowed_binaries; /* ends with NULL: what a command may begin with. Default:
                                            ast-grep sg python3 python pytest bash sh git node npm
                                            make gcc go cargo. A plain name is looked up once, in
                                            the guest's own PATH, when the task is made or opened;
                                            no PATH and no file of the workspace's changes what it
                                            means. */
    const char *time_limit;              /* "30s" */
    const char *cpu_time;                /* "30s" */
    const char *memory_limit;            /* "512M" */
    const char *backend;                 /* "native" */
    const char *const *settings;         /* more of cordon_request_set(): name, value, name, value
                                            ..., ending with NULL */
};

struct cordon_task_file {
    const char *name; /* relative; no "..", ".", empty parts, or leading slash */
    const void *data;
    size_t len;
    int executable;
};

/* Makes the workspace with these files in it; an earlier one of the same id is removed. An id has
 * letters, digits, '.', '_' and '-', at most 100, and begins with neither '.' nor '-'. Until it is
 * whole the folder has another name; a failure leaves nothing. CORDON_ERR_USAGE: the id, a name or
 * a folder is not one that can be used, something that Cordon did not make has the name (but for an
 * empty folder), or with sys_errno EWOULDBLOCK a command works in the earlier one. */
CORDON_API int cordon_task_prepare(const struct cordon_task_options *options, const char *task_id,
                                   const struct cordon_task_file *files, size_t n_files,
                                   struct cordon_task **ret_task, struct cordon_err *err);
/* One that was prepared before, by whatever process. One that is gone can still be cleaned up. */
CORDON_API int cordon_task_open(const struct cordon_task_options *options, const char *task_id,
                                struct cordon_task **ret_task, struct cordon_err *err);
/* Absolute path of the workspace. Lives as long as the task. */
CORDON_API const char *cordon_task_path(const struct cordon_task *task);
/* Removes the workspace, whatever a guest left in it; one that is gone is no error. -1 with
 * sys_errno EWOULDBLOCK: a command works in it; with CORDON_ERR_USAGE and no sys_errno: it is not
 * empty, and no folder that cordon_task_prepare() made. The task itself is still to be freed. */
CORDON_API int cordon_task_cleanup(const struct cordon_task *task, struct cordon_err *err);
/* Gives the task back, not its folder. NULL is accepted. No run of it may be left. */
CORDON_API void cordon_task_free(struct cordon_task *task);

/* Zero-initialise, then set `size`. */
struct cordon_task_action {
    size_t size;            /* sizeof(struct cordon_task_action) */
    char *const *command;   /* ends with NULL; its first word must be allowed */
    const char *time_limit; /* NULL: the task's */
    const char *const *env; /* "NAME=value", ending with NULL; NULL: none. Proxy variables are left
                               out and NO_PROXY is "*". */
    const void *stdin_data; /* NULL: end of file */
    size_t stdin_len;
};

enum cordon_task_event {
    CORDON_TASK_ACTION = 1, /* "action" in the log */
    CORDON_TASK_TESTS = 2,  /* "tests"; action or its command may be NULL: python3 -m pytest -q */
};

/* A command of a task that was started; belongs to one thread at a time. */
struct cordon_task_run;

/* Starts it and returns at once. A command that is not allowed is a run that has ended, with its
 * own result. -1 with sys_errno EWOULDBLOCK: another command works in this workspace. handle and
 * task must outlive the run. */
CORDON_API int cordon_task_start(struct cordon *handle, const struct cordon_task *task,
                                 enum cordon_task_event event,
                                 const struct cordon_task_action *action,
                                 struct cordon_task_run **ret_run, struct cordon_err *err);
/* Readable when the run has ended. Ask anew before every poll. -1: no descriptor could be made. */
CORDON_API int cordon_task_run_fd(struct cordon_task_run *run);

struct cordon_task_result;

/* Waits at most timeout_ms (-1: for ever), then compares the workspace with what it was and writes
 * the log. 0: *ret_result is the result, which the caller frees, or NULL when the time was over
 * first. Given once. -1: Cordon or the host failed, as with cordon_run(). */
CORDON_API int cordon_task_run_wait(struct cordon_task_run *run, int timeout_ms,
                                    struct cordon_task_result **ret_result, struct cordon_err *err);
CORDON_API int cordon_task_run_cancel(struct cordon_task_run *run, struct cordon_err *err);
/* A run that has not ended is cancelled. NULL is accepted. */
CORDON_API void cordon_task_run_free(struct cordon_task_run *run);

/* All of it in one call; waits for its turn where another command works in this workspace. */
CORDON_API int cordon_task_run(struct cordon *handle, const struct cordon_task *task,
                               enum cordon_task_event event,
                               const struct cordon_task_action *action,
                               struct cordon_task_result **ret_result, struct cordon_err *err);

CORDON_API void cordon_task_result_free(struct cordon_task_result *result); /* NULL is accepted */
/* The run itself; NULL: nothing ran, the command is not allowed. Belongs to the task's result. */
CORDON_API const struct cordon_result *
cordon_task_result_run(const struct cordon_task_result *result);
CORDON_API int cordon_task_result_exit_code(const struct cordon_task_result *result);
/* One line, or NULL: why the command did not end well, that not every change is listed, or which
 * path could not be read, so that what changed there is not in the diff. */
CORDON_API const char *cordon_task_result_error(const struct cordon_task_result *result);
CORDON_API uint64_t cordon_task_result_duration_ns(const struct cordon_task_result *result);
/* Unified diff for `git apply`, UTF-8. ret_len may be NULL. Never NULL. */
CORDON_API const char *cordon_task_result_diff(const struct cordon_task_result *result,
                                               size_t *ret_len);
/* Changed files, sorted; relative paths, any bytes but NUL. NULL after the last. ret_kind may be
 * NULL; "added", "modified", "deleted", "mode", "symlink", "type", "binary" or "special". */
CORDON_API const char *cordon_task_result_changed(const struct cordon_task_result *result,
                                                  size_t index, const char **ret_kind);

#ifdef __cplusplus
}
#endif

#endif
