/* F18: open_by_handle_at, the way out of containers that had CAP_DAC_READ_SEARCH. Tries the root
 * inode of whatever file system lies under each path, with and without a handle taken first. */
#include "guest.h"

static void by_path(const char *path)
{
    struct {
        struct file_handle h;
        unsigned char bytes[128];
    } handle = {0};
    int mount_id, fd = open(path, O_RDONLY | O_CLOEXEC);
    char key[128];
    handle.h.handle_bytes = 128;
    snprintf(key, sizeof(key), "take %s", path);
    TRY(key, name_to_handle_at(AT_FDCWD, path, &handle.h, &mount_id, 0));
    snprintf(key, sizeof(key), "open %s", path);
    TRY(key, open_by_handle_at(fd, &handle.h, O_RDONLY));
    uint64_t ino = 2;
    memset(&handle, 0, sizeof(handle));
    handle.h.handle_bytes = 8;
    handle.h.handle_type = 1;
    memcpy(handle.bytes, &ino, sizeof(ino));
    snprintf(key, sizeof(key), "root inode %s", path);
    TRY(key, open_by_handle_at(fd, &handle.h, O_RDONLY));
}

int main(void)
{
    guest_deadline(10);
    by_path("/");
    by_path("/etc/hosts");
    by_path("/usr");
    by_path("/tmp");
    return 0;
}
