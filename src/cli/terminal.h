/* The caller's terminal while a guest has one of its own: raw, so that every key is the guest's,
 * and as it was before when we end, however we end. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

#include <cordon.h>

struct terminal {
    bool raw;
    struct termios saved;
    pid_t guard;  /* a process that outlives us if we are killed */
    int guard_fd; /* its end of file means that we are gone */
};

#define TERMINAL_INIT ((struct terminal){.guard_fd = -1})

/* Are standard input and output a terminal? Else CORDON_ERR_USAGE. */
int terminal_check(struct cordon_err *err);
void terminal_size(unsigned short *ret_rows, unsigned short *ret_columns);
/* Once; on failure nothing has changed. */
int terminal_enter(struct terminal *t, struct cordon_err *err);
void terminal_leave(struct terminal *t);

#endif
