/* libFuzzer entry for TLS hellos: more bytes never change an answer that was given, and while more
 * are wanted the wish is honest. */
#include <stdlib.h>
#include <string.h>

#include "net/tlshello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char whole[TLSHELLO_NAME_MAX + 1] = "", part[TLSHELLO_NAME_MAX + 1] = "";
    size_t need = 0;
    enum tlshello_state last = tlshello_read(data, size, whole, &need);
    if (last == TLSHELLO_MORE && need <= size)
        abort();
    size_t step = size / 64 + 1;
    for (size_t cut = 0; cut < size; cut += step) {
        enum tlshello_state state = tlshello_read(data, cut, part, &need);
        if (state == TLSHELLO_MORE && need <= cut)
            abort();
        if (state != TLSHELLO_MORE && (state != last || strcmp(part, whole) != 0))
            abort();
    }
    return 0;
}
