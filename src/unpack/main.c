/* cordon-unpack ARCHIVE|LAYOUT CACHE KEY: fills CACHE/rootfs/sha256-CONTENT and leaves the note
 * CACHE/rootfs/seen/KEY. Started by the supervisor (src/run/rootfs.c); an executable of its own
 * because it alone needs an archive library, and because what it reads is hostile: it shuts itself
 * into the cache folder before it looks at a byte.
 *
 * Exit status 0, 78 (the archive is at fault) or 70; one line on stderr then. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dirent.h>

#include "base/err.h"
#include "base/sys.h"
#include "base/util.h"
#include "unpack/unpack.h"

#define TEMP_PREFIX ".unpacking-"

struct job {
    const char *path, *key;
    int source; /* the archive, or the folder of the layout */
    bool is_layout;
    int cache;   /* CACHE/rootfs */
    int temp_fd; /* holds the lock that says somebody is at work there */
    char temp[64];
};

/* A folder of ours; one that somebody else could fill is refused. */
static int job_enter(int at, const char *name, struct cordon_err *err)
{
    struct stat st;
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache folder %s", name);
    _cleanup_close_ int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache folder %s", name);
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0,
                       "cache folder %s: not ours alone to write", name);
    return TAKE_FD(fd);
}

static int job_cache(struct job *j, const char *cache, struct cordon_err *err)
{
    char *path = strdup(cache);
    if (!path)
        return err_nomem(err, UNPACK_STAGE);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* what cannot be made is missing below */
        *slash = '/';
    }
    _cleanup_close_ int top = job_enter(AT_FDCWD, path, err);
    free(path);
    j->cache = top < 0 ? -1 : job_enter(top, "rootfs", err);
    if (j->cache < 0)
        return -1;
    _cleanup_close_ int seen = job_enter(j->cache, "seen", err);
    return seen < 0 ? -1 : 0;
}

/* What a killed one left: its lock is free. */
static void job_sweep(struct job *j)
{
    int fd = openat(j->cache, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (!str_starts(e->d_name, TEMP_PREFIX))
            continue;
        _cleanup_close_ int old =
            openat(j->cache, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (old >= 0 && flock(old, LOCK_EX | LOCK_NB) == 0)
            unpack_remove_all(j->cache, e->d_name);
    }
    if (d)
        closedir(d);
}

static int job_open(struct job *j, const char *path, struct cordon_err *err)
{
    struct stat st;
    j->path = path;
    j->source = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (j->source < 0 || fstat(j->source, &st) < 0)
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, errno, "%s", path);
    j->is_layout = S_ISDIR(st.st_mode);
    if (!j->is_layout && !S_ISREG(st.st_mode))
        return err_set(err, CORDON_ERR_CONFIG, UNPACK_STAGE, 0, "%s: not a plain file", path);
    return 0;
}

/* From here on only the cache can be written and only the source be read: a fault in a decompressor
 * finds nothing else. Kernels without Landlock go without; the limits hold everywhere. */
static int job_shut_in(struct job *j, struct cordon_err *err)
{
    const struct rlimit memory = {UINT64_C(2) << 30, UINT64_C(2) << 30}, cpu = {1800, 1800};
    if (setrlimit(RLIMIT_AS, &memory) < 0 || setrlimit(RLIMIT_CPU, &cpu) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "limits");
    /* ABI 1 refuses every hard link between folders */
    if (sys_landlock_create_ruleset(NULL, 0, SYS_LANDLOCK_CREATE_RULESET_VERSION) < 2)
        return 0;
    const struct sys_landlock_ruleset_attr attr = {.handled_access_fs =
                                                       (SYS_LANDLOCK_FS_REFER << 1) - 1};
    _cleanup_close_ int rules = sys_landlock_create_ruleset(&attr, 8, 0);
    if (rules < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "Landlock");
    const struct sys_landlock_path_beneath cache = {.allowed_access = attr.handled_access_fs,
                                                    .parent_fd = j->cache},
                                           source = {
                                               .allowed_access =
                                                   SYS_LANDLOCK_FS_READ_FILE |
                                                   (j->is_layout ? SYS_LANDLOCK_FS_READ_DIR : 0),
                                               .parent_fd = j->source};
    if (sys_landlock_add_rule(rules, SYS_LANDLOCK_RULE_PATH_BENEATH, &cache) < 0 ||
        sys_landlock_add_rule(rules, SYS_LANDLOCK_RULE_PATH_BENEATH, &source) < 0 ||
        sys_landlock_restrict_self(rules) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "Landlock");
    return 0;
}

static int job_temp(struct job *j, struct cordon_err *err)
{
    snprintf(j->temp, sizeof(j->temp), TEMP_PREFIX "%ld", (long)getpid());
    unpack_remove_all(j->cache, j->temp);
    if (mkdirat(j->cache, j->temp, 0755) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache");
    j->temp_fd = openat(j->cache, j->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (j->temp_fd < 0 || flock(j->temp_fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache");
    return 0;
}

/* The same content may have been unpacked by another meanwhile: theirs is as good. */
static int job_put(struct job *j, const char *hash, struct cordon_err *err)
{
    char name[16 + SHA256_HEX], note[16 + 2 * SHA256_HEX], fresh[64];
    snprintf(name, sizeof(name), "sha256-%s", hash);
    snprintf(note, sizeof(note), "seen/%s", j->key);
    snprintf(fresh, sizeof(fresh), "seen/.%ld", (long)getpid());
    if (renameat(j->cache, j->temp, j->cache, name) < 0) {
        if (errno != EEXIST && errno != ENOTEMPTY)
            return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache");
        unpack_remove_all(j->cache, j->temp);
    }
    unlinkat(j->cache, fresh, 0);
    if (symlinkat(name, j->cache, fresh) < 0 || renameat(j->cache, fresh, j->cache, note) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, UNPACK_STAGE, errno, "cache");
    return 0;
}

static int job_run(struct job *j, char **argv, struct cordon_err *err)
{
    char hash[SHA256_HEX];
    j->key = argv[3];
    if (strlen(j->key) != SHA256_HEX - 1 || strspn(j->key, "0123456789abcdef") != SHA256_HEX - 1)
        return err_set(err, CORDON_ERR_USAGE, UNPACK_STAGE, 0, "not a key: %s", j->key);
    if (job_open(j, argv[1], err) < 0 || job_cache(j, argv[2], err) < 0 || job_shut_in(j, err) < 0)
        return -1;
    job_sweep(j);
    if (job_temp(j, err) < 0)
        return -1;
    struct unpack_tree tree = {.fd = j->temp_fd};
    int r = j->is_layout ? unpack_layout(&tree, j->source, j->path, hash, err)
                         : unpack_archive(&tree, j->source, j->path, UNPACK_PLAIN, hash, err);
    if (r == 0)
        r = job_put(j, hash, err);
    if (r < 0)
        unpack_remove_all(j->cache, j->temp);
    return r;
}

int main(int argc, char **argv)
{
    struct job j = {.source = -1, .cache = -1, .temp_fd = -1};
    struct cordon_err err = {0};
    if (argc != 4) {
        dprintf(2, "usage: cordon-unpack ARCHIVE|LAYOUT CACHE KEY\n");
        return CORDON_ERR_USAGE;
    }
    setlocale(LC_CTYPE, "C.UTF-8"); /* names in archives are UTF-8 */
    umask(022);
    int r = job_run(&j, argv, &err);
    if (r < 0)
        dprintf(2, "%s\n", err.message);
    util_close(&j.source);
    util_close(&j.temp_fd);
    util_close(&j.cache);
    return r < 0 ? err.code : 0;
}
