/* Shared by the warm_*.c files only: both sides of a spawner's and of a prepared guest's socket. */
#ifndef NATIVE_WARM_INTERNAL_H
#define NATIVE_WARM_INTERNAL_H

#include <sys/socket.h>

#include "backend/native/native_internal.h"
#include "backend/native/warm.h"
#include "backend/native/warm_wire.h"
#include "base/buf.h"

#define WARM_SLOTS 640 /* status pages; the first is the spawner's own */
#define WARM_FDS_MAX 64
#define WARM_RESTING 6 /* most of them that are not ready for it */
#define WARM_GROUPS 24 /* sets of groups that wait for their next guest */

enum warm_slot { WARM_FREE, WARM_USED, WARM_ENDING };

/* A status page each. */
union warm_page {
    struct native_status status;
    char room[4096];
};
_Static_assert(sizeof(union warm_page) == 4096, "one page per guest");

struct warm_groups {
    struct cgroup *cgroup;
    struct plan_limits limits; /* as they have them */
    uint64_t rests_since_ns;   /* not 0: memory of their last guest is still to be given back */
};

struct warm {
    unsigned refs; /* the pool's and one per guest */
    int sock;
    int pidfd;
    bool has_zygote; /* programs are forked from a warm interpreter */
    pid_t pid;
    union warm_page *pages; /* shared with the spawner and, one each, its guests */
    unsigned char slots[WARM_SLOTS];
    uint32_t serials;
    struct warm_guest *guests;
    bool own_host_ids;
    unsigned own_id; /* of the spawner, as its user on the host; 0: the caller's */
    unsigned failures;
    struct host_cgroups cgroups; /* where those of guests are made */
    struct cgroup_pool *group;   /* root's, of version 2, around all of them; NULL: none */
    struct plan_limits limits;
    bool has_net; /* guests have a way out, each with a broker of its own */
    struct warm_groups idle[WARM_GROUPS];
    size_t n_idle, n_resting;
    struct plan grants; /* root's: only its operations, those that bind granted paths */
    /* Is the network of a room looked at after every guest, or after those that made a socket of
     * it? They are told of, which costs them; so only where many guests left it alone, and
     * not once one was seen to make some. */
    bool looks_at_network, has_sockets;
    unsigned n_quiet;
    unsigned n_rooms;
    bool has_rooms;              /* guests of this kind may follow each other in one */
    unsigned spoilt, asked;      /* rooms in a row that served but one; requests since */
    struct warm_guest *returned; /* rooms whose guest has ended */
};

struct warm_guest {
    struct warm *warm;
    struct warm_guest *next;
    unsigned slot;
    uint32_t serial;
    struct native_status *status;
    struct cgroup *cgroup;
    struct plan_limits limits; /* as its groups have them */
    int go_fd, done_fd, pidfd, stdio[3];
    struct netclient *net; /* the broker that waits with it, NULL: none */
    bool net_has_begun;    /* it knows its run, and has the listeners of published ports */
    pid_t pid;
    unsigned id; /* its user on the host, 0: the caller's */
    int error;   /* of the spawner; 0: none */
    uint64_t born_ns;
    bool is_claimed;
    bool is_room, returns, looks_at_network;
    bool is_unseen; /* who looks at its processes would not find them: not to be used */
    unsigned runs;  /* that it was claimed for */
    struct warm_guest *next_returned;
};

/* How far a room is, on its status page. */
enum warm_stand {
    WARM_ROOM_STANDS = 1, /* its pid 1 has built it, and waits for the porter */
    WARM_ROOM_HELD,       /* pid 1 is hidden and has no rights left: guests may come */
};

/* supervisor → spawner, with descriptors: lifeline, done, three streams, [v2 group], entries of v1
 * groups, mounts of granted paths, [where the gate's sockets go]; of a room the first two only */
struct warm_spawn {
    uint32_t slot;
    uint32_t serial; /* tells guests of one slot apart */
    uint32_t id;     /* offset of its user in the pool's namespace */
    uint32_t has_group;
    uint32_t n_entries;
    uint32_t n_grants;         /* paths of the host that are given with it */
    uint32_t grants;           /* bit i: the i-th of them is there */
    uint32_t has_broker;       /* it has a way out */
    uint32_t is_room;          /* guests come one after the other */
    uint32_t looks_at_network; /* as of warm_porter */
};
#define WARM_SPAWN_FDS 5
#define WARM_ROOM_FDS 2

/* spawner → supervisor, with a pidfd unless error is set, and of a room with that of its porter */
struct warm_spawned {
    uint32_t slot, serial;
    int32_t error;
};

struct warm_order_file {
    uint64_t name, data, data_len;
    int64_t fd; /* index of its descriptor, -1: data */
};

/* warm.c: how far from the first id of the pool's namespace this id of the host is. */
unsigned warm_id_inside(const struct warm *warm, unsigned id);
/* A guest gives its share of the spawner back. */
void warm_unref_guest(struct warm *warm);

/* warm_root.c. In the spawner: a copy of its mount namespace without /proc, which guests' are
 * copied from. The kernel lets nobody mount a new /proc who sees none, so the spawner keeps its
 * own; a guest that had to take it down would wait for every core. */
