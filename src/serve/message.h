/* A request as it came: descriptors, and records that point into the body. */
#ifndef SERVE_MESSAGE_H
#define SERVE_MESSAGE_H

#include <stdint.h>

#include <cordon.h>

#include "lib/wire.h"
#include "policy/policy.h"

struct message {
    uint32_t flags; /* enum wire_run_flag */
    bool is_stats;  /* nothing is to be run: numbers are wanted on job_fd */
    int job_fd, stdin_fd, stream_fds[2];
    void *body; /* mapped or allocated */
    size_t body_len;
    bool is_mapped;

    /* borrowed from the body, once it is parsed */
    struct policy_setting *settings;
    size_t n_settings;
    char **argv;
    char **environ;
    const char *profile, *config_file, *cwd;
    const char *stdin_data;
    size_t stdin_len;
    bool is_source;                     /* argv are then the program's arguments alone */
    const char *language, *source_name; /* NULL: not said */
    const char *source;
    size_t source_len;
    char **places; /* variables for finding tools */
};

/* Receives one RUN message, not yet parsed. 1: there is one, 0: none at the moment, -1: the other
 * side is gone. A message that is not understood still has its job_fd when one came; *err then says
 * what is wrong with it, else err->code is 0. */
int message_receive(int control_fd, struct message *ret_message, struct cordon_err *err);
/* Not for what wants statistics. */
int message_parse(struct message *message, struct cordon_err *err);
void message_done(struct message *message);

#endif
