/* Small facts the native backend's outer half needs about its inner half. Runs in the supervisor.
 */
#include "backend/native/native_internal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

/* Stages that use nothing the caller asked for: a refusal there is the host's answer to the tier
 * itself (AppArmor's restriction lets the clone through and refuses these). */
bool native_stage_is_tier(const char *stage)
{
    static const char *const stages[] = {"ids",           "cgroup namespace",
                                         "hostname",      "network namespace",
                                         "propagation",   "root",
                                         "proc",          "devpts",
                                         "scratch",       "pivot_root",
                                         "mask",          "time namespace",
                                         "ipc namespace", "mount namespace"};
    for (size_t i = 0; i < ARRAY_SIZE(stages); i++)
        if (str_eq(stage, stages[i]))
            return true;
    return false;
}

void native_kill_child(pid_t pid, int pidfd)
{
    if (sys_pidfd_send_signal(pidfd, SIGKILL) < 0)
        kill(pid, SIGKILL);
}

char **native_main_argv;

/* The kernel lays arguments and environment out as one block on the stack, in order. main() sets
 * native_main_argv; a process that did not has nothing of ours to hide. */
void native_argv_area(char **ret_area, size_t *ret_len)
{
    extern char **environ;
    static char *area;
    static size_t len;
    if (!area && native_main_argv && native_main_argv[0]) {
        char **argv = native_main_argv;
        char *end = argv[0] + strlen(argv[0]) + 1;
        for (char **a = argv + 1; *a && *a == end; a++)
            end = *a + strlen(*a) + 1;
        for (char **e = environ; e && *e && *e == end; e++)
            end = *e + strlen(*e) + 1;
        area = argv[0];
        len = (size_t)(end - area);
    }
    *ret_area = area;
    *ret_len = len;
}
