/* Children of ours that are no guests, and that whoever started them waits for. One thread. */
#ifndef BASE_HELPERS_H
#define BASE_HELPERS_H

#include <stdbool.h>
#include <sys/types.h>

/* -1: there is no room for more. */
int helpers_add(pid_t pid);
/* When it was waited for. */
void helpers_drop(pid_t pid);
bool helpers_has(pid_t pid);

#endif
