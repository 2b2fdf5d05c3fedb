/* Finding and opening configuration files. Runs in the command and in the library's supervisor.
 *
 * A file that is merely found speaks for the caller only if nobody else can have put it there: it
 * (and the link that leads to it) must belong to the caller or root, and others must not be able to
 * write it. The checks are made on the open descriptor. A file the caller names is the caller's
 * word and is not asked for its owner. */
#include "policy/discover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "base/util.h"
#include "policy/reach.h"
#include "policy/toml.h"

#define DISCOVER_LINKS 16 /* one behind the other; the kernel's own limit is 40 */

static int refuse(struct cordon_err *err, const char *name, int sys_errno, const char *why)
{
    return err_set(err, CORDON_ERR_CONFIG, "policy", sys_errno, "%s%s%s", name, why ? ": " : "",
                   why ? why : "");
}

static bool owner_is_trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

/* A file of the caller's own can still be the work of a guest of the caller's. */
static int check_reach(const struct config_source *from, const char *path, const struct stat *st,
                       struct cordon_err *err)
{
    char dir[PATH_MAX];
    size_t len = (size_t)(strrchr(path, '/') - path);
    memcpy(dir, path, len);
    dir[len] = '\0';
    if (strstr(dir, "/.sandbox/") == NULL && !reach_had(from->environ, len ? dir : "/", st))
        return 0;
    refuse(err, from->name, 0, "refused: it was changed while a guest could write here");
    return err_hint(err, "read it; if it is as you want it, `touch %s%s`, or name it: --config %s",
                    S_ISLNK(st->st_mode) ? "-h " : "", from->name, from->name);
}

/* One step along a found link: its text, read from the very link whose owner was checked, takes the
 * path's place. */
static int follow_link(const struct config_source *from, int fd, const struct stat *st,
                       char path[static PATH_MAX], struct cordon_err *err)
{
    if (!owner_is_trusted(st))
        return refuse(err, from->name, 0, "refused: this link belongs to neither you nor root");
    /* where it leads to may be older than any guest, and still be a guest's choice */
    if (check_reach(from, path, st, err) < 0)
        return -1;
    char link[PATH_MAX];
    ssize_t n = readlinkat(fd, "", link, sizeof(link) - 1);
    if (n < 0)
        return refuse(err, from->name, errno, NULL);
    link[n] = '\0';
    size_t folder = link[0] == '/' ? 0 : (size_t)(strrchr(path, '/') - path) + 1;
    if (folder + (size_t)n >= PATH_MAX)
        return refuse(err, from->name, ENAMETOOLONG, NULL);
    memcpy(path + folder, link, (size_t)n + 1);
    return 0;
}

/* The folder of the user's own file and the path below it. */
static const char *user_folder(char *const *environ, const char **ret_below)
{
    const char *folder = value_env(environ, "XDG_CONFIG_HOME", strlen("XDG_CONFIG_HOME"));
    *ret_below = "";
    /* The XDG rules: a relative path is to be ignored. */
    if (folder && folder[0] == '/')
        return folder;
    *ret_below = "/.config";
    return value_env(environ, "HOME", strlen("HOME"));
}

/* A HOME that was inherited from another user (su, setpriv, a service): it is a folder of somebody
 * else's that keeps us out, so that nothing in it can be ours. One of our own that is closed may
 * hold what we denied, and a variable that is for this only was set on purpose. */
static bool is_in_foreign_home(const struct config_source *from)
{
    const char *below, *home = user_folder(from->environ, &below);
    char path[PATH_MAX];
    struct stat st, above = {0};
    size_t len = home ? strlen(home) : 0;
    if (from->source != FROM_USER || !home || !*below || strncmp(from->path, home, len) != 0 ||
        len + strlen(below) >= sizeof(path) || stat("/", &above) < 0)
        return false;
    for (size_t i = 1; i <= len; i++) {
        if (from->path[i] != '/' && from->path[i] != '\0')
            continue;
        memcpy(path, from->path, i);
        path[i] = '\0';
        if (stat(path, &st) == 0)
            above = st;
        else /* a link that is seen leads to a folder of which we do not know whose it is */
            return lstat(path, &st) < 0 && errno == EACCES && above.st_uid != geteuid();
    }
    return above.st_uid != geteuid() && faccessat(AT_FDCWD, home, X_OK, AT_EACCESS) < 0 &&
           errno == EACCES;
}

/* Where found links lead, or the path itself. Gives 1, 0 when there is no such file, or -1. */
static int follow_found(const struct config_source *from, char target[static PATH_MAX],
                        struct cordon_err *err)
{
    size_t len = strlen(from->path);
    if (len >= PATH_MAX)
        return refuse(err, from->name, ENAMETOOLONG, NULL);
    memcpy(target, from->path, len + 1);
    for (int links = 0; links < DISCOVER_LINKS; links++) {
        _cleanup_close_ int fd = open(target, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int e = fd < 0 ? errno : 0;
        /* EACCES: a parent folder that the caller may not search; nothing there speaks for the
         * caller. */
        if (links == 0 &&
            (e == ENOENT || e == ENOTDIR ||
             (e == EACCES && (from->source == FROM_PROJECT || is_in_foreign_home(from)))))
            return 0;
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0) {
            bool is_closed = e == EACCES && from->source == FROM_USER;
            refuse(err, from->name, e ? e : errno, NULL);
            return is_closed ? err_hint(err, "HOME or XDG_CONFIG_HOME names a folder that this "
                                             "user may not enter: set it to the user's own")
                             : -1;
        }
        if (!S_ISLNK(st.st_mode))
            return 1;
        if (follow_link(from, fd, &st, target, err) < 0)
            return -1;
    }
    return refuse(err, from->name, ELOOP, NULL);
}

