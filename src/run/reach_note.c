/* Keeps the notes on folders guests can write to. Runs in the supervisor, before the guest exists
 * and after it is gone; a supervisor that is killed leaves its window open, which is the safe side.
 */
#include "run/reach_note.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/util.h"
#include "host/text.h"
#include "policy/reach.h"

extern char **environ;

struct reach_note {
    int dir_fd;
    int64_t start_ns;
    size_t n;
    char (*names)[REACH_NAME];
};

static int64_t note_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* File systems stamp changes with the time of the last tick: until it has moved on, a change made
 * now would look older than `now_ns`. A tick is a few milliseconds. */
static void note_wait_tick(int64_t now_ns)
{
    static const struct timespec pause = {.tv_nsec = 200000};
    for (int i = 0; i < 100 && note_clock(CLOCK_REALTIME_COARSE) <= now_ns; i++)
        nanosleep(&pause, NULL);
}

static uint64_t note_born(long pid)
{
    char path[48], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    return host_text_start_time(text);
}

/* Opens the folder of this caller's notes, made where it is missing: nobody else may write to it.
 */
static int note_open_dir(const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof(part))
        return -1;
    memcpy(part, path, len + 1);
    /* root's notes are everybody's to read */
    mode_t mode = geteuid() == 0 ? 0755 : 0700, mask = umask(022);
    bool made = true;
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        made = made && (mkdir(part, mode) == 0 || errno == EEXIST);
        *slash = '/';
    }
    made = made && (mkdir(part, mode) == 0 || errno == EEXIST);
    umask(mask);
    if (!made)
        return -1;
    _cleanup_close_ int fd = open(part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022))
        return -1;
    return TAKE_FD(fd);
}

