/* Shared by the files of `cordon-init` only. */
#ifndef INIT_INTERNAL_H
#define INIT_INTERNAL_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "init/init.h"
#include "init/look.h"

#define INIT_CALLS 512 /* numbers counted one by one */

/* Shared with the child until its execve, which takes it away from the guest. */
struct init_shared {
    volatile int ready;    /* the filter stands */
    volatile int listener; /* in the table of descriptors both share, -1: none */
    volatile int error;    /* of a failed execve or bond */
    char stage[32];
};

struct init {
    struct init_order *order;
    const struct init_rlimit *rlimits;
    struct sock_filter *filter, *quiet;
    const char *cwd;
    char **argv, **env;
    char *files;
    const char *end;
    pid_t main_pid;
    int signal_fd;
    int cwd_fd; /* what is sent in the end, -1: nothing */
    struct init_shared *shared;
    uint64_t began_ns;
    struct look_duty duty;
    struct look peak;
    uint64_t next_look_ns;
    enum init_kind over;   /* seen when the main process was gone: INIT_DISK, INIT_FILES, or 0 */
    bool looks;            /* some limit is held by looking */
    bool observed;         /* refused calls were counted */
    unsigned tasks_before; /* of others in a kernel of our own */
    uint32_t denials[INIT_CALLS];
    struct init_report report;
};

/* init.c: reports a failure of ours and ends. */
_Noreturn void init_fail(struct init *in, const char *stage, int error);

/* order.c: takes the order from standard input; makes the files it brings, and compares what was
 * granted with what is there. */
void order_take(struct init *in);
void order_files(struct init *in);

/* guard.c: of a pid 1 that is root: packet rules, and then the end of being root. Under gVisor,
 * which lets a guest stop or kill a pid 1 of its own id, it stays root and only the guest leaves.
 */
void guard_raise(struct init *in);
/* NULL, or the step that failed, with errno. */
const char *guard_leave_root(const struct init *in);
/* pid 1 that stays root makes and reads the guest's files as the guest. */
void guard_as_guest(struct init *in, bool guest);
/* The guest exists: pid 1 keeps what it takes to end it, and to read its files as the guest. */
void guard_settle(struct init *in);

/* denied.c: what the packet rules refuse, told to group INIT_DENIED_GROUP. */
#define INIT_DENIED_GROUP 1
bool denied_listen(void); /* needs the right to make rules; false: nobody will tell */
bool denied_is_heard(void);
void denied_read(struct init_report *report); /* adds what there is by now */
void denied_forget(void);
void denied_deafen(void);

/* send.c: the files of a folder on standard error. */
void send_files(int dir_fd);
/* init.c */
void init_write(const void *data, size_t len);
void init_report(struct init *in, const uint8_t *secret);
/* hold.c: keeps a container; returns in the process of a command, which has its order to take. */
void hold_container(struct init *in, const sigset_t *all);

/* guest.c: the guest's process from the clone to its execve. */
_Noreturn void guest_run(struct init *in);

#endif
