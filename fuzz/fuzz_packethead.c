/* libFuzzer entry for the heads of packets that nobody's listener takes: any bytes are no head, or
 * one whose address and port stand in them.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_packethead.c src/net/packethead.c -o build/fuzz_packethead
 * build/fuzz_packethead CORPUS_DIR fuzz/seeds/fuzz_packethead */
#include <stdlib.h>
#include <string.h>

#include "net/packethead.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packethead head;
    if (size > PACKETHEAD_MAX || !packethead_read(data, size, &head))
        return 0;
    const uint8_t port[2] = {(uint8_t)(head.port >> 8), (uint8_t)head.port};
    bool same = head.is_v6 ? memcmp(head.dst, data + 24, 16) == 0
                           : memcmp(head.dst + 12, data + 16, 4) == 0;
    if (!same || !memmem(data + 20, size - 20, port, 2))
        abort();
    return 0;
}
