/* The network, measured from inside: `net serve PORT` answers on the host's loopback, the others
 * print how long they took. A request is a number of bytes, the answer is as many. */
#include "work.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHUNK (256 << 10)
#define STREAMS_MAX 256

static char block[CHUNK];

static void *serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    uint64_t left;

    while (recv(fd, &left, sizeof(left), MSG_WAITALL) == (ssize_t)sizeof(left)) {
        while (left > 0) {
            ssize_t n = send(fd, block, left < CHUNK ? left : CHUNK, MSG_NOSIGNAL);
            if (n <= 0)
                break;
            left -= (uint64_t)n;
        }
        if (left > 0)
            break;
    }
    close(fd);
    return NULL;
}

static _Noreturn void serve(const char *port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)atoi(port)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof(addr);

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    work_check(bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0, "bind");
    work_check(listen(listener, 1024) == 0, "listen");
    work_check(getsockname(listener, (struct sockaddr *)&addr, &len) == 0, "getsockname");
    printf("%d\n", ntohs(addr.sin_port));
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        pthread_t thread;
        pthread_attr_t attr;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, 65536);
        if (pthread_create(&thread, &attr, serve_one, (void *)(intptr_t)fd) != 0)
            close(fd);
        pthread_attr_destroy(&attr);
    }
}

static struct addrinfo *lookup(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;

    if (getaddrinfo(host, port, &hints, &found) != 0) {
        fprintf(stderr, "%s: no such host\n", host);
        exit(1);
    }
    return found;
}

static int dial(const struct addrinfo *to)
{
    int on = 1, fd = socket(to->ai_family, SOCK_STREAM, 0);

    work_check(fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* `streams` connections bring `megabytes` together. */
static int stream(const struct addrinfo *to, int streams, uint64_t megabytes)
{
    struct pollfd polls[STREAMS_MAX];
    uint64_t left[STREAMS_MAX], each = (megabytes << 20) / (uint64_t)streams;
    int open_streams = streams;

    for (int i = 0; i < streams; i++) {
        polls[i] = (struct pollfd){.fd = dial(to), .events = POLLIN};
        left[i] = each;
    }
    uint64_t start = work_now_ns();
    for (int i = 0; i < streams; i++)
        work_check(send(polls[i].fd, &each, sizeof(each), 0) == (ssize_t)sizeof(each), "send");
    while (open_streams > 0) {
        work_check(poll(polls, (nfds_t)streams, -1) > 0, "poll");
        for (int i = 0; i < streams; i++) {
            if (!polls[i].revents)
                continue;
            ssize_t n = recv(polls[i].fd, block, sizeof(block), 0);
            work_check(n > 0, "recv");
            left[i] -= (uint64_t)n;
            if (left[i] == 0) {
                polls[i].fd = -1;
                open_streams--;
            }
        }
    }
    return work_report(start);
}

/* One after the other: connected and answered. */
static int connects(const struct addrinfo *to, int count)
{
    uint64_t one = 1, start = work_now_ns();

    for (int i = 0; i < count; i++) {
        char byte;
        int fd = dial(to);
        work_check(send(fd, &one, sizeof(one), 0) == (ssize_t)sizeof(one), "send");
        work_check(recv(fd, &byte, 1, 0) == 1, "recv");
        close(fd);
    }
    return work_report(start);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    if (argc == 6 && strcmp(argv[1], "stream") == 0 && atoi(argv[4]) > 0 &&
        atoi(argv[4]) <= STREAMS_MAX)
        return stream(lookup(argv[2], argv[3]), atoi(argv[4]), strtoull(argv[5], NULL, 10));
    if (argc == 5 && strcmp(argv[1], "connect") == 0)
        return connects(lookup(argv[2], argv[3]), atoi(argv[4]));
    fputs("usage: net serve PORT | stream HOST PORT STREAMS MEGABYTES | connect HOST PORT COUNT\n",
          stderr);
    return 2;
}
