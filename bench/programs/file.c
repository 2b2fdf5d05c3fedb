/* The life of many small files below the directory given: both sides get a tmpfs. */
#include "work.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS 36000

static void one_file(int dir)
{
    char buf[4096];
    struct stat st;
    int fd = openat(dir, "a", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    work_check(fd >= 0, "create");
    memset(buf, 'x', sizeof(buf));
    work_check(write(fd, buf, sizeof(buf)) == (ssize_t)sizeof(buf), "write");
    work_check(pread(fd, buf, sizeof(buf), 0) == (ssize_t)sizeof(buf), "read");
    close(fd);
    work_check(fstatat(dir, "a", &st, 0) == 0, "stat");
    work_check(renameat(dir, "a", dir, "b") == 0, "rename");
    fd = openat(dir, "b", O_RDONLY | O_CLOEXEC);
    work_check(fd >= 0, "open");
    close(fd);
    work_check(unlinkat(dir, "b", 0) == 0, "unlink");
}

int main(int argc, char **argv)
{
    char path[512];
    uint64_t start;
    int dir, rc;

    if (argc < 2) {
        fputs("usage: file DIR [filter]\n", stderr);
        return 2;
    }
    if (argc > 2)
        work_filter();
    snprintf(path, sizeof(path), "%s/bench-file.XXXXXX", argv[1]);
    work_check(mkdtemp(path) != NULL, path);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    work_check(dir >= 0, path);
    start = work_now_ns();
    for (int i = 0; i < ROUNDS; i++)
        one_file(dir);
    rc = work_report(start);
    work_check(rmdir(path) == 0, "rmdir");
    return rc;
}
