/* One container kept for a sequence of commands (--reuse): started in the background by the first
 * command that could have used it, held by a process of its own, used by one command at a time.
 * Runs in the supervisor of a handle; a command that finds it busy, not ready yet, or made from
 * another request has a container of its own, as without --reuse. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/helper/helper.h"
#include "base/err.h"
#include "base/util.h"

static struct holder {
    pid_t pid; /* 0: none */
    int control_fd, channel_fd;
    char *key;
    char name[HELPER_NAME_MAX];
    bool ready, busy;
} holder = {.control_fd = -1, .channel_fd = -1};

/* It ends by itself when its socket does. */
static void holder_drop(void)
{
    util_close(&holder.control_fd);
    util_close(&holder.channel_fd);
    if (holder.pid > 0)
        while (waitpid(holder.pid, NULL, 0) < 0 && errno == EINTR)
            ;
    free(holder.key);
    holder = (struct holder){.control_fd = -1, .channel_fd = -1};
}

static void holder_listen(void)
{
    struct helper_message m;
    ssize_t n;
    int fd;
    while ((n = helper_receive(holder.control_fd, &m, &fd)) > 0) {
        _cleanup_close_ int right = fd;
        if (n != (ssize_t)sizeof(m) || m.magic != HELPER_MAGIC)
            continue;
        holder.ready = m.type == HELPER_STARTED;
        if (holder.ready && right >= 0) {
            util_close(&holder.channel_fd);
            holder.channel_fd = TAKE_FD(right);
        }
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        holder_drop();
}

static void holder_start(const struct plan *plan, char *program, char *key)
{
    struct cordon_err drop;
    int control[2] = {-1, -1};
    _cleanup_close_ int request = -1, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || helper_name(holder.name, &drop) < 0 ||
        helper_request_fd(plan, holder.name, NULL, &request, &drop) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        free(key);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {program, "hold", NULL};
        int fds[] = {null, null, null, control[1], request};
        helper_exec(program, fds, ARRAY_SIZE(fds), argv, plan->container.vars);
    }
    close(control[1]);
    if (pid < 0) {
        close(control[0]);
        free(key);
        return;
    }
    holder.pid = pid;
    holder.control_fd = control[0];
    holder.key = key;
}

const char *holder_take(const struct plan *plan, char *program)
{
    char *key = helper_request_key(plan);
    if (!key)
        return NULL;
    if (holder.pid > 0)
        holder_listen();
    if (holder.pid == 0) {
        holder_start(plan, program, key);
        return NULL;
    }
    bool fits = holder.ready && !holder.busy && str_eq(holder.key, key);
    free(key);
    if (!fits)
        return NULL;
    holder.busy = true;
    return holder.name;
}

int holder_channel(void)
{
    return holder.channel_fd;
}

/* One that ended while the command ran may have a successor, which is somebody else's. */
void holder_give_back(const char *name)
{
    if (str_eq(holder.name, name))
        holder.busy = false;
}

void holder_discard(const char *name)
{
    if (str_eq(holder.name, name))
        holder_drop();
}
