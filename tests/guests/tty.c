/* K10, K11: terminal attacks on every descriptor in reach and on a terminal of our own, with the
 * command number plain and with garbage in its upper half. */
#include "guest.h"

#include <sys/ioctl.h>
#include <termios.h>

#define HIGH 0x100000000UL

static void attack(const char *where, int fd)
{
    char c = '\n', key[64], sub = 3;
    int disc = 0;
    snprintf(key, sizeof(key), "%s TIOCSTI", where);
    TRY(key, syscall(SYS_ioctl, fd, TIOCSTI, &c));
    snprintf(key, sizeof(key), "%s TIOCSTI high", where);
    TRY(key, syscall(SYS_ioctl, fd, HIGH | TIOCSTI, &c));
    snprintf(key, sizeof(key), "%s TIOCLINUX", where);
    TRY(key, syscall(SYS_ioctl, fd, TIOCLINUX, &sub));
    snprintf(key, sizeof(key), "%s TIOCLINUX high", where);
    TRY(key, syscall(SYS_ioctl, fd, HIGH | TIOCLINUX, &sub));
    snprintf(key, sizeof(key), "%s TIOCSETD", where);
    TRY(key, syscall(SYS_ioctl, fd, TIOCSETD, &disc));
    snprintf(key, sizeof(key), "%s TIOCCONS", where);
    TRY(key, syscall(SYS_ioctl, fd, TIOCCONS, 0));
}

int main(void)
{
    guest_deadline(10);
    attack("stdin", 0);
    attack("stdout", 1);
    int pt = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    report("openpt", pt);
    if (pt >= 0) {
        TRY("grantpt", grantpt(pt));
        TRY("unlockpt", unlockpt(pt));
        char *name = ptsname(pt);
        say("ptsname", "%s", name ? name : errname(errno));
        int slave = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
        report("slave", slave);
        TRY("winsize", ioctl(pt, TIOCGWINSZ, &(struct winsize){0}));
        setsid();
        TRY("setctty", ioctl(slave, TIOCSCTTY, 0));
        attack("pty", slave);
    }
    return 0;
}
