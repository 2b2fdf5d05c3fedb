/* The languages that can be run as source text: rows of words, built in or from [languages.NAME].
 *
 * Pure. Words of a row may hold {source}, {output}, {memory} (bytes of the memory limit; a word
 * with it is left out where there is none) and {args}. */
#ifndef LANG_REGISTRY_H
#define LANG_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include <cordon.h>

#include "base/arena.h"
#include "policy/policy.h"

/* Lists end with NULL; absent ones are NULL. Everything is borrowed: from the program, or from the
 * policy. */
struct lang {
    const char *name;
    const char *const *suffixes; /* without the dot */
    const char *const *aliases;
    const char *const *compile; /* NULL: interpreted */
    const char *const *run;
    const char *const *version;
    const char *const *env;      /* "K=V" */
    const char *const *tools;    /* programs it needs; NULL: the first words of compile and run */
    const char *package;         /* Debian's name, NULL: not known */
    const char *file;            /* what source text without a name is called; NULL: "main" */
    bool wants_suffix;           /* its programs go by a file's suffix: lang/name.h */
    const struct origin *origin; /* NULL: built in */
};

struct lang_registry {
    struct lang *rows; /* those of the policy first: they win */
    size_t n;
};

int lang_registry_make(const struct policy *policy, struct lang_registry *ret,
                       struct cordon_err *err);
void lang_registry_done(struct lang_registry *registry);

/* By name or alias, whatever the case. An unknown one is CORDON_ERR_USAGE with the near miss. */
int lang_registry_by_name(const struct lang_registry *registry, const char *name,
                          const struct lang **ret, struct cordon_err *err);
/* By the file's suffix, then by a "#!" line; text are its first bytes. */
int lang_registry_by_file(const struct lang_registry *registry, const char *file, const char *text,
                          size_t len, const struct lang **ret, struct cordon_err *err);

/* What stands for the words in braces. */
struct lang_words {
    const char *source, *output;
    uint64_t memory_bytes; /* 0: no limit */
    char *const *args;     /* NULL: none */
};

/* The argument vector, in the arena. Arguments go where {args} stands, else to the end; the source
 * (or, with an output, the program) to the end when no word names one. */
char **lang_registry_expand(const char *const *words, const struct lang_words *with,
                            struct arena *arena);
/* Does any word hold this one? */
bool lang_registry_holds(const char *const *words, const char *what);
/* The i-th program the language needs, or NULL past the last. */
const char *lang_registry_tool(const struct lang *lang, size_t i);

#endif
