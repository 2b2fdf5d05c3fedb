/* The processes below one or two processes, as /proc shows them. Shared by sample.c and
 * sample_walk.c. */
#ifndef SUPERVISE_SAMPLE_WALK_H
#define SUPERVISE_SAMPLE_WALK_H

#include "base/util.h"
#include "supervise/sample.h"

struct walk {
    pid_t root;
    pid_t beside; /* another process of Cordon's whose children are the guest's; 0: none */
    int proc_fd;
    unsigned max; /* processes per walk */
};

struct walk_process {
    pid_t pid;
    pid_t memory_pid; /* a thread of it that has memory: the first one may have ended */
    struct sample_stat stat;
};

/* Growing array with a hash of pids over it; all zero is empty. */
struct walk_set {
    struct walk_process *list;
    size_t n, cap;
    uint32_t *table; /* index into list, plus one */
    size_t table_size;
};

/* Is it Cordon's own? */
static inline bool walk_is_own(const struct walk *walk, pid_t pid)
{
    return pid == walk->root || pid == walk->beside;
}

/* Fills the set anew, the root first, then who is beside it. -1 when one of them cannot be read or
 * memory is out. */
int walk_tree(const struct walk *walk, struct walk_set *set, bool *ret_truncated);
/* Adds what the walk before this one saw and which is still there: the kernel's lists of children
 * may skip one while they change. */
void walk_recover(const struct walk *walk, struct walk_set *now, const struct walk_set *before);
/* A process whose first thread has ended shows no memory there, which must not hide it: looks for
 * another thread and takes its numbers. */
void walk_find_memory(const struct walk *walk, struct walk_process *process);
const struct walk_process *walk_set_find(const struct walk_set *set, pid_t pid);
void walk_set_done(struct walk_set *set);
int walk_read_stat(const struct walk *walk, pid_t pid, struct sample_stat *ret_stat);
/* Up to size-1 bytes of a file below dir_fd, ended with NUL; how many, or -errno. */
ssize_t walk_read(int dir_fd, const char *path, char *buf, size_t size);

#endif
