/* Sampling of process trees and folders: parsers and pace on made-up values, the rest on trees made
 * here (needs /proc and nothing else). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "backend/backend.h"
#include "supervise/sample.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

static void stat_lines(void **state)
{
    (void)state;
    static const char tail[] =
        " 7 8 9 0 -1 4194560 1 2 3 4 150 50 20 30 20 0 5 0 4242 1000000 777 1844";
    static const char *const names[] = {"(sh)", "(a b)", "()", "(x) R 1 2)", "((()", "(\n)", "())"};
    char line[256];
    struct sample_stat st;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(line, sizeof(line), "77 %s S%s\n", names[i], tail);
        assert_int_equal(sample_parse_stat(line, &st), 0);
        assert_int_equal(st.state, 'S');
        assert_int_equal(st.ppid, 7);
        assert_int_equal(st.utime, 150);
        assert_int_equal(st.stime, 50);
        assert_int_equal(st.cutime, 20);
        assert_int_equal(st.cstime, 30);
        assert_int_equal(st.threads, 5);
        assert_int_equal(st.start, 4242);
        assert_int_equal(st.rss_pages, 777);
        assert_false(st.is_exiting);
    }
    assert_int_equal(sample_parse_stat("77 (sh) R 7 8 9 0 -1 4194308 1 2 3 4 150 50 20 30 20 0 5 0 "
                                       "4242 1000000 777 1844\n",
                                       &st),
                     0);
    assert_true(st.is_exiting);
    for (size_t len = 0; len < strlen(line) - 8; len++) { /* cut anywhere before the last number */
        char cut[256];
        memcpy(cut, line, len);
        cut[len] = '\0';
        assert_int_equal(sample_parse_stat(cut, &st), -1);
    }
    assert_int_equal(sample_parse_stat("1 (x) S a b c", &st), -1);
}

