/* Between protect_watch.c and protect_walk.c. */
#ifndef WORKSPACE_PROTECT_INTERNAL_H
#define WORKSPACE_PROTECT_INTERNAL_H

#include <stdint.h>

#include "base/arena.h"
#include "workspace/protect.h"

/* Where every cordon.toml below a folder is. */
struct protect_place {
    const char *path;
    dev_t dev;
    ino_t ino;
    int fd; /* of the file itself, wherever it goes; -1 beyond the first few dozen */
};

struct protect_places {
    struct arena arena;
    struct protect_place *rows;
    size_t n;
    bool is_cut; /* more folders or entries than are looked at */
};

void protect_places(int top_fd, struct protect_places *ret);
void protect_places_done(struct protect_places *places);

/* Protected paths below the top's own entries that changed since then, and policies that are
 * somewhere else than they were. */
struct protect_found_row {
    const char *path;
    enum tree_kind kind;
};

struct protect_found {
    struct arena arena;
    struct protect_found_row *rows;
    size_t n;
    bool is_cut;
};

/* since_ns: of the real-time clock, before the guest. Marks policies that were moved as changed. */
void protect_find(int top_fd, const struct protect_places *before, int64_t since_ns,
                  struct protect_found *ret);
void protect_found_done(struct protect_found *found);

#endif
