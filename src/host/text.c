/* Readers of the kernel's small text files. Called by the probes of this folder in the supervisor;
 * pure, no system calls, no allocation. */
#include "host/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A piece of the text, not terminated. */
struct span {
    const char *p;
    size_t len;
};

static bool span_copy(struct span s, char *ret, size_t size)
{
    if (s.len >= size)
        return false;
    memcpy(ret, s.p, s.len);
    ret[s.len] = '\0';
    return true;
}

/* Cuts off what is before the next separator; false at the end of the text. */
static bool span_next(struct span *rest, char separator, struct span *ret)
{
    if (!rest->p)
        return false;
    size_t len = 0; /* of a few letters: memchr() would take longer to begin */
    while (len < rest->len && rest->p[len] != separator)
        len++;
    *ret = (struct span){rest->p, len};
    *rest =
        len < rest->len ? (struct span){rest->p + len + 1, rest->len - len - 1} : (struct span){0};
    return true;
}

static bool span_is(struct span s, const char *word)
{
    return s.len == strlen(word) && memcmp(s.p, word, s.len) == 0;
}

static bool span_has(struct span list, const char *word)
{
    struct span item;
    while (span_next(&list, ',', &item)) {
        if (span_is(item, word))
            return true;
    }
    return false;
}

static struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* The line "id:controllers:path" of a hierarchy. */
static bool find_line(const char *text, const char *controller, struct span *ret_list,
                      struct span *ret_path)
{
    struct span rest = span_of(text), line, id, list;

    while (span_next(&rest, '\n', &line)) {
        if (!span_next(&line, ':', &id) || !span_next(&line, ':', &list) || !line.p)
            continue;
        bool hit = controller ? span_has(list, controller) : span_is(id, "0") && list.len == 0;
        if (!hit)
            continue;
        *ret_list = list;
        *ret_path = line; /* the rest as it is: group names may hold colons */
        return true;
    }
    return false;
}

bool host_text_cgroup_path(const char *text, const char *controller, char *ret_path, size_t size)
{
    struct span list, path;
    return find_line(text, controller, &list, &path) && path.len > 0 && path.p[0] == '/' &&
           span_copy(path, ret_path, size);
}

bool host_text_cgroup_same(const char *text, const char *a, const char *b)
{
    struct span list, path;
    return find_line(text, a, &list, &path) && span_has(list, b);
}

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

/* mountinfo writes blanks, tabs, newlines and backslashes as \ooo. */
static bool copy_unescaped(struct span s, char *ret, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];
        if (c == '\\' && s.len - i > 3 && is_octal(s.p + i + 1)) {
            c = (char)((s.p[i + 1] - '0') << 6 | (s.p[i + 2] - '0') << 3 | (s.p[i + 3] - '0'));
            i += 3;
        }
        if (n + 1 >= size)
            return false;
        ret[n++] = c;
    }
    ret[n] = '\0';
    return true;
}

bool host_text_cgroup_mount(const char *mountinfo, const char *controller, char *ret_mount,
                            char *ret_root, size_t size)
{
    struct span rest = span_of(mountinfo), line, field, root, mount, type, super;
    struct span best_root = {0}, best_mount = {0};

    while (span_next(&rest, '\n', &line)) {
        /* id parent major:minor root mount options [optional...] - type source super-options */
        if (!span_next(&line, ' ', &field) || !span_next(&line, ' ', &field) ||
            !span_next(&line, ' ', &field) || !span_next(&line, ' ', &root) ||
            !span_next(&line, ' ', &mount))
            continue;
        bool dash = false;
        while (!dash && span_next(&line, ' ', &field))
            dash = span_is(field, "-");
        if (!dash || !span_next(&line, ' ', &type) || !span_next(&line, ' ', &field) ||
            !span_next(&line, ' ', &super))
            continue;
        bool hit = controller ? span_is(type, "cgroup") && span_has(super, controller)
                              : span_is(type, "cgroup2");
        if (hit) {
            best_root = root;
            best_mount = mount;
        }
    }
    return best_mount.p && copy_unescaped(best_mount, ret_mount, size) &&
           copy_unescaped(best_root, ret_root, size);
}

