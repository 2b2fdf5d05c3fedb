/* K9: a whole 32-bit program (built -m32 -static). Either it cannot start at all, or each of its
 * calls is filtered like its 64-bit sister. */
#include "guest.h"

#include <sched.h>
#include <sys/socket.h>

int main(void)
{
    guest_deadline(10);
    say("bits", "%zu", sizeof(void *) * 8);
    TRY("getpid", getpid());
    TRY("socket_unix", socket(AF_UNIX, SOCK_STREAM, 0));
    TRY("socket_vsock", socket(40, SOCK_STREAM, 0));
    TRY("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, 0));
    TRY("unshare", unshare(CLONE_NEWUSER));
    TRY("keyctl", syscall(SYS_keyctl, 0, -3, 0));
    TRY("ptrace", syscall(SYS_ptrace, 16, 1, 0, 0));
    return 0;
}
