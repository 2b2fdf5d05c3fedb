/* Follows a program and its children, and writes down which of its functions they came by (for
 * tools/layout): a breakpoint stands at each, and goes when it was hit. Children are followed until
 * they become another program. Runs as root, whoever the program is.
 *
 * usage: steps OUT PLACES USER PROGRAM [ARGUMENT]...
 *     PLACES: offsets in the program's file, one per line, in hexadecimal; OUT: those that were hit
 */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_BYTES (1u << 23) /* of the program's file */
#define STEPS_MOST 64          /* processes */
#define STEPS_BREAK 0xcc

static bool is_place[STEPS_BYTES], seen[STEPS_BYTES];
static unsigned char was[STEPS_BYTES];
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

static int open_memory(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
    return open(path, O_RDWR | O_CLOEXEC);
}

static void set_breaks(pid_t pid)
{
    const unsigned char code = STEPS_BREAK;
    int fd = open_memory(pid);
    for (size_t i = 0; i < STEPS_BYTES; i++)
        if (is_place[i] && (pread(fd, &was[i], 1, (off_t)(base + i)) != 1 ||
                            pwrite(fd, &code, 1, (off_t)(base + i)) != 1))
            is_place[i] = false;
    close(fd);
}

/* True: it was a breakpoint of ours. */
static bool passed(pid_t pid)
{
    struct user_regs_struct regs;
    if (base == 0 || ptrace(PTRACE_GETREGS, pid, NULL, &regs) < 0)
        return false;
    unsigned long at = regs.rip - 1 - base;
    if (at >= STEPS_BYTES || !is_place[at])
        return false;
    int fd = open_memory(pid);
    seen[at] = true;
    if (fd < 0 || pwrite(fd, &was[at], 1, (off_t)(base + at)) != 1) {
        perror("steps: memory of a process");
        exit(70);
    }
    close(fd);
    regs.rip--;
    ptrace(PTRACE_SETREGS, pid, NULL, &regs);
    return true;
}

/* What stopped it is a signal of its own, or 0. */
static int look(pid_t pid, int wstatus)
{
    int signal = WSTOPSIG(wstatus), event = wstatus >> 16;
    if (event == PTRACE_EVENT_EXEC && base == 0) {
        base = first_address(pid);
        set_breaks(pid);
    } else if (event == PTRACE_EVENT_EXEC && n_gone_on < STEPS_MOST) {
        gone_on[n_gone_on++] = pid;
    } else if (!event && signal == SIGTRAP && !is_gone_on(pid) && passed(pid)) {
        return 0;
    }
    return event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
}

static int follow(pid_t child)
{
    int wstatus, result = 1;
    pid_t pid;
    while ((pid = waitpid(-1, &wstatus, __WALL)) > 0) {
        if (pid == child && WIFEXITED(wstatus))
            result = WEXITSTATUS(wstatus);
        if (WIFSTOPPED(wstatus))
            ptrace(PTRACE_CONT, pid, NULL, look(pid, wstatus));
    }
    return result;
}

static bool read_places(const char *path)
{
    unsigned long at;
    FILE *in = fopen(path, "re");
    while (in && fscanf(in, "%lx", &at) == 1)
        if (at < STEPS_BYTES)
            is_place[at] = true;
    return in && fclose(in) == 0;
}

int main(int argc, char **argv)
{
    FILE *out = argc > 4 ? fopen(argv[1], "we") : NULL;
    if (!out || !read_places(argv[2])) {
        fprintf(stderr, "usage: steps OUT PLACES USER PROGRAM [ARGUMENT]...\n");
        return 64;
    }
    uid_t user = (uid_t)atoi(argv[3]);
    pid_t child = fork();
    if (child == 0) {
        if (user && (setgroups(0, NULL) < 0 || setresgid(user, user, user) < 0 ||
                     setresuid(user, user, user) < 0))
            _exit(77);
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        execv(argv[4], argv + 4);
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