bool host_text_cgroup_join(const char *mount, const char *root, const char *path, char *ret_dir,
                           size_t size)
{
    /* "/../x": the group lies outside our cgroup namespace. */
    if (strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0'))
        return false;

    const char *below = path;
    size_t n = strlen(root);
    if (n > 1) {
        if (strncmp(path, root, n) != 0 || (path[n] != '/' && path[n] != '\0'))
            return false;
        below = path + n;
    }
    if (strcmp(below, "/") == 0)
        below = "";

    size_t mount_len = strlen(mount), below_len = strlen(below);
    if (mount_len + below_len >= size)
        return false;
    memcpy(ret_dir, mount, mount_len);
    memcpy(ret_dir + mount_len, below, below_len + 1);
    return true;
}

bool host_text_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n) {
        bool starts = p == text || isspace((unsigned char)p[-1]);
        bool ends = p[n] == '\0' || isspace((unsigned char)p[n]);
        if (starts && ends)
            return true;
    }
    return false;
}

uint64_t host_text_id_count(const char *uid_map)
{
    uint64_t sum = 0;
    struct span rest = span_of(uid_map), line;

    while (span_next(&rest, '\n', &line)) {
        char copy[96], *end;
        unsigned long long value = 0;
        int fields = 0;

        if (!span_copy(line, copy, sizeof(copy)))
            continue;
        for (char *p = copy; fields < 3; fields++, p = end) {
            value = strtoull(p, &end, 10);
            if (end == p)
                break;
        }
        if (fields == 3)
            sum += value;
    }
    return sum;
}

bool host_text_kernel(const char *release, int *ret_major, int *ret_minor)
{
    char *end;
    if (!isdigit((unsigned char)release[0]))
        return false;
    long major = strtol(release, &end, 10);
    if (*end != '.' || !isdigit((unsigned char)end[1]) || major > 10000)
        return false;
    long minor = strtol(end + 1, &end, 10);
    if (minor > 10000)
        return false;
    *ret_major = (int)major;
    *ret_minor = (int)minor;
    return true;
}

int64_t host_text_status(const char *status, const char *key, int base)
{
    size_t n = strlen(key);
    struct span rest = span_of(status), line;

    while (span_next(&rest, '\n', &line)) {
        char copy[96], *end;
        if (line.len <= n || memcmp(line.p, key, n) != 0 || line.p[n] != ':')
            continue;
        if (!span_copy((struct span){line.p + n + 1, line.len - n - 1}, copy, sizeof(copy)))
            return -1;
        errno = 0;
        long long value = strtoll(copy, &end, base);
        return end == copy || errno || value < 0 ? -1 : value;
    }
    return -1;
}

uint64_t host_text_start_time(const char *stat)
{
    const char *p = strrchr(stat, ')');
    if (!p)
        return 0;
    p++;
    for (int field = 3; field <= 22; field++) {
        p = strchr(p, ' ');
        if (!p)
            return 0;
        p++;
    }
    return strtoull(p, NULL, 10);
}

/* The mount point of one line of mountinfo, as written. */
static bool mount_point(struct span line, struct span *ret)
{
    for (int i = 0; i < 5; i++) {
        if (!span_next(&line, ' ', ret))
            return false;
    }
    return true;
}

unsigned host_text_proc_masks(const char *mountinfo, char *ret_first, size_t size)
{
    struct span rest = span_of(mountinfo), line, mount;
    unsigned n = 0;

    while (span_next(&rest, '\n', &line)) {
        if (!mount_point(line, &mount) || mount.len < 7 || memcmp(mount.p, "/proc/", 6) != 0 ||
            span_is(mount, "/proc/sys/fs/binfmt_misc"))
            continue;
        if (n++ == 0 && !copy_unescaped(mount, ret_first, size))
            ret_first[0] = '\0';
    }
    return n;
}

bool host_text_has_root_mount(const char *mountinfo)
{
    struct span rest = span_of(mountinfo), line, mount;

    while (span_next(&rest, '\n', &line)) {
        if (mount_point(line, &mount) && span_is(mount, "/"))
            return true;
    }
    return false;
}