static void shared_line(void **state)
{
    (void)state;
    uint64_t inode = 0, end = 0;
    assert_int_equal(
        sample_parse_shared("7f0000000000-7f0000400000 rw-s 00200000 00:01 4099           "
                            "            /dev/zero (deleted)",
                            &inode, &end),
        0);
    assert_int_equal(inode, 4099);
    assert_int_equal(end, 0x600000);
    static const char *const others[] = {
        "",
        "7f0000000000-7f0000400000 rw-p 00000000 00:00 0",
        "7f0000000000-7f0000400000 rw-p 00000000 00:01 4099 /dev/zero (deleted)",
        "7f0000000000-7f0000400000 rw-s 00000000 00:1c 12 /tmp/file",
        "7f0000400000-7f0000000000 rw-s 00000000 00:01 4099 /dev/zero (deleted)",
        "7f0000000000-7f0000400000 rw-s /dev/zero (deleted)",
        "rw-s /dev/zero (deleted)",
        " /dev/zero (deleted)",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        assert_int_equal(sample_parse_shared(others[i], &inode, &end), -1);
    assert_int_equal(sample_parse_pss_shared("a\nPss:  10 kB\nPss_Shmem:   4 kB\n"), 4096);
    assert_int_equal(sample_parse_pss_shared("a\nPss:  10 kB\n"), 0);
}

static void sockets_text(void **state)
{
    (void)state;
    uint64_t used = 0;
    assert_int_equal(sample_parse_sockets("sockets: used 17\nTCP: inuse 0 orphan 0\n", &used), 0);
    assert_int_equal(used, 17);
    assert_int_equal(sample_parse_sockets("sockets: used \nTCP: inuse 0\n", &used), -1);
    assert_int_equal(sample_parse_sockets("sockets: used 1", &used), -1);
    assert_int_equal(sample_parse_sockets("TCP: inuse 0\nsockets: used 17\n", &used), -1);
    assert_int_equal(sample_parse_sockets("", &used), -1);
}

static void pss_text(void **state)
{
    (void)state;
    uint64_t bytes = 7;
    static const char head[] = "5581-7fff ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\n";
    char text[256];
    snprintf(text, sizeof(text), "%sPss:                 400 kB\nPss_Dirty: 9 kB\nSwapPss:  8 kB\n",
             head);
    assert_int_equal(sample_parse_pss(text, &bytes), 0);
    assert_int_equal(bytes, 408 * 1024);
    snprintf(text, sizeof(text), "%sPss: 400 kB\n", head);
    assert_int_equal(sample_parse_pss(text, &bytes), 0);
    assert_int_equal(bytes, 400 * 1024);
    assert_int_equal(sample_parse_pss(head, &bytes), -1);
    assert_int_equal(sample_parse_pss("", &bytes), -1);
    snprintf(text, sizeof(text), "%sPss: x kB\n", head);
    assert_int_equal(sample_parse_pss(text, &bytes), -1);
    snprintf(text, sizeof(text), "%sPss: 40", head);
    assert_int_equal(sample_parse_pss(text, &bytes), -1);
    assert_int_equal(bytes, 400 * 1024);

    assert_int_equal(sample_parse_tables("Name:\tx\nVmPTE:\t     56 kB\nVmSwap:\t0 kB\n", &bytes),
                     0);
    assert_int_equal(bytes, 56 * 1024);
    assert_int_equal(sample_parse_tables("Name:\tVmPTE: 9 kB\n", &bytes), -1);
    assert_int_equal(sample_parse_tables("\nVmPTE:\tx", &bytes), -1);
}

static void interval(void **state)
{
    (void)state;
    uint64_t fast = SAMPLE_MEMORY_FASTEST;
    assert_int_equal(sample_interval_ns(0, 0, 0, fast, 0), 25 * MS);
    assert_int_equal(sample_interval_ns(10 * MIB, 512 * MIB, 0, fast, 0), 25 * MS);
    assert_int_equal(sample_interval_ns(512 * MIB, 512 * MIB, 0, fast, 0), 1 * MS);
    assert_int_equal(sample_interval_ns(UINT64_MAX, 1, UINT64_MAX, fast, 0), 1 * MS);
    uint64_t near = sample_interval_ns(500 * MIB, 512 * MIB, 0, fast, 0);
    assert_in_range(near, 2 * MS, 4 * MS);
    assert_true(sample_interval_ns(500 * MIB, 512 * MIB, 4 * fast, fast, 0) < near);
    assert_int_equal(sample_interval_ns(512 * MIB, 512 * MIB, 0, fast, 2 * MS), 20 * MS);
    assert_int_equal(sample_interval_ns(0, 1, 0, fast, UINT64_MAX), 50 * MS);
    assert_int_equal(sample_interval_ns(0, UINT64_MAX, 0, 1, 0), 25 * MS);
}

/* A guest that takes every core it gets whenever it may run. */
static double simulate(unsigned percent, unsigned cores, uint64_t *ret_throttled)
{
    struct sample_duty duty;
    uint64_t now = 1000 * MS, start = now, cpu = 0;
    bool stop = false;
    sample_duty_start(&duty, percent, now);
    while (now < start + 20000 * MS) {
        uint64_t next = sample_duty_step(&duty, now, cpu, &stop);
        assert_true(next > now && next <= now + 1000 * MS);
        if (!stop)
            cpu += (next - now) * cores;
        now = next;
    }
    *ret_throttled = duty.throttled_ns;
    return (double)cpu * 100 / (double)(now - start);
}

static void duty_cycle(void **state)
{
    (void)state;
    static const struct {
        unsigned percent, cores;
    } rows[] = {{50, 1}, {10, 1}, {1, 1}, {99, 1}, {150, 2}, {50, 4}};
    uint64_t throttled;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        double share = simulate(rows[i].percent, rows[i].cores, &throttled);
        assert_true(share > rows[i].percent * 0.95 && share < rows[i].percent * 1.05 + 0.5);
        assert_true(throttled > 0);
    }
    simulate(100, 1, &throttled); /* whole cores are the affinity's work */
    assert_true(throttled < 20000 * MS / 20);
    assert_int_equal(sample_duty_cores(0), 0);
    assert_int_equal(sample_duty_cores(50), 1);
    assert_int_equal(sample_duty_cores(100), 1);
    assert_int_equal(sample_duty_cores(101), 2);
}

