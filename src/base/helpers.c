/* Knows which children are helpers: see the header. Runs in the supervisor. */
#include "base/helpers.h"

#include <stddef.h>

#include "base/util.h"

static pid_t helpers[4096]; /* 0: free */

static pid_t *helpers_find(pid_t pid)
{
    for (size_t i = 0; i < ARRAY_SIZE(helpers); i++)
        if (helpers[i] == pid)
            return &helpers[i];
    return NULL;
}

int helpers_add(pid_t pid)
{
    pid_t *place = helpers_find(0);
    if (!place)
        return -1;
    *place = pid;
    return 0;
}

void helpers_drop(pid_t pid)
{
    pid_t *place = pid > 0 ? helpers_find(pid) : NULL;
    if (place)
        *place = 0;
}

bool helpers_has(pid_t pid)
{
    return pid > 0 && helpers_find(pid);
}
