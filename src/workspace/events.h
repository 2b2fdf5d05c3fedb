/* The log of a workspace: one JSON object a line, never the output of a command. */
#ifndef WORKSPACE_EVENTS_H
#define WORKSPACE_EVENTS_H

#include <stdint.h>

#include "workspace/tree.h"

#define EVENTS_DIR "logs/sandbox"

struct events_row {
    const char *event; /* prepare, action, tests, cleanup */
    char *const *cmd;  /* NULL: none */
    bool has_result;
    int exit_code;
    uint64_t duration_ns;
    const char *error;                  /* NULL: none */
    const struct tree_changes *changes; /* NULL: none */
    const char *const *paths;           /* instead of changes */
    size_t n_paths;
    size_t diff_len;
};

/* Appends to DIR/ID.jsonl, making the folders. Every key is in every line. */
int events_append(const char *dir, const char *id, const struct events_row *row,
                  struct cordon_err *err);

#endif
