/* What a source file is called inside. Pure. */
#ifndef LANG_NAME_H
#define LANG_NAME_H

#include "base/arena.h"
#include "lang/registry.h"

/* The name itself where the language's programs take it, else one they take: with the language's
 * first suffix after it, and for go without what go passes over. In the arena; NULL: no memory. */
const char *lang_name_inside(const struct lang *lang, const char *name, struct arena *arena);

#endif
