/* Would an overlay of a folder be able to copy its files up? Runs on our side. */
#ifndef WORKSPACE_SCAN_H
#define WORKSPACE_SCAN_H

#include <stdbool.h>

/* Does the folder hold files of another owner or group than the caller's? The kernel maps only
 * these two into the guest and answers EOVERFLOW to a change of any other. The first few thousand
 * entries are looked at, nearest the top first: a tree has one owner or shows early that it has
 * several. */
bool scan_has_foreign(int base_fd);

#endif
