/* Small system calls by number: what is left is the entry, the filter and the exit. With an
 * argument behind a filter of one instruction. */
#include "work.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ROUNDS 480000

int main(int argc, char **argv)
{
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct stat st;
    char byte;
    uint64_t start;

    (void)argv;
    work_check(fd >= 0, "/dev/zero");
    if (argc > 1)
        work_filter();
    start = work_now_ns();
    for (int i = 0; i < ROUNDS; i++) {
        work_check(syscall(SYS_getppid) >= 0, "getppid");
        work_check(syscall(SYS_getuid) >= 0, "getuid");
        work_check(read(fd, &byte, 1) == 1, "read");
        work_check(lseek(fd, 0, SEEK_CUR) == 0, "lseek");
        work_check(fstat(fd, &st) == 0, "fstat");
    }
    return work_report(start);
}
