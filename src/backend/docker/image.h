/* Images and containers of ours in an engine. Used by `cordon-docker image`. */
#ifndef BACKEND_DOCKER_IMAGE_H
#define BACKEND_DOCKER_IMAGE_H

#include "backend/docker/engine.h"

#define IMAGE_RECIPE_LABEL "cordon.recipe"
#define IMAGE_OWNER_LABEL "cordon.owner"
#define IMAGE_OWNER_MAX 128

struct image_info {
    char id[80];
    char recipe[80]; /* empty: not made by us */
    char created[40];
    uint64_t bytes;
};

/* *ret_found false: the engine has no image of that name. */
int image_find(const struct engine *e, const char *name, struct image_info *ret_info,
               bool *ret_found, struct cordon_err *err);

/* Sends an archive as the image's one layer. on_progress may be NULL. */
int image_import(const struct engine *e, const char *name, int tar_fd, const char *recipe,
                 void (*on_progress)(uint64_t done, uint64_t total), struct cordon_err *err);

/* Removes an image by its id; in use or gone is no error, *ret_removed says. */
int image_remove(const struct engine *e, const char *id, bool *ret_removed, struct cordon_err *err);

struct image_container {
    char id[80];
    char name[80];
    char state[24];
    char image[160];
    char owner[IMAGE_OWNER_MAX];
};

/* Containers of runs, going or not; the caller frees the list. A container somebody made of our
 * image inherits the image's label, which is another. */
int image_containers(const struct engine *e, struct image_container **ret_list, size_t *ret_n,
                     struct cordon_err *err);
/* Ids of images with our label that have no name any more; the caller frees the list. */
int image_dangling(const struct engine *e, char (**ret_ids)[80], size_t *ret_n,
                   struct cordon_err *err);

/* owner.c: who answers for a container, as text for its label: this boot, this pid namespace, this
 * process. */
void owner_text(char *ret, size_t size);
/* Is that process still there? Somebody else's boot or namespace cannot be looked into: true. */
bool owner_is_alive(const char *text);

#endif
