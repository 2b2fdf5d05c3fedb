/* The root with mount(2). */
#include "backend/native/native_internal.h"

#include <errno.h>

void native_root_build_old(struct native_child *c)
{
    native_child_fail(c, "root", ENOSYS, "new mount API");
}
