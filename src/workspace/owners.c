/* Notes on folders whose owners are known: one empty file each, in a folder of the caller's cache,
 * which every grant covers. Its time of change is when the folder was looked at. */
#include "workspace/owners.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cachedir.h"
#include "base/util.h"

#define OWNERS_SECONDS (24 * 60 * 60)
#define OWNERS_NAME 96

static int owners_open(void)
{
    return cachedir_open(getenv("XDG_CACHE_HOME"), getenv("HOME"), "owners");
}

/* Which folder, and whose it was found to be. */
static bool owners_name(int base_fd, char ret_name[static OWNERS_NAME])
{
    struct stat st;
    if (fstat(base_fd, &st) < 0)
        return false;
    snprintf(ret_name, OWNERS_NAME, "%llx-%llx-%u-%u", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino, (unsigned)geteuid(), (unsigned)getegid());
    return true;
}

static bool owners_is_recent(int dir, const char *name)
{
    struct stat st;
    time_t now = time(NULL);
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_mtime <= now && st.st_mtime > now - OWNERS_SECONDS;
}

bool owners_is_known(int base_fd)
{
    char name[OWNERS_NAME];
    _cleanup_close_ int dir = owners_open();
    return dir >= 0 && owners_name(base_fd, name) && owners_is_recent(dir, name);
}

static void owners_trim(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list)
        util_close(&fd);
    for (const struct dirent *e; list && (e = readdir(list));)
        if (e->d_name[0] != '.' && !owners_is_recent(dir, e->d_name))
            unlinkat(dir, e->d_name, 0);
    if (list)
        closedir(list);
}

void owners_remember(int base_fd)
{
    char name[OWNERS_NAME];
    _cleanup_close_ int dir = owners_open();
    if (dir < 0 || !owners_name(base_fd, name))
        return;
    _cleanup_close_ int fd =
        openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)futimens(fd, NULL);
    owners_trim(dir);
}

void owners_forget(int base_fd)
{
    char name[OWNERS_NAME];
    _cleanup_close_ int dir = owners_open();
    if (dir >= 0 && owners_name(base_fd, name))
        unlinkat(dir, name, 0);
}
