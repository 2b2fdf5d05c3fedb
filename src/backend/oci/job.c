/* What init needs of the plan, flat: a header, tables, strings. Written before the clone, read by
 * the same program inside. The guest can read it: it holds only what the guest is given anyway. */
#include "backend/oci/oci.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

static const char job_magic[8] = "cordonJ1";

struct job_head {
    char magic[8];
    uint32_t n_filter, n_quiet, n_rlimits, n_fences, n_args, n_env;
    uint32_t cores;
    int32_t landlock_abi;
    uint64_t memory_bytes; /* what init itself has to hold, by looking; 0: nothing */
    uint32_t processes, cpu_percent;
    uint8_t writes; /* into folders that are read when it is gone */
    uint8_t scope_signals, terminal, runtime, notify, refuse_fork, has_v2, has_apparmor;
};

static void job_text(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s) + 1);
}

int oci_job_make(const struct plan *p, char **ret, size_t *ret_len, struct cordon_err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(OCI_JOB_MAX);
    struct job_head h = {.n_filter = p->filter.len,
                         .n_quiet = p->quiet_filter.len,
                         .n_fences = (uint32_t)p->n_fences,
                         .cores = p->own_kernel ? 0 : p->cores, /* gVisor's own threads have them */
                         .landlock_abi = p->landlock_abi,
                         .memory_bytes = p->oci->look.memory_bytes,
                         .processes = p->oci->look.processes,
                         .cpu_percent = p->oci->look.cpu_percent,
                         .writes = p->writes_host || p->hands_back_cwd,
                         .scope_signals = p->scope_signals,
                         .terminal = p->terminal,
                         .runtime = (uint8_t)p->oci->runtime,
                         .notify = p->filter_options.notify,
                         .refuse_fork = p->filter_options.refuse_fork,
                         .has_v2 = p->cgroups.v2[0] != '\0',
                         .has_apparmor = p->apparmor != NULL};
    memcpy(h.magic, job_magic, sizeof(h.magic));
    while (p->argv[h.n_args])
        h.n_args++;
    while (p->env[h.n_env])
        h.n_env++;
    for (size_t i = 0; i < p->n_rlimits; i++)
        h.n_rlimits += !plan_oci_is_said(p, &p->rlimits[i]);
    buf_add(&b, &h, sizeof(h));
    /* rows of eight bytes first: the strings at the end need no alignment */
    for (size_t i = 0; i < p->n_rlimits; i++)
        if (!plan_oci_is_said(p, &p->rlimits[i]))
            buf_add(&b, &p->rlimits[i], sizeof(p->rlimits[i]));
    buf_add(&b, p->filter.insns, p->filter.len * sizeof(*p->filter.insns));
    buf_add(&b, p->quiet_filter.insns, p->quiet_filter.len * sizeof(*p->quiet_filter.insns));
    for (size_t i = 0; p->argv[i]; i++)
        job_text(&b, p->argv[i]);
    for (size_t i = 0; p->env[i]; i++)
        job_text(&b, p->env[i]);
    for (size_t i = 0; i < p->n_fences; i++) {
        buf_char(&b, p->fences[i].write ? 'w' : 'r');
        buf_char(&b, p->fences[i].optional ? 'o' : '-');
        job_text(&b, p->fences[i].path);
    }
    job_text(&b, p->cwd);
    job_text(&b, p->apparmor ? p->apparmor : "");
    if (b.failed)
        return err_set(err, CORDON_ERR_CONFIG, "start", 0,
                       "arguments and environment are too large");
    *ret_len = b.len;
    *ret = buf_take(&b);
    return *ret ? 0 : err_nomem(err, "start");
}

struct job_reader {
    char *at;
    size_t left;
};

static void *job_take(struct job_reader *r, size_t len)
{
    if (len > r->left)
        return NULL;
    void *p = r->at;
    r->at += len;
    r->left -= len;
    return p;
}

static char *job_string(struct job_reader *r)
{
    size_t len = strnlen(r->at, r->left);
    return len < r->left ? job_take(r, len + 1) : NULL;
}

static char **job_list(struct job_reader *r, size_t n)
{
    char **list = n > OCI_JOB_MAX ? NULL : calloc(n + 1, sizeof(*list));
    for (size_t i = 0; list && i < n; i++)
        if (!(list[i] = job_string(r)))
            return NULL;
    return list;
}

int oci_job_read(char *text, size_t len, struct plan *p)
{
    static struct plan_oci oci;
    struct job_reader r = {text, len};
    const struct job_head *h = job_take(&r, sizeof(*h));
    if (!h || memcmp(h->magic, job_magic, sizeof(h->magic)) != 0)
        return -1;
    p->rlimits = job_take(&r, h->n_rlimits * sizeof(*p->rlimits));
    p->filter.insns = job_take(&r, h->n_filter * sizeof(*p->filter.insns));
    p->quiet_filter.insns = job_take(&r, h->n_quiet * sizeof(*p->quiet_filter.insns));
    p->filter.len = (unsigned short)h->n_filter;
    p->quiet_filter.len = (unsigned short)h->n_quiet;
    p->n_rlimits = h->n_rlimits;
    p->argv = job_list(&r, h->n_args);
    p->env = job_list(&r, h->n_env);
    p->fences = h->n_fences > OCI_JOB_MAX ? NULL : calloc(h->n_fences + 1, sizeof(*p->fences));
    if (!p->rlimits || !p->filter.insns || !p->quiet_filter.insns || !p->argv || !p->env ||
        !p->fences)
        return -1;
    for (; p->n_fences < h->n_fences; p->n_fences++) {
        char *kind = job_take(&r, 2);
        struct plan_fence *f = &p->fences[p->n_fences];
        if (!kind || !(f->path = job_string(&r)))
            return -1;
        f->write = kind[0] == 'w';
        f->optional = kind[1] == 'o';
    }
    p->cwd = job_string(&r);
    p->apparmor = job_string(&r);
    if (!p->cwd || !p->apparmor)
        return -1;
    if (!h->has_apparmor)
        p->apparmor = NULL;
    oci.runtime = (enum plan_runtime)h->runtime;
    p->oci = &oci;
    p->own_kernel = oci.runtime == PLAN_RUNTIME_RUNSC;
    p->tier = TIER_FULL;
    p->cores = h->cores;
    p->limits.memory_bytes = h->memory_bytes;
    p->limits.processes = h->processes;
    p->limits.cpu_percent = h->cpu_percent;
    p->landlock_abi = h->landlock_abi;
    p->writes_host = h->writes;
    p->scope_signals = h->scope_signals;
    p->terminal = h->terminal;
    p->filter_options.notify = h->notify;
    p->filter_options.refuse_fork = h->refuse_fork;
    p->cgroups.v2[0] = h->has_v2 ? '/' : '\0';
    return 0;
}
