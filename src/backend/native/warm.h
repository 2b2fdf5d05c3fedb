/* Guests prepared before they are asked for (tier full).
 *
 *   supervisor ── spawner            pid 1 of a pool's own namespaces, in a template of the root
 *                    ├─ pid 1 of a prepared guest      all walls up, waits for its order
 *                    ├─ pid 1 of another
 *                    ├─ pid 1 of a room                sleeps
 *                    └─ its porter                     starts guests in it, one after the other
 *
 * A spawner serves one plan key (plan_key.c). Its user namespace, the pool's, lies between the
 * host's and those of its guests; each guest gets user, mount, pid, ipc, uts and time namespaces
 * of its own, from the spawner's copy of the mounts, and a network namespace of its own or one that
 * earlier guests left as it was (warm_netns.c). It owns none but its user, cgroup and time
 * namespace: what stands around it belongs to the pool.
 *
 * A prepared guest is used once; a room serves guests for as long as each leaves it as it was
 * (warm_room.c), and is given up otherwise. The order (command, environment, files, limits) reaches
 * it on its lifeline, and its broker, where it has one, whom it may reach; nothing of any run
 * reaches the spawner. Everything here but warm_spawner.c, warm_netns.c and warm_guest.c runs in
 * the supervisor. */
#ifndef NATIVE_WARM_H
#define NATIVE_WARM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "backend/backend.h"

struct warm;
struct warm_guest;

/* Starts a spawner for plans with this plan's key; the plan may go afterwards. interpreter:
 * programs are forked from a warm interpreter (plan_has_interpreter()). */
int warm_open(const struct plan *plan, bool interpreter, struct warm **ret_warm,
              struct cordon_err *err);
/* No new guests; the spawner ends with the last one of its guests, which are dropped or claimed. */
void warm_close(struct warm *warm);
/* Readable when the spawner has something to say; then call warm_read(). */
int warm_fd(const struct warm *warm);
/* -1: the spawner is gone or failed, and its guests with it; *err says why. */
int warm_read(struct warm *warm, struct cordon_err *err);

/* Asks for one more guest. It belongs to the caller until it is claimed or dropped. */
int warm_park(struct warm *warm, struct warm_guest **ret_guest, struct cordon_err *err);
bool warm_is_ready(const struct warm_guest *guest);
/* Of one that is ready: do the plan's granted paths mean what it was given? (warm_grants.c) */
bool warm_is_current(const struct warm_guest *guest, const struct plan *plan);
bool warm_has_failed(const struct warm_guest *guest);
/* A room that serves nobody any more; it is dropped, and that is no failure. */
bool warm_is_over(const struct warm_guest *guest);
/* Its guests' processes are the porter's children and in groups without pid 1. */
bool warm_is_room(const struct warm_guest *guest);
/* It served before: until it is ready it is not known whether it will again. */
bool warm_has_served(const struct warm_guest *guest);
/* A room whose guest has ended, as if it were newly parked; NULL: none. */
struct warm_guest *warm_take_back(struct warm *warm);
uint64_t warm_born_ns(const struct warm_guest *guest);
void warm_drop(struct warm_guest *guest);
/* Gives it its order: as backend.start, for a plan of the same key. The guest may still be in the
 * making, unless the plan has granted paths: then it is ready and current. On failure it is
 * dropped; nothing of the run has happened then. */
int warm_claim(struct warm_guest *guest, const struct plan *plan, struct guest *ret_guest,
               struct cordon_err *err);

/* For the native backend: the end of a claimed guest. */
void warm_wait(struct warm_guest *guest, struct rusage *ret_usage);
void warm_release(struct warm_guest *guest);
/* All processes of its guest are gone, and it was not killed: takes the descriptors if it is a room
 * that may serve another. False: it is released like any other. */
bool warm_keep_room(struct warm_guest *guest, int *go_fd, int *done_fd);
/* Takes its groups, all processes in which are gone, for another guest. False: they stay the
 * caller's. */
struct cgroup;
bool warm_keep_groups(struct warm_guest *guest, struct cgroup *cgroup);

#endif
