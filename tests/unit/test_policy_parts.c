/* The parts a policy is made of: units, paths, network rules, option splitting, messages of files,
 * and the field table's own order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "policy/config.h"
#include "policy/fields.h"
#include "policy/levels.h"
#include "policy/netrule.h"
#include "policy/options.h"
#include "policy/show.h"
#include "policy/units.h"

/* ---- units ----------------------------------------------------------------------------------- */

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns; /* 0: refused */
    } rows[] = {
        {"100ms", 100000000},
        {"5s", 5000000000},
        {"1.5s", 1500000000},
        {"2m", 120000000000},
        {"1h", 3600000000000},
        {"0.001ms", 1000},
        {"0.000000001s", 1},
        {"876000h", 876000ull * 3600000000000},
        {"876001h", 0},
        {"0.0000000001s", 0},
        {"0.0000001ms", 0},
        {"5", 0},
        {"", 0},
        {"s", 0},
        {"5S", 0},
        {"5 s", 0},
        {" 5s", 0},
        {"5s ", 0},
        {"-5s", 0},
        {"+5s", 0},
        {"5.s", 0},
        {".5s", 0},
        {"1,5s", 0},
        {"1e3s", 0},
        {"0x5s", 0},
        {"infs", 0},
        {"nan", 0},
        {"18446744073709551616s", 0},
        {"5sec", 0},
        {"1m30s", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t ns = 0;
        const char *why = units_duration(rows[i].text, &ns);
        if ((why == NULL) != (rows[i].ns != 0) || ns != rows[i].ns)
            fail_msg("'%s': %s, %lu", rows[i].text, why ? why : "accepted", (unsigned long)ns);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes; /* UINT64_MAX: refused */
    } rows[] = {
        {"0", 0},
        {"10", 10},
        {"10B", 10},
        {"1k", 1024},
        {"1K", 1024},
        {"1kb", 1024},
        {"1KiB", 1024},
        {"10m", 10485760},
        {"10M", 10485760},
        {"1G", 1073741824},
        {"1.5G", 1610612736},
        {"2t", 2199023255552},
        {"0.5K", 512},
        {"9223372036854775807", INT64_MAX},
        {"8388607T", 8388607ull << 40},
        {"9223372036854775808", UINT64_MAX},
        {"8388608T", UINT64_MAX},
        {"18446744073709551616", UINT64_MAX},
        {"1.5", UINT64_MAX},
        {"0.3K", UINT64_MAX},
        {"10 ", UINT64_MAX},
        {"10 M", UINT64_MAX},
        {"-1", UINT64_MAX},
        {"", UINT64_MAX},
        {"M", UINT64_MAX},
        {"10MM", UINT64_MAX},
        {"10Mi", UINT64_MAX},
        {"10iB", UINT64_MAX},
        {"10P", UINT64_MAX},
        {"0x10", UINT64_MAX},
        {"1_000", UINT64_MAX},
        {"nan", UINT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t bytes = UINT64_MAX;
        const char *why = units_size(rows[i].text, &bytes);
        if ((why == NULL) != (rows[i].bytes != UINT64_MAX) || bytes != rows[i].bytes)
            fail_msg("'%s': %s, %lu", rows[i].text, why ? why : "accepted", (unsigned long)bytes);
    }
}

static void test_plain_numbers(void **state)
{
    (void)state;
    uint64_t n = 7;
    bool truth;
    assert_null(units_count("0", &n));
    assert_null(units_count("2147483647", &n));
    assert_non_null(units_count("2147483648", &n));
    assert_non_null(units_count("1.0", &n));
    assert_non_null(units_count("10K", &n));
    assert_int_equal(n, 2147483647);
    assert_null(units_percent("1000000", &n));
    assert_non_null(units_percent("1000001", &n));
    assert_non_null(units_percent("50%", &n));
    assert_null(units_port("65535", &n));
    assert_non_null(units_port("0", &n));
    assert_non_null(units_port("65536", &n));
    assert_null(units_bool("true", &truth));
    assert_true(truth);
    assert_null(units_bool("0", &truth));
    assert_false(truth);
    assert_non_null(units_bool("True", &truth));
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"/base", "x", "/base/x"},    {"/base", "./x/../y/", "/base/y"}, {"/base", "..", "/"},
        {"/base", "../../..", "/"},   {"/base", "/x//y/./z", "/x/y/z"},  {"/", ".", "/"},
        {"/a/b", "../c", "/a/c"},     {"/a", "...", "/a/..."},           {"/a", "/", "/"},
        {"/a", "/../../etc", "/etc"}, {"/a/../b", "x", "/b/x"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *path = value_path(rows[i][0], rows[i][1]);
        assert_string_equal(path, rows[i][2]);
    }
}