/* One that wakes itself is stopped again and again, and has soon stolen too much. */
static void duty_is_not_evaded(void **state)
{
    (void)state;
    struct sample_duty duty;
    uint64_t now = 0, cpu = 0;
    bool stop = false;
    sample_duty_start(&duty, 20, now);
    while (now < 5000 * MS && duty.stolen_ns <= SAMPLE_DUTY_STOLEN_NS) {
        uint64_t next = sample_duty_step(&duty, now, cpu, &stop);
        assert_true(!duty.runs_on || next <= now + 10 * MS);
        cpu += next - now;
        now = next;
    }
    assert_in_range(now, 1000 * MS, 2000 * MS);
    /* a signal that comes late is forgiven */
    sample_duty_start(&duty, 20, 0);
    for (now = 0, cpu = 0; now < 60000 * MS;) {
        uint64_t next = sample_duty_step(&duty, now, cpu, &stop);
        cpu += stop ? MIN(next - now, 1 * MS) : next - now;
        now = next;
    }
    assert_true(duty.stolen_ns < SAMPLE_DUTY_STOLEN_NS / 4);
}

static void duty_does_not_save_up(void **state)
{
    (void)state;
    struct sample_duty duty;
    bool stop;
    sample_duty_start(&duty, 50, 0);
    sample_duty_step(&duty, 3600000 * MS, 0, &stop);
    assert_false(stop);
    sample_duty_step(&duty, 3600100 * MS, 100 * MS, &stop);
    assert_true(stop);
    sample_duty_step(&duty, 3600000 * MS, 0, &stop); /* clocks that go back change nothing */
    assert_true(stop);
}

/* ---- real trees: the test's child is in the place of Cordon's pid 1 ---- */

struct tree {
    pid_t root;
    int ready, go;
    struct sample_watch *watch;
};

static void say_ready(int fd)
{
    if (write(fd, "x", 1) != 1)
        _exit(97);
}

static struct tree plant(void (*body)(int ready, int go))
{
    int ready[2], go[2];
    char c;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        close(ready[0]);
        close(go[1]);
        body(ready[1], go[0]);
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    struct tree tree = {.root = pid, .ready = ready[0], .go = go[1]};
    assert_int_equal(read(tree.ready, &c, 1), 1);
    assert_int_equal(sample_open(pid, NULL, &tree.watch, NULL), 0);
    return tree;
}

static void fell(struct tree *tree)
{
    sample_close(tree->watch);
    close(tree->go); /* the guests below read it and end */
    close(tree->ready);
    kill(tree->root, SIGKILL);
    assert_int_equal(waitpid(tree->root, NULL, 0), tree->root);
}

static struct sample look(struct tree *tree, uint64_t limit)
{
    struct sample_options options = {.memory_limit = limit};
    struct sample s;
    assert_int_equal(sample_tree(tree->watch, &options, &s), 0);
    return s;
}

