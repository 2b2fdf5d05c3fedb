/* Raw mode and the way back. Runs in the command. */
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

#define TERMINAL_GUARD_FD 3

int terminal_check(struct cordon_err *err)
{
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return 0;
    err_set(err, CORDON_ERR_USAGE, "options", 0, "-i needs a terminal as standard %s",
            isatty(STDIN_FILENO) ? "output" : "input");
    return err_hint(err, "leave -i out: pipes and files work without it");
}

void terminal_size(unsigned short *ret_rows, unsigned short *ret_columns)
{
    struct winsize size = {0};
    (void)ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    *ret_rows = size.ws_row;
    *ret_columns = size.ws_col;
}

/* Waits for our end. A byte says that the terminal is in order already. */
static _Noreturn void terminal_guard(int fd, const struct termios *saved)
{
    static const int ignored[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGTTOU, SIGTTIN};
    char byte;
    ssize_t n;
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    if (dup2(fd, TERMINAL_GUARD_FD) < 0)
        _exit(1);
    sys_close_range(TERMINAL_GUARD_FD + 1, ~0U);
    do
        n = read(TERMINAL_GUARD_FD, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, saved);
    _exit(0);
}

int terminal_enter(struct terminal *t, struct cordon_err *err)
{
    struct termios raw;
    int ends[2];
    if (tcgetattr(STDIN_FILENO, &t->saved) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "terminal", errno, "standard input");
    t->guard = fork();
    if (t->guard == 0) {
        close(ends[1]);
        terminal_guard(ends[0], &t->saved);
    }
    close(ends[0]);
    t->guard_fd = ends[1];
    raw = t->saved;
    cfmakeraw(&raw);
    t->raw = true;
    if (t->guard < 0 || tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0) {
        err_set(err, CORDON_ERR_INTERNAL, "terminal", errno, "raw mode");
        terminal_leave(t);
        return -1;
    }
    return 0;
}

void terminal_leave(struct terminal *t)
{
    if (!t->raw)
        return;
    /* what was typed after the guest's end is the shell's */
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
    if (t->guard > 0) {
        (void)!write(t->guard_fd, "d", 1);
        while (waitpid(t->guard, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    util_close(&t->guard_fd);
    t->raw = false;
}
