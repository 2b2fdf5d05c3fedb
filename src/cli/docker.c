/* The `cordon-docker` program: what `cordon` starts where a container engine is to build the wall,
 * and for `cordon image`. Its own executable, so that nothing of it costs a native run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/docker/engine.h"
#include "backend/docker/session.h"
#include "base/util.h"
#include "cli/cli.h"

static int docker_remove(const char *name)
{
    struct engine engine;
    struct cordon_err err;
    if (engine_open(&engine, &err) < 0 || engine_remove(&engine, name, &err) < 0)
        return err.code;
    return 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && str_eq(argv[1], "run"))
        return session_run();
    if (argc == 3 && str_eq(argv[1], "remove"))
        return docker_remove(argv[2]);
    fputs("cordon-docker is started by cordon\n", stderr);
    return CORDON_ERR_USAGE;
}
