/* `cordon supervise`: what libcordon starts, once per handle. Not for people. */
#include "cli/cli.h"

#include <stdio.h>
#include <sys/socket.h>

#include "lib/wire.h"
#include "serve/serve.h"

static int supervise_run(int argc, char **argv)
{
    (void)argv;
    int type = 0;
    socklen_t len = sizeof(type);
    if (argc != 1 || getsockopt(WIRE_CONTROL_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
        type != SOCK_SEQPACKET) {
        fprintf(stderr, "Error: supervise is started by libcordon, not by hand\n");
        return CORDON_ERR_USAGE;
    }
    return serve_main();
}

const struct cli_verb cli_verb_supervise = {.name = "supervise", .usage = "", .run = supervise_run};
