/* Shared by the guests: small hostile or ordinary programs that the end-to-end tests run inside
 * Cordon.
 *
 * Every guest prints one `key: value` line per attempt. A value is `OK`, an errno name or a fact.
 * No guest runs for ever by itself: guest_deadline() ends it even when no wall stands around it.
 * Output goes out by write(2) at once, so that a fork never repeats a line and a kill never loses
 * one. */
#ifndef GUEST_H
#define GUEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3), unused)) static void say(const char *key, const char *fmt, ...)
{
    char line[4096];
    int n = snprintf(line, sizeof(line), "%s: ", key);
    va_list ap;
    va_start(ap, fmt);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n] = '\n';
    ssize_t w = write(1, line, (size_t)n + 1);
    (void)w;
}

__attribute__((unused)) static const char *errname(int e)
{
    static char unknown[32];
    const char *name = strerrorname_np(e);
    if (name)
        return name;
    snprintf(unknown, sizeof(unknown), "E%d", e);
    return unknown;
}

/* Prints OK or the errno name of a call that answers -1 on failure. */
__attribute__((unused)) static long report(const char *key, long ret)
{
    int e = errno;
    say(key, "%s", ret == -1 ? errname(e) : "OK");
    errno = e;
    return ret;
}

#define TRY(key, expr) (errno = 0, report(key, (long)(expr)))

/* SIGALRM's default action ends the guest; those that block every signal watch the clock
 * themselves. */
__attribute__((unused)) static void guest_deadline(unsigned seconds)
{
    signal(SIGALRM, SIG_DFL);
    alarm(seconds);
}

__attribute__((unused)) static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

__attribute__((unused)) static void sleep_ms(long ms)
{
    struct timespec ts = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&ts, &ts) == -1 && errno == EINTR)
        ;
}

/* A name in the guest's private folder: /tmp where it is the guest's own, else what TMPDIR says. */
__attribute__((unused)) static const char *private_path(const char *name)
{
    static char path[4096];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/%s", dir ? dir : "/tmp", name);
    return path;
}

__attribute__((unused)) static const char *arg(int argc, char **argv, int i, const char *otherwise)
{
    return argc > i ? argv[i] : otherwise;
}

__attribute__((unused)) static long argn(int argc, char **argv, int i, long otherwise)
{
    return argc > i ? strtol(argv[i], NULL, 0) : otherwise;
}

#endif