/* ---- network rules ----------------------------------------------------------------------------
 */

static struct netrule rule(const char *text)
{
    struct netrule r;
    char why[NETRULE_WHY_MAX];
    if (netrule_parse(text, &r, why) < 0)
        fail_msg("'%s' %s", text, why);
    return r;
}

static void test_rule_parsing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum netrule_kind kind;
        const char *host;
        unsigned port;
    } good[] = {
        {"example.com", NETRULE_NAME, "example.com", 0},
        {"EXAMPLE.Com.", NETRULE_NAME, "example.com", 0},
        {"example.com:8080", NETRULE_NAME, "example.com", 8080},
        {"localhost", NETRULE_NAME, "localhost", 0},
        {"xn--bcher-kva.example", NETRULE_NAME, "xn--bcher-kva.example", 0},
        {"b\xc3\xbc"
         "cher.example:80",
         NETRULE_NAME, "xn--bcher-kva.example", 80},
        {"3com.com", NETRULE_NAME, "3com.com", 0},
        {"*.github.com", NETRULE_PATTERN, "*.github.com", 0},
        {"api.*.com:443", NETRULE_PATTERN, "api.*.com", 443},
        {"https://cdn.example.com/*", NETRULE_NAME, "cdn.example.com", 443},
        {"HTTPS://cdn.example.com", NETRULE_NAME, "cdn.example.com", 443},
        {"http://cdn.example.com/", NETRULE_NAME, "cdn.example.com", 80},
        {"https://cdn.example.com:8443/*", NETRULE_NAME, "cdn.example.com", 8443},
        {"tcp://db.example.com:5432", NETRULE_NAME, "db.example.com", 5432},
        {"udp://ntp.example.com:123", NETRULE_NAME, "ntp.example.com", 123},
        {"*", NETRULE_ANY, "", 0},
        {"*:443", NETRULE_ANY, "", 443},
        {"127.*", NETRULE_ADDRESS, "", 0},
        {"10.1.2.*", NETRULE_ADDRESS, "", 0},
        {"10.*.*.*", NETRULE_ADDRESS, "", 0},
        {"192.168.1.1:80", NETRULE_ADDRESS, "", 80},
        {"10.0.0.0/8", NETRULE_ADDRESS, "", 0},
        {"10.0.0.0/8:22", NETRULE_ADDRESS, "", 22},
        {"::1", NETRULE_ADDRESS, "", 0},
        {"fd00::/8", NETRULE_ADDRESS, "", 0},
        {"[::1]:80", NETRULE_ADDRESS, "", 80},
        {"[fd00::/8]:80", NETRULE_ADDRESS, "", 80},
    };
    static const char *const bad[] = {
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "-a.com",
        "a-.com",
        "a_b.com",
        "b\xc3"
        "cher.de",
        "\xef\xbc\x8a.de", /* a full-width star is no star */
        "a b.com",
        "a.com:0",
        "a.com:65536",
        "a.com:",
        "a.com:80:80",
        "a.com:http",
        "ftp://a.com",
        "https://",
        "https://a.com/x",
        "https://a.com/*/x",
        "https://u@a.com/*",
        "https://a.com?x",
        "a.com/x",
        "a.com/*",
        "ap*.com",
        "*a.com",
        "1.2.3",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "256.1.1.1",
        "1.2.3.4.5",
        "127.*.1",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/08",
        "fd00::1/8",
        "::1/129",
        "[::1",
        "[a.com]:80",
        "[::1]80",
        "fe80::1%eth0",
        "udp://a.com",
        "::ffff:1.2.3.4.5",
        "*.1",
        "1.*.*.*.*",
        "300.*",
        "*.7.*",
        "a.com\n",
        "a.0x1",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct netrule r = rule(good[i].text);
        if (r.kind != good[i].kind || r.port != good[i].port || !str_eq(r.host, good[i].host))
            fail_msg("'%s': kind %d, host '%s', port %u", good[i].text, (int)r.kind, r.host,
                     r.port);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct netrule r;
        char why[NETRULE_WHY_MAX];
        if (netrule_parse(bad[i], &r, why) == 0)
            fail_msg("'%s' was accepted", bad[i]);
    }
}

