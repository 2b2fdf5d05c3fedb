/* D16: pushes others out of the page cache and the disk's queue: writes and reads files, asks for
 * everything to be written out, again and again.
 *
 * usage: thrash FOLDER SECONDS */
#include "guest.h"

int main(int argc, char **argv)
{
    static char block[1 << 20];
    const char *folder = argc > 1 ? argv[1] : "/tmp";
    double end = now_s() + (double)argn(argc, argv, 2, 2);
    char path[512];
    long rounds = 0;
    guest_deadline(60);
    for (; now_s() < end; rounds++) {
        snprintf(path, sizeof(path), "%s/thrash-%ld", folder, rounds % 4);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (rounds & 1 ? O_DIRECT : 0), 0600);
        if (fd < 0)
            fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        for (int i = 0; i < 4; i++)
            if (pwrite(fd, block, sizeof(block), (off_t)i << 20) < 0)
                break;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)!pread(fd, block, sizeof(block), 0);
        syncfs(fd);
        sync();
        close(fd);
    }
    say("rounds", "%ld", rounds);
    return 0;
}
