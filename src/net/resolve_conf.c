/* What the resolver knows from files: servers and fixed names. Runs in the broker before it locks
 * itself up. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "base/err.h"
#include "base/util.h"
#include "net/resolve_internal.h"
#include "policy/nethost.h"
#include "policy/netrule.h"

#define HOSTS_MAX 8192

static void server_set(struct resolve_server *s, const uint8_t addr[static 16], uint16_t port)
{
    static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};
    *s = (struct resolve_server){0};
    if (memcmp(addr, mapped_prefix, 12) == 0) {
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&sin.sin_addr, addr + 12, 4);
        memcpy(&s->addr, &sin, s->len = sizeof(sin));
    } else {
        struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&sin6.sin6_addr, addr, 16);
        memcpy(&s->addr, &sin6, s->len = sizeof(sin6));
    }
}

/* ADDRESS, ADDRESS:PORT, [V6]:PORT, V6 */
static bool read_dns(const char *text, struct resolve_server *ret_server)
{
    uint8_t addr[16];
    struct nethost host;
    uint16_t port = 0;
    if (netrule_parse_addr(text, addr)) {
        server_set(ret_server, addr, 53);
        return true;
    }
    if (!nethost_parse_port(text, strlen(text), &host, &port) || !host.is_addr)
        return false;
    server_set(ret_server, host.addr, port ? port : 53);
    return true;
}

int resolve_check_dns(const char *dns, struct cordon_err *err)
{
    struct resolve_server ignored;
    if (read_dns(dns, &ignored))
        return 0;
    return err_set(err, CORDON_ERR_CONFIG, "network", 0,
                   "dns: '%.100s' is not the address of a resolver", dns);
}

static int load_servers(const char *path, struct resolve_conf *conf, struct cordon_err *err)
{
    static const uint8_t own[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[1024];
    if (!f && errno != ENOENT)
        return err_set(err, CORDON_ERR_INTERNAL, "network", errno, "%s", path);
    while (f && conf->n_servers < RESOLVE_SERVERS_MAX && fgets(line, sizeof(line), f)) {
        char *save, *word = strtok_r(line, " \t\r\n", &save);
        char *value = word ? strtok_r(NULL, " \t\r\n", &save) : NULL;
        uint8_t addr[16];
        if (word && value && str_eq(word, "nameserver") && netrule_parse_addr(value, addr))
            server_set(&conf->servers[conf->n_servers++], addr, 53);
    }
    if (conf->n_servers == 0) /* what resolv.conf(5) says an empty file means */
        server_set(&conf->servers[conf->n_servers++], own, 53);
    return 0;
}

static int add_host(struct resolve_conf *conf, const char *name, const uint8_t addr[static 16],
                    struct cordon_err *err)
{
    char canonical[NETRULE_NAME_MAX + 1];
    if (conf->n_hosts == HOSTS_MAX || !netrule_canonical_name(name, strlen(name), canonical))
        return 0;
    struct resolve_host *more = reallocarray(conf->hosts, conf->n_hosts + 1, sizeof(*conf->hosts));
    if (!more)
        return err_nomem(err, "network");
    conf->hosts = more;
    more[conf->n_hosts].name = strdup(canonical);
    memcpy(more[conf->n_hosts].addr, addr, 16);
    return more[conf->n_hosts].name ? (conf->n_hosts++, 0) : err_nomem(err, "network");
}

static int load_hosts(const char *path, struct resolve_conf *conf, struct cordon_err *err)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[1024];
    if (!f)
        return errno == ENOENT ? 0
                               : err_set(err, CORDON_ERR_INTERNAL, "network", errno, "%s", path);
    while (fgets(line, sizeof(line), f)) {
        line[strcspn(line, "#\r\n")] = '\0';
        char *save, *word = strtok_r(line, " \t", &save);
        uint8_t addr[16];
        if (!word || !netrule_parse_addr(word, addr))
            continue;
        while ((word = strtok_r(NULL, " \t", &save))) {
            if (add_host(conf, word, addr, err) < 0)
                return -1;
        }
    }
    return 0;
}

int resolve_conf_load(const struct resolve_config *config, struct resolve_conf *ret_conf,
                      struct cordon_err *err)
{
    struct resolve_conf conf = {0};
    const char *resolv_conf = config->resolv_conf ? config->resolv_conf : "/etc/resolv.conf";
    int r;
    if (config->dns) {
        r = resolve_check_dns(config->dns, err);
        if (r == 0)
            read_dns(config->dns, &conf.servers[conf.n_servers++]);
    } else {
        r = load_servers(resolv_conf, &conf, err);
    }
    if (r < 0 || load_hosts(config->hosts ? config->hosts : "/etc/hosts", &conf, err) < 0) {
        resolve_conf_done(&conf);
        return -1;
    }
    *ret_conf = conf;
    return 0;
}

void resolve_conf_done(struct resolve_conf *conf)
{
    for (size_t i = 0; i < conf->n_hosts; i++)
        free(conf->hosts[i].name);
    free(conf->hosts);
    *conf = (struct resolve_conf){0};
}