static void test_rule_names(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *name;
        bool matches;
    } rows[] = {
        {"*.github.com", "api.github.com", true},
        {"*.github.com", "a.b.github.com", true},
        {"*.github.com", "github.com", false},
        {"*.github.com", "evilgithub.com", false},
        {"*.github.com", "api.github.com.evil", false},
        {"api.*.com", "api.x.com", true},
        {"api.*.com", "api.x.y.com", false},
        {"api.*.com", "api.com", false},
        {"*.a.*.c", "x.a.b.c", true},
        {"*.a.*.c", "y.x.a.b.c", true},
        {"*.a.*.c", "a.b.c", false},
        {"example.com", "example.com", true},
        {"example.com", "www.example.com", false},
        {"a.*", "a.b", true},
        {"a.*", "a.b.c", false},
        {"*", "anything.at.all", true},
        {"127.*", "localhost", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct netrule r = rule(rows[i].rule);
        if (netrule_matches_name(&r, rows[i].name) != rows[i].matches)
            fail_msg("%s and %s", rows[i].rule, rows[i].name);
    }
    char name[NETRULE_NAME_MAX + 1];
    assert_true(netrule_canonical_name("WWW.Example.COM.", 16, name));
    assert_string_equal(name, "www.example.com");
    assert_false(netrule_canonical_name("a\0b.com", 7, name));
    assert_false(netrule_canonical_name("1.2.3.4", 7, name));
}

static void test_rule_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *addr;
        bool matches;
    } rows[] = {
        {"127.*", "127.255.0.1", true},
        {"127.*", "128.0.0.1", false},
        {"127.*", "::ffff:127.0.0.1", true},
        {"127.*", "64:ff9b::7f00:1", true},
        {"127.*", "::1", false},
        {"192.168.*", "192.168.3.4", true},
        {"192.168.*", "192.169.3.4", false},
        {"10.0.0.0/9", "10.127.1.1", true},
        {"10.0.0.0/9", "10.128.1.1", false},
        {"1.2.3.4", "1.2.3.4", true},
        {"1.2.3.4", "1.2.3.5", false},
        {"fd00::/8", "fdff::1", true},
        {"fd00::/8", "fe00::1", false},
        {"::/1", "1.2.3.4", false},
        {"::/1", "2001:db8::1", true},
        {"64:ff9b::/96", "64:ff9b::102:304", true},
        {"0.0.0.0/0", "1.2.3.4", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"example.com", "1.2.3.4", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct netrule r = rule(rows[i].rule);
        uint8_t addr[16];
        assert_true(netrule_parse_addr(rows[i].addr, addr));
        if (netrule_matches_addr(&r, addr) != rows[i].matches)
            fail_msg("%s and %s", rows[i].rule, rows[i].addr);
    }
}

