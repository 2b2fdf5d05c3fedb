/* Reading requests. Runs in the supervisor. The sender is our own library, but every length is
 * checked: a bug there must not become one here. */
#include "serve/message.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/util.h"

static int message_wrong(struct cordon_err *err)
{
    return err_set(err, CORDON_ERR_INTERNAL, "request", EPROTO, "request of the library");
}

/* Sorts the descriptors by what the flags promise. All of them have an owner afterwards. */
static bool message_take_fds(struct message *m, int *fds, size_t n)
{
    size_t at = 0;
    int body_fd = -1;
    int *places[] = {
        &m->job_fd,
        m->flags & WIRE_RUN_BODY_FD ? &body_fd : NULL,
        m->flags & WIRE_RUN_STDIN_FD ? &m->stdin_fd : NULL,
        m->flags & WIRE_RUN_STREAM ? &m->stream_fds[0] : NULL,
        m->flags & WIRE_RUN_STREAM ? &m->stream_fds[1] : NULL,
    };
    bool complete = true;
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (places[i] && at < n)
            *places[i] = fds[at++];
        else if (places[i])
            complete = false;
    }
    complete = complete && at == n;
    while (at < n)
        close(fds[at++]);
    if (body_fd >= 0 && complete && m->body_len > 0) {
        /* A copy: the sender can still write to its memory, and what is counted once must not be
         * another thing when it is read. */
        void *map = wire_map(body_fd, m->body_len);
        m->body = map ? malloc(m->body_len) : NULL;
        if (m->body)
            memcpy(m->body, map, m->body_len);
        if (map)
            munmap(map, m->body_len);
    }
    util_close(&body_fd);
    return complete;
}

/* Walks over the records; NULL at the end, or with *at past it when a record is broken. */
static const struct wire_record *message_next(const struct message *m, size_t *at)
{
    if (*at == m->body_len)
        return NULL;
    const struct wire_record *r = (const void *)((const char *)m->body + *at);
    size_t room = m->body_len - *at;
    size_t padded;
    if (room < sizeof(*r) || r->len > room - sizeof(*r) ||
        (padded = (r->len + 7) & ~(size_t)7) > room - sizeof(*r)) {
        *at = SIZE_MAX;
        return NULL;
    }
    *at += sizeof(*r) + padded;
    return r;
}

static const char *record_data(const struct wire_record *r)
{
    return (const char *)(r + 1);
}

/* The record as one string, or NULL. */
static const char *record_string(const struct wire_record *r)
{
    const char *s = record_data(r);
    return r->len > 0 && memchr(s, '\0', r->len) == s + r->len - 1 ? s : NULL;
}

/* name NUL rest: gives the rest. */
static const char *record_rest(const struct wire_record *r, size_t *ret_len)
{
    const char *s = record_data(r);
    const char *nul = memchr(s, '\0', r->len);
    if (!nul)
        return NULL;
    *ret_len = r->len - (size_t)(nul + 1 - s);
    return nul + 1;
}

static bool message_add_setting(struct message *m, const struct wire_record *r)
{
    struct policy_setting *s = &m->settings[m->n_settings++];
    size_t len = 0;
    const char *rest = record_rest(r, &len);
    if (!rest)
        return false;
    *s = (struct policy_setting){.name = record_data(r)};
    if (r->tag == WIRE_TAG_FILE) {
        *s = (struct policy_setting){
            .name = "filesystem", .value = record_data(r), .data = rest, .data_len = len};
        return true;
    }
    if (r->tag == WIRE_TAG_FLAG)
        return len == 0;
    s->value = rest;
    return len > 0 && memchr(rest, '\0', len) == rest + len - 1;
}

struct message_lists {
    size_t n_argv, n_environ, n_places;
};

static bool message_add_source(struct message *m, const struct wire_record *r)
{
    size_t left = 0;
    const char *name = record_rest(r, &left);
    const char *nul = name ? memchr(name, '\0', left) : NULL;
    if (!nul)
        return false;
    const char *language = record_data(r);
    m->is_source = true;
    m->language = *language ? language : NULL;
    m->source_name = *name ? name : NULL;
    m->source = nul + 1;
    m->source_len = left - (size_t)(nul + 1 - name);
    return true;
}

