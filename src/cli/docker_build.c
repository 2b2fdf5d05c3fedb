/* `cordon image build`: an archive made by `cordon-rootfs`, kept for backends without an engine and
 * given to the engine where there is one. Runs in `cordon-docker`. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/libexec.h"
#include "base/sha256.h"
#include "base/util.h"
#include "cli/docker.h"
#include "cli/fail.h"

struct build {
    const struct docker_options *options;
    char store[PATH_MAX]; /* folder of this image */
    char script[PATH_MAX];
    const char *source; /* "debian", "host" or "given" */
    char recipe[SHA256_HEX];
    char tar[PATH_MAX + 32], note[PATH_MAX + 32], fresh[PATH_MAX + 32];
    char alone[PATH_MAX + 32]; /* is there when no mirror answered */
};

int docker_store(const char *name, char *ret, size_t size, struct cordon_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char file[256];
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof(file) || name[0] == '.' || name[0] == '-')
        return err_set(err, CORDON_ERR_USAGE, "image", 0, "%.200s: not a name for an image", name);
    for (size_t i = 0; i <= len; i++) {
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
                     strchr("-_.:/", name[i]); /* the end too */
        if (!plain)
            return err_set(err, CORDON_ERR_USAGE, "image", 0, "%.200s: not a name for an image",
                           name);
        file[i] = name[i] == ':' || name[i] == '/' ? '_' : name[i];
    }
    int n = cache && cache[0] == '/' ? snprintf(ret, size, "%s/cordon/images/%s", cache, file)
            : home && home[0] == '/' ? snprintf(ret, size, "%s/.cache/cordon/images/%s", home, file)
                                     : -1;
    if (n < 0 || (size_t)n >= size)
        return err_set(err, CORDON_ERR_CONFIG, "image", 0,
                       "no folder for the cache: neither XDG_CACHE_HOME nor HOME is set");
    return 0;
}

static int build_folders(const char *path, struct cordon_err *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1;; slash++) {
        slash = strchr(slash, '/');
        if (slash)
            *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", part);
        if (!slash)
            return 0;
        *slash = '/';
    }
}

