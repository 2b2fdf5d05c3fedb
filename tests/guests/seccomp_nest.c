/* K7, K16: tries to loosen the filter from inside: a filter of its own that allows everything, a
 * listener of its own, suspension by ptrace, a new thread, a vfork, an exec. Then asks for a
 * refused call again, each time.
 *
 * usage: seccomp_nest [--after WHAT] */
#include "guest.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

static void again(const char *after)
{
    char key[64];
    snprintf(key, sizeof(key), "after %s unshare", after);
    TRY(key, unshare(CLONE_NEWUSER));
    snprintf(key, sizeof(key), "after %s keyctl", after);
    TRY(key, syscall(SYS_keyctl, 0, -3, 0));
}

static void *in_thread(void *unused)
{
    (void)unused;
    again("thread");
    return NULL;
}

static void install(unsigned flags, const char *name)
{
    struct sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog prog = {1, allow};
    TRY(name, syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog));
}

int main(int argc, char **argv)
{
    guest_deadline(10);
    if (argc > 2) {
        again(argv[2]);
        return 0;
    }
    again("start");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    install(0, "allow_all");
    again("allow_all");
    install(SECCOMP_FILTER_FLAG_NEW_LISTENER, "listener");
    again("listener");
    pthread_t t;
    int e = pthread_create(&t, NULL, in_thread, NULL);
    if (e == 0)
        pthread_join(t, NULL);
    else
        say("thread", "%s", errname(e));
    pid_t pid = (pid_t)TRY("fork", fork());
    if (pid == 0) {
        again("fork");
        execl("/proc/self/exe", "seccomp_nest", "--after", "exec", NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    return 0;
}