static bool message_add(struct message *m, struct message_lists *n, const struct wire_record *r)
{
    const char **single = NULL;
    switch ((enum wire_tag)r->tag) {
    case WIRE_TAG_SETTING:
    case WIRE_TAG_FLAG:
    case WIRE_TAG_FILE: return message_add_setting(m, r);
    case WIRE_TAG_PROFILE: single = &m->profile; break;
    case WIRE_TAG_CONFIG: single = &m->config_file; break;
    case WIRE_TAG_CWD: single = &m->cwd; break;
    case WIRE_TAG_SOURCE: n->n_argv = 0; return message_add_source(m, r);
    case WIRE_TAG_PLACE:
        m->places[n->n_places++] = (char *)record_string(r);
        return m->places[n->n_places - 1] != NULL;
    case WIRE_TAG_COMMAND: n->n_argv = 0; m->is_source = false; /* fall through */
    case WIRE_TAG_ARG:
        m->argv[n->n_argv++] = (char *)record_string(r);
        return m->argv[n->n_argv - 1] != NULL;
    case WIRE_TAG_ENVIRON:
        m->environ[n->n_environ++] = (char *)record_string(r);
        return m->environ[n->n_environ - 1] != NULL;
    case WIRE_TAG_STDIN:
        m->stdin_data = record_data(r);
        m->stdin_len = r->len;
        return true;
    }
    return single && (*single = record_string(r));
}

int message_parse(struct message *m, struct cordon_err *err)
{
    size_t at = 0, counts[WIRE_TAG_PLACE + 1] = {0};
    const struct wire_record *r;
    while ((r = message_next(m, &at)))
        counts[r->tag <= WIRE_TAG_PLACE ? r->tag : 0]++;
    if (at == SIZE_MAX || counts[0] > 0)
        return message_wrong(err);
    size_t n_settings = counts[WIRE_TAG_SETTING] + counts[WIRE_TAG_FLAG] + counts[WIRE_TAG_FILE];
    m->settings = calloc(n_settings + 1, sizeof(*m->settings));
    m->argv = calloc(counts[WIRE_TAG_COMMAND] + counts[WIRE_TAG_ARG] + 1, sizeof(*m->argv));
    m->environ = calloc(counts[WIRE_TAG_ENVIRON] + 1, sizeof(*m->environ));
    m->places = calloc(counts[WIRE_TAG_PLACE] + 1, sizeof(*m->places));
    if (!m->settings || !m->argv || !m->environ || !m->places)
        return err_nomem(err, "request");

    struct message_lists n = {0};
    for (at = 0; (r = message_next(m, &at));)
        if (!message_add(m, &n, r))
            return message_wrong(err);
    m->argv[n.n_argv] = NULL; /* a shorter list may have replaced a longer one */
    return (m->argv[0] || m->is_source) && m->cwd ? 0 : message_wrong(err);
}

static int message_read(struct message *m, const char *buf, size_t len, int *fds, size_t n_fds,
                        struct cordon_err *err)
{
    struct wire_run run = {0};
    memcpy(&run, buf, MIN(len, sizeof(run)));
    bool ours = len >= sizeof(run) && run.head.magic == WIRE_MAGIC &&
                run.head.version == WIRE_VERSION && run.head.type == WIRE_RUN;
    m->is_stats = len == sizeof(run.head) && run.head.magic == WIRE_MAGIC &&
                  run.head.version == WIRE_VERSION && run.head.type == WIRE_STATS;
    m->flags = ours ? run.flags : 0;
    m->body_len = ours ? run.body_len : 0;
    bool complete = message_take_fds(m, fds, n_fds);
    if (m->is_stats && complete)
        return 0;
    if (!ours || !complete)
        return message_wrong(err);
    if (m->flags & WIRE_RUN_BODY_FD)
        return m->body ? 0 : message_wrong(err);
    if (m->body_len != len - sizeof(run))
        return message_wrong(err);
    m->body = malloc(m->body_len + 1);
    if (!m->body)
        return err_nomem(err, "request");
    memcpy(m->body, buf + sizeof(run), m->body_len);
    return 0;
}

int message_receive(int control_fd, struct message *ret_message, struct cordon_err *err)
{
    static char buf[sizeof(struct wire_run) + WIRE_INLINE_MAX];
    int fds[WIRE_FDS_MAX];
    size_t n_fds;
    ssize_t n = wire_recv(control_fd, buf, sizeof(buf), fds, &n_fds, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EMSGSIZE))
        return -1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    *ret_message = (struct message){.job_fd = -1, .stdin_fd = -1, .stream_fds = {-1, -1}};
    err->code = 0;
    if (n < 0) {
        /* Not all descriptors fitted into our table; the first one is the job's. */
        message_take_fds(ret_message, fds, n_fds);
        err_set(err, CORDON_ERR_INTERNAL, "request", EMFILE, "descriptors of the supervisor");
    } else {
        message_read(ret_message, buf, (size_t)n, fds, n_fds, err);
    }
    return 1;
}

void message_done(struct message *m)
{
    util_close(&m->job_fd);
    util_close(&m->stdin_fd);
    util_close(&m->stream_fds[0]);
    util_close(&m->stream_fds[1]);
    free(m->body);
    m->body = NULL;
    free(m->settings);
    free(m->argv);
    free(m->environ);
    free(m->places);
    m->settings = NULL;
    m->argv = m->environ = m->places = NULL;
}
