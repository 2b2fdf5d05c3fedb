/* D18, D19: fills what can be written: bytes, inodes, names, depth.
 *
 * usage: disk write|fallocate|sparse|append|many|files|dirs|deep|nest|closed|names|links DIR AMOUNT
 *   AMOUNT is MiB for the first four, 64 KiB files for many, a count for the rest
 *   nest is deep from the inside out: the kernel's own cost does not grow with the depth; closed is
 * nest with folders of mode 000 prints `done: N`, or how far it came and the errno. A refusal
 * exits 3. */
#include "guest.h"

#define MIB (1024L * 1024L)

static char block[1024 * 1024];
static long done;

static void stop(const char *what)
{
    say(what, "%s", errname(errno));
    say("done", "%ld", done);
    exit(3);
}

static int create(const char *name)
{
    int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (fd < 0)
        stop("open");
    return fd;
}

static void fill_bytes(const char *mode, long mib)
{
    int fd = create("disk.bin");
    if (!strcmp(mode, "fallocate")) {
        if (fallocate(fd, 0, 0, mib * MIB) < 0)
            stop("fallocate");
        done = mib;
        return;
    }
    if (!strcmp(mode, "sparse") && ftruncate(fd, mib * MIB) < 0)
        stop("ftruncate");
    for (; done < mib; done++) {
        if (!strcmp(mode, "append")) {
            close(fd);
            fd = open("disk.bin", O_WRONLY | O_APPEND);
        }
        ssize_t n = write(fd, block, sizeof(block));
        if (n < (ssize_t)sizeof(block)) {
            if (n >= 0)
                errno = ENOSPC;
            stop("write");
        }
    }
}

static void fill_names(const char *mode, long n)
{
    char name[512];
    for (; done < n; done++) {
        snprintf(name, sizeof(name), "e%ld", done);
        if (!strcmp(mode, "names")) {
            memset(name, 'n', 240);
            snprintf(name + 240, sizeof(name) - 240, "%015ld", done);
        }
        if (!strcmp(mode, "dirs")) {
            if (mkdir(name, 0755) < 0)
                stop("mkdir");
        } else if (!strcmp(mode, "links")) {
            if (symlink("/nonexistent/target", name) < 0)
                stop("symlink");
        } else if (!strcmp(mode, "deep")) {
            if (mkdir("d", 0755) < 0)
                stop("mkdir");
            if (chdir("d") < 0)
                stop("chdir");
        } else {
            int fd = create(name);
            if (!strcmp(mode, "many") && write(fd, block, 65536) != 65536)
                stop("write");
            close(fd);
        }
    }
}

/* Every folder gets a new one around it, so that all names stay short. */
static void fill_nest(const char *mode, long n)
{
    mode_t bits = !strcmp(mode, "closed") ? 0 : 0755;
    if (mkdir("d", 0755) < 0)
        stop("mkdir");
    for (done = 1; done < n; done++) {
        if (mkdir("n", 0755) < 0)
            stop("mkdir");
        if (rename("d", "n/d") < 0)
            stop("rename");
        if (bits != 0755 && chmod("n/d", bits) < 0)
            stop("chmod");
        if (rename("n", "d") < 0)
            stop("rename");
    }
}

int main(int argc, char **argv)
{
    const char *mode = arg(argc, argv, 1, "write");
    guest_deadline(60);
    signal(SIGXFSZ, SIG_IGN);
    memset(block, 'd', sizeof(block));
    if (chdir(arg(argc, argv, 2, "/tmp")) < 0)
        stop("chdir");
    if (!strcmp(mode, "write") || !strcmp(mode, "fallocate") || !strcmp(mode, "sparse") ||
        !strcmp(mode, "append"))
        fill_bytes(mode, argn(argc, argv, 3, 16));
    else if (!strcmp(mode, "nest") || !strcmp(mode, "closed"))
        fill_nest(mode, argn(argc, argv, 3, 100));
    else
        fill_names(mode, argn(argc, argv, 3, 100));
    say("done", "%ld", done);
    return 0;
}
