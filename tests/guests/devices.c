/* F15: makes device nodes by every call, and opens device numbers that must not be reachable. */
#include "guest.h"

#include <sys/sysmacros.h>

static void try_node(const char *key, mode_t type, unsigned major_nr, unsigned minor_nr)
{
    char path[128];
    snprintf(path, sizeof(path), "/tmp/%s", key);
    TRY(key, mknod(path, type | 0666, makedev(major_nr, minor_nr)));
    char open_key[160];
    snprintf(open_key, sizeof(open_key), "open_%s", key);
    TRY(open_key, open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

int main(void)
{
    guest_deadline(20);
    try_node("mem", S_IFCHR, 1, 1);
    try_node("kmsg", S_IFCHR, 1, 11);
    try_node("null", S_IFCHR, 1, 3);
    try_node("console", S_IFCHR, 5, 1);
    try_node("disk", S_IFBLK, 254, 0);
    try_node("loop", S_IFBLK, 7, 0);
    TRY("mknodat", mknodat(AT_FDCWD, "/tmp/at", S_IFBLK | 0666, makedev(8, 0)));
    TRY("whiteout", mknod("/tmp/whiteout", S_IFCHR, 0));
    TRY("fifo", mkfifo("/tmp/fifo", 0600));
    TRY("socket", mknod("/tmp/socket", S_IFSOCK | 0600, 0));
    TRY("regular", mknod("/tmp/regular", S_IFREG | 0600, 0));
    return 0;
}
