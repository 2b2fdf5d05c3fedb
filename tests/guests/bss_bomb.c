/* D11: a static array larger than any sensible limit, touched from end to end. Where the limit is
 * held by an address-space limit, exec itself fails. */
#include "guest.h"

static volatile char huge[900L * 1024 * 1024];

int main(void)
{
    guest_deadline(60);
    for (size_t i = 0; i < sizeof(huge); i += 4096)
        huge[i] = 1;
    say("touched", "%zu", sizeof(huge));
    return 0;
}
