/* The static binary of the ordinary programs: no loader, no library, no /etc. */
#include "guest.h"

int main(int argc, char **argv)
{
    say("hello", "%s", arg(argc, argv, 1, "world"));
    return (int)argn(argc, argv, 2, 0);
}
