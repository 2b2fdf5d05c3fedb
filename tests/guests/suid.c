/* F14, F26: leaves a setuid or setgid file in DIR by every call that can set a mode.
 *
 * usage: suid DIR
 * prints `NAME: OK|errno` per road and, at the end, `mode NAME: 0755` for whatever exists. */
#include "guest.h"

#include <linux/openat2.h>
#include <sys/xattr.h>

#define NR_fchmodat2 452

static const char *names[] = {"chmod", "fchmod",  "fchmodat", "fchmodat2", "open",  "openat",
                              "creat", "openat2", "mkdir",    "mkdirat",   "mknod", "mknodat",
                              "sgid",  "high",    "tmpfile",  "plain"};

static int fresh(const char *name)
{
    int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0755);
    if (fd < 0)
        report(name, -1);
    return fd;
}

static void by_chmod(void)
{
    int fd = fresh("chmod");
    TRY("chmod", syscall(SYS_chmod, "chmod", 04755));
    close(fd);
    fd = fresh("fchmod");
    TRY("fchmod", syscall(SYS_fchmod, fd, 04755));
    close(fd);
    fd = fresh("fchmodat");
    TRY("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "fchmodat", 04755));
    close(fd);
    fd = fresh("fchmodat2");
    TRY("fchmodat2", syscall(NR_fchmodat2, AT_FDCWD, "fchmodat2", 04755, 0));
    close(fd);
    fd = fresh("sgid");
    TRY("sgid", syscall(SYS_chmod, "sgid", 02755));
    close(fd);
    fd = fresh("high");
    TRY("high", syscall(SYS_chmod, "high", 0x100000000UL | 06755));
    close(fd);
    fd = fresh("plain");
    TRY("plain", syscall(SYS_chmod, "plain", 0711));
    close(fd);
}

static void by_create(void)
{
    TRY("open", syscall(SYS_open, "open", O_CREAT | O_WRONLY, 04755));
    TRY("openat", syscall(SYS_openat, AT_FDCWD, "openat", O_CREAT | O_WRONLY, 04755));
    TRY("creat", syscall(SYS_creat, "creat", 04755));
    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 04755};
    TRY("openat2", syscall(SYS_openat2, AT_FDCWD, "openat2", &how, sizeof(how)));
    TRY("mkdir", syscall(SYS_mkdir, "mkdir", 02755));
    TRY("mkdirat", syscall(SYS_mkdirat, AT_FDCWD, "mkdirat", 02755));
    TRY("mknod", syscall(SYS_mknod, "mknod", S_IFREG | 04755, 0));
    TRY("mknodat", syscall(SYS_mknodat, AT_FDCWD, "mknodat", S_IFREG | 04755, 0));
    int fd = (int)TRY("tmpfile", syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, 04755));
    if (fd >= 0) {
        char self[64];
        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        TRY("tmpfile_link", linkat(AT_FDCWD, self, AT_FDCWD, "tmpfile", AT_SYMLINK_FOLLOW));
    }
}

int main(int argc, char **argv)
{
    guest_deadline(20);
    umask(0);
    if (chdir(arg(argc, argv, 1, "/tmp")) < 0) {
        say("chdir", "%s", errname(errno));
        return 3;
    }
    by_chmod();
    by_create();
    int fd = fresh("filecap");
    unsigned char cap[20] = {1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff};
    TRY("filecap", setxattr("filecap", "security.capability", cap, sizeof(cap), 0));
    close(fd);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct stat st;
        char key[64];
        snprintf(key, sizeof(key), "mode %s", names[i]);
        if (lstat(names[i], &st) == 0)
            say(key, "%04o", st.st_mode & 07777);
    }
    return 0;
}
