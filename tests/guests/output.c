/* D20: writes an exact number of bytes to its streams.
 *
 * usage: output stdout|stderr|both BYTES [bulk|single|nul|line|forever|slow] */
#include "guest.h"

static void emit(int fd, const char *mode, long bytes)
{
    static char block[65536];
    memset(block, !strcmp(mode, "nul") ? 0 : 'x', sizeof(block));
    if (!strcmp(mode, "line"))
        for (size_t i = 63; i < sizeof(block); i += 64)
            block[i] = '\n';
    size_t step = !strcmp(mode, "single") || !strcmp(mode, "slow") ? 1 : sizeof(block);
    while (bytes > 0) {
        size_t n = (size_t)bytes < step ? (size_t)bytes : step;
        ssize_t w = write(fd, block, n);
        if (w <= 0)
            _exit(9);
        if (strcmp(mode, "forever") != 0)
            bytes -= w;
        if (!strcmp(mode, "slow"))
            sleep_ms(100);
    }
}

int main(int argc, char **argv)
{
    const char *where = arg(argc, argv, 1, "stdout"), *mode = arg(argc, argv, 3, "bulk");
    long bytes = argn(argc, argv, 2, 1000);
    guest_deadline(60);
    if (!strcmp(where, "both")) {
        pid_t pid = fork();
        if (pid == 0) {
            emit(2, mode, bytes);
            _exit(0);
        }
        emit(1, mode, bytes);
        waitpid(pid, NULL, 0);
        return 0;
    }
    emit(!strcmp(where, "stderr") ? 2 : 1, mode, bytes);
    return 0;
}
