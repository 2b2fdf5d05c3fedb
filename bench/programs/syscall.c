/* Small system calls by number: what is left is the entry, the filter and the exit. With an
 * argument it puts a filter up first that allows everything: the least that any filter costs. */
#include "work.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 480000

static void put_filter_up(void)
{
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog prog = {.len = 1, .filter = &allow};

    work_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    work_check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) == 0, "seccomp");
}

int main(int argc, char **argv)
{
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct stat st;
    char byte;
    uint64_t start;

    (void)argv;
    work_check(fd >= 0, "/dev/zero");
    if (argc > 1)
        put_filter_up();
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
