/* Where the executables are that do what needs heavy libraries. */
#ifndef BASE_LIBEXEC_H
#define BASE_LIBEXEC_H

#include <stdbool.h>
#include <stddef.h>

/* Path of a helper by its name: beside this program or in src/ of it (a build folder), or in
 * ../libexec/cordon/ of it (an installation). Never looked up by PATH. -1 with errno when there is
 * none. */
int libexec_find(const char *name, char *ret_path, size_t size);

/* Set by the command's main() alone: /proc/self/exe is the command, and can be started as another
 * part of itself. Our code may be in other programs, too: an interpreter that loaded it would run
 * whatever its arguments name. */
extern bool libexec_is_command;

#endif
