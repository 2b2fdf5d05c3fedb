/* K24: whoever answers refused calls is lied to: callers that die in the middle of their question,
 * numbers that are used again, threads that ask and exit, signals that interrupt the wait, pointers
 * that change meanwhile. The answer must stay a refusal, and everybody else must get one.
 *
 * usage: notify_abuse ROUNDS */
#include "guest.h"

#include <pthread.h>

static char shared_text[64];
static volatile bool over;

static void *ask_for_ever(void *data)
{
    (void)data;
    while (!over)
        syscall(SYS_mount, shared_text, shared_text, shared_text, 0, shared_text);
    return NULL;
}

static void *change_for_ever(void *data)
{
    (void)data;
    for (unsigned i = 0; !over; i++)
        memset(shared_text, "/tmp\0"[i % 5], sizeof(shared_text) - 1);
    return NULL;
}

static void ignore(int sig)
{
    (void)sig;
}

static long killed_in_question(long rounds)
{
    long odd = 0;
    for (long i = 0; i < rounds; i++) {
        int status;
        pid_t pid = fork();
        if (pid < 0) {
            odd++;
            continue;
        }
        if (pid == 0) {
            for (;;)
                if (syscall(SYS_add_key, 0, 0, 0, 0, 0) != -1 || errno != EPERM)
                    _exit(7);
        }
        struct timespec ts = {.tv_nsec = (i % 50) * 20000};
        nanosleep(&ts, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        odd += WIFEXITED(status);
    }
    return odd;
}

int main(int argc, char **argv)
{
    long rounds = argn(argc, argv, 1, 200), answered = 0;
    pthread_t threads[3];
    guest_deadline(60);
    struct sigaction sa = {.sa_handler = ignore};
    sigaction(SIGUSR1, &sa, NULL);
    pthread_create(&threads[0], NULL, ask_for_ever, NULL);
    pthread_create(&threads[1], NULL, ask_for_ever, NULL);
    pthread_create(&threads[2], NULL, change_for_ever, NULL);
    say("odd_ends", "%ld", killed_in_question(rounds));
    for (long i = 0; i < rounds; i++)
        pthread_kill(threads[i % 2], SIGUSR1);
    over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 20; i++)
        answered += syscall(SYS_add_key, 0, 0, 0, 0, 0) == -1 && errno == EPERM;
    say("answered_after", "%ld", answered);
    return 0;
}
