/* Folders of what Cordon remembers and can do without: $XDG_CACHE_HOME/cordon/NAME. */
#ifndef BASE_CACHEDIR_H
#define BASE_CACHEDIR_H

/* Values of XDG_CACHE_HOME and HOME, NULL where they are not set. Made where it is missing; -1
 * where there is none that is the caller's alone. */
int cachedir_open(const char *cache_home, const char *home, const char *name);

#endif
