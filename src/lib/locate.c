/* Where the cordon program is. Runs in the calling program. */
#include "lib/lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/util.h"

/* A program found only because of where a library lies must be somebody's we already trust: the
 * superuser's, our own, or that of the library's owner. Else /tmp/app/libcordon.so would run
 * /tmp/bin/cordon, whoever put it there. */
static bool locate_is_trusted(const char *path, const char *library)
{
    struct stat st, lib;
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & S_IWOTH))
        return false;
    return st.st_uid == 0 || st.st_uid == geteuid() ||
           (stat(library, &lib) == 0 && lib.st_uid == st.st_uid);
}

/* PREFIX/lib/libcordon.so or PREFIX/lib/x86_64-linux-gnu/libcordon.so → PREFIX/bin/cordon. */
static char *locate_beside(void)
{
    static const char *const steps[] = {"/../bin/cordon", "/../../bin/cordon"};
    Dl_info info;
    /* Linked statically this is the program's own argv[0], which a caller of a setuid program
     * picks. */
    if (getauxval(AT_SECURE) || !dladdr((void *)(uintptr_t)cordon_open, &info) || !info.dli_fname)
        return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    for (size_t i = 0; slash && i < ARRAY_SIZE(steps); i++) {
        _cleanup_free_ char *path = NULL;
        if (asprintf(&path, "%.*s%s", (int)(slash - info.dli_fname), info.dli_fname, steps[i]) <
            0) {
            path = NULL;
            return NULL;
        }
        if (locate_is_trusted(path, info.dli_fname))
            return TAKE_PTR(path);
    }
    return NULL;
}

int locate_binary(const char *wanted, char **ret_path, struct cordon_err *err)
{
    _cleanup_free_ char *beside = NULL;
    if (!wanted) {
        wanted = secure_getenv("CORDON_BINARY");
        if (wanted && !*wanted)
            wanted = NULL;
    }
    if (!wanted)
        wanted = beside = locate_beside();
    if (!wanted)
        wanted = CORDON_BINDIR "/cordon";

    char *path = realpath(wanted, NULL); /* stays right when the program changes its folder */
    if (!path) {
        err_set(err, errno == ENOMEM ? CORDON_ERR_INTERNAL : CORDON_ERR_USAGE, "open", errno,
                "the cordon program: %s", wanted);
        return err_hint(err, "install it, or name it in CORDON_BINARY or struct cordon_options");
    }
    *ret_path = path;
    return 0;
}
