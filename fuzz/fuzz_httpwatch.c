/* libFuzzer entry for HTTP requests and a proxy's reply: shown whole or in pieces (the first byte
 * says how large), the same bytes pass and the same are refused. */
#include <stdlib.h>
#include <string.h>

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
    enum httpwatch_is is = httpwatch_is_http(text, len), before = httpwatch_is_http(text, len / 2);
    check(before == HTTPWATCH_UNSURE || before == is);
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
