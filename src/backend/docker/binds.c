/* Host files in a container belong to whoever owns them on the host: an engine maps no ids for us.
 * So that what the caller grants is the guest's own, and what the guest writes is the caller's:
 *
 *   a caller who is not root: the guest has the caller's uid, and a passwd that calls it sandbox;
 *   root: the guest stays 1000, and gets root's files through identity-mapped mounts. They stand in
 *   BINDS_DIR from before the creation until the start; the container has copies of its own then.
 *
 * Runs in `cordon-docker run`. */
#include "backend/docker/binds.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/native/native_internal.h"
#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"

#define BINDS_DIR "/run/cordon-docker"

static void binds_path(const struct binds *b, size_t i, char *ret, size_t size)
{
    snprintf(ret, size, "%s/%zu", b->dir, i);
}

/* A detached, mapped copy of the path; -1: this file system cannot be mapped, and is shown as it
 * is: less access, never more. */
static int binds_tree(const char *src, int userns)
{
    _cleanup_close_ int tree =
        sys_open_tree(AT_FDCWD, src, SYS_OPEN_TREE_CLONE | SYS_OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    struct sys_mount_attr attr = {.attr_set = SYS_MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return -1;
    return TAKE_FD(tree);
}

static int binds_attach(struct binds *b, int tree, size_t i, char *path, size_t size,
                        struct cordon_err *err)
{
    struct stat st;
    binds_path(b, i, path, size);
    int r = fstat(tree, &st);
    if (r == 0 && S_ISDIR(st.st_mode)) {
        r = mkdir(path, 0700);
    } else if (r == 0) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        r = fd < 0 ? -1 : 0;
    }
    if (r == 0)
        r = sys_move_mount(tree, "", AT_FDCWD, path, SYS_MOVE_MOUNT_F_EMPTY_PATH);
    return r < 0 ? err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "%s", path) : 0;
}

static int binds_map(struct binds *b, struct request *r, struct cordon_err *err)
{
    char path[PATH_MAX];
    _cleanup_close_ int userns = native_map_namespace(b->uid);
    if (userns < 0)
        return 0; /* no maps here: shown as they are */
    if (mkdir(BINDS_DIR, 0700) < 0 && errno != EEXIST)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, BINDS_DIR);
    snprintf(b->dir, sizeof(b->dir), BINDS_DIR "/%d-%.60s", (int)getpid(), r->name);
    if (mkdir(b->dir, 0700) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "docker", errno, "%s", b->dir);
    for (size_t i = 0; i < r->n_binds; i++) {
        _cleanup_close_ int tree = binds_tree(r->binds[i].src, userns);
        if (tree < 0)
            continue;
        b->n_mounted = i + 1;
        if (binds_attach(b, tree, i, path, sizeof(path), err) < 0)
            return -1;
        r->binds[i].src = arena_strdup(&r->arena, path);
        if (!r->binds[i].src)
            return err_nomem(err, "docker");
    }
    return 0;
}

static int accounts_write(const char *dir, const char *name, const char *text)
{
    char path[PATH_MAX], fresh[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%.4000s/%s", dir, name);
    snprintf(fresh, sizeof(fresh), "%s.%d", path, (int)getpid());
    if (access(path, R_OK) == 0)
        return 0;
    _cleanup_close_ int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
        rename(fresh, path) < 0) {
        unlink(fresh);
        return -1;
    }
    return 0;
}

int binds_cache(char *ret, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = cache && cache[0] == '/' ? snprintf(ret, size, "%s", cache)
            : home && home[0] == '/' ? snprintf(ret, size, "%s/.cache", home)
                                     : -1;
    if (n < 0 || (size_t)n >= size - 80)
        return -1;
    (void)mkdir(ret, 0755);
    strcpy(ret + n, "/cordon");
    return mkdir(ret, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

/* Two small files per user, kept in the cache: their text depends on the uid alone. Where they
 * cannot be made the guest has no name, which breaks little. */
static void binds_accounts(struct binds *b, struct request *r)
{
    char dir[PATH_MAX], text[512];
    if (binds_cache(dir, sizeof(dir)) < 0)
        return;
    sprintf(dir + strlen(dir), "/accounts-%u-%u", (unsigned)b->uid, (unsigned)b->gid);
    (void)mkdir(dir, 0755);
    snprintf(text, sizeof(text),
             "root:x:0:0:root:/root:/usr/sbin/nologin\n"
             "sandbox:x:%u:%u:sandbox:/home/sandbox:/bin/sh\n"
             "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
             (unsigned)b->uid, (unsigned)b->gid);
    if (accounts_write(dir, "passwd", text) < 0)
        return;
    snprintf(text, sizeof(text), "root:x:0:\nsandbox:x:%u:\nnogroup:x:65534:\n", (unsigned)b->gid);
    if (accounts_write(dir, "group", text) == 0)
        b->accounts = arena_strdup(&r->arena, dir);
}

void binds_ids(struct binds *b, const struct request *request)
{
    bool callers = request->n_binds > 0 && geteuid() != 0;
    *b = (struct binds){.uid = callers ? geteuid() : PLAN_GUEST_UID,
                        .gid = callers ? getegid() : PLAN_GUEST_GID};
}

int binds_prepare(struct binds *b, struct request *request, struct cordon_err *err)
{
    binds_ids(b, request);
    if (request->n_binds == 0)
        return 0;
    if (geteuid() == 0)
        return binds_map(b, request, err);
    if (b->uid != PLAN_GUEST_UID || b->gid != PLAN_GUEST_GID)
        binds_accounts(b, request);
    return 0;
}

static void binds_remove(const char *dir)
{
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        /* never followed by a removal below a mount that did not go */
        if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL)
            continue;
        if (rmdir(path) < 0)
            unlink(path);
    }
    if (d)
        closedir(d);
    (void)rmdir(dir);
}

void binds_release(struct binds *b)
{
    if (!b->dir[0])
        return;
    binds_remove(b->dir);
    b->dir[0] = '\0';
    (void)rmdir(BINDS_DIR); /* the last one */
}

void binds_sweep(void)
{
    char path[PATH_MAX], proc[64];
    DIR *d = opendir(BINDS_DIR);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        int pid = atoi(e->d_name);
        snprintf(proc, sizeof(proc), "/proc/%d", pid);
        if (pid <= 0 || access(proc, F_OK) == 0)
            continue;
        snprintf(path, sizeof(path), BINDS_DIR "/%s", e->d_name);
        binds_remove(path);
    }
    if (d)
        closedir(d);
    (void)rmdir(BINDS_DIR);
}
