/* Small files of control groups: one open, one read or write, no stdio; and what they contain.
 * Runs in the supervisor. The parsers are pure: they get text, also hostile or truncated text. */
#include "backend/native/cgroup_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/util.h"

static int file_write(int fd, const char *text)
{
    size_t len = strlen(text);
    for (;;) {
        ssize_t n = write(fd, text, len);
        if (n == (ssize_t)len)
            return 0;
        if (n >= 0)
            return -EIO; /* a control file takes a value whole or not at all */
        if (errno != EINTR)
            return -errno;
    }
}

int cgroup_file_write(int dir_fd, const char *file, const char *text)
{
    _cleanup_close_ int fd = openat(dir_fd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : file_write(fd, text);
}

#define DIGITS_MAX 24

static const char *file_digits(uint64_t value, char text[static DIGITS_MAX])
{
    char *p = text + DIGITS_MAX;
    *--p = '\0';
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    return p;
}

int cgroup_file_write_u64(int dir_fd, const char *file, uint64_t value)
{
    char text[DIGITS_MAX];
    return cgroup_file_write(dir_fd, file, file_digits(value, text));
}

int cgroup_dir_open(const struct cgroup_dir *dir, const char *file, int flags)
{
    char path[CGROUP_PATH_MAX + 64];
    if (!dir->path[0])
        return -EBADF; /* this place does not offer it; "/..." would be the host's */
    if (!str_join(path, sizeof(path), dir->path, "/", file))
        return -ENAMETOOLONG;
    int fd = sys_open(path, flags | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

int cgroup_dir_write(const struct cgroup_dir *dir, const char *file, const char *text)
{
    _cleanup_close_ int fd = cgroup_dir_open(dir, file, O_WRONLY);
    return fd < 0 ? fd : file_write(fd, text);
}

int cgroup_dir_write_u64(const struct cgroup_dir *dir, const char *file, uint64_t value)
{
    char text[DIGITS_MAX];
    return cgroup_dir_write(dir, file, file_digits(value, text));
}

int cgroup_dir_u64(const struct cgroup_dir *dir, const char *file, uint64_t *ret_value)
{
    char text[32];
    _cleanup_close_ int fd = cgroup_dir_open(dir, file, O_RDONLY);
    ssize_t n = fd < 0 ? fd : cgroup_file_pread(fd, text, sizeof(text));
    return n < 0 ? (int)n : cgroup_parse_u64(text, ret_value);
}

ssize_t cgroup_file_pread(int fd, char *buf, size_t size)
{
    ssize_t n;
    do
        n = pread(fd, buf, size - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    buf[n] = '\0';
    return n;
}

ssize_t cgroup_file_read(int dir_fd, const char *file, char *buf, size_t size)
{
    _cleanup_close_ int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    return cgroup_file_pread(fd, buf, size);
}

int cgroup_file_u64(int dir_fd, const char *file, uint64_t *ret_value)
{
    char text[32];
    ssize_t n = cgroup_file_read(dir_fd, file, text, sizeof(text));
    if (n < 0)
        return (int)n;
    return cgroup_parse_u64(text, ret_value);
}

/* Digits at *text, which is moved behind them; too large a number is the largest. */
static int parse_digits(const char **text, uint64_t *ret_value)
{
    const char *p = *text;
    uint64_t value = 0;
    if (*p < '0' || *p > '9')
        return -EINVAL;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            value = UINT64_MAX;
    }
    *text = p;
    *ret_value = value;
    return 0;
}

int cgroup_parse_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value = UINT64_MAX;
    if (str_starts(text, "max"))
        text += 3;
    else if (parse_digits(&text, &value) < 0)
        return -EINVAL;
    if (*text != '\0' && *text != '\n')
        return -EINVAL;
    *ret_value = value;
    return 0;
}

int cgroup_parse_key(const char *text, const char *key, uint64_t *ret_value)
{
    size_t len = strlen(key);
    while (text) {
        if (strncmp(text, key, len) == 0 && text[len] == ' ') {
            const char *end = strchr(text, '\n');
            /* A line without its end may be cut off in the middle of the number. */
            if (!end)
                return -EINVAL;
            return cgroup_parse_u64(text + len + 1, ret_value);
        }
        text = strchr(text, '\n');
        if (text)
            text++;
    }
    return -ENOENT;
}

int cgroup_parse_stat(const char *text, char *ret_state, uint64_t *ret_start)
{
    /* The name in field 2 is the process's own choice: spaces and parentheses are to be expected,
     * only the last ')' of the line ends it. */
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == '\0')
        return -EINVAL;
    char state = p[2];
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -EINVAL;
        p++;
    }
    uint64_t start;
    if (parse_digits(&p, &start) < 0 || *p != ' ')
        return -EINVAL;
    *ret_state = state;
    *ret_start = start;
    return 0;
}
