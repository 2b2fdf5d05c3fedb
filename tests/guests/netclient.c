/* A static client that knows nothing of proxies, resolvers or certificates: asks the name server of
 * /etc/resolv.conf itself, connects, sends, prints what comes back.
 *
 * usage: netclient get NAME PORT            one HTTP request by hand
 *        netclient ask NAME TYPE [TCP]      one DNS question (type as a number), any bytes in NAME
 * with \xHH; prints the answer's code and addresses netclient fastopen ADDRESS PORT    data in the
 * first packet, by every road there is netclient many NAME PORT N         N connections at once,
 * one byte echoed on each */
#include "guest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

static struct sockaddr_storage server;
static socklen_t server_len;

static void read_server(void)
{
    FILE *f = fopen("/etc/resolv.conf", "re");
    char line[256], text[100];
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(53)};
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "nameserver %99s", text) == 1 &&
            inet_pton(AF_INET, text, &sin.sin_addr) == 1) {
            memcpy(&server, &sin, sizeof(sin));
            server_len = sizeof(sin);
            fclose(f);
            return;
        }
    }
    say("server", "none");
    exit(3);
}

/* labels, where \xHH is any byte (also a dot inside a label) */
static size_t put_name(const char *name, unsigned char *out)
{
    size_t at = 0, start = 0;
    out[at++] = 0;
    for (; *name; name++) {
        unsigned byte;
        if (name[0] == '\\' && name[1] == 'x' && sscanf(name + 2, "%2x", &byte) == 1) {
            out[at++] = (unsigned char)byte;
            name += 3;
        } else if (*name == '.') {
            out[start] = (unsigned char)(at - start - 1);
            start = at++;
        } else {
            out[at++] = (unsigned char)*name;
        }
    }
    out[start] = (unsigned char)(at - start - 1);
    if (out[start] != 0)
        out[at++] = 0;
    return at;
}

static size_t put_query(const char *name, int type, unsigned char *msg)
{
    memcpy(msg, "\x12\x34\1\0\0\1\0\0\0\0\0\0", 12);
    size_t n = 12 + put_name(name, msg + 12);
    msg[n++] = (unsigned char)(type >> 8);
    msg[n++] = (unsigned char)type;
    msg[n++] = 0;
    msg[n++] = 1;
    return n;
}

static ssize_t exchange(bool tcp, unsigned char *msg, size_t n, unsigned char *reply, size_t max)
{
    int fd = socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    struct timeval wait = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, server_len) < 0)
        return -1;
    unsigned char size[2] = {(unsigned char)(n >> 8), (unsigned char)n};
    if (tcp && write(fd, size, 2) != 2)
        return -1;
    if (write(fd, msg, n) != (ssize_t)n || (tcp && recv(fd, size, 2, MSG_WAITALL) != 2))
        return -1;
    ssize_t got =
        recv(fd, reply, tcp ? (size_t)(size[0] << 8 | size[1]) : max, tcp ? MSG_WAITALL : 0);
    close(fd);
    return got;
}

/* the first address of the answer; 0 when there is none */
static int ask(const char *name, int type, bool tcp, struct sockaddr_in6 *ret)
{
    unsigned char msg[1024], reply[4096];
    size_t n = put_query(name, type, msg);
    ssize_t got = exchange(tcp, msg, n, reply, sizeof(reply));
    if (got < 12) {
        say("answer", "none (%s)", got < 0 ? strerror(errno) : "short");
        return 0;
    }
    say("answer", "code %d, %d records", reply[3] & 15, reply[7]);
    char text[64];
    int found = 0;
    for (unsigned char *p = reply + n; p + 12 <= reply + got && reply[7] > 0 && p[0] == 0xc0;) {
        int rtype = p[2] << 8 | p[3], len = p[10] << 8 | p[11];
        if (len == 4 || len == 16) {
            inet_ntop(len == 4 ? AF_INET : AF_INET6, p + 12, text, sizeof(text));
            say("address", "%s", text);
        }
        if (ret && rtype == type && len == 4) {
            struct sockaddr_in *sin = (struct sockaddr_in *)ret;
            sin->sin_family = AF_INET;
            memcpy(&sin->sin_addr, p + 12, 4);
            found = 1;
        }
        p += 12 + len;
    }
    return found;
}

static int get(const char *name, int port)
{
    struct sockaddr_in6 to = {0};
    char text[2048];
    if (!ask(name, 1, false, &to))
        return 1;
    ((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int r = connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in));
    report("connect", r);
    if (r < 0)
        return 1;
    int n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                     name);
    report("send", (int)send(fd, text, (size_t)n, MSG_NOSIGNAL));
    ssize_t got, all = 0;
    while ((got = recv(fd, text + all, sizeof(text) - 1 - (size_t)all, 0)) > 0)
        all += got;
    report("receive", (int)got);
    text[all] = '\0';
    char *body = strstr(text, "\r\n\r\n");
    say("body", "%s", body ? body + 4 : "none");
    return 0;
}

static void fastopen(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    char reply[256];
    inet_pton(AF_INET, address, &to.sin_addr);
    for (int road = 0; road < 2; road++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct timeval wait = {.tv_sec = 2};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
        if (road == 1)
            setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one));
        if (road == 1 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
            report("fastopen_connect", -1);
            continue;
        }
        ssize_t n = road == 0 ? sendto(fd, "hello", 5, MSG_FASTOPEN | MSG_NOSIGNAL,
                                       (struct sockaddr *)&to, sizeof(to))
                              : send(fd, "hello", 5, MSG_NOSIGNAL);
        ssize_t got = n > 0 ? recv(fd, reply, sizeof(reply), 0) : -1;
        say(road ? "fastopen_connect" : "fastopen_sendto", "%s",
            got > 0 ? "REACHED" : "nothing came back");
        close(fd);
    }
}

static int many(const char *name, int port, int count)
{
    struct sockaddr_in6 to = {0};
    int *fds = calloc((size_t)count, sizeof(int)), good = 0;
    struct rlimit files = {(rlim_t)count + 50, (rlim_t)count + 50};
    setrlimit(RLIMIT_NOFILE, &files);
    if (!ask(name, 1, false, &to))
        return 1;
    ((struct sockaddr_in *)&to)->sin_port = htons((uint16_t)port);
    for (int i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        struct timeval wait = {.tv_sec = 20};
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        if (fds[i] < 0 || connect(fds[i], (struct sockaddr *)&to, sizeof(struct sockaddr_in)) < 0) {
            say("stopped_at", "%d (%s)", i, strerror(errno));
            break;
        }
    }
    for (int i = 0; i < count && fds[i] > 0; i++)
        send(fds[i], "x", 1, MSG_NOSIGNAL);
    for (int i = 0; i < count && fds[i] > 0; i++) {
        char c;
        good += recv(fds[i], &c, 1, 0) == 1 && c == 'x';
    }
    say("good", "%d", good);
    return 0;
}

int main(int argc, char **argv)
{
    guest_deadline(60);
    if (argc < 4)
        return 64;
    if (strcmp(argv[1], "fastopen") == 0) {
        fastopen(argv[2], atoi(argv[3]));
        return 0;
    }
    read_server();
    if (strcmp(argv[1], "get") == 0)
        return get(argv[2], atoi(argv[3]));
    if (strcmp(argv[1], "ask") == 0)
        return ask(argv[2], atoi(argv[3]), argc > 4, NULL), 0;
    if (strcmp(argv[1], "many") == 0 && argc > 4)
        return many(argv[2], atoi(argv[3]), atoi(argv[4]));
    return 64;
}
