/* Finds helper executables. Runs in the command and in the supervisor. */
#include "base/libexec.h"

#include <errno.h>
#include <limits.h>

#include "base/util.h"

bool libexec_is_command;

int libexec_find(const char *name, char *ret_path, size_t size)
{
    static const char *const steps[] = {"", "/src", "/../libexec/cordon"};
    char self[PATH_MAX], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return -1;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash) {
        errno = ENOENT;
        return -1;
    }
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        int len = snprintf(path, sizeof(path), "%s%s/%s", self, steps[i], name);
        if (len < 0 || (size_t)len >= sizeof(path) || (size_t)len >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        if (access(path, X_OK) == 0) {
            memcpy(ret_path, path, (size_t)len + 1);
            return 0;
        }
    }
    errno = ENOENT;
    return -1;
}
