/* The `cordon-docker` program: what `cordon` starts where a container engine is to build the wall,
 * and for `cordon image`. Its own executable, so that nothing of it costs a native run. */
#include "cli/docker.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "backend/docker/session.h"
#include "base/util.h"

static int docker_remove(const char *name)
{
    struct engine engine;
    struct cordon_err err;
    if (engine_open(&engine, &err) < 0 || engine_remove(&engine, name, &err) < 0)
        return err.code;
    return 0;
}

/* Checked by `cordon image` already: what does not fit is a mistake of ours. */
static int docker_image(int argc, char **argv)
{
    struct docker_options o = {.name = ENGINE_IMAGE};
    for (int i = 1; i < argc; i++) {
        bool last = i + 1 == argc;
        if (str_eq(argv[i], "--force"))
            o.force = true;
        else if (str_eq(argv[i], "--from-host"))
            o.from_host = true;
        else if (str_eq(argv[i], "--all"))
            o.all = true;
        else if (str_eq(argv[i], "--json"))
            o.json = true;
        else if (str_eq(argv[i], "--rootfs") && !last)
            o.rootfs = argv[++i];
        else if (str_eq(argv[i], "--name") && !last)
            o.name = argv[++i];
        else
            return CORDON_ERR_USAGE;
    }
    if (str_eq(argv[0], "build"))
        return docker_image_build(&o);
    if (str_eq(argv[0], "status"))
        return docker_image_status(&o);
    return str_eq(argv[0], "clean") ? docker_image_clean(&o) : CORDON_ERR_USAGE;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && str_eq(argv[1], "run"))
        return session_run();
    if (argc == 2 && str_eq(argv[1], "hold"))
        return session_hold();
    if (argc == 3 && str_eq(argv[1], "remove"))
        return docker_remove(argv[2]);
    if (argc >= 3 && str_eq(argv[1], "image"))
        return docker_image(argc - 2, argv + 2);
    fputs("cordon-docker is started by cordon\n", stderr);
    return CORDON_ERR_USAGE;
}
