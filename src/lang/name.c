/* Names of source files that a language's programs take. Runs in the command and the supervisor. */
#include "lang/name.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

/* Exactly: what takes .C for C++ does not take .GO for Go. */
static bool name_has_suffix(const struct lang *lang, const char *name)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && dot != name && lang->suffixes[i]; i++)
        if (str_eq(dot + 1, lang->suffixes[i] + (lang->suffixes[i][0] == '.')))
            return true;
    return false;
}

/* go passes over files whose names begin with _ or a dot and those of tests, and takes no name that
 * could be an option. */
static const char *name_for_go(const char *name, struct arena *arena)
{
    static const char test[] = "_test.go";
    size_t n = strlen(name), end = strlen(test);
    unsigned char first = (unsigned char)name[0];
    const char *front = isalnum(first) || first >= 0x80 ? "" : "main";
    if (n >= end && str_eq(name + n - end, test))
        return arena_printf(arena, "%s%.*s_main.go", front, (int)(n - strlen(".go")), name);
    return *front ? arena_printf(arena, "%s%s", front, name) : name;
}

const char *lang_name_inside(const struct lang *lang, const char *name, struct arena *arena)
{
    const char *inside = name;
    if (!lang->wants_suffix || !lang->suffixes || !lang->suffixes[0])
        return name;
    if (!name_has_suffix(lang, name))
        inside =
            arena_printf(arena, "%s.%s", name, lang->suffixes[0] + (lang->suffixes[0][0] == '.'));
    if (inside && str_eq(lang->name, "go"))
        inside = name_for_go(inside, arena);
    /* a name as long as names may be */
    return inside && strlen(inside) > NAME_MAX && lang->file ? lang->file : inside;
}
