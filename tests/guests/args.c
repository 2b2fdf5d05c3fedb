/* Says how many bytes of arguments and environment arrived, and a checksum over the arguments. */
#include "guest.h"

int main(int argc, char **argv)
{
    size_t bytes = 0;
    unsigned long sum = 5381;
    for (int i = 1; i < argc; i++) {
        bytes += strlen(argv[i]) + 1;
        for (const char *p = argv[i]; *p; p++)
            sum = sum * 33 + (unsigned char)*p;
    }
    say("argc", "%d", argc);
    say("bytes", "%zu", bytes);
    say("sum", "%lu", sum);
    return 0;
}
