/* Walks a process tree in /proc while it changes. Runs in the supervisor; see sample.c for why it
 * looks in this order. */
#include "supervise/sample_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#define FIRST_CAP 64
#define ROOT_PASSES 4
#define STAT_EXITING 4u  /* PF_EXITING among the flags of stat */
#define MAX_THREADS 4096 /* looked at for children, per process */

ssize_t walk_read(int dir_fd, const char *path, char *buf, size_t size)
{
    _cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, buf + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    buf[len] = '\0';
    return (ssize_t)len;
}

static bool take_number(const char **text, uint64_t *ret_value)
{
    const char *p = *text;
    uint64_t value = 0;
    bool negative = *p == '-';
    p += negative;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    }
    *text = p;
    *ret_value = negative ? 0 : value; /* priorities and the like; none of ours is negative */
    return true;
}

int sample_parse_stat(const char *text, struct sample_stat *ret_stat)
{
    enum { FIELD_FIRST = 4, FIELD_LAST = 24 };
    uint64_t field[FIELD_LAST + 1];
    /* The name may contain anything, also ") R 1 "; only the last ')' of the line ends it. */
    const char *p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == '\0' || p[3] != ' ')
        return -1;
    char state = p[2];
    p += 4;
    for (int i = FIELD_FIRST; i <= FIELD_LAST; i++) {
        if (!take_number(&p, &field[i]) || (*p != ' ' && *p != '\n'))
            return -1;
        p++;
    }
    *ret_stat = (struct sample_stat){
        .state = state,
        .ppid = (pid_t)field[4],
        .utime = field[14],
        .stime = field[15],
        .cutime = field[16],
        .cstime = field[17],
        .threads = field[20],
        .start = field[22],
        .rss_pages = field[24],
        .address_bytes = field[23],
        .is_exiting = (field[9] & STAT_EXITING) != 0,
    };
    return 0;
}

int sample_parse_pss(const char *text, uint64_t *ret_bytes)
{
    static const char *const keys[] = {"\nPss:", "\nSwapPss:"};
    uint64_t sum = 0, kib;
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *p = strstr(text, keys[i]);
        if (!p && i > 0)
            continue; /* a kernel without swap */
        if (!p)
            return -1;
        p += strlen(keys[i]);
        while (*p == ' ')
            p++;
        if (!take_number(&p, &kib) || !str_starts(p, " kB"))
            return -1;
        sum += kib * 1024;
    }
    *ret_bytes = sum;
    return 0;
}

uint64_t sample_parse_pss_shared(const char *text)
{
    static const char key[] = "\nPss_Shmem:";
    uint64_t kib;
    const char *p = strstr(text, key);
    if (!p)
        return 0;
    p += sizeof(key) - 1;
    while (*p == ' ')
        p++;
    return take_number(&p, &kib) ? kib * 1024 : 0;
}

int sample_parse_tables(const char *text, uint64_t *ret_bytes)
{
    static const char key[] = "\nVmPTE:";
    uint64_t kib;
    /* The name comes first and cannot hold a newline: the kernel writes it escaped. */
    const char *p = strstr(text, key);
    if (!p)
        return -1;
    p += sizeof(key) - 1;
    while (*p == ' ' || *p == '\t')
        p++;
    if (!take_number(&p, &kib) || !str_starts(p, " kB"))
        return -1;
    *ret_bytes = kib * 1024;
    return 0;
}

int walk_read_stat(const struct walk *walk, pid_t pid, struct sample_stat *ret_stat)
{
    char path[32], text[1024];
    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    if (walk_read(walk->proc_fd, path, text, sizeof(text)) <= 0)
        return -1;
    return sample_parse_stat(text, ret_stat);
}

static size_t slot_of(const struct walk_set *set, pid_t pid)
{
    size_t slot = (size_t)((uint32_t)pid * 2654435761u) & (set->table_size - 1);
    while (set->table[slot] && set->list[set->table[slot] - 1].pid != pid)
        slot = (slot + 1) & (set->table_size - 1);
    return slot;
}

