/* Ordinary system calls as programs make them, each with a little work behind it: messages through
 * a pipe, blocks and small files read, names looked up, descriptors waited for. With a second
 * argument behind a filter of one instruction. */
#include "work.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define ROUNDS 60000

static char block[4096];

static void one_round(const char *path, int file, const int *pair)
{
    struct pollfd ready = {.fd = pair[0], .events = POLLIN};
    struct stat st;
    char seed[32];
    int fd;

    work_check(write(pair[1], block, sizeof(block)) == (ssize_t)sizeof(block), "write");
    work_check(poll(&ready, 1, -1) == 1, "poll");
    work_check(read(pair[0], block, sizeof(block)) == (ssize_t)sizeof(block), "read");
    work_check(pread(file, block, sizeof(block), 0) == (ssize_t)sizeof(block), "pread");
    work_check(stat(path, &st) == 0, "stat");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    work_check(fd >= 0, "open");
    work_check(read(fd, block, sizeof(block)) == (ssize_t)sizeof(block), "read");
    close(fd);
    work_check(getrandom(seed, sizeof(seed), 0) == (ssize_t)sizeof(seed), "getrandom");
}

int main(int argc, char **argv)
{
    char path[512];
    int pair[2];
    uint64_t start;
    int file, rc;

    if (argc < 2) {
        fputs("usage: calls DIR [filter]\n", stderr);
        return 2;
    }
    if (argc > 2)
        work_filter();
    snprintf(path, sizeof(path), "%s/bench-calls.XXXXXX", argv[1]);
    file = mkstemp(path);
    work_check(file >= 0, path);
    work_check(write(file, block, sizeof(block)) == (ssize_t)sizeof(block), path);
    work_check(pipe(pair) == 0, "pipe");
    start = work_now_ns();
    for (int i = 0; i < ROUNDS; i++)
        one_round(path, file, pair);
    rc = work_report(start);
    work_check(unlink(path) == 0, "unlink");
    return rc;
}
