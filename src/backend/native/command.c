/* The guest's command: where it lies in the guest's own PATH, and what its file asks of memory.
 * Looked for by the process that becomes it, and by pid 1 after its end. */
#include "backend/native/native_internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

/* Looks the command up in the guest's own PATH, as a shell would: a name that exists but cannot be
 * run wins over one that does not exist. try() gives an errno, or 0 to end the search. */
int native_command_find(const struct plan *p,
                        int (*try)(const struct plan *p, const char *path, void *data), void *data)
{
    const char *name = p->argv[0];
    if (strchr(name, '/'))
        return try(p, name, data);
    if (!*name)
        return ENOENT;
    const char *path = "";
    for (char **e = p->env; *e; e++)
        if (strncmp(*e, "PATH=", 5) == 0)
            path = *e + 5;
    int best = ENOENT;
    size_t len = strlen(name);
    while (*path) {
        size_t n = strcspn(path, ":");
        char full[PATH_MAX];
        if (n > 0 && n + len + 2 <= sizeof(full)) {
            memcpy(full, path, n);
            full[n] = '/';
            memcpy(full + n + 1, name, len + 1);
            int r = try(p, full, data);
            if (r == 0)
                return 0;
            if (r != ENOENT && r != ENOTDIR)
                best = r;
        }
        path += n + (path[n] == ':');
    }
    return best;
}

/* The file may be the guest's own: a pipe must not hold pid 1 up, and no number in it is believed
 * further than the judgement of this one guest. */
static int command_static_size(const struct plan *p, const char *path, void *data)
{
    uint64_t *ret_bytes = data, sum = 0;
    Elf64_Ehdr head;
    Elf64_Phdr part[64];
    struct stat st;
    (void)p;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(part[0]) || head.e_phnum > ARRAY_SIZE(part))
        return 0;
    ssize_t size = (ssize_t)(head.e_phnum * sizeof(part[0]));
    if (pread(fd, part, (size_t)size, (off_t)head.e_phoff) != size)
        return 0;
    for (int i = 0; i < head.e_phnum; i++)
        if (part[i].p_type == PT_LOAD && (part[i].p_flags & PF_W) &&
            __builtin_add_overflow(sum, part[i].p_memsz, &sum))
            sum = UINT64_MAX;
    *ret_bytes = sum;
    return 0;
}

void native_command_note_static(const struct plan *p, struct native_status *status)
{
    uint64_t bytes = 0;
    native_command_find(p, command_static_size, &bytes);
    status->static_bytes = bytes;
}
