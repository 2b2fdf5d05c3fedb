/* What a prepared guest is told when it is wanted, and how descriptors travel with it. The encoding
 * half runs in the supervisor, the decoding half in the guest's pid 1, where nothing is allocated:
 * the bytes are used where they lie. */
#include "backend/native/warm_internal.h"

#include <errno.h>
#include <string.h>

#include "base/fdsend.h"
#include "base/util.h"

#define ORDER_FDS 5 /* beside files and entries: the order itself, three streams, a v2 group */

/* Room for n bytes on an 8-byte border; gives its offset. */
static uint64_t order_put(struct buf *out, const void *data, size_t len)
{
    static const char zeros[8];
    buf_add(out, zeros, (8 - out->len % 8) % 8);
    uint64_t at = out->len;
    if (len > 0)
        buf_add(out, data, len);
    return at;
}

static uint64_t order_list(struct buf *out, char *const *words, uint64_t *ret_n)
{
    uint64_t n = 0, zero = 0;
    while (words[n])
        n++;
    uint64_t at = order_put(out, &zero, sizeof(zero));
    for (uint64_t i = 0; i < n; i++)
        order_put(out, &zero, sizeof(zero));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word = order_put(out, words[i], strlen(words[i]) + 1);
        if (!out->failed)
            memcpy(out->data + at + i * sizeof(word), &word, sizeof(word));
    }
    *ret_n = n;
    return at;
}

int warm_order_encode(const struct plan *p, struct buf *out)
{
    struct warm_order_body body = {.n_rlimits = p->n_rlimits, .n_files = p->n_files};
    if (p->n_files > WARM_FDS_MAX - ORDER_FDS - CGROUP_ENTRIES_MAX)
        return -1;
    order_put(out, &body, sizeof(body));
    body.argv = order_list(out, p->argv, &body.n_argv);
    body.env = order_list(out, p->env, &body.n_env);
    body.rlimits = order_put(out, p->rlimits, p->n_rlimits * sizeof(*p->rlimits));
    struct warm_order_file files[WARM_FDS_MAX] = {0};
    int64_t fds = 0;
    for (size_t i = 0; i < p->n_files; i++) {
        const struct plan_file *f = &p->files[i];
        files[i].name = order_put(out, f->name, strlen(f->name) + 1);
        files[i].fd = f->source ? fds++ : -1;
        files[i].data_len = f->source ? 0 : f->data_len;
        files[i].data = order_put(out, f->data, files[i].data_len);
    }
    body.files = order_put(out, files, p->n_files * sizeof(files[0]));
    if (out->failed)
        return -1;
    memcpy(out->data, &body, sizeof(body));
    return 0;
}

static char **order_words(char *base, uint64_t at, uint64_t n)
{
    uint64_t *list = (uint64_t *)(void *)(base + at);
    for (uint64_t i = 0; i < n; i++)
        list[i] += (uint64_t)(uintptr_t)base;
    return (char **)(void *)list;
}

int warm_order_decode(void *bytes, size_t len, struct plan *plan, struct plan_file *files,
                      int *file_fds, const int *fds)
{
    char *base = bytes;
    const struct warm_order_body *body = bytes;
    if (len < sizeof(*body) || body->n_files > WARM_FDS_MAX)
        return -1;
    plan->argv = order_words(base, body->argv, body->n_argv);
    plan->env = order_words(base, body->env, body->n_env);
    plan->command = plan->argv[0];
    plan->rlimits = (struct plan_rlimit *)(void *)(base + body->rlimits);
    plan->n_rlimits = body->n_rlimits;
    const struct warm_order_file *f = (const void *)(base + body->files);
    for (uint64_t i = 0; i < body->n_files; i++) {
        files[i] = (struct plan_file){.name = base + f[i].name,
                                      .source = f[i].fd >= 0 ? base + f[i].name : NULL,
                                      .data = base + f[i].data,
                                      .data_len = f[i].data_len};
        file_fds[i] = f[i].fd >= 0 ? fds[f[i].fd] : -1;
    }
    plan->files = files;
    plan->n_files = body->n_files;
    return 0;
}

union order_control {
    char space[CMSG_SPACE(sizeof(int) * WARM_FDS_MAX)];
    struct cmsghdr align;
};

int warm_send(int sock, const struct iovec *parts, size_t n_parts, const int *fds, size_t n_fds,
              int flags)
{
    return fdsend_fds(sock, parts, n_parts, fds, n_fds, flags) < 0 ? -1 : 0;
}

ssize_t warm_recv(int sock, struct iovec *parts, size_t n_parts, int *ret_fds, size_t *ret_n_fds,
                  int flags)
{
    union order_control control;
    struct msghdr msg = {.msg_iov = parts,
                         .msg_iovlen = n_parts,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;
    *ret_n_fds = 0;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *cmsg = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS) {
        *ret_n_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(ret_fds, CMSG_DATA(cmsg), *ret_n_fds * sizeof(int));
    }
    return n;
}
