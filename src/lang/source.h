/* A run of source text: find the language, check its imports, compile it, run it.
 *
 * Everything the source can influence happens inside the sandbox, in up to two guests one after the
 * other. The first one (a step) checks imports or compiles; a compiled artefact comes out of it on
 * a pipe, never as a file, and is copied into the second one, which is the run proper. */
#ifndef LANG_SOURCE_H
#define LANG_SOURCE_H

#include <stdbool.h>

#include <cordon.h>

#include "base/arena.h"
#include "lang/registry.h"
#include "base/sha256.h"
#include "lang/tool.h"
#include "run/run.h"

#define LANG_SOURCE_MAX ((size_t)256 << 20)
#define LANG_ARTIFACT_MAX ((uint64_t)64 << 20)

/* Borrowed until lang_done(). */
struct lang_source {
    const char *language; /* NULL: by the name's suffix or the first line */
    const char *path;     /* host file, or NULL with text */
    const char *name;     /* of the text inside; NULL: the language's usual one */
    const char *text;
    size_t len;
    char *const *args;
    char *const
        *vars; /* the caller's environment: PATH, HOME, XDG_CACHE_HOME; NULL: nothing of it */
};

/* Zero-initialise. */
struct lang_job {
    const struct lang_source *source;
    struct run_job *run;       /* the caller's: it gets the result whichever guest made it */
    struct run_job step;       /* check or compile */
    const struct policy *from; /* the caller's */
    struct policy policy, step_policy;
    struct arena arena;
    struct lang_registry registry;
    const struct lang *lang;
    struct lang_tools tools;
    const char *inside; /* the source as the guest names it */
    const char *output; /* the artefact as the guest names it, NULL: interpreted */
    const char *prefix; /* where our files go, seen from the working directory */
    struct plan_file files[3];
    size_t n_files;
    void *loaded; /* the source's bytes, where we read them */
    int artifact_fd, cache_fd;
    char key[SHA256_HEX];
    bool open, compiles;
    void (*then)(struct run_job *run); /* the caller's on_done, while the interpreter runs */
    bool prepare_only;                 /* set before lang_start() */
};

/* run carries loop, host, policy, options, on_done and data as for run_start(); argv, files and
 * policy are set here. on_done(run) is called once; -1: never, and the result is filled from *err.
 */
int lang_start(struct lang_job *job, const struct lang_source *source, struct run_job *run,
               struct cordon_err *err);
/* With prepare_only: everything up to the run itself, which the caller then starts as often as he
 * likes, with run_start() on jobs of his own. on_done(run) comes with verdict ok, maybe before
 * lang_start() returns, when *run holds what such a job needs: host, policy, argv, files, n_files
 * and stage, all borrowed from here. lang_argv() gives the words for another memory limit. */
char *const *lang_argv(struct lang_job *job, uint64_t memory_bytes, struct arena *arena);
/* After prepare_only, when a run of the source failed: policy, argv and options of a guest that
 * parses it and runs nothing of it, whose end the source therefore cannot choose. Returns the exit
 * status that says it does not parse, the words being on standard error; -1: nobody to ask. */
int lang_parse_use(struct lang_job *job, struct run_job *ret_run);
/* What a run of the source would do, without one: policy, files and n_files of the job are those of
 * its last guest, lang_argv() gives its words. */
int lang_outline(struct lang_job *job, const struct lang_source *source,
                 const struct policy *policy, struct cordon_err *err);
/* Either guest. */
void lang_cancel(struct lang_job *job);
/* After run_done(run), or before it was started. Safe on a zeroed job. */
void lang_done(struct lang_job *job);

/* --venv for a command: the policy to run with, borrowing as in derive.h. */
int lang_venv(const struct policy *policy, char *const *vars, struct arena *arena,
              struct policy *ret, struct cordon_err *err);

#endif
