/* The copy of a folder where no overlay can serve, and the look at a large one that tells. Runs in
 * the supervisor; the copying itself in a child of its own, which ends with its parent, holds none
 * of its descriptors, and can be killed: nothing it leaves has another name than a workspace's
 * state. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/detach.h"
#include "base/err.h"
#include "base/util.h"
#include "run/files.h"
#include "workspace/scan.h"

struct files_copy {
    struct loop_watch watch;
    int fd; /* the child's one answer */
    pid_t pid;
};

struct copy_answer {
    struct cordon_err err; /* code 0: all went well */
    bool is_overlay;       /* everything is the caller's, and nothing was copied */
    bool is_whole;         /* and there is no more than was looked at */
};

/* 0, 1 and 2 are the folder, its copy and the answer. */
static void copy_child(const struct workspace *ws, int base_fd, int to_fd, int answer_fd,
                       pid_t parent)
{
    struct copy_answer answer = {0};
    struct workspace own = *ws;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "cordon-copy");
    int fds[4] = {base_fd, to_fd, answer_fd, ws->place_fd};
    if (detach_keep(fds, ARRAY_SIZE(fds)) < 0)
        _exit(1);
    own.place_fd = 3;
    if (getppid() != parent)
        _exit(1);
    enum scan_owners owners = own.wants_look ? scan_whole(0) : SCAN_FOREIGN;
    answer.is_overlay = owners != SCAN_FOREIGN;
    answer.is_whole = owners == SCAN_OWN;
    if (owners == SCAN_FOREIGN && workspace_copy_work(&own, 0, 1, &answer.err) == 0)
        answer.err = (struct cordon_err){0};
    (void)!write(2, &answer, sizeof(answer));
    _exit(0);
}

static void copy_reap(struct files_copy *c)
{
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    util_close(&c->fd);
    free(c);
}

static void copy_on_answer(struct loop_watch *w, uint32_t events)
{
    (void)events;
    struct run_job *job = w->data;
    struct files_copy *c = TAKE_PTR(job->files_changed.copying);
    struct workspace *ws = job->files_changed.workspace;
    struct copy_answer answer;
    struct cordon_err err = {0};
    if (read(c->fd, &answer, sizeof(answer)) == (ssize_t)sizeof(answer))
        err = answer.err;
    else
        err_set(&err, CORDON_ERR_INTERNAL, "workspace", 0, "the copy of the folder was cut off");
    loop_set(job->loop, &c->watch, 0);
    copy_reap(c);
    if (err.code == 0 && answer.is_overlay)
        workspace_look_end(ws, answer.is_whole);
    else if (err.code == 0 && workspace_copy_end(ws, &err) == 0)
        err.code = 0;
    run_continue(job, &err);
}

int files_copy_begin(struct run_job *job, struct cordon_err *err)
{
    struct workspace *ws = job->files_changed.workspace;
    int to = -1, pair[2];
    if (workspace_copy_begin(ws, &to, err) < 0)
        return -1;
    _cleanup_close_ int to_fd = to;
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "pipe");
    _cleanup_close_ int far = pair[1];
    struct files_copy *c = calloc(1, sizeof(*c));
    pid_t self = getpid(), pid = c ? fork() : -1;
    if (pid == 0)
        copy_child(ws, ws->base_fd, to_fd, far, self);
    if (pid < 0) {
        int e = c ? errno : ENOMEM;
        free(c);
        close(pair[0]);
        return err_set(err, CORDON_ERR_INTERNAL, "workspace", e, "a child for the copy");
    }
    c->pid = pid;
    c->fd = pair[0];
    c->watch = (struct loop_watch){.fd = c->fd, .fn = copy_on_answer, .data = job};
    job->files_changed.copying = c;
    if (loop_set(job->loop, &c->watch, EPOLLIN) < 0) {
        err_set(err, CORDON_ERR_INTERNAL, "workspace", errno, "event loop");
        files_copy_stop(job);
        return -1;
    }
    return 1;
}

void files_copy_stop(struct run_job *job)
{
    struct files_copy *c = TAKE_PTR(job->files_changed.copying);
    if (!c)
        return;
    loop_set(job->loop, &c->watch, 0);
    kill(c->pid, SIGKILL);
    copy_reap(c);
}
