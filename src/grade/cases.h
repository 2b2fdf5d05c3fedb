/* The cases a judge runs: where their input and the expected output are, what they are worth,
 * limits of their own. From two files, a folder, or a JSON or JSONL file. Contents of files stay on
 * disk until a case needs them.
 *
 * Read on the host with the caller's rights. Messages name file and line and what would be right.
 */
#ifndef GRADE_CASES_H
#define GRADE_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "base/arena.h"
#include "base/jsonr.h"

#define CASES_MAX 100000u
#define CASES_JSON_MAX ((size_t)64 << 20) /* a JSON file, or one line of a JSONL file */
#define CASES_FILE_MAX ((size_t)256 << 20)

/* A file of the host, or bytes; neither: empty. */
struct cases_text {
    const char *path;
    const char *folder; /* path begins with it and lies below it, links included; or NULL */
    const char *data;
    size_t len;
};

struct cases_limit {
    uint64_t num;
    const char *written; /* NULL: not said */
};

struct cases_row {
    const char *name;
    const char *where; /* for messages: "cases/3.in", "cases.jsonl:7" */
    const char *group; /* subtask, or NULL */
    double points;     /* 1 unless said */
    struct cases_text input, expected;
    bool has_expected;
    struct cases_limit time, cpu, memory;
};

struct cases_group {
    const char *name;
    double points; /* negative: what its cases are worth together */
};

struct cases {
    struct arena arena;
    struct cases_row *rows;
    size_t n, cap;
    struct cases_group *groups; /* those that the file names or the folder has */
    size_t n_groups;
    const char *compare, *interactor; /* what the file says, or NULL; paths are below its folder */
};

/* Appends one case from two files; either may be NULL. */
int cases_add_files(struct cases *cases, const char *name, const char *in, const char *out,
                    struct cordon_err *err);
/* A folder with NAME.in and NAME.out (or NAME.ans), in the order of the names, numbers by value.
 * Its folders are subtasks. Or a file: *.jsonl has one case a line, anything else is one JSON
 * document.
 */
int cases_from_path(struct cases *cases, const char *path, struct cordon_err *err);
/* The text of such a file. name is used in messages, folder for relative paths. Pure. */
int cases_from_json(struct cases *cases, const char *name, const char *folder, const char *text,
                    size_t len, bool lines, struct cordon_err *err);
/* A list of cases inside another document; folder NULL: it may name no files. */
int cases_from_node(struct cases *cases, const char *name, const char *folder,
                    const struct jsonr_node *list, struct cordon_err *err);
/* Every name stands once; there is a case; files are there, and where they must be; with
 * needs_expected each case has an expected output. */
int cases_check(const struct cases *cases, bool needs_expected, struct cordon_err *err);
void cases_done(struct cases *cases);

/* The bytes, to be freed; never NULL, a NUL follows. */
int cases_load(const struct cases_text *text, size_t max, char **ret_data, size_t *ret_len,
               struct cordon_err *err);
/* Digits by value, everything else by bytes: "2" < "10". */
int cases_order(const char *a, const char *b);

/* Private to cases*.c: a zeroed row at the end of the list. */
struct cases_row *cases_push(struct cases *cases, struct cordon_err *err);
int cases_push_group(struct cases *cases, const char *name, double points, struct cordon_err *err);

#endif