const struct walk_process *walk_set_find(const struct walk_set *set, pid_t pid)
{
    if (!set->n)
        return NULL;
    uint32_t at = set->table[slot_of(set, pid)];
    return at ? &set->list[at - 1] : NULL;
}

static int grow(struct walk_set *set)
{
    size_t cap = set->cap ? set->cap * 2 : FIRST_CAP;
    struct walk_process *list = realloc(set->list, cap * sizeof(*list));
    if (!list)
        return -1;
    set->list = list;
    uint32_t *table = realloc(set->table, cap * 2 * sizeof(*table));
    if (!table)
        return -1;
    set->table = table;
    set->cap = cap;
    set->table_size = cap * 2;
    memset(table, 0, set->table_size * sizeof(*table));
    for (size_t i = 0; i < set->n; i++)
        table[slot_of(set, list[i].pid)] = (uint32_t)i + 1;
    return 0;
}

void walk_set_done(struct walk_set *set)
{
    free(set->list);
    free(set->table);
    *set = (struct walk_set){0};
}

static int set_add(struct walk_set *set, const struct walk_process *process)
{
    if (set->n == set->cap && grow(set) < 0)
        return -1;
    size_t slot = slot_of(set, process->pid);
    if (set->table[slot])
        return 0;
    set->list[set->n++] = *process;
    set->table[slot] = (uint32_t)set->n;
    return 0;
}

/* Its state tells that a thread has ended only a moment later than its memory goes. */
void walk_find_memory(const struct walk *walk, struct walk_process *process)
{
    struct sample_stat st;
    char path[32];
    snprintf(path, sizeof(path), "%d/task", (int)process->pid);
    int fd = openat(walk->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd >= 0 ? fdopendir(fd) : NULL;
    if (!tasks) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        pid_t tid = (pid_t)atoi(entry->d_name);
        if (tid > 0 && tid != process->pid && walk_read_stat(walk, tid, &st) == 0 && st.rss_pages) {
            process->memory_pid = tid;
            process->stat.rss_pages = st.rss_pages;
            process->stat.address_bytes = st.address_bytes;
            break;
        }
    }
    closedir(tasks);
}

/* 1 when it was added, 0 when it is known or gone, -1 out of memory. */
static int visit(const struct walk *walk, struct walk_set *set, pid_t pid, bool *truncated)
{
    struct walk_process process = {.pid = pid, .memory_pid = pid};
    if (walk_set_find(set, pid))
        return 0;
    if (set->n >= walk->max) {
        *truncated = true;
        return 0;
    }
    if (walk_read_stat(walk, pid, &process.stat) < 0)
        return 0;
    if (!process.stat.rss_pages && process.stat.threads > 1)
        walk_find_memory(walk, &process);
    return set_add(set, &process) < 0 ? -1 : 1;
}

/* How many new ones one thread's list of children gave; -ENOENT when there is no such file. */
static int visit_children(const struct walk *walk, struct walk_set *set, const char *path,
                          bool *truncated)
{
    char text[4096];
    _cleanup_close_ int fd = openat(walk->proc_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int added = 0;
    pid_t pid = 0;
    for (;;) {
        ssize_t n = read(fd, text, sizeof(text));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return added;
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = pid * 10 + (text[i] - '0');
                continue;
            }
            int r = pid > 0 ? visit(walk, set, pid, truncated) : 0;
            if (r < 0)
                return -ENOMEM;
            added += r;
            pid = 0;
        }
    }
}

