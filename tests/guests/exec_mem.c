/* K23: code from memory: a memfd that is executed, a page both writable and executable. Ordinary
 * just-in-time compilers need both; no privilege may come of it. */
#include "guest.h"

#include <sys/mman.h>
#include <sys/prctl.h>

static void wx_page(void)
{
    static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov eax, 42; ret */
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        say("wx", "%s", errname(errno));
        return;
    }
    memcpy(p, answer, sizeof(answer));
    int (*call)(void) = (int (*)(void))p;
    say("wx", "%d", call());
}

int main(int argc, char **argv)
{
    guest_deadline(10);
    if (argc > 1 && !strcmp(argv[1], "--second")) {
        say("second_euid", "%d", (int)geteuid());
        say("second_nnp", "%d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
        say("second_seccomp", "%d", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
        TRY("second_keyctl", syscall(SYS_keyctl, 0, -3, 0));
        return 0;
    }
    wx_page();
    int mem = (int)TRY("memfd", syscall(SYS_memfd_create, "code", MFD_CLOEXEC));
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char block[65536];
    for (ssize_t n; mem >= 0 && (n = read(self, block, sizeof(block))) > 0;)
        if (write(mem, block, (size_t)n) != n)
            return 4;
    char *const next[] = {(char *)"exec_mem", (char *)"--second", NULL};
    if (mem >= 0)
        TRY("fexecve", fexecve(mem, next, environ));
    return 3;
}
