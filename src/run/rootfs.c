/* From --image and --rootfs to a folder. Runs in the supervisor, before the plan: unpacking is done
 * by an executable of its own (cordon-unpack), which alone reads archives, and only when the cache
 * has not seen this file before.
 *
 * The cache, $XDG_CACHE_HOME/cordon/rootfs: `seen/KEY` is a link to the unpacked folder
 * `sha256-CONTENT`; the key is made of the archive's place, size and times, so that an unchanged
 * archive is not even read. */
#include "run/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/libexec.h"
#include "base/sha256.h"
#include "base/util.h"

#define ROOTFS_STAGE "image"

struct rootfs_source {
    char path[PATH_MAX]; /* without links */
    struct stat st;      /* of what changes when the content does */
    bool is_folder;      /* serves as it is */
};

static int rootfs_cache(char *ret, size_t size, struct cordon_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = cache && cache[0] == '/' ? snprintf(ret, size, "%s/cordon", cache)
            : home && home[0] == '/' ? snprintf(ret, size, "%s/.cache/cordon", home)
                                     : -1;
    if (n < 0 || (size_t)n >= size)
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, 0,
                       "no folder for the cache: neither XDG_CACHE_HOME nor HOME is set");
    return 0;
}

/* A name is one that `cordon image build` made; it is a name of the engine's, so it may hold
 * slashes and a tag, which are no part of a file name. */
static int rootfs_by_name(const char *name, char *ret, size_t size, struct cordon_err *err)
{
    char cache[PATH_MAX], file[256];
    size_t len = strlen(name);
    if (rootfs_cache(cache, sizeof(cache), err) < 0)
        return -1;
    if (len == 0 || len >= sizeof(file) || name[0] == '.')
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, 0, "image %s: not a name", name);
    for (size_t i = 0; i <= len; i++)
        file[i] = name[i] == ':' || name[i] == '/' ? '_' : name[i];
    int n = snprintf(ret, size, "%s/images/%s", cache, file);
    const char *last = strrchr(name, '/');
    if (n >= 0 && (size_t)n < size && !strchr(last ? last : name, ':') && access(ret, F_OK) < 0)
        n = snprintf(ret, size, "%s/images/%s_latest", cache, file); /* the engine's own default */
    if (n < 0 || (size_t)n >= size)
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, ENAMETOOLONG, "image %s", name);
    char tar[PATH_MAX + 16];
    snprintf(tar, sizeof(tar), "%s/rootfs.tar", ret);
    if (access(tar, F_OK) == 0 && strlen(tar) < size)
        strcpy(ret, tar);
    if (access(ret, F_OK) == 0)
        return 0;
    return err_set(err, CORDON_ERR_HOST, ROOTFS_STAGE, 0,
                   "Image not found: %s (cordon image build makes it)", name);
}

static bool rootfs_is_path(const char *image)
{
    return image[0] == '/' || str_starts(image, "./") || str_starts(image, "../") ||
           access(image, F_OK) == 0;
}

static int rootfs_named(const struct policy *policy, const char *cwd, char *ret, size_t size,
                        struct cordon_err *err)
{
    bool image = policy_has(policy, FIELD_IMAGE);
    if (image && policy_has(policy, FIELD_ROOTFS))
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, 0,
                       "image and rootfs exclude each other");
    const char *text = policy_text(policy, image ? FIELD_IMAGE : FIELD_ROOTFS);
    int n = 0;
    if (image && text[0] != '/' && cwd) {
        char below[PATH_MAX];
        n = snprintf(below, sizeof(below), "%s/%s", cwd, text);
        if (n > 0 && (size_t)n < sizeof(below) && access(below, F_OK) == 0) {
            n = snprintf(ret, size, "%s", below);
            return (size_t)n < size ? 0 : err_nomem(err, ROOTFS_STAGE);
        }
    }
    if (image && !rootfs_is_path(text))
        return rootfs_by_name(text, ret, size, err);
    n = snprintf(ret, size, "%s", text);
    return n >= 0 && (size_t)n < size
               ? 0
               : err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, ENAMETOOLONG, "%s", text);
}

/* A layout is known by the file the specification puts into it; its index names everything else by
 * content. */
static int rootfs_look(const char *named, struct rootfs_source *s, struct cordon_err *err)
{
    char index[PATH_MAX + 16];
    if (!realpath(named, s->path) || stat(s->path, &s->st) < 0) {
        err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, errno, "%s", named);
        return err_hint(err, "name a folder, an archive or an image layout that exists");
    }
    if (S_ISREG(s->st.st_mode))
        return 0;
    if (!S_ISDIR(s->st.st_mode))
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, 0,
                       "%s: neither a folder nor an archive", named);
    snprintf(index, sizeof(index), "%s/oci-layout", s->path);
    if (access(index, F_OK) < 0) {
        s->is_folder = true;
        return str_eq(s->path, "/") ? err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, 0,
                                              "/ is the host's own root, not one for a guest")
                                    : 0;
    }
    snprintf(index, sizeof(index), "%s/index.json", s->path);
    if (stat(index, &s->st) < 0)
        return err_set(err, CORDON_ERR_CONFIG, ROOTFS_STAGE, errno, "%s", index);
    return 0;
}