static int visit_threads(const struct walk *walk, struct walk_set *set, pid_t pid, uint64_t threads,
                         bool *truncated)
{
    char path[64];
    if (threads <= 1) {
        snprintf(path, sizeof(path), "%d/task/%d/children", (int)pid, (int)pid);
        return visit_children(walk, set, path, truncated);
    }
    snprintf(path, sizeof(path), "%d/task", (int)pid);
    int fd = openat(walk->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *tasks = fd >= 0 ? fdopendir(fd) : NULL;
    if (!tasks) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    int added = 0, looked = 0;
    const struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        int tid = atoi(entry->d_name);
        if (tid <= 0)
            continue;
        if (++looked > MAX_THREADS) {
            *truncated = true;
            break;
        }
        snprintf(path, sizeof(path), "%d/task/%d/children", (int)pid, tid);
        int r = visit_children(walk, set, path, truncated);
        if (r == -ENOMEM) {
            added = r;
            break;
        }
        added += MAX(r, 0);
    }
    closedir(tasks);
    return added;
}

/* For kernels that list no children: everything in /proc, then whoever descends from the root. */
static int walk_all(const struct walk *walk, struct walk_set *set, bool *truncated)
{
    struct walk_set all = {0};
    struct walk every = *walk;
    every.max = 1u << 20;
    int fd = openat(walk->proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *proc = fd >= 0 ? fdopendir(fd) : NULL;
    if (!proc) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int r = 0;
    const struct dirent *entry;
    while (r >= 0 && (entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0)
            r = visit(&every, &all, pid, truncated);
    }
    closedir(proc);

    for (bool again = true; again && r >= 0;) {
        again = false;
        for (size_t i = 0; i < all.n && r >= 0; i++) {
            const struct walk_process *process = &all.list[i];
            if (walk_set_find(set, process->pid) || !walk_set_find(set, process->stat.ppid))
                continue;
            if (set->n >= walk->max) {
                *truncated = true;
                break;
            }
            r = set_add(set, process);
            again = true;
        }
    }
    walk_set_done(&all);
    return r < 0 ? -1 : 0;
}

/* Those whom orphans, and children that nobody else has, come to. */
static int visit_own(const struct walk *walk, struct walk_set *set, bool *truncated)
{
    int r = visit_threads(walk, set, walk->root, 1, truncated);
    if (r < 0 || !walk->beside)
        return r;
    int more = visit_threads(walk, set, walk->beside, 1, truncated);
    return more < 0 ? more : r + more;
}

int walk_tree(const struct walk *walk, struct walk_set *set, bool *ret_truncated)
{
    bool truncated = false;
    set->n = 0;
    if (set->table)
        memset(set->table, 0, set->table_size * sizeof(*set->table));
    if (visit(walk, set, walk->root, &truncated) != 1 ||
        (walk->beside && visit(walk, set, walk->beside, &truncated) != 1))
        return -1;

    size_t next = set->n;
    for (int pass = 0; pass < ROOT_PASSES; pass++) {
        int r = visit_own(walk, set, &truncated);
        if (r == -ENOENT && pass == 0) {
            if (walk_all(walk, set, &truncated) < 0)
                return -1;
            break;
        }
        if (r == -ENOMEM)
            return -1;
        if (pass > 0 && r <= 0)
            break;
        for (; next < set->n; next++) {
            const struct walk_process *process = &set->list[next];
            /* A copy of what is needed: the list may move while it grows. */
            pid_t pid = process->pid;
            if (visit_threads(walk, set, pid, process->stat.threads, &truncated) == -ENOMEM)
                return -1;
        }
    }
    *ret_truncated = truncated;
    return 0;
}

void walk_recover(const struct walk *walk, struct walk_set *now, const struct walk_set *before)
{
    for (size_t i = 0; i < before->n && now->n < walk->max; i++) {
        struct walk_process process = before->list[i];
        uint64_t start = process.stat.start;
        if (walk_set_find(now, process.pid))
            continue;
        if (walk_read_stat(walk, process.pid, &process.stat) < 0 || process.stat.start != start)
            continue;
        if (set_add(now, &process) < 0)
            return;
    }
}
