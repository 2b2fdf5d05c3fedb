/* Sends what is in a folder when the guest is gone: names, kinds, bytes. Runs in a container's pid
 * 1, the last process there, over files a guest made: nothing is followed, nothing but regular
 * files is opened, and a file that is all hole costs nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "init/init_internal.h"

#define SEND_CHUNK 65536

struct send {
    DIR *dirs[INIT_FILES_DEPTH];
    int depth;
    char chunk[sizeof(struct init_piece) + SEND_CHUNK];
};

static void send_entry(enum init_entry_kind kind, const char *name, const struct stat *st)
{
    struct init_entry e = {.kind = kind, .name_len = (uint32_t)strlen(name)};
    if (st) {
        e.mode = st->st_mode;
        e.size = (uint64_t)st->st_size;
    }
    init_write(&e, sizeof(e));
    init_write(name, e.name_len);
}

/* Where the next bytes are that are no hole; a file system that does not know has none. */
static off_t send_next(int fd, off_t at)
{
    off_t next = lseek(fd, at, SEEK_DATA);
    return next >= 0 ? next : errno == ENXIO ? -1 : at;
}

/* How much of what is there fits into one piece: no byte of the next hole, which the guest has not
 * paid for and the receiver would. */
static size_t send_run(int fd, off_t at)
{
    off_t hole = lseek(fd, at, SEEK_HOLE);
    return hole > at ? (size_t)MIN(hole - at, (off_t)SEND_CHUNK) : SEND_CHUNK;
}

/* What its owner has closed to itself is the owner's to open again, which is who we are. */
static int send_open(int dir_fd, const char *name, const struct stat *st, int flags, mode_t need)
{
    flags |= O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = openat(dir_fd, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(dir_fd, name, (st->st_mode & 0777) | need, 0) == 0)
        fd = openat(dir_fd, name, flags);
    return fd;
}

static void send_file(struct send *s, int dir_fd, const char *name, const struct stat *st)
{
    struct init_piece end = {0};
    _cleanup_close_ int fd = send_open(dir_fd, name, st, 0, 0400);
    send_entry(fd < 0 ? INIT_ENTRY_OTHER : INIT_ENTRY_FILE, name, st);
    if (fd < 0)
        return;
    bool whole = st->st_size <= (off_t)INIT_FILES_BYTES;
    for (off_t at = 0; whole && at < st->st_size && (at = send_next(fd, at)) >= 0;) {
        ssize_t n = pread(fd, s->chunk + sizeof(end), send_run(fd, at), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        struct init_piece piece = {(uint64_t)at, (uint64_t)n};
        memcpy(s->chunk, &piece, sizeof(piece));
        init_write(s->chunk, sizeof(piece) + (size_t)n);
        at += n;
    }
    init_write(&end, sizeof(end));
}

/* Takes the descriptor. */
static void send_enter(struct send *s, int fd)
{
    DIR *dir = fd >= 0 && s->depth < INIT_FILES_DEPTH ? fdopendir(fd) : NULL;
    if (dir)
        s->dirs[s->depth++] = dir;
    else if (fd >= 0)
        close(fd);
}

static void send_one(struct send *s, const char *name)
{
    struct stat st;
    int at = dirfd(s->dirs[s->depth - 1]), before = s->depth;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISREG(st.st_mode)) {
        send_file(s, at, name, &st);
    } else if (S_ISDIR(st.st_mode)) {
        send_entry(INIT_ENTRY_DIR, name, &st);
        send_enter(s, send_open(at, name, &st, O_DIRECTORY, 0700));
        if (s->depth == before)
            send_entry(INIT_ENTRY_UP, "", NULL);
    } else {
        send_entry(INIT_ENTRY_OTHER, name, &st);
    }
}

void send_files(int dir_fd)
{
    struct send *s = calloc(1, sizeof(*s));
    if (!s)
        return; /* without its end nothing of it is believed */
    send_enter(s, dir_fd);
    while (s->depth > 0) {
        const struct dirent *e = readdir(s->dirs[s->depth - 1]);
        if (!e) {
            closedir(s->dirs[--s->depth]);
            if (s->depth > 0)
                send_entry(INIT_ENTRY_UP, "", NULL);
        } else if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, "..")) {
            send_one(s, e->d_name);
        }
    }
    send_entry(INIT_ENTRY_END, "", NULL);
    free(s);
}
