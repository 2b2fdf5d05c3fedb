/* D11, D12: takes memory by one of many roads, a MiB at a time, and says how far it came.
 *
 * usage: memory KIND MIB [hold]
 *   heap brk mmap shared hidden held trimmed stack memfd tmpfs shm sysv child pagetables pipes
 * unixq thp A failed step prints its errno and exits 3, as a program that checks malloc would. */
#include "guest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>

#define MIB (1024L * 1024L)

static long taken;

static void fail(const char *what)
{
    say(what, "%s", errname(errno));
    say("taken_mib", "%ld", taken);
    exit(3);
}

static void *map(long mib, int flags)
{
    char *p = mmap(NULL, (size_t)(mib * MIB), PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

static void touch(char *p, long mib)
{
    for (long i = 0; i < mib; i++, taken++)
        memset(p + i * MIB, (int)(i & 0x7f) + 1, MIB);
}

/* Pages of shared memory that no page table holds: each was given back as soon as it was written,
 * and still belongs to the mapping. */
static void fill_hidden(long mib)
{
    char *p = map(mib, MAP_SHARED);
    for (long i = 0; i < mib; i++) {
        touch(p + i * MIB, 1);
        madvise(p + i * MIB, MIB, MADV_DONTNEED);
    }
}

/* The same by a child that has the mapping and never looked at it; who wrote it is gone. */
static void fill_held(long mib)
{
    char *p = map(mib, MAP_SHARED);
    int done[2];
    if (pipe(done) < 0)
        fail("pipe");
    pid_t holder = fork();
    if (holder == 0) {
        char c;
        close(done[1]);
        if (read(done[0], &c, 1) == 0)
            sleep_ms(2000);
        _exit(0);
    }
    for (long i = 0; i < mib; i++) {
        touch(p + i * MIB, 1);
        munmap(p + i * MIB, MIB);
    }
    close(done[1]);
    sleep_ms(500);
}

/* And by mappings of which only the first page is left. */
static void fill_trimmed(long mib)
{
    const long step = 8;
    for (long i = 0; i < mib; i += step) {
        char *p = map(step, MAP_SHARED);
        touch(p, step);
        munmap(p + 4096, (size_t)(step * MIB - 4096));
    }
}

__attribute__((noinline)) static long deep(long left)
{
    volatile char frame[64 * 1024];
    memset((void *)frame, 1, sizeof(frame));
    if (left % 16 == 0)
        taken++;
    return left ? deep(left - 1) + frame[left & 0xff] : 0;
}

static void fill_file(const char *path, int fd, long mib)
{
    if (fd < 0)
        fail(path);
    char *block = malloc(MIB);
    if (!block)
        fail("malloc");
    memset(block, 'm', MIB);
    for (long i = 0; i < mib; i++, taken++)
        if (write(fd, block, MIB) != MIB)
            fail("write");
}

static void fill_sysv(long mib)
{
    int id = shmget(IPC_PRIVATE, (size_t)(mib * MIB), IPC_CREAT | 0600);
    if (id < 0)
        fail("shmget");
    char *p = shmat(id, NULL, 0);
    if (p == (void *)-1)
        fail("shmat");
    touch(p, mib);
}

/* One page per 2 MiB costs a page of page table each: memory that no process's RSS shows. */
static void fill_pagetables(long mib)
{
    long pages = mib * MIB / 4096;
    for (long i = 0; i < pages; i += 512) {
        char *p = mmap(NULL, 512 * 2 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (p == MAP_FAILED)
            fail("mmap");
        madvise(p, 512 * 2 * MIB, MADV_NOHUGEPAGE);
        for (long j = 0; j < 512; j++)
            (void)*(volatile char *)(p + j * 2 * MIB);
        taken = i * 4096 / MIB;
    }
}

static void fill_pipes(long mib)
{
    char block[65536];
    memset(block, 'p', sizeof(block));
    for (long i = 0; i < mib; i++, taken++) {
        int p[2];
        if (pipe2(p, O_NONBLOCK) < 0)
            fail("pipe");
        fcntl(p[1], F_SETPIPE_SZ, MIB);
        while (write(p[1], block, sizeof(block)) > 0)
            ;
    }
}

static long fill_socket(int fd)
{
    char block[32768];
    int big = 16 * MIB;
    long bytes = 0;
    memset(block, 'u', sizeof(block));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
    for (ssize_t n; (n = send(fd, block, sizeof(block), MSG_DONTWAIT)) > 0;)
        bytes += n;
    return bytes;
}

/* closed: who sent it is gone, and nothing but the queue it lies in shows it. */
static void fill_unix(long mib, bool closed)
{
    for (long bytes = 0; bytes < mib * MIB;) {
        int s[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, s) < 0)
            fail("socketpair");
        bytes += fill_socket(s[0]);
        if (closed)
            close(s[0]);
        taken = bytes / MIB;
    }
}

static void fill_tcp(long mib)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    if (server < 0 || bind(server, (void *)&addr, sizeof(addr)) < 0 || listen(server, 4096) < 0 ||
        getsockname(server, (void *)&addr, &len) < 0)
        fail("listen");
    for (long bytes = 0; bytes < mib * MIB;) {
        int client = socket(AF_INET, SOCK_STREAM, 0);
        if (client < 0 || connect(client, (void *)&addr, sizeof(addr)) < 0)
            fail("connect");
        bytes += fill_socket(client);
        taken = bytes / MIB;
    }
}

static void fill_children(long mib)
{
    for (int i = 0; i < 4; i++) {
        if (fork() == 0) {
            touch(map(mib / 4, MAP_PRIVATE), mib / 4);
            sleep_ms(1000);
            _exit(0);
        }
    }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad |= status;
    taken = mib;
    if (bad) {
        say("child", "killed");
        exit(4);
    }
}

static void take(const char *kind, long mib)
{
    if (!strcmp(kind, "heap")) {
        for (long i = 0; i < mib; i++, taken++) {
            char *p = malloc(MIB);
            if (!p)
                fail("malloc");
            memset(p, 1, MIB);
        }
    } else if (!strcmp(kind, "brk")) {
        for (long i = 0; i < mib; i++, taken++) {
            char *p = sbrk(MIB);
            if (p == (void *)-1)
                fail("sbrk");
            memset(p, 1, MIB);
        }
    } else if (!strcmp(kind, "shared")) {
        touch(map(mib, MAP_SHARED), mib);
    } else if (!strcmp(kind, "hidden")) {
        fill_hidden(mib);
    } else if (!strcmp(kind, "held")) {
        fill_held(mib);
    } else if (!strcmp(kind, "trimmed")) {
        fill_trimmed(mib);
    } else if (!strcmp(kind, "stack")) {
        deep(mib * 16);
    } else if (!strcmp(kind, "memfd")) {
        fill_file("memfd", (int)syscall(SYS_memfd_create, "m", 0), mib);
    } else if (!strcmp(kind, "tmpfs")) {
        fill_file("/tmp/fill", open("/tmp/fill", O_CREAT | O_WRONLY, 0600), mib);
    } else if (!strcmp(kind, "shm")) {
        fill_file("/dev/shm/fill", open("/dev/shm/fill", O_CREAT | O_WRONLY, 0600), mib);
    } else if (!strcmp(kind, "sysv")) {
        fill_sysv(mib);
    } else if (!strcmp(kind, "child")) {
        fill_children(mib);
    } else if (!strcmp(kind, "pagetables")) {
        fill_pagetables(mib);
    } else if (!strcmp(kind, "pipes")) {
        fill_pipes(mib);
    } else if (!strcmp(kind, "unixq")) {
        fill_unix(mib, false);
    } else if (!strcmp(kind, "unixclosed")) {
        fill_unix(mib, true);
    } else if (!strcmp(kind, "tcpq")) {
        fill_tcp(mib);
    } else {
        touch(map(mib, MAP_PRIVATE), mib);
    }
}

int main(int argc, char **argv)
{
    guest_deadline(60);
    say("taking", "%s", arg(argc, argv, 1, "mmap"));
    take(arg(argc, argv, 1, "mmap"), argn(argc, argv, 2, 64));
    say("taken_mib", "%ld", taken);
    if (argc > 3)
        sleep_ms(argn(argc, argv, 3, 300));
    return 0;
}
