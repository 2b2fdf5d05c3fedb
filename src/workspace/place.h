/* Putting one file into a folder of the host at once: at every moment there is the old one or the
 * new one. Runs on our side. */
#ifndef WORKSPACE_PLACE_H
#define WORKSPACE_PLACE_H

#include <sys/types.h>

#define PLACE_TEMP ".cordon-output~" /* and twelve letters: what a file is called before */

/* The bytes of `from` as name in dir, a folder somewhere below top, over whatever is there. What a
 * killed process leaves lies in top and goes with the next place_sweep(). -1 and errno. */
int place_file(int top, int dir, const char *name, int from, mode_t mode);
/* Removes what nobody is behind any more. */
void place_sweep(int top);

#endif