static void rootfs_key(const struct rootfs_source *s, char ret[SHA256_HEX])
{
    struct sha256 h;
    const uint64_t facts[] = {(uint64_t)s->st.st_dev,          (uint64_t)s->st.st_ino,
                              (uint64_t)s->st.st_size,         (uint64_t)s->st.st_mtim.tv_sec,
                              (uint64_t)s->st.st_mtim.tv_nsec, (uint64_t)s->st.st_ctim.tv_sec,
                              (uint64_t)s->st.st_ctim.tv_nsec};
    sha256_init(&h);
    sha256_field(&h, s->path, strlen(s->path));
    sha256_field(&h, facts, sizeof(facts));
    sha256_hex(&h, ret);
}

static bool rootfs_is_name(const char *name)
{
    return str_starts(name, "sha256-") && strlen(name) == 7 + SHA256_HEX - 1 &&
           strspn(name + 7, "0123456789abcdef") == SHA256_HEX - 1;
}

/* The unpacked folder by its note, which holds a bare name. */
static char *rootfs_seen(const char *cache, const char *key)
{
    char note[PATH_MAX + 128], name[128], *dir = NULL;
    snprintf(note, sizeof(note), "%s/rootfs/seen/%s", cache, key);
    ssize_t n = readlink(note, name, sizeof(name) - 1);
    if (n <= 0)
        return NULL;
    name[n] = '\0';
    if (!rootfs_is_name(name) || asprintf(&dir, "%s/rootfs/%s", cache, name) < 0)
        return NULL;
    if (access(dir, F_OK) == 0)
        return dir;
    free(dir);
    return NULL;
}

/* stdout of the helper is the name of the folder, stderr one line for the user. */
static int rootfs_read_child(int fd, pid_t pid, struct buf *text)
{
    char chunk[1024];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && text->len + (size_t)n < 4000)
            buf_add(text, chunk, (size_t)n);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int rootfs_unpack(const char *path, const char *cache, const char *key,
                         struct cordon_err *err)
{
    char helper[PATH_MAX];
    if (libexec_find("cordon-unpack", helper, sizeof(helper)) < 0) {
        err_set(err, CORDON_ERR_HOST, ROOTFS_STAGE, errno, "cordon-unpack is not installed");
        return err_hint(err, "build with libarchive (Debian: libarchive-dev), or name a folder");
    }
    int out[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, ROOTFS_STAGE, errno, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (dup2(out[1], 1) < 0 || dup2(out[1], 2) < 0)
            _exit(126);
        execl(helper, "cordon-unpack", path, cache, key, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    _cleanup_close_ int from = out[0];
    if (pid < 0)
        return err_set(err, CORDON_ERR_INTERNAL, ROOTFS_STAGE, errno, "fork");
    _cleanup_buf_ struct buf text = BUF_INIT(8192);
    int status = rootfs_read_child(from, pid, &text);
    if (status == 0)
        return 0;
    if (text.len > 0 && text.data[text.len - 1] == '\n')
        text.data[text.len - 1] = '\0';
    return err_set(err, status == CORDON_ERR_CONFIG ? CORDON_ERR_CONFIG : CORDON_ERR_INTERNAL,
                   ROOTFS_STAGE, 0, "%s", text.len ? text.data : "cordon-unpack failed");
}

static int rootfs_find(const struct policy *policy, const char *cwd, char **ret_dir,
                       struct cordon_err *err)
{
    char named[PATH_MAX], cache[PATH_MAX], key[SHA256_HEX];
    struct rootfs_source s = {0};
    if (rootfs_named(policy, cwd, named, sizeof(named), err) < 0 || rootfs_look(named, &s, err) < 0)
        return -1;
    char *dir = NULL;
    if (s.is_folder) {
        dir = strdup(s.path);
    } else {
        if (rootfs_cache(cache, sizeof(cache), err) < 0)
            return -1;
        rootfs_key(&s, key);
        dir = rootfs_seen(cache, key);
        if (!dir && rootfs_unpack(s.path, cache, key, err) < 0)
            return -1;
        if (!dir)
            dir = rootfs_seen(cache, key);
        if (!dir)
            return err_set(err, CORDON_ERR_INTERNAL, ROOTFS_STAGE, 0,
                           "%s: changed while it was unpacked", s.path);
    }
    if (!dir)
        return err_nomem(err, ROOTFS_STAGE);
    *ret_dir = dir;
    return 0;
}

int rootfs_resolve(const struct policy *policy, const char *cwd, char **ret_dir,
                   struct cordon_err *err)
{
    bool is_folder = policy_has(policy, FIELD_ROOTFS);
    *ret_dir = NULL;
    /* the docker engine keeps images of its own */
    if ((!policy_has(policy, FIELD_IMAGE) && !is_folder) ||
        policy_num(policy, FIELD_BACKEND) == BACKEND_DOCKER)
        return 0;
    if (rootfs_find(policy, cwd, ret_dir, err) == 0)
        return 0;
    return policy_err_place(&policy_value(policy, is_folder ? FIELD_ROOTFS : FIELD_IMAGE)->origin,
                            err);
}
