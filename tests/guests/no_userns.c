/* Not a guest: starts a command where user namespaces are refused, the way the filter of a default
 * Docker container refuses them: clone and unshare with CLONE_NEWUSER answer EPERM, clone3 ENOSYS.
 *
 * usage: no_userns CMD [ARG...] */
#include "guest.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define NEWUSER 0x10000000u
#define FIELD(name) ((unsigned)offsetof(struct seccomp_data, name))

int main(int argc, char **argv)
{
    struct sock_filter insns[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog prog = {sizeof(insns) / sizeof(insns[0]), insns};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0) {
        fprintf(stderr, "no_userns: %s\n", argc < 2 ? "no command" : strerror(errno));
        return 125;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "no_userns: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