static void wait_for_end(int go)
{
    char c;
    while (read(go, &c, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static void body_nested(int ready, int go)
{
    prctl(PR_SET_NAME, "a) R 1 (b");
    for (int i = 0; i < 5;
         i++) { /* five levels, each with a double-forked orphan in its own session */
        if (fork() == 0) {
            if (fork() == 0) {
                setsid();
                wait_for_end(go);
            }
            _exit(0);
        }
        if (fork() > 0)
            wait_for_end(go);
    }
    usleep(50000);
    say_ready(ready);
    wait_for_end(go);
}

static void finds_the_whole_tree(void **state)
{
    (void)state;
    struct tree tree = plant(body_nested);
    struct sample s = look(&tree, 0);
    /* 5 levels and 5 orphans, and the zombies of those that forked twice: their parents do not wait
     */
    assert_int_equal(s.tasks, 15);
    assert_false(s.truncated);
    struct sample_options few = {.max_processes = 3};
    assert_int_equal(sample_tree(tree.watch, &few, &s), 0);
    assert_true(s.truncated);
    assert_true(s.tasks <= 3);
    fell(&tree);
}

static void burn_ms(unsigned ms)
{
    struct timespec ts;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    while ((uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000 < ms);
}

/* Has had somebody before, who used 200 ms; now it has another one, with 32 MiB. */
static void body_second(int ready, int go)
{
    pid_t pid = fork();
    if (pid == 0) {
        burn_ms(200);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    if (fork() == 0) {
        memset(mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
               32 * MIB);
        say_ready(ready);
        wait_for_end(go);
    }
    wait_for_end(go);
}

/* As a room's pid 1 and porter: both are ours, and whoever is below one of them is the guest's. */
static void finds_those_of_two_processes_of_ours(void **state)
{
    (void)state;
    struct tree tree = plant(body_nested), second = plant(body_second);
    struct sample_watch *both;
    struct sample_options options = {.memory_limit = 0};
    struct sample s;
    s = look(&second, 0);
    struct backend_beside beside = {second.root, s.cpu_user_ns, s.cpu_sys_ns};
    assert_int_equal(sample_open(tree.root, &beside, &both, NULL), 0);
    assert_int_equal(sample_tree(both, &options, &s), 0);
    assert_int_equal(s.tasks, 16);
    assert_true(s.memory_bytes >= 32 * MIB);
    /* what was used before is nobody's here; seen by itself it is */
    uint64_t seen = s.cpu_user_ns + s.cpu_sys_ns;
    s = look(&tree, 0);
    seen -= MIN(seen, s.cpu_user_ns + s.cpu_sys_ns);
    s = look(&second, 0);
    assert_true(s.cpu_user_ns + s.cpu_sys_ns >= seen + 180 * MS);
    assert_int_equal(s.tasks, 1);
    fell(&second);
    assert_int_equal(sample_tree(both, &options, &s), -1);
    sample_close(both);
    fell(&tree);
}

static void *park(void *arg)
{
    wait_for_end(*(const int *)arg);
    return NULL;
}

static char state_of(pid_t pid)
{
    char path[32], text[1024] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    struct sample_stat st = {0};
    if (f)
        fclose(f);
    return n && sample_parse_stat(text, &st) == 0 ? st.state : '?';
}

static void body_threads(int ready, int wait_fd)
{
    static int go; /* outlives the first thread's stack */
    go = wait_fd;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        char *p = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 32 * MIB);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, NULL, park, &go);
        pthread_exit(NULL); /* the first thread ends: its /proc entry shows no memory any more */
    }
    while (state_of(pid) != 'Z')
        usleep(1000);
    say_ready(ready);
    wait_for_end(go);
}

static void ended_first_thread_hides_nothing(void **state)
{
    (void)state;
    struct tree tree = plant(body_threads);
    struct sample s = look(&tree, 0);
    assert_int_equal(s.tasks, 4);
    assert_true(s.memory_bytes >= 32 * MIB);
    s = look(&tree, 33 * MIB);
    assert_true(s.is_pss);
    assert_true(s.memory_bytes >= 32 * MIB && s.memory_bytes < 36 * MIB);
    sample_stop(tree.watch, true);
    sample_stop(tree.watch, false);
    fell(&tree);
}

/* 8 GiB of addresses, a page read every 2 MiB: 16 MiB of page tables and nothing else. */
static void body_tables(int ready, int wait_fd)
{
    static int go;
    go = wait_fd;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        size_t size = (size_t)8192 * MIB;
        volatile char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        madvise((void *)(uintptr_t)p, size, MADV_NOHUGEPAGE);
        for (size_t i = 0; i < size; i += 2 * MIB)
            (void)p[i];
        pthread_create(&thread, NULL, park, &go);
        pthread_exit(NULL);
    }
    while (state_of(pid) != 'Z')
        usleep(1000);
    say_ready(ready);
    wait_for_end(go);
}

static void ended_first_thread_hides_no_tables(void **state)
{
    (void)state;
    struct tree tree = plant(body_tables);
    struct sample s = look(&tree, 64 * MIB);
    assert_true(s.memory_bytes >= 16 * MIB && s.memory_bytes < 24 * MIB);
    fell(&tree);
}

static void body_shared(int ready, int go)
{
    if (fork() == 0) {
        char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 64 * MIB);
        for (int i = 0; i < 3; i++)
            if (fork() == 0)
                break;
        usleep(50000);
        say_ready(ready);
    }
    wait_for_end(go);
}

