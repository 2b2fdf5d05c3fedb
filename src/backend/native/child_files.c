/* The caller's files, put into the guest's working directory. Runs in the guest's pid 1 while it
 * builds the wall: no malloc, no stdio; a failure ends it with a record on the status page. */
#include "backend/native/native_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define FILES_STEP 256

static void files_take_step(struct native_child *c, const char *name, size_t len,
                            char ret_step[static FILES_STEP])
{
    if (len < FILES_STEP) {
        memcpy(ret_step, name, len);
        ret_step[len] = '\0';
        return;
    }
    native_child_fail(c, "files", ENAMETOOLONG, name);
}

/* The folder a file goes into, made where it is missing. No step follows a link: the working
 * directory may be the caller's, and the host's root may still be in reach. */
static int files_open_folder(struct native_child *c, const char *name, const char **ret_last)
{
    char step[FILES_STEP];
    int dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; dir >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        files_take_step(c, name, (size_t)(slash - name), step);
        if (mkdirat(dir, step, 0755) < 0 && errno != EEXIST)
            native_child_fail(c, "files", errno, name);
        int next = openat(dir, step, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(dir);
        dir = next;
    }
    *ret_last = name;
    return dir;
}

static void files_fill(struct native_child *c, const struct plan_file *f, int from, int fd)
{
    static char chunk[65536];
    if (from < 0) {
        for (size_t done = 0; done < f->data_len;) {
            ssize_t n = write(fd, f->data + done, f->data_len - done);
            if (n <= 0)
                native_child_fail(c, "files", errno, f->name);
            done += (size_t)n;
        }
        return;
    }
    ssize_t n;
    while ((n = read(from, chunk, sizeof(chunk))) > 0)
        for (ssize_t done = 0, w; done < n; done += w)
            if ((w = write(fd, chunk + done, (size_t)(n - done))) <= 0)
                native_child_fail(c, "files", errno, f->name);
    if (n < 0)
        native_child_fail(c, "files", errno, f->source);
}

/* Puts the caller's files into the working directory: fresh, below it, never through a link. */
void native_child_copy_files(struct native_child *c)
{
    for (size_t i = 0; i < c->plan->n_files; i++) {
        const struct plan_file *f = &c->plan->files[i];
        const char *last;
        struct stat st = {.st_mode = 0644};
        if (c->file_fds[i] >= 0)
            fstat(c->file_fds[i], &st);
        _cleanup_close_ int dir = files_open_folder(c, f->name, &last);
        _cleanup_close_ int fd =
            dir < 0 ? -1
                    : openat(dir, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                             st.st_mode & 0111 ? 0755 : 0644);
        if (fd < 0)
            native_child_fail(c, "files", errno, f->name);
        files_fill(c, f, c->file_fds[i], fd);
        if (c->file_fds[i] >= 0)
            close(c->file_fds[i]);
    }
}
