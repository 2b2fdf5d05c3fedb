/* Map, touch every page, protect, unmap: page faults and the memory controller's charge. */
#include "work.h"

#include <sys/mman.h>

#define ROUNDS 500
#define PAGE 4096u
#define PAGES 512u

int main(void)
{
    uint64_t start = work_now_ns();

    for (int i = 0; i < ROUNDS; i++) {
        char *p = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        work_check(p != MAP_FAILED, "mmap");
        for (size_t k = 0; k < PAGES; k++)
            p[k * PAGE] = 1;
        work_check(mprotect(p, (size_t)PAGES * PAGE / 2, PROT_READ) == 0, "mprotect");
        work_check(munmap(p, (size_t)PAGES * PAGE) == 0, "munmap");
    }
    return work_report(start);
}
