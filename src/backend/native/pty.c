/* A terminal for the guest's standard streams. The near end is opened in the supervisor; taking the
 * far end as controlling terminal happens in the guest's process, before its program. */
#include "backend/native/native_internal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/raw.h"
#include "base/sys.h"
#include "base/util.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

/* The far end is asked for by descriptor: a name in /dev/pts could be somebody else's by now. */
int native_pty_open(unsigned short rows, unsigned short columns, int *ret_near, int *ret_far)
{
    int unlock = 0;
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    _cleanup_close_ int near = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (near < 0 || ioctl(near, TIOCSPTLCK, &unlock) < 0)
        return -1;
    _cleanup_close_ int far = ioctl(near, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (far < 0 || (rows && columns && ioctl(far, TIOCSWINSZ, &size) < 0))
        return -1;
    *ret_near = TAKE_FD(near);
    *ret_far = TAKE_FD(far);
    return 0;
}

int native_pty_control(void)
{
    return (int)raw_call(SYS_ioctl, STDIN_FILENO, TIOCSCTTY, 0);
}
