/* Handles: cordon_open(), cordon_close(), and the supervisor behind them. Runs in the calling
 * program.
 *
 * The lock is held only to look at or to replace the peer, never while a guest runs. It is not
 * touched in a forked child, where another thread of the parent may have held it. */
#include "lib/lib.h"

#include <errno.h>
#include <pthread.h>

#include "base/err.h"
#include "base/util.h"

struct cordon {
    pid_t owner; /* the process that opened it */
    pthread_mutex_t lock;
    struct peer *peer; /* NULL after a replacement failed */
    char *binary;
};

#define VERSION_TEXT_(a, b, c) #a "." #b "." #c
#define VERSION_TEXT(a, b, c) VERSION_TEXT_(a, b, c)

const char *cordon_version(void)
{
    return VERSION_TEXT(CORDON_VERSION_MAJOR, CORDON_VERSION_MINOR, CORDON_VERSION_PATCH);
}

static void handle_free(struct cordon *h)
{
    peer_unref(h->peer);
    free(h->binary);
    free(h);
}

int cordon_open(const struct cordon_options *options, struct cordon **ret_handle,
                struct cordon_err *err)
{
    if (!ret_handle || (options && options->size < sizeof(size_t)))
        return err_set(err, CORDON_ERR_USAGE, "open", 0, "cordon_options: size is not set");
    bool has_binary =
        options && options->size >= offsetof(struct cordon_options, binary) + sizeof(char *);
    struct cordon *h = calloc(1, sizeof(*h));
    if (!h)
        return err_nomem(err, "open");
    h->owner = getpid();
    if (locate_binary(has_binary ? options->binary : NULL, &h->binary, err) < 0 ||
        peer_start(h->binary, &h->peer, err) < 0) {
        handle_free(h);
        return -1;
    }
    pthread_mutex_init(&h->lock, NULL);
    *ret_handle = h;
    return 0;
}

void cordon_close(struct cordon *h)
{
    if (!h)
        return;
    if (h->owner == getpid()) {
        if (h->peer)
            peer_stop(h->peer);
        pthread_mutex_destroy(&h->lock);
    }
    handle_free(h);
}

pid_t cordon_supervisor_pid(struct cordon *h)
{
    if (h->owner != getpid())
        return -1;
    pthread_mutex_lock(&h->lock);
    pid_t pid = h->peer && !peer_is_gone(h->peer) ? h->peer->pid : -1;
    pthread_mutex_unlock(&h->lock);
    return pid;
}

int handle_peer(struct cordon *h, const struct peer *gone, struct peer **ret_peer,
                struct cordon_err *err)
{
    if (h->owner != getpid()) {
        err_set(err, CORDON_ERR_USAGE, "start", 0, "this handle belongs to process %d",
                (int)h->owner);
        return err_hint(err, "open a handle of its own after fork()");
    }
    int r = 0;
    struct peer *old = NULL;
    pthread_mutex_lock(&h->lock);
    /* Of many threads that saw the same supervisor die, the first replaces it. */
    if (!h->peer || h->peer == gone || peer_is_gone(h->peer)) {
        old = TAKE_PTR(h->peer);
        r = peer_start(h->binary, &h->peer, err);
    }
    if (r == 0)
        *ret_peer = peer_ref(h->peer);
    pthread_mutex_unlock(&h->lock);
    peer_unref(old);
    return r;
}