static void shared_pages_count_once(void **state)
{
    (void)state;
    struct tree tree = plant(body_shared);
    usleep(100000);
    struct sample s = look(&tree, 0), peak = {0};
    assert_false(s.is_pss);
    assert_true(s.memory_bytes > 200 * MIB);
    s = look(&tree, 100 * MIB);
    assert_true(s.is_pss);
    assert_in_range(s.memory_bytes, 64 * MIB, 70 * MIB);
    sample_merge(&peak, &s);
    assert_int_equal(peak.memory_bytes, s.memory_bytes);
    fell(&tree);
}

static void body_vfork(int ready, int go)
{
    if (fork() == 0) {
        char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 64 * MIB);
        say_ready(ready);
        if (vfork() == 0)
            wait_for_end(go);
        wait_for_end(go);
    }
    wait_for_end(go);
}

static void vfork_counts_once(void **state)
{
    (void)state;
    struct tree tree = plant(body_vfork);
    usleep(20000);
    struct sample s = look(&tree, 80 * MIB);
    assert_int_equal(s.tasks, 2);
    assert_in_range(s.memory_bytes, 64 * MIB, 70 * MIB);
    fell(&tree);
}

static void body_forgotten(int ready, int go)
{
    if (fork() == 0) {
        signal(SIGCHLD, SIG_IGN); /* the kernel drops what the children used */
        say_ready(ready);
        for (int i = 0; i < 4; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                burn_ms(100);
                _exit(0);
            }
            waitpid(pid, NULL, 0);
        }
        wait_for_end(go);
    }
    wait_for_end(go);
}

static void body_reaped(int ready, int go)
{
    if (fork() == 0) {
        say_ready(ready);
        for (int i = 0; i < 4; i++) {
            pid_t pid = fork();
            if (pid == 0) {
                burn_ms(100);
                _exit(0);
            }
            waitpid(pid, NULL, 0);
        }
        wait_for_end(go);
    }
    wait_for_end(go);
}

/* Looks every 5 ms until nothing moves any more; gives what was seen of 400 ms. */
static uint64_t watch_cpu(void (*body)(int, int))
{
    struct tree tree = plant(body);
    uint64_t total = 0;
    int still = 0;
    for (int i = 0; i < 2000 && still < 60; i++) {
        struct sample s = look(&tree, 0);
        uint64_t now = s.cpu_user_ns + s.cpu_sys_ns;
        assert_true(now >= total);
        still = now == total && s.tasks == 1 ? still + 1 : 0;
        total = now;
        usleep(5000);
    }
    fell(&tree);
    return total;
}

static void cpu_of_the_dead(void **state)
{
    (void)state;
    /* in an emulated machine the forks themselves cost as much, and a look takes so long that the
     * last of each that nobody waits for is missed; none but the last one's would be 100 */
    const bool vm = getenv("TEST_VM") != NULL;
    const uint64_t most = vm ? 1000 * MS : 450 * MS;
    assert_in_range(watch_cpu(body_reaped), 360 * MS, most);
    assert_in_range(watch_cpu(body_forgotten), (vm ? 150 : 300) * MS, most);
}

