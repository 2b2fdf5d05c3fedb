/* See sample_shared.h. Runs in the supervisor. */
#include "supervise/sample_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysinfo.h>
#include <time.h>

#define LINE_MAX_BYTES 8192

static uint64_t host_shared(void)
{
    struct sysinfo info;
    return sysinfo(&info) < 0 ? 0 : (uint64_t)info.sharedram * info.mem_unit;
}

void shared_start(struct shared_watch *watch)
{
    *watch = (struct shared_watch){.host_least = host_shared()};
}

uint64_t shared_growth(struct shared_watch *watch)
{
    uint64_t now = host_shared();
    watch->host_least = MIN(watch->host_least, now);
    return now - watch->host_least;
}

static bool take_field(const char **text, int base, char end, uint64_t *ret_value)
{
    char *rest;
    errno = 0;
    *ret_value = strtoull(*text, &rest, base);
    if (errno != 0 || rest == *text || *rest != end)
        return false;
    *text = rest + 1;
    return true;
}

/* "start-end perms offset major:minor inode   name" */
int sample_parse_shared(const char *line, uint64_t *ret_inode, uint64_t *ret_end)
{
    static const char name[] = " /dev/zero (deleted)"; /* what the kernel calls all of them */
    uint64_t start, end, offset, major, minor, inode;
    size_t len = strlen(line);
    if (len < sizeof(name) - 1 || !str_eq(line + len - (sizeof(name) - 1), name))
        return -1;
    if (!take_field(&line, 16, '-', &start) || !take_field(&line, 16, ' ', &end) || end < start ||
        strlen(line) < 5 || line[3] != 's' || line[4] != ' ')
        return -1;
    line += 5;
    if (!take_field(&line, 16, ' ', &offset) || !take_field(&line, 16, ':', &major) ||
        !take_field(&line, 16, ' ', &minor) || !take_field(&line, 10, ' ', &inode))
        return -1;
    *ret_inode = inode;
    *ret_end = offset + (end - start);
    return 0;
}

/* False when there are more than ordinary programs have. */
static bool note_object(struct shared_watch *watch, uint64_t inode, uint64_t end)
{
    size_t i = 0;
    while (i < watch->n && watch->list[i].inode != inode)
        i++;
    if (i == SHARED_OBJECTS)
        return false;
    if (i == watch->n)
        watch->list[watch->n++] = (struct shared_object){.inode = inode};
    /* What was cut off it later still belongs to it. */
    watch->list[i].end_bytes = MAX(watch->list[i].end_bytes, end);
    watch->list[i].seen = true;
    return true;
}

static bool note_lines(struct shared_watch *watch, char *text)
{
    for (char *line = text, *next; line; line = next) {
        uint64_t inode, end;
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (sample_parse_shared(line, &inode, &end) == 0 && !note_object(watch, inode, end))
            return false;
    }
    return true;
}

static bool is_late(uint64_t deadline_ns)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec > deadline_ns;
}

/* False when the process does not let us look, or has more than one look bears. */
static bool note_process(struct shared_watch *watch, const struct walk *walk, pid_t pid,
                         uint64_t deadline_ns)
{
    char path[40], text[LINE_MAX_BYTES];
    size_t len = 0;
    snprintf(path, sizeof(path), "%d/maps", (int)pid);
    _cleanup_close_ int fd = openat(walk->proc_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT || errno == ESRCH;
    while (!is_late(deadline_ns)) {
        ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 || errno == ESRCH;
        len += (size_t)n;
        text[len] = '\0';
        char *last = strrchr(text, '\n');
        if (!last)
            return false; /* no line of the kernel's is that long */
        *last = '\0';
        if (!note_lines(watch, text))
            return false;
        len -= (size_t)(last + 1 - text);
        memmove(text, last + 1, len);
    }
    return false;
}

uint64_t shared_held(struct shared_watch *watch, const struct walk *walk,
                     const struct walk_set *set, uint64_t growth, uint64_t deadline_ns)
{
    uint64_t sum = 0, unseen = 0;
    size_t kept = 0;
    for (size_t i = 0; i < watch->n; i++)
        watch->list[i].seen = false;
    for (size_t i = 0; i < set->n; i++) {
        const struct walk_process *process = &set->list[i];
        if (walk_is_own(walk, process->pid) || process->stat.state == 'Z')
            continue;
        /* It may hold as much as it has addresses for. */
        if (!note_process(watch, walk, process->memory_pid, deadline_ns))
            unseen += watch->n == SHARED_OBJECTS ? growth : process->stat.address_bytes;
    }
    /* The kernel frees an object with its last mapping. */
    for (size_t i = 0; i < watch->n; i++)
        if (watch->list[i].seen)
            watch->list[kept++] = watch->list[i];
    watch->n = kept;
    for (size_t i = 0; i < watch->n; i++)
        sum += watch->list[i].end_bytes;
    return MIN(growth, sum + unseen);
}
