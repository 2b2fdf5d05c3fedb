/* libFuzzer entry for HTTP requests and a proxy's reply: shown whole or in pieces (the first byte
 * says how large), the same bytes pass and the same are refused. */
#include <stdlib.h>
#include <string.h>

#include "net/httpfirst.h"
#include "net/httpwatch.h"
#include "net/proxyconnect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void fuzz_proxy(const char *text, size_t len)
{
    size_t head = 0;
    int status = 0;
    enum proxyconnect_state state = proxyconnect_read(text, len, &head, &status);
    if (state == PROXYCONNECT_OPEN || state == PROXYCONNECT_REFUSED)
        check(head >= 13 && head <= len && status >= 0 && status <= 999 &&
              (status / 100 == 2) == (state == PROXYCONNECT_OPEN));
}

/* Decided once, decided for good; at the end there is nothing left to be unsure of. */
static void fuzz_first(const char *text, size_t len)
{
    size_t pass = 0, pass_before = 0;
    enum httpfirst is = httpfirst_read(text, len, false, &pass),
                   before = httpfirst_read(text, len / 2, false, &pass_before);
    check(before == HTTPFIRST_UNSURE || before == is);
    check(pass <= len && pass_before <= len / 2);
    check(httpfirst_read(text, len, true, &pass) != HTTPFIRST_UNSURE);
    is = httpfirst_read_body(text, len, false);
    before = httpfirst_read_body(text, len / 2, false);
    check(before == HTTPFIRST_UNSURE || before == is);
    check(httpfirst_read_body(text, len, true) != HTTPFIRST_UNSURE);
    (void)httpfirst_read_answer(text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > HTTPWATCH_HEAD_MAX)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1, piece = (size_t)data[0] + 1, pass = 0, held = 0, n = 0;
    struct httpwatch whole = {.any_host = data[0] & 1}, parts;
    check(nethost_parse("ok.test", 7, &whole.host));
    parts = whole;
    fuzz_proxy(text, len);
    fuzz_first(text, len);
    enum httpwatch_verdict a = httpwatch_step(&whole, text, len, &pass), b = HTTPWATCH_PASS;
    check(a != HTTPWATCH_PASS || pass <= len);
    for (size_t end = 0; end < len && b == HTTPWATCH_PASS;) {
        end = end + piece < len ? end + piece : len;
        b = httpwatch_step(&parts, text + held, end - held, &n);
        if (b == HTTPWATCH_PASS)
            held += n;
    }
    check(len == 0 || a == b);
    check(a != HTTPWATCH_PASS || len == 0 || (pass == held && whole.state == parts.state));
    return 0;
}
