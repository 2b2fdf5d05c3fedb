/* The plan as a helper reads it: one JSON object for the container, and the binary order for its
 * pid
 * 1. Runs in the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/helper/helper.h"
#include "base/err.h"
#include "base/jsonw.h"
#include "base/util.h"
#include "init/init.h"

static int helper_memory(const struct buf *text, const char *name, int *ret_fd,
                         struct cordon_err *err)
{
    if (text->failed)
        return err_nomem(err, "start");
    _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (size_t done = 0; fd >= 0 && done < text->len;) {
        ssize_t n = write(fd, text->data + done, text->len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "request");
        done += (size_t)n;
    }
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) < 0)
        return err_set(err, CORDON_ERR_INTERNAL, "start", errno, "request");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* A workspace is the host's own folder and needs no sending. */
bool helper_sends_files(const struct plan *p)
{
    return p->hands_back_cwd && str_eq(p->cwd, PLAN_HOME);
}

/* Grants of host paths in order, and what is covered inside them. */
static void request_ops(struct jsonw *j, const struct plan *p)
{
    jsonw_open(j, "binds", '[');
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        if (op->kind != PLAN_OP_BIND)
            continue;
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "src", op->src);
        jsonw_str(j, "dst", op->dst);
        jsonw_bool(j, "write", op->flags & PLAN_BIND_RW);
        jsonw_bool(j, "file", op->flags & PLAN_BIND_FILE);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
    jsonw_open(j, "masks", '[');
    for (size_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].kind != PLAN_OP_MASK)
            continue;
        jsonw_open(j, NULL, '{');
        jsonw_str(j, "dst", p->ops[i].dst);
        jsonw_bool(j, "dir", p->ops[i].flags & PLAN_MASK_DIR);
        jsonw_close(j, '}');
    }
    jsonw_close(j, ']');
}

static void request_limits(struct jsonw *j, const struct plan *p)
{
    jsonw_open(j, "limits", '{');
    jsonw_uint(j, "memory_bytes", p->limits.memory_bytes);
    jsonw_uint(j, "cpu_percent", p->limits.cpu_percent);
    jsonw_uint(j, "processes", p->limits.processes);
    jsonw_uint(j, "scratch_bytes", p->limits.scratch_bytes);
    jsonw_uint(j, "scratch_inodes", p->limits.scratch_inodes);
    jsonw_uint(j, "max_files", p->limits.max_files);
    jsonw_close(j, '}');
}

static void request_write(const struct plan *p, const char *name, const char *inside,
                          struct buf *text)
{
    static const char *const networks[] = {"none", "bridge", "host"};
    struct jsonw j = {.out = text};
    jsonw_open(&j, NULL, '{');
    jsonw_str(&j, "name", name);
    jsonw_str(&j, "inside", inside);
    jsonw_str(&j, "image", p->container.image);
    jsonw_str(&j, "runtime", p->container.runtime);
    jsonw_str(&j, "network", networks[p->container.network]);
    jsonw_str(&j, "dns", p->container.dns);
    jsonw_str(&j, "http_proxy", p->container.http_proxy);
    jsonw_bool(&j, "reuse", p->container.reuse);
    jsonw_bool(&j, "block_internal", p->container.block_internal);
    jsonw_bool(&j, "sends_files", helper_sends_files(p));
    jsonw_str(&j, "apparmor", p->apparmor);
    request_ops(&j, p);
    request_limits(&j, p);
    struct seccomp_options around = p->filter_options;
    around.pid1_netlink = p->container.block_internal;
    seccomp_oci_write(&j, "seccomp", &around);
    jsonw_close(&j, '}');
}

int helper_request_fd(const struct plan *p, const char *name, const char *inside, int *ret_fd,
                      struct cordon_err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT((size_t)64 << 20);
    for (size_t i = 0; i < p->n_ops; i++)
        if ((p->ops[i].src && !jsonw_is_utf8(p->ops[i].src, strlen(p->ops[i].src))) ||
            !jsonw_is_utf8(p->ops[i].dst, strlen(p->ops[i].dst)))
            return err_set(err, CORDON_ERR_HOST, "start", 0,
                           "a path that is not UTF-8 cannot be named to a container engine");
    request_write(p, name, inside, &text);
    return helper_memory(&text, "cordon-request", ret_fd, err);
}

char *helper_request_key(const struct plan *p)
{
    _cleanup_buf_ struct buf text = BUF_INIT((size_t)64 << 20);
    request_write(p, NULL, NULL, &text);
    for (char **v = p->container.vars; v && *v; v++)
        buf_printf(&text, "\n%s", *v);
    return buf_take(&text);
}

