/* The artefact cache. Runs in the command and the supervisor, on bytes that were taken from a guest
 * through a pipe: nothing here opens what a guest made. */
#include "lang/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cachedir.h"
#include "base/util.h"
#include "policy/value.h"

#define CACHE_TEMP "new-"
#define CACHE_TEMP_AGE_S 3600 /* a temporary file this old has lost its writer */

int lang_cache_open(char *const *vars)
{
    return cachedir_open(value_env(vars, "XDG_CACHE_HOME", strlen("XDG_CACHE_HOME")),
                         value_env(vars, "HOME", strlen("HOME")), "artifacts");
}

int lang_cache_get(int dir, const char *key)
{
    struct stat st;
    _cleanup_close_ int fd =
        openat(dir, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_nlink != 1 || st.st_size == 0 || (st.st_mode & 07777) != 0700)
        return -1;
    /* the time of change says when it was used last */
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    (void)futimens(fd, times);
    return TAKE_FD(fd);
}

struct cache_file {
    char name[80];
    uint64_t bytes;
    time_t used;
};

static int cache_by_age(const void *a, const void *b)
{
    const struct cache_file *x = a, *y = b;
    return x->used < y->used ? -1 : x->used > y->used;
}

/* Reads the folder; files whose writer died are removed on the way. */
static struct cache_file *cache_list(int dir, size_t *ret_n, uint64_t *ret_bytes)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct cache_file *list = NULL;
    size_t n = 0;
    struct dirent *e;
    if (!d)
        util_close(&copy);
    while (d && (e = readdir(d))) {
        struct stat st;
        if (e->d_name[0] == '.' || strlen(e->d_name) >= sizeof(list->name) ||
            fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (str_starts(e->d_name, CACHE_TEMP)) {
            if (st.st_mtime + CACHE_TEMP_AGE_S < time(NULL))
                unlinkat(dir, e->d_name, 0);
            continue;
        }
        if ((n & (n - 1)) == 0) {
            struct cache_file *more = reallocarray(list, n ? n * 2 : 1, sizeof(*list));
            if (!more)
                break;
            list = more;
        }
        list[n].bytes = (uint64_t)st.st_size;
        list[n].used = st.st_mtime;
        snprintf(list[n++].name, sizeof(list->name), "%s", e->d_name);
        *ret_bytes += (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    *ret_n = n;
    return list;
}

/* Down to three quarters at once, so that a full cache is not sorted at every run. */
static void cache_trim(int dir, uint64_t max_bytes)
{
    size_t n = 0;
    uint64_t bytes = 0;
    _cleanup_free_ struct cache_file *list = cache_list(dir, &n, &bytes);
    if (bytes <= max_bytes)
        return;
    qsort(list, n, sizeof(*list), cache_by_age);
    for (size_t i = 0; i < n && bytes > max_bytes / 4 * 3; i++)
        if (unlinkat(dir, list[i].name, 0) == 0)
            bytes -= list[i].bytes;
}

static bool cache_write(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    /* Begin writing it out, so that a power cut finds the name and the contents together; waiting
     * for the disk would hold up every other guest of this loop. */
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return true;
}

int lang_cache_put(int dir, const char *key, const void *data, size_t len, uint64_t max_bytes)
{
    uint64_t noise;
    char temp[64];
    if (len == 0 || len > max_bytes ||
        getrandom(&noise, sizeof(noise), 0) != (ssize_t)sizeof(noise))
        return -1;
    snprintf(temp, sizeof(temp), CACHE_TEMP "%016llx", (unsigned long long)noise);
    _cleanup_close_ int fd =
        openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
    if (fd < 0)
        return -1;
    if (fchmod(fd, 0700) < 0 || !cache_write(fd, data, len) || renameat(dir, temp, dir, key) < 0) {
        unlinkat(dir, temp, 0);
        return -1;
    }
    cache_trim(dir, max_bytes);
    return 0;
}
