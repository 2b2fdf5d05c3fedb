/* Tier landlock: the keeper. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <signal.h>

#include "base/sys.h"

_Noreturn void native_keeper_main(struct native_child *c)
{
    native_child_fail(c, "keeper", ENOSYS, "landlock");
}

void native_keeper_kill(int pidfd, int go_fd, struct native_status *status)
{
    (void)go_fd;
    (void)status;
    sys_pidfd_send_signal(pidfd, SIGKILL);
}