/* Runs the script; with `out` its standard output is taken. */
static int build_script(struct build *b, const char *const *words, struct buf *out)
{
    int pipe_fds[2] = {-1, -1};
    if (out && pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[8] = {b->script};
        for (size_t i = 0; words[i]; i++)
            if (!(argv[i + 1] = strdup(words[i])))
                _exit(70);
        if (out)
            dup2(pipe_fds[1], 1);
        else
            dup2(2, 1);
        execv(b->script, argv);
        _exit(127);
    }
    util_close(&pipe_fds[1]);
    char chunk[65536];
    ssize_t n;
    while (out && pid > 0 && (n = read(pipe_fds[0], chunk, sizeof(chunk))) != 0)
        if (n > 0)
            buf_add(out, chunk, (size_t)n);
    util_close(&pipe_fds[0]);
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* What the result depends on. A root file system somebody gave is known by its content, later. */
static int build_recipe(struct build *b, struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(1 << 20);
    struct sha256 h;
    if (b->options->rootfs) {
        b->recipe[0] = '\0';
        return 0;
    }
    const char *words[] = {"recipe", b->source, NULL};
    if (build_script(b, words, &text) < 0 || text.failed)
        return err_set(err, CORDON_ERR_INTERNAL, "image", 0, "cordon-rootfs does not run");
    sha256_init(&h);
    sha256_field(&h, text.data ? text.data : "", text.len);
    sha256_hex(&h, b->recipe);
    return 0;
}

static int build_content(struct build *b, struct cordon_err *err)
{
    struct sha256 h;
    char chunk[65536];
    ssize_t n;
    _cleanup_close_ int fd = open(b->fresh, O_RDONLY | O_CLOEXEC);
    sha256_init(&h);
    while (fd >= 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        sha256_add(&h, chunk, (size_t)n);
    if (fd < 0 || n < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", b->fresh);
    sha256_hex(&h, b->recipe);
    return 0;
}

static bool build_is_kept(const struct build *b)
{
    char text[SHA256_HEX] = "";
    _cleanup_close_ int fd = open(b->note, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    return n == SHA256_HEX - 1 && str_eq(text, b->recipe) && access(b->tar, R_OK) == 0;
}

static int build_note(struct build *b, struct cordon_err *err)
{
    if (rename(b->fresh, b->tar) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", b->tar);
    _cleanup_close_ int fd = open(b->note, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, b->recipe, SHA256_HEX - 1) != SHA256_HEX - 1)
        return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", b->note);
    return 0;
}

/* Debian's mirror first; where it does not answer, what is installed here. */
static int build_make(struct build *b, struct cordon_err *err)
{
    const char *words[] = {b->source, b->fresh, b->options->rootfs, NULL};
    unlink(b->note);
    unlink(b->alone);
    int r = build_script(b, words, NULL);
    if (r < 0 && str_eq(b->source, "debian")) {
        fputs("no package mirror answers: taking the files of installed packages\n", stderr);
        words[0] = b->source = "host";
        _cleanup_close_ int alone = open(b->alone, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        r = build_recipe(b, err);
        if (r == 0)
            r = build_script(b, words, NULL);
    }
    if (r < 0) {
        unlink(b->fresh);
        return err_set(err, CORDON_ERR_HOST, "image", 0, "the root file system could not be made");
    }
    if (b->options->rootfs && build_content(b, err) < 0)
        return -1;
    return build_note(b, err);
}

static void build_progress(uint64_t done, uint64_t total)
{
    static unsigned last = 101;
    unsigned percent = total ? (unsigned)(done * 100 / total) : 100;
    if (!isatty(STDERR_FILENO) || percent == last)
        return;
    last = percent;
    fprintf(stderr, "\rto the engine: %3u %% of %llu MiB%s", percent,
            (unsigned long long)(total >> 20), percent == 100 ? "\n" : "");
}

/* An engine that has an image of this recipe keeps it. */
static int build_import(const struct build *b, const struct engine *e, struct cordon_err *err)
{
    struct image_info before, now;
    bool had = false, found = false, removed;
    if (image_find(e, b->options->name, &before, &had, err) < 0)
        return -1;
    if (had && !b->options->force && str_eq(before.recipe, b->recipe)) {
        printf("%s is up to date (recipe %.12s)\n", b->options->name, b->recipe);
        return 0;
    }
    _cleanup_close_ int fd = open(b->tar, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", b->tar);
    if (image_import(e, b->options->name, fd, b->recipe, build_progress, err) < 0 ||
        image_find(e, b->options->name, &now, &found, err) < 0)
        return -1;
    if (!found)
        return err_set(err, CORDON_ERR_INTERNAL, "image", 0, "the engine lost the image");
    if (had && before.recipe[0] && !str_eq(before.id, now.id)) {
        struct cordon_err drop; /* still in use: `clean` takes it later */
        (void)image_remove(e, before.id, &removed, &drop);
    }
    printf("built %s: %llu MiB (recipe %.12s)\n", b->options->name,
           (unsigned long long)(now.bytes >> 20), b->recipe);
    return 0;
}

static int build_all(struct build *b, struct cordon_err *err)
{
    struct engine engine;
    if (docker_store(b->options->name, b->store, sizeof(b->store), err) < 0 ||
        build_folders(b->store, err) < 0 || engine_open(&engine, err) < 0)
        return -1;
    if (libexec_find("cordon-rootfs", b->script, sizeof(b->script)) < 0)
        return err_set(err, CORDON_ERR_HOST, "image", errno, "cordon-rootfs is not installed");
    snprintf(b->tar, sizeof(b->tar), "%s/rootfs.tar", b->store);
    snprintf(b->note, sizeof(b->note), "%s/recipe", b->store);
    snprintf(b->fresh, sizeof(b->fresh), "%s/rootfs.tar.new", b->store);
    snprintf(b->alone, sizeof(b->alone), "%s/no-mirror", b->store);
    /* two builds at once would write the same archive */
    _cleanup_close_ int lock = open(b->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "image", errno, "%.900s", b->store);
    b->source = b->options->rootfs ? "given" : b->options->from_host ? "host" : "debian";
    if (build_recipe(b, err) < 0)
        return -1;
    bool kept = b->recipe[0] && !b->options->force && build_is_kept(b);
    /* a mirror that did not answer the last time is not asked again for nothing */
    if (!kept && str_eq(b->source, "debian") && !b->options->force && access(b->alone, F_OK) == 0) {
        b->source = "host";
        if (build_recipe(b, err) < 0)
            return -1;
        kept = build_is_kept(b);
    }
    if (!kept && build_make(b, err) < 0)
        return -1;
    if (build_import(b, &engine, err) == 0)
        return 0;
    if (!str_eq(err->message, "Docker is not running"))
        return -1;
    fputs("Docker is not running: the image serves the native and oci backends only\n", stderr);
    printf("%s %s (recipe %.12s)\n", kept ? "kept" : "built", b->tar, b->recipe);
    return 0;
}

int docker_image_build(const struct docker_options *options)
{
    static struct build b;
    struct cordon_err err = {0};
    b.options = options;
    return build_all(&b, &err) < 0 ? cli_fail(&err) : 0;
}