static int note_open_own_dir(void)
{
    char dirs[REACH_DIRS][PATH_MAX];
    size_t n = reach_dirs(environ, dirs);
    for (size_t i = geteuid() == 0 ? 0 : 1; i < n; i++) {
        int fd = note_open_dir(dirs[i]);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

/* The oldest two become one: safe, as what lies between them counts as in reach then. */
static void note_make_room(struct reach_windows *w)
{
    if (w->n < REACH_WINDOWS)
        return;
    w->rows[1].start_ns = w->rows[0].start_ns;
    if (w->rows[0].end_ns == 0 || (w->rows[1].end_ns && w->rows[1].end_ns < w->rows[0].end_ns))
        w->rows[1].end_ns = w->rows[0].end_ns;
    memmove(w->rows, w->rows + 1, sizeof(w->rows[0]) * --w->n);
}

static int note_write(int fd, const struct reach_windows *w)
{
    char text[REACH_WINDOWS * 96];
    size_t len = 0;
    for (size_t i = 0; i < w->n; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%lld %lld %ld %llu\n",
                                (long long)w->rows[i].start_ns, (long long)w->rows[i].end_ns,
                                w->rows[i].pid, (unsigned long long)w->rows[i].born);
    /* longer or shorter than before: the old end is cut off last, and reads as open until then */
    if (pwrite(fd, text, len, 0) != (ssize_t)len || ftruncate(fd, (off_t)len) < 0)
        return -1;
    return 0;
}

static int note_lock(int dir_fd, const char *name, int flags)
{
    _cleanup_close_ int fd = openat(dir_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        return -1;
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return -1;
    return TAKE_FD(fd);
}

static int note_open_window(struct reach_note *note, const char *name)
{
    struct reach_windows w;
    _cleanup_close_ int fd = note_lock(note->dir_fd, name, O_CREAT);
    if (fd < 0)
        return -1;
    reach_read(fd, &w);
    note_make_room(&w);
    long pid = getpid();
    w.rows[w.n++] =
        (struct reach_window){.start_ns = note->start_ns, .pid = pid, .born = note_born(pid)};
    return note_write(fd, &w);
}

static void note_close_window(const struct reach_note *note, const char *name, int64_t end_ns)
{
    struct reach_windows w;
    _cleanup_close_ int fd = note_lock(note->dir_fd, name, 0);
    if (fd < 0)
        return;
    reach_read(fd, &w);
    for (size_t i = 0; i < w.n; i++)
        if (w.rows[i].pid == getpid() && w.rows[i].start_ns == note->start_ns)
            w.rows[i].end_ns = end_ns;
    (void)note_write(fd, &w);
}

static int note_add(struct reach_note *note, const char *path)
{
    struct stat st;
    /* "/tmp" in a grant is the guest's own; what is missing fails where the grant is made */
    if (str_eq(path, "/tmp") || stat(path, &st) < 0)
        return 0;
    char(*names)[REACH_NAME] = reallocarray(note->names, note->n + 1, sizeof(*names));
    if (!names)
        return -1;
    note->names = names;
    reach_name(&st, names[note->n++]);
    return 0;
}

static int note_collect(struct reach_note *note, const struct policy *policy)
{
    const struct policy_value *v = policy_value(policy, FIELD_WORKSPACE);
    if (v->set && v->num == WORKSPACE_RW && note_add(note, v->text) < 0)
        return -1;
    v = policy_value(policy, FIELD_ALLOW_WRITE);
    for (size_t i = 0; i < v->n_items; i++)
        if (note_add(note, v->items[i].text) < 0)
            return -1;
    v = policy_value(policy, FIELD_MOUNTS);
    for (size_t i = 0; i < v->n_items; i++)
        if (v->items[i].num && note_add(note, v->items[i].text) < 0)
            return -1;
    return 0;
}

static void note_free(struct reach_note *note)
{
    util_close(&note->dir_fd);
    free(note->names);
    free(note);
}

int reach_note_begin(const struct policy *policy, struct reach_note **ret_note,
                     struct cordon_err *err)
{
    struct reach_note *note = calloc(1, sizeof(*note));
    if (!note)
        return err_nomem(err, "start");
    note->dir_fd = -1;
    if (note_collect(note, policy) < 0) {
        note_free(note);
        return err_nomem(err, "start");
    }
    if (note->n == 0) {
        note_free(note);
        *ret_note = NULL;
        return 0;
    }
    note->start_ns = note_clock(CLOCK_REALTIME);
    note->dir_fd = note_open_own_dir();
    int r = note->dir_fd < 0 ? -1 : 0;
    size_t opened = 0;
    while (r == 0 && opened < note->n)
        r = note_open_window(note, note->names[opened++]);
    if (r < 0) {
        int e = errno;
        note->n = opened;
        reach_note_end(note);
        err_set(err, CORDON_ERR_CONFIG, "start", e,
                "a guest that writes to a folder of the host must be noted, and no note can be "
                "written");
        return err_hint(err, "set XDG_STATE_HOME to a folder of yours");
    }
    note_wait_tick(note->start_ns);
    *ret_note = note;
    return 0;
}

void reach_note_end(struct reach_note *note)
{
    if (!note)
        return;
    int64_t end_ns = note_clock(CLOCK_REALTIME);
    for (size_t i = 0; note->dir_fd >= 0 && i < note->n; i++)
        note_close_window(note, note->names[i], end_ns);
    note_wait_tick(end_ns);
    note_free(note);
}

static void note_gc_file(int dir_fd, const char *name)
{
    struct reach_windows w;
    bool changed = false;
    _cleanup_close_ int fd = note_lock(dir_fd, name, 0);
    if (fd < 0)
        return;
    reach_read(fd, &w);
    int64_t now_ns = note_clock(CLOCK_REALTIME);
    for (size_t i = 0; i < w.n; i++)
        if (w.rows[i].end_ns == 0 && (w.rows[i].pid <= 0 || w.rows[i].born == 0 ||
                                      note_born(w.rows[i].pid) != w.rows[i].born)) {
            w.rows[i].end_ns = now_ns;
            changed = true;
        }
    if (changed)
        (void)note_write(fd, &w);
}

void reach_note_gc(void)
{
    int fd = note_open_own_dir();
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        util_close(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            note_gc_file(dirfd(dir), e->d_name);
    closedir(dir);
}