static void body_hopping(int ready, int go)
{
    (void)go;
    if (fork() == 0) {
        char *p = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 8 * MIB);
        say_ready(ready);
        for (int i = 0; i < 300; i++) {
            if (fork() > 0)
                _exit(0);
        }
        _exit(0);
    }
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    say_ready(ready);
    for (;;)
        pause();
}

static void bears_vanishing_processes(void **state)
{
    (void)state;
    struct tree tree = plant(body_hopping);
    int seen = 0, looks = 0;
    char c;
    fcntl(tree.ready, F_SETFL, O_NONBLOCK);
    while (read(tree.ready, &c, 1) != 1) {
        struct sample s = look(&tree, 0);
        looks++;
        seen += s.tasks > 0;
    }
    fprintf(stderr, "a process that hops to a new child all the time: seen in %d of %d looks\n",
            seen, looks);
    assert_true(seen * 2 >= looks);
    fell(&tree);
}

static void body_alone(int ready, int go)
{
    say_ready(ready);
    wait_for_end(go);
}

static void root_is_gone(void **state)
{
    (void)state;
    struct tree tree = plant(body_alone);
    struct sample_options options = {0};
    struct sample s = look(&tree, 0);
    assert_int_equal(s.tasks, 0);
    assert_int_equal(s.memory_bytes, 0);
    kill(tree.root, SIGKILL);
    assert_int_equal(waitpid(tree.root, NULL, 0), tree.root);
    assert_int_equal(sample_tree(tree.watch, &options, &s), -1);
    sample_stop(tree.watch, true);
    sample_close(tree.watch);
    close(tree.go);
    close(tree.ready);
}

static void body_counting(int ready, int go)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        say_ready(ready);
        burn_ms(60000);
        _exit(0);
    }
    (void)go;
    for (;;)
        pause();
}

static void stop_and_continue(void **state)
{
    (void)state;
    struct tree tree = plant(body_counting);
    sample_stop(tree.watch, true);
    usleep(20000);
    struct sample a = look(&tree, 0);
    usleep(100000);
    struct sample b = look(&tree, 0);
    assert_int_equal(a.cpu_user_ns + a.cpu_sys_ns, b.cpu_user_ns + b.cpu_sys_ns);
    sample_stop(tree.watch, false);
    usleep(200000);
    struct sample c = look(&tree, 0);
    assert_true(c.cpu_user_ns + c.cpu_sys_ns > b.cpu_user_ns + b.cpu_sys_ns);
    fell(&tree);
}

/* ---- folders ---- */

