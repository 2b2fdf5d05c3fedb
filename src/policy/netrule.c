/* Parser and matcher of network rules. Pure; runs in whoever reads a policy and in the broker. */
#include "policy/netrule.h"

#include "base/util.h"
#include "policy/idna.h"

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
static const uint8_t nat64_prefix[12] = {0x00, 0x64, 0xff, 0x9b};

#define NOT_A_NAME                                                                                 \
    "is not a host name; letters and digits of any script, '-', '.' and '*' labels only"

static int refuse(char *why, const char *reason)
{
    snprintf(why, NETRULE_WHY_MAX, "%s", reason);
    return -1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* ---- names ------------------------------------------------------------------------------------
 */

/* A last label that is a number in any base makes resolvers read the whole name as an address. */
static bool label_is_number(const char *label, size_t len)
{
    if (len >= 2 && label[0] == '0' && label[1] == 'x')
        return strspn(label + 2, "0123456789abcdef") == len - 2;
    return strspn(label, "0123456789") == len;
}

static bool label_is_ldh(const char *label, size_t len)
{
    if (len == 0 || len > 63 || label[0] == '-' || label[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!(label[i] >= 'a' && label[i] <= 'z') && !is_digit(label[i]) && label[i] != '-')
            return false;
    }
    return true;
}

/* Lower case into ret without the final dot; false when it does not fit. */
static bool name_fold(const char *name, size_t len, char *ret)
{
    if (len > 0 && name[len - 1] == '.')
        len--;
    if (len == 0 || len > NETRULE_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        ret[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] | 0x20) : name[i];
    ret[len] = '\0';
    return strlen(ret) == len;
}

bool netrule_canonical_name(const char *name, size_t len,
                            char ret_name[static NETRULE_NAME_MAX + 1])
{
    char folded[NETRULE_NAME_MAX + 1];
    if (!name_fold(name, len, folded))
        return false;
    for (const char *label = folded;;) {
        size_t n = strcspn(label, ".");
        if (!label_is_ldh(label, n))
            return false;
        if (!label[n]) {
            if (label_is_number(label, n))
                return false;
            break;
        }
        label += n + 1;
    }
    if (strstr(folded, "xn--") && !idna_is_name(folded))
        return false;
    memcpy(ret_name, folded, strlen(folded) + 1);
    return true;
}

/* ---- parsing ----------------------------------------------------------------------------------
 */

/* "127.*", "192.168.*": numbers, then only stars. */
static bool numeric_prefix(const char *host, struct netrule *rule)
{
    uint8_t octets[4] = {0};
    unsigned n_numbers = 0, n_labels = 0;
    for (const char *label = host;; n_labels++) {
        size_t len = strcspn(label, ".");
        if (n_labels == 4)
            return false;
        if (!(len == 1 && label[0] == '*')) {
            if (n_numbers != n_labels || len == 0 || len > 3 || (len > 1 && label[0] == '0') ||
                strspn(label, "0123456789") != len || atoi(label) > 255)
                return false;
            octets[n_numbers++] = (uint8_t)atoi(label);
        }
        if (!label[len])
            break;
        label += len + 1;
    }
    if (n_numbers == 0 || n_numbers > n_labels)
        return false;
    rule->kind = NETRULE_ADDRESS;
    memcpy(rule->addr, mapped_prefix, 12);
    memcpy(rule->addr + 12, octets, 4);
    rule->prefix_len = (uint8_t)(96 + 8 * n_numbers);
    return true;
}

static int parse_pattern(const char *host, struct netrule *rule, char *why)
{
    bool has_star = false, has_number = false, has_word = false;
    for (const char *label = host;;) {
        size_t len = strcspn(label, ".");
        bool star = len == 1 && label[0] == '*';
        has_star |= star;
        has_number |= !star && label_is_number(label, len);
        has_word |= !star && !label_is_number(label, len);
        if (!star && memchr(label, '*', len))
            return refuse(why, "has a '*' inside a label; it stands for whole labels");
        if (!star && !label_is_ldh(label, len))
            return refuse(why, NOT_A_NAME);
        if (!label[len]) {
            /* 300.* or *.1: no name has a number at its end, and no address is written so */
            if ((!star && label_is_number(label, len)) || (has_number && !has_word))
                return refuse(why, "is neither a host name nor an address; addresses are written "
                                   "in full, as 127.0.0.1 or 127.*");
            break;
        }
        label += len + 1;
    }
    if (strstr(host, "xn--") && !idna_is_name(host))
        return refuse(why, "has a label in another script that no name can have");
    rule->kind = has_star ? NETRULE_PATTERN : NETRULE_NAME;
    memcpy(rule->host, host, strlen(host) + 1);
    return 0;
}

/* addr[/bits], the address in text */
static int parse_range(char *text, struct netrule *rule, char *why)
{
    char *slash = strchr(text, '/');
    if (slash)
        *slash = '\0';
    if (!netrule_parse_addr(text, rule->addr))
        return refuse(why, slash ? "has a path or a bad address; write https://HOST/* or "
                                   "ADDRESS/BITS"
                                 : "is not an address");
    rule->kind = NETRULE_ADDRESS;
    rule->is_literal = !slash;
    rule->prefix_len = 128;
    if (!slash)
        return 0;

    bool is_v4 = !strchr(text, ':');
    unsigned max = is_v4 ? 32 : 128;
    size_t digits = strspn(slash + 1, "0123456789");
    if (digits == 0 || digits > 3 || slash[1 + digits] || atoi(slash + 1) > (int)max ||
        (digits > 1 && slash[1] == '0'))
        return refuse(why, "is not an address range; write 10.0.0.0/8 or fd00::/8");
    rule->prefix_len = (uint8_t)(atoi(slash + 1) + (is_v4 ? 96 : 0));

    uint8_t zero[16] = {0};
    for (unsigned bit = rule->prefix_len; bit < 128; bit++)
        zero[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
    for (unsigned i = 0; i < 16; i++) {
        if (rule->addr[i] & zero[i])
            return refuse(why,
                          "has bits set beyond its prefix; write the first address of the range");
    }
    return 0;
}

static int parse_port(const char *text, struct netrule *rule, char *why)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] || atoi(text) < 1 || atoi(text) > 65535)
        return refuse(why, "has a bad port; write a number from 1 to 65535");
    rule->port = (uint16_t)atoi(text);
    return 0;
}

