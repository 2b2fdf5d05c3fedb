/* What the files of task workspaces share. Runs in the calling program. */
#ifndef LIB_TASK_H
#define LIB_TASK_H

#include "lib/lib.h"
#include "workspace/task.h"

struct task_binary {
    char *name;
    char *path; /* where it is in the guest; NULL: nowhere here, the guest says so itself */
};

/* Unchanged once it is made: any number of threads may use it. */
struct cordon_task {
    char id[104];
    char *root, *path, *logs; /* absolute */
    struct task_binary *binaries;
    size_t n_binaries;
    char *time_limit, *cpu_time, *memory_limit, *backend;
    char **settings; /* pairs */
};

struct cordon_task_result {
    struct cordon_result *run; /* NULL: nothing ran */
    int exit_code;
    uint64_t duration_ns;
    char error[1280]; /* empty: none */
    bool has_changes;
    struct tree_changes changes;
    struct buf diff;
};

/* task.c: the path to start for a command's first word; NULL: not allowed. */
const char *task_binary(const struct cordon_task *task, const char *name);

/* task_result.c: compares, and takes the run's result. On failure run is the caller's still. */
int task_result_make(struct task_hold *hold, struct cordon_result *run, uint64_t duration_ns,
                     struct cordon_task_result **ret_result, struct cordon_err *err);
struct cordon_task_result *task_result_refused(const char *command);
/* The line in the log; result NULL: failure says why there is none. */
int task_result_log(const struct cordon_task *task, enum cordon_task_event event,
                    char *const *command, const struct cordon_task_result *result,
                    const struct cordon_err *failure, struct cordon_err *err);

#endif