static int scratch(char path[static 64])
{
    strcpy(path, "/tmp/cordon-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void sweep(int fd, const char *path)
{
    char command[128];
    close(fd);
    snprintf(command, sizeof(command), "rm -rf -- %s", path);
    assert_int_equal(system(command), 0);
}

static void put_file(int dir, const char *name, size_t bytes)
{
    char block[4096];
    memset(block, 'x', sizeof(block));
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    for (size_t done = 0; done < bytes; done += sizeof(block))
        assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
    assert_int_equal(fsync(fd), 0); /* file systems that allocate late show the blocks only now */
    close(fd);
}

static void disk_growth(void **state)
{
    (void)state;
    char path[64];
    int top = scratch(path);
    struct sample_disk before = {0}, after = {0};
    assert_int_equal(mkdirat(top, "d", 0755), 0);
    put_file(top, "d/old", 65536);
    assert_int_equal(sample_disk(top, NULL, &before), 0);
    assert_int_equal(before.files, 2);
    put_file(top, "d/new", 1 << 20);
    assert_int_equal(linkat(top, "d/new", top, "again", 0), 0);
    assert_int_equal(symlinkat("/usr", top, "out"), 0);
    assert_int_equal(symlinkat(".", top, "loop"), 0);
    assert_int_equal(mkfifoat(top, "fifo", 0644), 0); /* must not be opened: it would block */
    assert_int_equal(mkdirat(top, "d/e", 0755), 0);
    int hole = openat(top, "hole", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ftruncate(hole, 1 << 30), 0);
    close(hole);
    assert_int_equal(sample_disk(top, NULL, &after), 0);
    assert_int_equal(after.files - before.files, 7);
    assert_in_range(after.bytes - before.bytes, 1 << 20, (1 << 20) + 65536);
    assert_false(after.truncated);
    sweep(top, path);
}

static void disk_is_bounded(void **state)
{
    (void)state;
    char path[64], name[32];
    int top = scratch(path);
    struct sample_disk sum = {0};
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        int fd = openat(top, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        close(fd);
    }
    struct sample_disk_options few = {.max_entries = 100}, slow = {.budget_ns = 1},
                               patient = {.budget_ns = 20000 * MS};
    assert_int_equal(sample_disk(top, &few, &sum), 0);
    assert_true(sum.truncated);
    assert_int_equal(sum.files, 100);
    sum = (struct sample_disk){0};
    assert_int_equal(sample_disk(top, &slow, &sum), 0);
    assert_true(sum.truncated);

    int deep = dup(top); /* far beyond PATH_MAX */
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(deep, "dddddddddd", 0755), 0);
        int next = openat(deep, "dddddddddd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(deep);
        deep = next;
    }
    close(deep);
    sum = (struct sample_disk){0};
    assert_int_equal(sample_disk(top, &patient, &sum), 0);
    assert_true(sum.truncated);
    assert_in_range(sum.files, 601, 1200);
    sweep(top, path);
}

static void disk_stays_on_its_mount(void **state)
{
    (void)state;
    char path[64], inner[80];
    int top = scratch(path);
    struct sample_disk before = {0}, after = {0};
    assert_int_equal(mkdirat(top, "m", 0755), 0);
    assert_int_equal(sample_disk(top, NULL, &before), 0);
    snprintf(inner, sizeof(inner), "%s/m", path);
    /* A bind of the same file system: the device number would not tell. */
    if (mount("/tmp", inner, NULL, MS_BIND, NULL) < 0) {
        fprintf(stderr, "SKIP: prerequisite missing: right to mount (%s)\n", strerror(errno));
        sweep(top, path);
        skip();
    }
    int r = sample_disk(top, NULL, &after);
    umount2(inner, MNT_DETACH);
    assert_int_equal(r, 0);
    assert_true(after.files <= before.files);
    sweep(top, path);
}

static void nothing_leaks(void **state)
{
    (void)state;
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    assert_true(n - 2 <= 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stat_lines),
        cmocka_unit_test(shared_line),
        cmocka_unit_test(sockets_text),
        cmocka_unit_test(pss_text),
        cmocka_unit_test(interval),
        cmocka_unit_test(duty_cycle),
        cmocka_unit_test(duty_is_not_evaded),
        cmocka_unit_test(duty_does_not_save_up),
        cmocka_unit_test(finds_the_whole_tree),
        cmocka_unit_test(finds_those_of_two_processes_of_ours),
        cmocka_unit_test(ended_first_thread_hides_nothing),
        cmocka_unit_test(ended_first_thread_hides_no_tables),
        cmocka_unit_test(shared_pages_count_once),
        cmocka_unit_test(vfork_counts_once),
        cmocka_unit_test(cpu_of_the_dead),
        cmocka_unit_test(bears_vanishing_processes),
        cmocka_unit_test(root_is_gone),
        cmocka_unit_test(stop_and_continue),
        cmocka_unit_test(disk_growth),
        cmocka_unit_test(disk_is_bounded),
        cmocka_unit_test(disk_stays_on_its_mount),
        cmocka_unit_test(nothing_leaks),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
