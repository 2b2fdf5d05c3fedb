/* F27, I8: reopens the standard streams for writing and reading, seeks in them, asks what they are.
 */
#include "guest.h"

static const char *kind(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return errname(errno);
    switch (st.st_mode & S_IFMT) {
    case S_IFIFO: return "fifo";
    case S_IFREG: return "regular";
    case S_IFSOCK: return "socket";
    case S_IFCHR: return isatty(fd) ? "tty" : "char";
    default: return "other";
    }
}

int main(void)
{
    guest_deadline(10);
    for (int fd = 0; fd < 3; fd++) {
        char path[32], key[64];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        snprintf(key, sizeof(key), "kind %d", fd);
        say(key, "%s", kind(fd));
        snprintf(key, sizeof(key), "seek %d", fd);
        TRY(key, lseek(fd, 0, SEEK_SET));
        snprintf(key, sizeof(key), "flags %d", fd);
        say(key, "%d", fcntl(fd, F_GETFL) & O_ACCMODE);
    }
    int fd = open("/proc/self/fd/0", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    report("reopen_write", fd);
    if (fd >= 0)
        TRY("overwrite", write(fd, "OVERWRITTEN BY THE GUEST", 24));
    TRY("truncate", ftruncate(0, 0));
    fd = open("/dev/stdin", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    report("reopen_rdwr", fd);
    /* A pipe of ours may be opened again; what comes back must be our own bytes or nothing. */
    fd = open("/proc/self/fd/1", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    report("reopen_stdout", fd);
    return 0;
}