static int check_file(int fd, const struct config_source *from, const char *path, bool found,
                      struct cordon_err *err)
{
    const char *name = from->name;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return refuse(err, name, errno, NULL);
    if (S_ISDIR(st.st_mode))
        return refuse(err, name, 0, "is a directory, not a file");
    if (S_ISFIFO(st.st_mode))
        return refuse(err, name, 0, "is a FIFO, not a file");
    if (!found && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
        return 0; /* /dev/null: no file at all, and none is looked for */
    if (!S_ISREG(st.st_mode))
        return refuse(err, name, 0, "is not a regular file");
    if (found && !owner_is_trusted(&st)) {
        refuse(err, name, 0, "refused: it belongs to neither you nor root");
        return err_hint(err, "if you trust it, name it: --config %s", name);
    }
    if (found && (st.st_mode & (S_IWGRP | S_IWOTH))) {
        refuse(err, name, 0, "refused: others can write it");
        return err_hint(err, "chmod go-w %s", name);
    }
    if (st.st_size > TOML_SIZE_MAX)
        return refuse(err, name, 0, "is larger than 1 MiB");
    return found ? check_reach(from, path, &st, err) : 0;
}

/* 0 and the bytes; a file that grows while it is read is cut off at the limit and refused. */
static int read_all(int fd, const char *name, char **ret_text, size_t *ret_len,
                    struct cordon_err *err)
{
    size_t cap = 4096, len = 0;
    _cleanup_free_ char *text = malloc(cap);
    for (;;) {
        if (!text)
            return err_nomem(err, "policy");
        ssize_t n = read(fd, text + len, cap - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return refuse(err, name, errno, NULL);
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > TOML_SIZE_MAX)
            return refuse(err, name, 0, "is larger than 1 MiB");
        if (len == cap) {
            cap *= 2;
            char *more = realloc(text, cap);
            if (!more)
                return err_nomem(err, "policy");
            text = more;
        }
    }
    *ret_text = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

/* 1 and the configuration, 0 when a file that is looked for is not there, or -1. */
static int load(const struct config_source *from, bool found, struct config **ret_config,
                struct cordon_err *err)
{
    char target[PATH_MAX];
    const char *path = from->path;
    if (found) {
        int r = follow_found(from, target, err);
        if (r <= 0)
            return r;
        path = target;
    }
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    _cleanup_close_ int fd =
        open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (found ? O_NOFOLLOW : 0));
    if (fd < 0 && errno == ENXIO)
        return refuse(err, from->name, 0, "is not a regular file");
    if (fd < 0)
        return refuse(err, from->name, errno, NULL);
    if (check_file(fd, from, path, found, err) < 0)
        return -1;

    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    if (read_all(fd, from->name, &text, &len, err) < 0 ||
        config_parse(from, text, len, ret_config, err) < 0)
        return -1;
    return 1;
}

int discover_user(const struct discover_where *where, struct config **ret_config,
                  struct cordon_err *err)
{
    char path[PATH_MAX];
    const char *below, *folder = user_folder(where->environ, &below);
    struct config *config = NULL;
    if (folder && folder[0] == '/') {
        int n = snprintf(path, sizeof(path), "%s%s/cordon/config.toml", folder, below);
        if (n < 0 || (size_t)n >= sizeof(path))
            return refuse(err, folder, ENAMETOOLONG, NULL);
        struct config_source from = {path, path, FROM_USER, where->environ};
        if (load(&from, true, &config, err) < 0)
            return -1;
    }
    *ret_config = config;
    return 0;
}

int discover_project(const struct discover_where *where, struct config **ret_config,
                     struct cordon_err *err)
{
    static const char file[] = "cordon.toml";
    char path[PATH_MAX];
    char name[PATH_MAX + sizeof(file)] = "";
    size_t len = strlen(where->cwd);
    if (len + sizeof(file) + 1 > sizeof(path))
        return refuse(err, where->cwd, ENAMETOOLONG, NULL);
    memcpy(path, where->cwd, len + 1);
    while (len > 0 && path[len - 1] == '/')
        len--;

    for (size_t up = 0;; up++) {
        struct config *config = NULL;
        snprintf(path + len, sizeof(path) - len, "/%s", file);
        size_t dots = MIN(up * 3, sizeof(name) - sizeof(file));
        for (size_t i = 0; i < dots; i++)
            name[i] = "../"[i % 3];
        memcpy(name + dots, file, sizeof(file));

        struct config_source from = {path, name, FROM_PROJECT, where->environ};
        int r = load(&from, true, &config, err);
        if (r < 0)
            return -1;
        if (r > 0 || len == 0) {
            *ret_config = config;
            return 0;
        }
        while (len > 0 && path[--len] != '/')
            ;
    }
}

int discover_named(const struct discover_where *where, const char *file, struct config **ret_config,
                   struct cordon_err *err)
{
    char path[PATH_MAX];
    int n = file[0] == '/' ? snprintf(path, sizeof(path), "%s", file)
                           : snprintf(path, sizeof(path), "%s/%s", where->cwd, file);
    if (!file[0])
        return refuse(err, "--config", 0, "the value is empty");
    if (n < 0 || (size_t)n >= sizeof(path))
        return refuse(err, file, ENAMETOOLONG, NULL);
    struct config_source from = {path, file, FROM_PROJECT, where->environ};
    return load(&from, false, ret_config, err) < 0 ? -1 : 0;
}
