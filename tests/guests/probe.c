/* Looks at paths, one action each: the workhorse of the file-system and leak tests.
 *
 * usage: probe ACTION PATH [ACTION PATH]...
 *   stat lstat read open-write create mkdir list unlink chmod exec connect cat readlink mknod
 * rename rmdir prints `ACTION PATH: OK|errno`, for `cat` and `list` and `readlink` also the content
 * on lines of their own. */
#include "guest.h"

#include <dirent.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static long do_read(const char *key, const char *path, bool show)
{
    char text[3000];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    int e = errno;
    close(fd);
    errno = e;
    if (n < 0)
        return -1;
    text[n] = 0;
    if (show) {
        char *save = NULL;
        for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
            say("line", "%s", l);
    }
    char size_key[300];
    snprintf(size_key, sizeof(size_key), "size of %.200s", key);
    say(size_key, "%zd", n);
    return 0;
}

static long do_list(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            say("entry", "%s", e->d_name);
    closedir(d);
    return 0;
}

static long do_write(const char *path, int flags)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | flags, 0644);
    if (fd < 0)
        return -1;
    long r = flags & O_CREAT ? (write(fd, "guest was here\n", 15) == 15 ? 0 : -1) : 0;
    int e = errno;
    close(fd);
    errno = e;
    return r;
}

static long do_connect(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(sa);
    if (path[0] == '@') {
        len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
        memcpy(sa.sun_path + 1, path + 1, strlen(path) - 1);
    } else {
        snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&sa, len);
}

static long do_exec(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, path, "--version", NULL);
        _exit(errno);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return errno ? -1 : 0;
}

static long act(const char *key, const char *action, const char *path)
{
    struct stat st;
    char link[4096];
    if (!strcmp(action, "stat"))
        return stat(path, &st);
    if (!strcmp(action, "lstat"))
        return lstat(path, &st);
    if (!strcmp(action, "read") || !strcmp(action, "cat"))
        return do_read(key, path, action[0] == 'c');
    if (!strcmp(action, "open-write"))
        return do_write(path, 0);
    if (!strcmp(action, "create"))
        return do_write(path, O_CREAT);
    if (!strcmp(action, "mkdir"))
        return mkdir(path, 0755);
    if (!strcmp(action, "rmdir"))
        return rmdir(path);
    if (!strcmp(action, "unlink"))
        return unlink(path);
    if (!strcmp(action, "rename"))
        return rename(path, "/tmp/renamed");
    if (!strcmp(action, "chmod"))
        return chmod(path, 0755);
    if (!strcmp(action, "mknod"))
        return mknod(path, S_IFCHR | 0666, makedev(1, 3));
    if (!strcmp(action, "list"))
        return do_list(path);
    if (!strcmp(action, "connect"))
        return do_connect(path);
    if (!strcmp(action, "exec"))
        return do_exec(path);
    if (!strcmp(action, "readlink")) {
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n >= 0)
            say("target", "%.*s", (int)n, link);
        return n < 0 ? -1 : 0;
    }
    errno = EINVAL;
    return -1;
}

int main(int argc, char **argv)
{
    guest_deadline(20);
    for (int i = 1; i + 1 < argc; i += 2) {
        char key[4300];
        snprintf(key, sizeof(key), "%s %s", argv[i], argv[i + 1]);
        TRY(key, act(key, argv[i], argv[i + 1]));
    }
    return 0;
}