int warm_root_split(struct native_child *c);
/* Before the template: the host's mounts as they are, for who binds paths of it later. */
int warm_root_host(struct native_child *c);
/* In the guest, in its pid namespace and the spawner's mounts: into a copy of the template, with a
 * /proc of its own; host_fd: the host's mounts, by way of which granted paths are opened (-1: they
 * were by the supervisor, or there are none). */
void warm_root_copy(struct native_child *c, int template_fd, int host_fd);

/* warm_rooms.c */
bool warm_may_have_rooms(const struct plan *plan, bool interpreter);
/* Is the next guest of this kind to have one? */
bool warm_wants_room(struct warm *warm);
/* Its guest has ended, and it returns. */
void warm_room_return(struct warm_guest *guest);
/* It goes: how many it has served says whether more are worth it. */
void warm_room_note_end(struct warm_guest *guest);

/* warm_grants.c: what of the plan's paths is needed for guests to come */
int warm_grants_copy(struct warm *warm, const struct plan *plan, struct cordon_err *err);
void warm_grants_free(struct warm *warm);
/* Root's: their mounts, owned by the guest's user; added to the message and its descriptors. */
int warm_grants_open(const struct warm_guest *guest, struct warm_spawn *m, int *ret_fds,
                     size_t *ret_n, struct cordon_err *err);

/* warm_order.c */
int warm_order_encode(const struct plan *plan, struct buf *out);
/* In the prepared guest, in place: *plan gets what came late. files and fds have room for
 * WARM_FDS_MAX; -1 when there is more than that. */
int warm_order_decode(void *body, size_t len, struct plan *plan, struct plan_file *files,
                      int *file_fds, const int *fds);
int warm_send(int sock, const struct iovec *parts, size_t n_parts, const int *fds, size_t n_fds,
              int flags);
/* Length, 0 at the end, -1 with errno; descriptors are close-on-exec. */
ssize_t warm_recv(int sock, struct iovec *parts, size_t n_parts, int *ret_fds, size_t *ret_n_fds,
                  int flags);

/* warm_spawner.c, never returns. c is the template of every guest's. */
_Noreturn void warm_spawner_main(struct native_child *c, int sock, int folder_fd,
                                 union warm_page *pages);
/* warm_netns.c, in the spawner. A kept network namespace for the guest in this slot, or -1: it
 * makes its own, and the store gets one for the next. */
void warm_netns_init(void);
int warm_netns_take(unsigned slot);
void warm_netns_refill(void);
void warm_netns_leave(void); /* back from one of the store; ends the process if it cannot */
void warm_netns_return(unsigned slot); /* every process of the guest is gone */
/* The same look for a room's own, by its porter: from inside; as it is to stay; is it so? */
bool warm_netns_own_open(void);
bool warm_netns_own_begin(void);
bool warm_netns_own_is_untouched(bool had_sockets); /* else only: is one left, of any kind? */
/* warm_zygote.c, in the spawner: starts the interpreter, gives the socket for its commands */
int warm_zygote_start(struct native_child *c, int folder_fd);
/* in a guest's pid 1: lets the forked interpreter through the walls, gives its number */
pid_t warm_zygote_admit(struct native_child *c, const struct native_guest *g, int time_fd);
/* and hands the order on, as it came */
void warm_zygote_order(struct native_child *c, const struct warm_order *order, const void *body,
                       int memfd);
/* warm_guest.c, never returns. is_room: as its pid 1 only, whose go_fd is the porter's lifeline. */
_Noreturn void warm_guest_main(struct native_child *c, unsigned id, bool has_network, bool is_room);
/* Waits on go_fd for an order, which the plan gets. It stays where it is until the next. */
struct warm_taken {
    struct warm_order head;
    const char *body; /* NULL: in the memfd */
    int memfd;
    int group_fd; /* of version 2, -1: none */
    void *mapped;
    int fds[WARM_FDS_MAX];
    size_t n_fds;
};
void warm_guest_receive(struct native_child *c, const struct plan *plan, struct warm_taken *ret);

/* warm_porter.c, never returns. Of a room; pid_fd: its pid 1, whose number is pid. */
struct warm_porter {
    unsigned id;           /* the user of its guests in the pool's namespace, from the first */
    pid_t pid;             /* the room's pid 1 */
    int pid_fd;            /* the same */
    int lifeline_fd;       /* pid 1 ends with the other end */
    bool looks_at_network; /* after every guest; else after those that had sockets of it */
};
_Noreturn void warm_porter_main(struct native_child *c, struct warm_porter *porter);

/* warm_room.c, in the porter: all that a guest could leave behind for the next. open is called in
 * the room's network, with a /proc that shows its pid 1; begin when nothing of ours changes it any
 * more; is_alone when the guest's main process was waited for: no other is left; is_as_new says
 * whether the next one could tell. */
bool warm_room_open(const struct warm_porter *porter);
bool warm_room_look_at_proc(void); /* once before and once after it, in the room */
bool warm_room_begin(void);
bool warm_room_is_alone(unsigned *ret_others);
bool warm_room_is_as_new(bool had_sockets); /* of the network */

#endif
