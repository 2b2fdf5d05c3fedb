/* libFuzzer entry for the ways to compare: the input is cut in two, and what must hold of any two
 * texts is checked. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "grade/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = (size - 1) * data[0] / 256, m = size - 1 - n;
    enum compare_answer answers[COMPARE_CHECKER];
    for (int k = 0; k < COMPARE_CHECKER; k++) {
        struct compare c = {.kind = (enum compare_kind)k, .tolerance = COMPARE_TOLERANCE};
        char why[120];
        answers[k] = compare_bytes(&c, text, n, text + n, m, why, sizeof(why));
        check(answers[k] != COMPARE_FAILED && strlen(why) < sizeof(why));
        for (const char *p = why; *p; p++)
            check(*p >= 0x20 && *p < 0x7f);
        check((answers[k] == COMPARE_SAME) == (*why == '\0'));
        check(compare_bytes(&c, text, n, text, n, NULL, 0) == COMPARE_SAME);
        if (k != COMPARE_FLOAT) /* the tolerance is of the expected number */
            check(compare_bytes(&c, text + n, m, text, n, NULL, 0) == answers[k]);
    }
    /* from strict to loose */
    if (answers[COMPARE_EXACT] == COMPARE_SAME)
        check(answers[COMPARE_TRIMMED] == COMPARE_SAME);
    if (answers[COMPARE_TRIMMED] == COMPARE_SAME)
        check(answers[COMPARE_TOKEN] == COMPARE_SAME && answers[COMPARE_UNORDERED] == COMPARE_SAME);
    if (answers[COMPARE_TOKEN] == COMPARE_SAME)
        check(answers[COMPARE_FLOAT] == COMPARE_SAME && answers[COMPARE_TRIMMED] != COMPARE_OTHER);
    return 0;
}
