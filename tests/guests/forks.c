/* Ordinary use of processes: makes N children (or threads), keeps them alive together, joins them.
 *
 * usage: forks process|thread|vfork|spawn N
 * prints how many could be started and the errno of the first refusal; exits 0 in either case. */
#include "guest.h"

#include <pthread.h>
#include <spawn.h>

static int gate[2];
extern char **environ;

static void *wait_gate(void *unused)
{
    (void)unused;
    char c;
    ssize_t n = read(gate[0], &c, 1);
    (void)n;
    return NULL;
}

static int start_thread(void)
{
    pthread_t t;
    int e = pthread_create(&t, NULL, wait_gate, NULL);
    if (e == 0)
        pthread_detach(t);
    return e;
}

static int start_process(bool is_vfork)
{
    pid_t pid = is_vfork ? vfork() : fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        if (is_vfork)
            _exit(0);
        close(gate[1]);
        wait_gate(NULL);
        _exit(0);
    }
    return 0;
}

static int start_spawn(void)
{
    pid_t pid;
    char *const argv[] = {(char *)"true", NULL};
    return posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "process");
    long n = argn(argc, argv, 2, 1), started = 0;
    int e = 0;
    guest_deadline(60);
    if (pipe(gate) < 0)
        return 1;
    for (; started < n && e == 0; started += e == 0) {
        if (!strcmp(mode, "thread"))
            e = start_thread();
        else if (!strcmp(mode, "spawn"))
            e = start_spawn();
        else
            e = start_process(!strcmp(mode, "vfork"));
    }
    say("started", "%ld", started);
    say("refused", "%s", e ? errname(e) : "no");
    close(gate[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
