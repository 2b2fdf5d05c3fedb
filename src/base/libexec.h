/* Where the executables are that do what needs heavy libraries. */
#ifndef BASE_LIBEXEC_H
#define BASE_LIBEXEC_H

#include <stddef.h>

/* Path of a helper by its name: beside this program or in src/ of it (a build folder), or in
 * ../libexec/cordon/ of it (an installation). Never looked up by PATH. -1 with errno when there is
 * none. */
int libexec_find(const char *name, char *ret_path, size_t size);

#endif