static int parse_host(char *host, struct netrule *rule, char *why)
{
    char folded[NETRULE_NAME_MAX + 1], ascii[NETRULE_NAME_MAX + 2];
    uint8_t addr[16];
    if (idna_is_other(host, strlen(host))) {
        if (!idna_to_ascii(host, strlen(host), ascii, sizeof(ascii)))
            return refuse(why, NOT_A_NAME);
        host = ascii;
    }
    if (strchr(host, '/') || netrule_parse_addr(host, addr))
        return parse_range(host, rule, why);
    if (!name_fold(host, strlen(host), folded))
        return refuse(why, "has no host name, or one that is too long");
    if (str_eq(folded, "*")) {
        rule->kind = NETRULE_ANY;
        return 0;
    }
    if (numeric_prefix(folded, rule))
        return 0;
    return parse_pattern(folded, rule, why);
}

/* HOST, HOST:PORT, [V6], [V6]:PORT, V6, V4/BITS:PORT */
static int parse_authority(char *text, struct netrule *rule, char *why)
{
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return refuse(why, "has a bad bracket; write [ADDRESS] or [ADDRESS]:PORT");
        if (end[1] && parse_port(end + 2, rule, why) < 0)
            return -1;
        *end = '\0';
        if (!strchr(text, ':'))
            return refuse(why, "has something else than an IPv6 address in brackets");
        return parse_range(text + 1, rule, why);
    }
    char *colon = strchr(text, ':');
    if (colon && strchr(colon + 1, ':'))
        return parse_range(text, rule, why); /* two colons: a bare IPv6 address */
    if (colon) {
        if (parse_port(colon + 1, rule, why) < 0)
            return -1;
        *colon = '\0';
    }
    return parse_host(text, rule, why);
}

static int parse_url(char *text, char *separator, struct netrule *rule, char *why)
{
    static const struct {
        const char *scheme;
        uint16_t port;
        enum netrule_proto proto;
    } schemes[] = {{"https", 443, NETRULE_TCP},
                   {"http", 80, NETRULE_TCP},
                   {"tcp", 0, NETRULE_TCP},
                   {"udp", 0, NETRULE_UDP}};
    *separator = '\0';
    char *authority = separator + 3;
    size_t i = 0;
    while (i < ARRAY_SIZE(schemes) && strcasecmp(text, schemes[i].scheme) != 0)
        i++;
    if (i == ARRAY_SIZE(schemes))
        return refuse(why, "has an unknown scheme; write http, https, tcp or udp");

    char *path = strchr(authority, '/');
    if (path && !str_eq(path, "/") && !str_eq(path, "/*"))
        return refuse(why, "has a path narrower than /*; connections are allowed by host and port, "
                           "paths cannot be told apart");
    if (path)
        *path = '\0';
    rule->proto = schemes[i].proto;
    if (parse_authority(authority, rule, why) < 0)
        return -1;
    if (rule->port == 0)
        rule->port = schemes[i].port;
    if (rule->proto == NETRULE_UDP && rule->port == 0)
        return refuse(why, "names no port; write udp://HOST:PORT");
    return 0;
}

