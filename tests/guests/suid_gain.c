/* F14: runs a setuid program and says which identity came out of it.
 *
 * usage: suid_gain PROGRAM    PROGRAM is this very file, setuid root where the test could make it
 * so suid_gain --report */
#include "guest.h"

int main(int argc, char **argv)
{
    guest_deadline(10);
    if (argc > 1 && !strcmp(argv[1], "--report")) {
        say("euid", "%d", (int)geteuid());
        say("egid", "%d", (int)getegid());
        return 0;
    }
    TRY("exec", execl(arg(argc, argv, 1, "/usr/bin/su"), "suid_gain", "--report", NULL));
    return 3;
}