static void test_internal_addresses(void **state)
{
    (void)state;
    static const char *const internal[] = {
        "127.0.0.1",
        "0.0.0.0",
        "10.1.1.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "::",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "fec0::1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2002:0a00:0001::",
        "2001:0:0a00:1::1",
        "2001:0:1:1::f5ff:fffe",
    };
    static const char *const public[] = {
        "1.1.1.1",        "8.8.8.8",         "172.32.0.1",       "172.15.255.255",
        "100.128.0.1",    "203.0.113.5",     "198.51.100.1",     "192.0.2.1",
        "2001:db8::1",    "2606:4700::1111", "64:ff9b::808:808", "2002:0808:0808::",
        "::ffff:8.8.8.8",
    };
    uint8_t addr[16];
    for (size_t i = 0; i < ARRAY_SIZE(internal); i++) {
        assert_true(netrule_parse_addr(internal[i], addr));
        if (!netrule_addr_is_internal(addr))
            fail_msg("%s counts as public", internal[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(public); i++) {
        assert_true(netrule_parse_addr(public[i], addr));
        if (netrule_addr_is_internal(addr))
            fail_msg("%s counts as internal", public[i]);
    }
}

static void test_rule_breadth_and_ports(void **state)
{
    (void)state;
    static const char *const broad[] = {
        "*", "*.com", "*.*", "*.*.com", "*.COM.", "https://*.com/*", "0.0.0.0/0", "::/0", "*:443"};
    static const char *const fine[] = {"*.local",    "*.test",        "*.internal",
                                       "*.lan",      "*.example.com", "api.*.com",
                                       "10.0.0.0/8", "localhost",     "127.*"};
    for (size_t i = 0; i < ARRAY_SIZE(broad); i++) {
        struct netrule r = rule(broad[i]);
        if (!netrule_is_over_broad(&r))
            fail_msg("%s is not over-broad", broad[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
        struct netrule r = rule(fine[i]);
        if (netrule_is_over_broad(&r))
            fail_msg("%s is over-broad", fine[i]);
    }
    const uint16_t ports[] = {8443};
    struct netrule any = rule("a.com"), one = rule("a.com:22");
    assert_true(netrule_port_matches(&any, 80, NULL, 0));
    assert_true(netrule_port_matches(&any, 443, NULL, 0));
    assert_false(netrule_port_matches(&any, 22, NULL, 0));
    assert_true(netrule_port_matches(&any, 8443, ports, 1));
    assert_false(netrule_port_matches(&any, 443, ports, 1));
    assert_true(netrule_port_matches(&one, 22, ports, 1));
    assert_false(netrule_port_matches(&one, 8443, ports, 1));
}

/* ---- options ----------------------------------------------------------------------------------
 */

static void test_options(void **state)
{
    (void)state;
    static const struct options_own own[] = {
        {.name = "json", .id = 1},
        {.letter = 'j', .name = "jobs", .arg = OPTIONS_REQUIRED, .id = 2},
        {.letter = 'i', .id = 3},
    };
    char *argv[] = {"run",
                    "--json",
                    "--time-limit",
                    "5s",
                    "-j4",
                    "-i",
                    "--sandbox",
                    "--keep",
                    "--sandbox=strict",
                    "--temp-dir=/t",
                    "--allow-read=a",
                    "--config=c",
                    "app.py",
                    "--json",
                    "--",
                    "x",
                    NULL};
    struct cordon_err err = {0};
    struct options o;
    assert_int_equal(options_parse((int)ARRAY_SIZE(argv) - 1, argv, own, 3, true, &o, &err), 0);
    assert_true(options_has(&o, 1) && options_has(&o, 3));
    assert_string_equal(options_get(&o, 2), "4");
    assert_string_equal(o.profile, "strict");
    assert_string_equal(o.config_file, "c");
    assert_int_equal(o.n_settings, 4);
    assert_string_equal(o.settings[0].value, "5s");
    assert_null(o.settings[1].value);
    assert_int_equal(o.argc, 4);
    assert_string_equal(o.argv[0], "app.py");
    assert_false(o.has_dashes);
    options_done(&o);

    char *dashes[] = {"run", "-j", "2", "--", "--json", NULL};
    assert_int_equal(options_parse(5, dashes, own, 3, true, &o, &err), 0);
    assert_true(o.has_dashes && !options_has(&o, 1) && o.argc == 1);
    options_done(&o);
    char *standard_input[] = {"run", "-", "--json", NULL};
    assert_int_equal(options_parse(3, standard_input, own, 3, true, &o, &err), 0);
    assert_string_equal(o.argv[0], "-");
    options_done(&o);

    char *plain[] = {"doctor", "--time-limit=5s", NULL};
    assert_int_equal(options_parse(2, plain, own, 3, false, &o, &err), -1);
    assert_int_equal(err.code, CORDON_ERR_USAGE);
    char *forged[] = {"run", "--x\ny", NULL};
    assert_int_equal(options_parse(2, forged, own, 3, true, &o, &err), -1);
    assert_string_equal(err.message, "unknown option '--x?y'");
}

/* ---- messages of files ------------------------------------------------------------------------
 */

static void test_file_messages(void **state)
{
    (void)state;
    static const struct {
        const char *toml, *message;
    } rows[] = {
        {"[sandbox]\ntime_limt = \"5s\"",
         "c:2:1: unknown key 'time_limt' in [sandbox] (did you mean 'time_limit'?)"},
        {"[sandbox]\nfrobnicate = 1", "c:2:1: unknown key 'frobnicate' in [sandbox]"},
        {"[sandbox]\ntime_limit = 5",
         "c:2:14: time_limit must be a string such as \"5s\", not an integer"},
        {"[sandbox]\ncpu_limit = nan", "c:2:13: cpu_limit must be an integer, not a float"},
        {"[sandbox]\nkeep = \"yes\"", "c:2:8: keep must be true or false, not a string"},
        {"[sandbox]\nprocesses = -1",
         "c:2:13: processes: '-1' is not a count; write a whole number up to 2147483647"},
        {"[sandbox]\ntime_limit = \"5s\"\ntime_limit = \"6s\"",
         "c:3:1: \"time_limit\" is already defined as a string on line 2"},
        {"[sandbox]\nlog_network = true\n[sandbox.network]\nlog_network = false",
         "c:4:1: log_network is set twice, first at c:2:15"},
        {"time_limit = \"5s\"",
         "c:1:1: 'time_limit' stands outside a table (it belongs in [sandbox])"},
        {"[sanbox]", "c:1:2: unknown table or key 'sanbox' (did you mean 'sandbox'?)"},
        {"[sandbox.network]\nallow_read = []",
         "c:2:1: unknown key 'allow_read' in [sandbox.network] (it belongs in "
         "[sandbox.filesystem])"},
        {"sandbox = 1", "c:1:11: sandbox must be a table, not an integer"},
        {"[sandbox]\nallow_filesystem = false\n[sandbox.filesystem]\nallow_read = [\"/x\"]",
         "c:2:20: allow_filesystem = false contradicts allow_read at c:4:14"},
        {"[sandbox]\nallow_network = false\n[sandbox.network]\nnetwork = \"bridge\"",
         "c:2:17: allow_network = false contradicts network at c:4:11"},
        {"[sandbox.profiles.p]\nvirtual_fs = true\nallow_write = [\"/x\"]",
         "c:2:14: virtual_fs = true contradicts allow_write at c:3:15"},
        {"[sandbox.profiles.p]\nallow_network = [\"ok.com\", \"*.com\"]",
         "c:2:28: '*.com' is too broad"},
        {"[sandbox]\nallow_network = [1]",
         "c:2:18: allow_network must be true, false or an array of strings, not an integer"},
        {"[sandbox.network]\nallow_ports = [\"80\"]",
         "c:2:16: allow_ports must be an array of integers, or false, not a string"},
        {"[sandbox]\nenv = {A = 1}", "c:2:12: env: 'A' must be a string, not an integer"},
        {"[sandbox]\nlog = \"\\u0000\"", "c:2:7: log holds a NUL character"},
        {"[sandbox]\nimage = \"a\\nb\"", "c:2:9: image: control character in the value"},
        {"[test]\nsandbox_time_limit = 5",
         "c:2:22: sandbox_time_limit must be a string such as \"5s\", not an integer"},
        {"[test]\nsandbox_memory_limit = \"5x\"",
         "c:2:24: sandbox_memory_limit: '5x' is not a size; write 10M, 1G or a number of bytes"},
        {"[languages.foo]\nbogus = 1", "c:2:1: unknown key 'bogus' in [languages.foo]"},
        {"[sandbox]\nvenv = \"~/v\"",
         "c:2:8: venv: '~/v' starts with '~', which is not expanded here; write the whole path"},
        {"[sandbox.profiles.\"a b\"]", "c:1:19: 'a b' is not a name for a profile"},
        {"[test]\nsandbox = false", "c:2:11: sandbox = false is refused: tests always run inside; "
                                    "name a profile that gives them what they need"},
        {"[test]\ncommand = []", "c:2:11: command is empty"},
        {"[test]\ncomand = \"x\"",
         "c:2:1: unknown key 'comand' in [test] (did you mean 'command'?)"},
        {"[languages.x]\nsuffixes = [\".x\"]", "c:1:1: language 'x' has no run command"},
        {"[languages.x]\nrun = 1",
         "c:2:7: run must be a string or an array of strings, not an integer"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct config_source from = {.path = "/p/c", .name = "c", .source = FROM_PROJECT};
        struct cordon_err err = {0};
        struct config *config = NULL;
        if (config_parse(&from, rows[i].toml, strlen(rows[i].toml), &config, &err) == 0)
            fail_msg("accepted: %s", rows[i].toml);
        assert_null(config);
        assert_int_equal(err.code, CORDON_ERR_CONFIG);
        assert_string_equal(err.message, rows[i].message);
    }
}

/* ---- the table --------------------------------------------------------------------------------
 */

static void test_table(void **state)
{
    (void)state;
    for (unsigned a = 0; a < FIELD_COUNT_; a++) {
        const struct field *f = &policy_fields[a];
        char name[FIELDS_ENV_MAX];
        assert_true(*f->key && *f->arg && *f->doc);
        assert_true(fields_by_key(f->table, f->key) == a);
        assert_true(!*f->flag || fields_by_flag(f->flag) == a);
        assert_true(!*f->flag || fields_env_name((enum field_id)a, name, sizeof(name)));
        assert_null(strchr(f->doc, '\n'));
        /* the last letter of a doc line is put before a full stop */
        assert_true(f->doc[strlen(f->doc) - 1] != '.');
    }
    assert_true(fields_by_any_key("deny_patterns") == FIELD_DENY_PATTERNS);
    assert_true(fields_by_any_key("network.deny_patterns") == FIELD_DENY_NETWORK);
    assert_true(fields_by_flag("") == FIELD_COUNT_);
    for (size_t i = 0; levels_at(i); i++) {
        for (const struct level_row *row = levels_at(i)->rows; row->key; row++)
            assert_true(fields_by_any_key(row->key) < FIELD_COUNT_);
    }
    assert_int_equal(fields_distance("kitten", "sitting", 9), 3);
    assert_int_equal(fields_distance("ab", "ba", 9), 1);
    assert_int_equal(fields_distance("abc", "xyz", 1), 2);
}

/* Every flag reaches every place that lists flags. */
static void test_nothing_is_forgotten(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish"};
    static const struct show_verb verbs[] = {{"run", "run a program", NULL, 0, true, NULL}};
    _cleanup_buf_ struct buf help = BUF_INIT(1 << 20), man = BUF_INIT(1 << 20),
                             schema = BUF_INIT(1 << 20);
    policy_help(NULL, 0, true, &help);
    policy_man_options(&man);
    policy_schema(&schema);
    for (size_t id = 0; id < FIELD_COUNT_; id++) {
        char text[96];
        snprintf(text, sizeof(text), "\"%s\":", policy_fields[id].key);
        assert_non_null(strstr(schema.data, text));
        snprintf(text, sizeof(text), "--%s", policy_fields[id].flag);
        assert_non_null(strstr(help.data, text));
        assert_non_null(strstr(man.data, text));
    }
    for (size_t s = 0; s < ARRAY_SIZE(shells); s++) {
        _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
        struct cordon_err err;
        assert_int_equal(policy_completions(shells[s], verbs, 1, &out, &err), 0);
        for (size_t id = 0; id < FIELD_COUNT_; id++)
            assert_non_null(strstr(out.data, policy_fields[id].flag));
    }
    struct cordon_err err;
    assert_int_equal(policy_completions("tcsh", verbs, 1, &help, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_plain_numbers),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_rule_parsing),
        cmocka_unit_test(test_rule_names),
        cmocka_unit_test(test_rule_addresses),
        cmocka_unit_test(test_internal_addresses),
        cmocka_unit_test(test_rule_breadth_and_ports),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_file_messages),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_nothing_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