int netrule_parse(const char *text, struct netrule *ret_rule, char why[static NETRULE_WHY_MAX])
{
    struct netrule rule = {0};
    char copy[IDNA_WRITTEN_MAX + 32];
    size_t len = strlen(text);
    if (len == 0)
        return refuse(why, "is empty; write HOST, HOST:PORT or a pattern");
    if (len >= sizeof(copy))
        return refuse(why, "is too long for a host name");
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f || strchr("@?#%\\", text[i]))
            return refuse(why, NOT_A_NAME);
    }
    memcpy(copy, text, len + 1);

    char *separator = strstr(copy, "://");
    int r = separator ? parse_url(copy, separator, &rule, why) : parse_authority(copy, &rule, why);
    if (r == 0)
        *ret_rule = rule;
    return r;
}

/* ---- what a rule means ------------------------------------------------------------------------
 */

bool netrule_is_exact(const struct netrule *rule)
{
    return rule->kind == NETRULE_NAME || (rule->kind == NETRULE_ADDRESS && rule->is_literal);
}

static const char *last_label(const char *host)
{
    const char *dot = strrchr(host, '.');
    return dot ? dot + 1 : host;
}

bool netrule_is_over_broad(const struct netrule *rule)
{
    static const char *const local[] = {"local", "test", "internal", "lan"};
    if (rule->kind == NETRULE_ANY)
        return true;
    if (rule->kind == NETRULE_ADDRESS)
        return rule->prefix_len == 0 ||
               (rule->prefix_len == 96 && !memcmp(rule->addr, mapped_prefix, 12));
    if (rule->kind != NETRULE_PATTERN)
        return false;

    const char *last = last_label(rule->host);
    for (const char *p = rule->host; p < last; p++) {
        if (*p != '*' && *p != '.')
            return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
        if (str_eq(last, local[i]))
            return false;
    }
    return true;
}

bool netrule_names_internal(const struct netrule *rule)
{
    if (rule->kind == NETRULE_ADDRESS)
        return true;
    if (rule->kind == NETRULE_NAME)
        return str_eq(rule->host, "localhost");
    return rule->kind == NETRULE_PATTERN && str_eq(last_label(rule->host), "local");
}

static size_t count_labels(const char *name)
{
    size_t n = 1;
    for (; *name; name++)
        n += *name == '.';
    return n;
}

static bool labels_match(const char *pattern, const char *name)
{
    for (;;) {
        size_t p = strcspn(pattern, "."), n = strcspn(name, ".");
        bool star = p == 1 && pattern[0] == '*';
        if (!star && (p != n || memcmp(pattern, name, n) != 0))
            return false;
        if (!pattern[p] || !name[n])
            return pattern[p] == name[n];
        pattern += p + 1;
        name += n + 1;
    }
}

bool netrule_matches_name(const struct netrule *rule, const char *name)
{
    if (rule->kind == NETRULE_ANY)
        return true;
    if (rule->kind == NETRULE_NAME)
        return str_eq(rule->host, name);
    if (rule->kind != NETRULE_PATTERN)
        return false;
    if (!str_starts(rule->host, "*."))
        return labels_match(rule->host, name);

    /* A leading star takes one label or more: line the rest up with the end of the name. */
    const char *rest = rule->host + 2;
    size_t want = count_labels(rest), have = count_labels(name);
    if (have <= want)
        return false;
    for (size_t skip = have - want; skip > 0; skip--)
        name = strchr(name, '.') + 1;
    return labels_match(rest, name);
}

bool netrule_matches_addr(const struct netrule *rule, const uint8_t addr[static 16])
{
    uint8_t plain[16];
    if (rule->kind == NETRULE_ANY)
        return true;
    if (rule->kind != NETRULE_ADDRESS)
        return false;
    memcpy(plain, addr, 16);
    if (memcmp(addr, nat64_prefix, 12) == 0)
        memcpy(plain, mapped_prefix, 12);
    /* A wide IPv6 range such as ::/1 must not take in the mapped form of every IPv4 address. */
    bool rule_v4 = rule->prefix_len >= 96 && memcmp(rule->addr, mapped_prefix, 12) == 0;
    bool addr_v4 = memcmp(plain, mapped_prefix, 12) == 0;
    if (rule_v4 != addr_v4)
        return netrule_prefix_equal(addr, rule->addr, rule->prefix_len) && !rule_v4 &&
               memcmp(addr, mapped_prefix, 12) != 0;
    return netrule_prefix_equal(plain, rule->addr, rule->prefix_len);
}

bool netrule_port_matches(const struct netrule *rule, uint16_t port, const uint16_t *default_ports,
                          size_t n)
{
    static const uint16_t web[] = {80, 443};
    if (rule->port)
        return rule->port == port;
    if (n == 0) {
        default_ports = web;
        n = ARRAY_SIZE(web);
    }
    for (size_t i = 0; i < n; i++) {
        if (default_ports[i] == port)
            return true;
    }
    return false;
}
