/* Which large folders were looked at whole and lately, and found to be all the caller's. A look
 * costs a few microseconds per file: too much for every run, not for the first. Runs on our side.
 *
 * What is remembered is a hint, never a wall: should it be wrong, a guest fails to change a file,
 * the result says so, and the folder is forgotten. */
#ifndef WORKSPACE_OWNERS_H
#define WORKSPACE_OWNERS_H

#include <stdbool.h>

bool owners_is_known(int base_fd);
void owners_remember(int base_fd);
void owners_forget(int base_fd);

#endif
