/* Readers of the kernel's small text files. Pure: text in, values out, so that tests make hosts up.
 * Text is always NUL-terminated by the caller. */
#ifndef HOST_TEXT_H
#define HOST_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* /proc/self/cgroup: our path in the v1 hierarchy that has the controller, or in v2 when controller
 * is NULL. False when there is no such line or the path does not fit. */
bool host_text_cgroup_path(const char *text, const char *controller, char *ret_path, size_t size);

/* True when both controllers sit in one v1 hierarchy. */
bool host_text_cgroup_same(const char *text, const char *a, const char *b);

/* /proc/self/mountinfo: where the v1 hierarchy with the controller (v2: NULL) is mounted and which
 * of its groups is the root of that mount. The last such mount wins, as it covers earlier ones. */
bool host_text_cgroup_mount(const char *mountinfo, const char *controller, char *ret_mount,
                            char *ret_root, size_t size);

/* The folder of group `path` below a mount whose root is the group `root`. False when the group is
 * outside that mount, or the result does not fit. */
bool host_text_cgroup_join(const char *mount, const char *root, const char *path, char *ret_dir,
                           size_t size);

/* A word of a list separated by blanks (cgroup.controllers, /proc/filesystems). */
bool host_text_has_word(const char *text, const char *word);

/* /proc/self/uid_map: how many ids exist in this namespace. */
uint64_t host_text_id_count(const char *uid_map);

/* "6.1.0-18-amd64" -> 6, 1. */
bool host_text_kernel(const char *release, int *ret_major, int *ret_minor);

/* /proc/self/status: the value of "Key:" as a number in the given base, or -1. */
int64_t host_text_status(const char *status, const char *key, int base);

/* /proc/PID/stat: field 22, when the process started, in ticks since boot; 0 when it is not there.
 * The name in field 2 is the process's own choice and may hold blanks and brackets. */
uint64_t host_text_start_time(const char *stat);

/* mountinfo: how many mounts cover parts of /proc, as containers do to hide them; the kernel then
 * refuses a new /proc to a user namespace. An empty folder may be covered (binfmt_misc): not
 * counted. */
unsigned host_text_proc_masks(const char *mountinfo, char *ret_first, size_t size);

/* mountinfo: false when no mount is at "/", which is how a plain chroot looks. */
bool host_text_has_root_mount(const char *mountinfo);

#endif