/* A file to copy in: its bytes, read with the caller's rights. */
static int order_file(struct buf *out, const struct plan_file *f, struct cordon_err *err)
{
    uint64_t len = f->data_len;
    buf_add(out, f->name, strlen(f->name) + 1);
    if (!f->source) {
        buf_add(out, &len, sizeof(len));
        buf_add(out, f->data, f->data_len);
        return 0;
    }
    _cleanup_close_ int fd = open(f->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, CORDON_ERR_CONFIG, "files", errno, "file %s: %s", f->name, f->source);
    if (!S_ISREG(st.st_mode))
        return err_set(err, CORDON_ERR_CONFIG, "files", 0, "file %s: %s is not a regular file",
                       f->name, f->source);
    size_t at = out->len;
    buf_add(out, &len, sizeof(len));
    char chunk[65536];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (buf_add(out, chunk, (size_t)n) < 0)
            return err_set(err, CORDON_ERR_CONFIG, "files", 0,
                           "file %s: too large to be copied into a container", f->name);
    if (n < 0)
        return err_set(err, CORDON_ERR_CONFIG, "files", errno, "file %s: %s", f->name, f->source);
    if (out->failed)
        return 0; /* said by the caller */
    len = out->len - at - sizeof(len);
    memcpy(out->data + at, &len, sizeof(len));
    return 0;
}

/* What the container must see at the places of the grants. gVisor numbers files by itself. */
static void order_checks(struct buf *out, const struct plan *p, struct init_order *head)
{
    bool numbers = !p->container.runtime || !str_eq(p->container.runtime, "runsc");
    for (size_t i = 0; i < p->n_ops; i++) {
        const struct plan_op *op = &p->ops[i];
        struct stat st = {0};
        if (op->kind != PLAN_OP_BIND || !numbers || stat(op->src, &st) < 0)
            continue;
        uint64_t inode = st.st_ino;
        buf_printf(out, "/%s", op->dst);
        buf_add(out, "", 1);
        buf_add(out, &inode, sizeof(inode));
        head->n_checks++;
    }
}

int helper_order_fd(const struct plan *p, int *ret_fd, struct cordon_err *err)
{
    _cleanup_buf_ struct buf out = BUF_INIT(INIT_ORDER_MAX);
    struct init_order head = {.magic = INIT_MAGIC,
                              .n_rlimits = (uint32_t)p->n_rlimits,
                              .n_filter = p->filter.len,
                              .n_quiet = p->quiet_filter.len,
                              .n_files = (uint32_t)p->n_files,
                              .cpu_ns = p->limits.cpu_ns,
                              .memory_bytes = p->limits.memory_bytes,
                              .processes = p->limits.processes,
                              .cpu_percent = p->limits.cpu_percent,
                              .wall_ns = p->limits.wall_ns,
                              .sends_files = helper_sends_files(p),
                              .disk_bytes = p->limits.disk_bytes,
                              .max_files = p->limits.max_files};
    while (p->argv[head.n_argv])
        head.n_argv++;
    while (p->env[head.n_env])
        head.n_env++;
    buf_add(&out, &head, sizeof(head));
    for (size_t i = 0; i < p->n_rlimits; i++) {
        struct init_rlimit r = {(uint32_t)p->rlimits[i].resource, 0, p->rlimits[i].value};
        buf_add(&out, &r, sizeof(r));
    }
    buf_add(&out, p->filter.insns, p->filter.len * sizeof(*p->filter.insns));
    buf_add(&out, p->quiet_filter.insns, p->quiet_filter.len * sizeof(*p->quiet_filter.insns));
    buf_add(&out, p->cwd, strlen(p->cwd) + 1);
    for (uint32_t i = 0; i < head.n_argv; i++)
        buf_add(&out, p->argv[i], strlen(p->argv[i]) + 1);
    for (uint32_t i = 0; i < head.n_env; i++)
        buf_add(&out, p->env[i], strlen(p->env[i]) + 1);
    for (size_t i = 0; i < p->n_files; i++)
        if (order_file(&out, &p->files[i], err) < 0)
            return -1;
    order_checks(&out, p, &head);
    if (out.failed)
        return err_nomem(err, "start");
    head.total = (uint32_t)out.len;
    memcpy(out.data, &head, sizeof(head));
    return helper_memory(&out, "cordon-order", ret_fd, err);
}
