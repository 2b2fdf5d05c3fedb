/* Names of kept workspaces, and the removal of what killed runs left. Runs on our side.
 *
 * A state that can be locked has no process behind it any more. Kept workspaces stay; what goes is
 * named like something that lives for one run, was being made, or was being removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"
#include "workspace/copy.h"
#include "workspace/workspace_internal.h"

static int list_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void workspace_list_free(char **ids)
{
    for (size_t i = 0; ids && ids[i]; i++)
        free(ids[i]);
    free(ids);
}

int workspace_list(const char *root, char ***ret_ids, struct cordon_err *err)
{
    size_t n = 0, cap = 16;
    char **ids = calloc(cap + 1, sizeof(*ids));
    int fd = tree_open_own(root, WORKSPACE_ROOT, 0, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!ids || (!dir && errno != ENOENT)) {
        int e = ids ? errno : ENOMEM;
        if (dir)
            closedir(dir);
        else
            util_close(&fd);
        free(ids);
        return err_set(err, CORDON_ERR_USAGE, "workspace", e, "%s", root);
    }
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        if (!workspace_is_id(e->d_name) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        if (n == cap) {
            char **more = realloc(ids, (2 * cap + 1) * sizeof(*ids));
            if (!more)
                break;
            ids = more;
            cap *= 2;
        }
        if (!(ids[n] = strdup(e->d_name)))
            break;
        ids[++n] = NULL;
    }
    if (dir)
        closedir(dir);
    if (n > 1)
        qsort(ids, n, sizeof(*ids), list_order);
    *ret_ids = ids;
    return 0;
}

/* Locked until it is gone: whoever has just made it and not locked it yet makes another one. */
static bool gc_remove(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
        st.st_uid != geteuid())
        return false;
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && workspace_lock(fd, false) == 0 && copy_remove(dir, name) == 0;
}

static unsigned gc_folder(const char *path, const char *const *prefixes)
{
    int fd = tree_open_own(path, WORKSPACE_ROOT, 0, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        util_close(&fd);
    unsigned removed = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        for (const char *const *p = prefixes; *p; p++)
            if (str_starts(e->d_name, *p) && gc_remove(dirfd(dir), e->d_name))
                removed++;
    if (dir)
        closedir(dir);
    return removed;
}

/* Records and marks whose state is gone: a removal was cut off between the two. */
static unsigned gc_records(const char *root)
{
    unsigned removed = 0;
    _cleanup_close_ int fd = tree_open_own(root, WORKSPACE_ROOT, 0, 0);
    struct stat there;
    bool has = fd >= 0 && fstatat(fd, WORKSPACE_META, &there, AT_SYMLINK_NOFOLLOW) == 0;
    int meta = has ? meta_hold(fd) : -1;
    DIR *dir = meta >= 0 ? fdopendir(meta) : NULL;
    if (!dir)
        util_close(&meta);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat st;
        char id[WORKSPACE_ID_MAX + 16];
        size_t len = strcspn(e->d_name, "~");
        if (len >= sizeof(id))
            continue;
        memcpy(id, e->d_name, len);
        id[len] = '\0';
        char *base = strstr(id, ".base");
        if (base && str_eq(base, ".base") && fstatat(fd, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
            *base = '\0';
        if (workspace_is_id(id) && fstatat(fd, id, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
            errno == ENOENT && unlinkat(meta, e->d_name, 0) == 0)
            removed++;
    }
    if (dir) {
        unlinkat(fd, WORKSPACE_META, AT_REMOVEDIR); /* if nothing is in it; it is locked still */
        closedir(dir);
    }
    return removed;
}

unsigned workspace_gc(const char *root)
{
    static const char *const in_root[] = {WORKSPACE_TRASH "-", WORKSPACE_NEW "-", NULL};
    static const char *const in_temp[] = {WORKSPACE_TEMP_PREFIX, WORKSPACE_TRASH "-",
                                          WORKSPACE_NEW "-", NULL};
    const char *temp = getenv("TMPDIR");
    unsigned removed = gc_folder(root, in_root) + gc_records(root);
    removed += gc_folder("/var/tmp", in_temp) + gc_folder("/tmp", in_temp);
    if (temp && !str_eq(temp, "/tmp") && !str_eq(temp, "/var/tmp"))
        removed += gc_folder(temp, in_temp);
    return removed;
}
