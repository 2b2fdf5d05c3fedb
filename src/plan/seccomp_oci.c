/* The built-in filter as a Docker/OCI seccomp profile. Pure; called by the planner's users in the
 * supervisor.
 *
 * The format knows names, errors and comparisons of single arguments. It stands around the whole
 * container; inside, pid 1 gives the guest the exact program (seccomp.c) as well, so what cannot be
 * said here is not lost. */
#include <errno.h>

#include "base/jsonw.h"
#include "base/util.h"
#include "plan/seccomp.h"
#include "plan/seccomp_check.h"
#include "plan/seccomp_table.h"

/* CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} */
#define OCI_NS_FLAGS 0x7e020000u

/* Names are joined into one rule per answer: the runtime compiles the profile at every start. */
static void oci_rule(struct jsonw *j, const struct seccomp_options *options,
                     enum seccomp_table_kind kind, int error)
{
    jsonw_open(j, NULL, '{');
    jsonw_open(j, "names", '[');
    for (unsigned nr = 0; nr < SECCOMP_TABLE_SIZE; nr++) {
        const char *name = seccomp_call_name((int)nr);
        if (!name)
            continue;
        uint16_t rule = seccomp_check_resolve(options, seccomp_table_rule(nr));
        enum seccomp_table_kind is = SECCOMP_RULE_KIND(rule);
        bool special = str_eq(name, "clone") || str_eq(name, "socket");
        if (is == SECCOMP_TABLE_CHECK)
            is = special ? SECCOMP_TABLE_NONE : SECCOMP_TABLE_ALLOW;
        if (is == kind && (kind != SECCOMP_TABLE_ERRNO || SECCOMP_RULE_PARAM(rule) == error))
            jsonw_str(j, NULL, name);
    }
    jsonw_close(j, ']');
    jsonw_str(j, "action", kind == SECCOMP_TABLE_ALLOW ? "SCMP_ACT_ALLOW" : "SCMP_ACT_ERRNO");
    if (kind != SECCOMP_TABLE_ALLOW)
        jsonw_int(j, "errnoRet", error);
    jsonw_close(j, '}');
}

static void oci_allow_if(struct jsonw *j, const char *name, uint64_t value, uint64_t value_two,
                         const char *op)
{
    jsonw_open(j, NULL, '{');
    jsonw_open(j, "names", '[');
    jsonw_str(j, NULL, name);
    jsonw_close(j, ']');
    jsonw_str(j, "action", "SCMP_ACT_ALLOW");
    jsonw_open(j, "args", '[');
    jsonw_open(j, NULL, '{');
    jsonw_uint(j, "index", 0);
    jsonw_uint(j, "value", value);
    jsonw_uint(j, "valueTwo", value_two);
    jsonw_str(j, "op", op);
    jsonw_close(j, '}');
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}

void seccomp_oci_write(struct jsonw *j, const char *key, const struct seccomp_options *options)
{
    static const unsigned families[] = {1, 2, 10}; /* unix, inet, inet6 */
    jsonw_open(j, key, '{');
    jsonw_str(j, "defaultAction", "SCMP_ACT_ERRNO");
    jsonw_int(j, "defaultErrnoRet", ENOSYS);
    jsonw_open(j, "architectures", '[');
    jsonw_str(j, NULL, "SCMP_ARCH_X86_64");
    jsonw_close(j, ']');
    jsonw_open(j, "syscalls", '[');
    oci_rule(j, options, SECCOMP_TABLE_ALLOW, 0);
    oci_rule(j, options, SECCOMP_TABLE_REFUSE, EPERM);
    oci_rule(j, options, SECCOMP_TABLE_ERRNO, EPERM);
    oci_allow_if(j, "clone", OCI_NS_FLAGS, 0, "SCMP_CMP_MASKED_EQ");
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        oci_allow_if(j, "socket", families[i], 0, "SCMP_CMP_EQ");
    if (options->pid1_netlink)
        oci_allow_if(j, "socket", 16, 0, "SCMP_CMP_EQ"); /* netlink */
    jsonw_close(j, ']');
    jsonw_close(j, '}');
}
