/* `cordon broker`: what a supervisor starts for a guest with a network. Not for people. */
#include "cli/cli.h"

#include <stdio.h>
#include <sys/socket.h>

#include "net/broker.h"
#include "net/netwire.h"

static int broker_run(int argc, char **argv)
{
    (void)argv;
    int type = 0;
    socklen_t len = sizeof(type);
    if (argc != 1 || getsockopt(NETWIRE_SETUP_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0 ||
        type != SOCK_SEQPACKET) {
        fprintf(stderr, "Error: broker is started by Cordon itself, not by hand\n");
        return CORDON_ERR_USAGE;
    }
    return broker_main();
}

const struct cli_verb cli_verb_broker = {.name = "broker", .usage = "", .run = broker_run};
