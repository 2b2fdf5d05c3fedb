/* libFuzzer entry for everything that reads a policy: a configuration file up to the first NUL
 * byte, then one NUL-terminated command-line word after the other. Any bytes give a policy that can
 * be shown, or one honest error on one line. Each word is also read as a network rule.
 *
 * clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc \
 *     fuzz/fuzz_policy.c src/policy/[a-z]*.c src/base/buf.c src/base/err.c src/base/jsonw.c \
 *     -o build/fuzz_policy
 * build/fuzz_policy CORPUS_DIR tests/unit/golden/policy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "policy/netrule.h"
#include "policy/show.h"
#include "policy/why.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 64, INPUT_MAX = 64 * 1024, SHOWN_MAX = 64 * 1024 * 1024 };

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_error(const struct cordon_err *err)
{
    check(err->code == CORDON_ERR_CONFIG || err->code == CORDON_ERR_USAGE);
    check(err->message[0] != '\0');
    for (const char *c = err->message; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* A rule that names a host must match that host, and writing it out must give the same rule. */
static void check_rule(const char *word)
{
    struct netrule rule, again;
    char why[NETRULE_WHY_MAX], name[NETRULE_NAME_MAX + 1];
    if (netrule_parse(word, &rule, why) < 0) {
        check(why[0] != '\0');
        return;
    }
    if (rule.kind == NETRULE_NAME) {
        check(netrule_canonical_name(rule.host, strlen(rule.host), name));
        check(str_eq(name, rule.host) && netrule_matches_name(&rule, name));
        check(netrule_parse(rule.host, &again, why) == 0 && str_eq(again.host, rule.host));
    } else if (rule.kind == NETRULE_ADDRESS) {
        check(rule.prefix_len <= 128);
        check(!rule.is_literal || netrule_matches_addr(&rule, rule.addr));
        (void)netrule_addr_is_internal(rule.addr);
    }
    (void)netrule_is_over_broad(&rule);
}

static void show(const struct policy *policy, const char *word)
{
    struct cordon_err err = {0};
    struct why why;
    _cleanup_buf_ struct buf out = BUF_INIT(SHOWN_MAX);
    struct jsonw json = {.out = &out};
    policy_explain_text(policy, &out);
    jsonw_open(&json, NULL, '{');
    policy_explain_json(policy, &json);
    jsonw_close(&json, '}');
    check(!out.failed);
    for (size_t i = 0; i < out.len; i++)
        check((unsigned char)out.data[i] >= 0x20 || out.data[i] == '\n');
    if (why_path(policy, word, true, &why, &err) < 0)
        check_error(&err);
    if (why_host(policy, word, &why, &err) < 0)
        check_error(&err);
}

static void resolve(const char *file, char **words, int n)
{
    static char *const variables[] = {"HOME=/nonexistent", "PATH=/bin", NULL};
    struct cordon_err err = {0};
    struct options options;
    struct policy *policy = NULL;
    if (options_parse(n, words, NULL, 0, true, &options, &err) < 0) {
        check_error(&err);
        return;
    }
    struct policy_input input = options_input(&options, variables);
    input.cwd = "/project";
    input.no_discovery = true;
    input.test = n % 2;
    if (!input.config_file || file)
        input.config_file = file;
    if (policy_resolve(&input, &policy, &err) < 0) {
        check(policy == NULL);
        check_error(&err);
    } else {
        show(policy, words[n - 1]);
        policy_free(policy);
    }
    options_done(&options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char file[64];
    char *words[WORDS_MAX + 1] = {"run"};
    int n = 1;
    if (size > INPUT_MAX)
        return 0;
    _cleanup_free_ char *text = malloc(size + 1);
    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';

    size_t toml_len = strlen(text);
    _cleanup_close_ int fd = memfd_create("cordon.toml", MFD_CLOEXEC);
    check(fd >= 0 && write(fd, text, toml_len) == (ssize_t)toml_len && lseek(fd, 0, SEEK_SET) == 0);
    snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);

    for (size_t at = toml_len + 1; at < size && n < WORDS_MAX; at += strlen(text + at) + 1) {
        check_rule(text + at);
        words[n++] = text + at;
    }
    words[n] = NULL;
    resolve(file, words, n);
    return 0;
}
