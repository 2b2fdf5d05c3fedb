/* Follows a program and its children instruction by instruction and writes down where they were in
 * the program's own file (for tools/layout). Children are followed until they become another one.
 *
 * usage: steps OUT PROGRAM [ARGUMENT]...      OUT: one offset per line, in hexadecimal
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_BYTES (1u << 23) /* of the program's file */
#define STEPS_MOST 64          /* processes */

static bool seen[STEPS_BYTES];
static pid_t gone_on[STEPS_MOST]; /* as another program */
static size_t n_gone_on;
static unsigned long base; /* 0: the program has not begun */

static bool is_gone_on(pid_t pid)
{
    for (size_t i = 0; i < n_gone_on; i++)
        if (gone_on[i] == pid)
            return true;
    return false;
}

static unsigned long first_address(pid_t pid)
{
    char path[64];
    unsigned long first = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (!maps || fscanf(maps, "%lx", &first) != 1)
        first = 0;
    if (maps)
        fclose(maps);
    return first;
}

static void note(pid_t pid)
{
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0 && regs.rip - base < STEPS_BYTES)
        seen[regs.rip - base] = true;
}

/* What stopped it is a signal of its own, or 0. */
static int look(pid_t pid, int wstatus)
{
    int signal = WSTOPSIG(wstatus), event = wstatus >> 16;
    if (event == PTRACE_EVENT_EXEC && base == 0)
        base = first_address(pid);
    else if (event == PTRACE_EVENT_EXEC && n_gone_on < STEPS_MOST)
        gone_on[n_gone_on++] = pid;
    return event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
}

static int follow(pid_t child)
{
    int wstatus, result = 1;
    pid_t pid;
    while ((pid = waitpid(-1, &wstatus, __WALL)) > 0) {
        if (pid == child && WIFEXITED(wstatus))
            result = WEXITSTATUS(wstatus);
        if (!WIFSTOPPED(wstatus))
            continue;
        int signal = look(pid, wstatus);
        bool steps = base != 0 && !is_gone_on(pid);
        if (steps)
            note(pid);
        ptrace(steps ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL, signal);
    }
    return result;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 2 ? fopen(argv[1], "we") : NULL;
    if (!out) {
        fprintf(stderr, "usage: steps OUT PROGRAM [ARGUMENT]...\n");
        return 64;
    }
    pid_t child = fork();
    if (child == 0) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(argv[2], argv + 2);
        _exit(127);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return 70;
    ptrace(PTRACE_SETOPTIONS, child, NULL,
           PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC);
    ptrace(PTRACE_CONT, child, NULL, NULL);
    int result = follow(child);
    for (size_t i = 0; i < STEPS_BYTES; i++)
        if (seen[i])
            fprintf(out, "%zx\n", i);
    return fclose(out) == 0 ? result : 74;
}
