/*
 * init.c - process 1 of the emulated machine.
 *
 * Owns the guest from the kernel's hand-over to power-off: it loads the virtio modules from the
 * initramfs, makes the disk image the root, sets up cgroup v2 the way systemd does for a
 * delegated unit, starts the one command of the job and sends its output and status to
 * tests/vm/run. Static, built by tests/vm/build; never runs on the host.
 *
 * Disks: vda is the system (written to a snapshot that vanishes with the machine), vdb carries
 * /job and, below /tree, the host directories to show at their own paths.
 *
 * Wire format on the virtio port, guest to host only: one byte type, four bytes little-endian
 * length, payload. R: the command is about to start. O, E: its standard output and error.
 * X: four bytes little-endian exit status. F: text, the machine failed. One ordered stream, so
 * that the status cannot overtake output and the two streams keep their order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TESTER_UID 2000
#define TESTER_GID 2000
#define PORT "/dev/vport0p1"
#define CG "/sys/fs/cgroup"
#define CG_USER CG "/user.slice/user-2000.slice/session"
#define CG_ROOT CG "/system.slice/job.service"
#define CONTROLLERS "+cpu +memory +pids"
#define JOB_MAX (1024 * 1024)
/* How long output of processes that outlive the command is still collected. */
#define LINGER_MS 300

struct job {
    char *data; /* NUL-separated key=value strings; the vectors point into it */
    char **argv;
    char **envp;
    char **binds;
    size_t n_binds;
    const char *cwd;
    bool as_tester;
};

static int port_fd = -1;

static void write_full(int fd, const void *buf, size_t len)
{
    const char *p = buf;

    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the host went away; it kills us anyway */
        p += n;
        len -= (size_t)n;
    }
}

static void send_frame(char type, const void *payload, size_t len)
{
    unsigned char head[5] = {(unsigned char)type, len & 0xff, (len >> 8) & 0xff, (len >> 16) & 0xff,
                             (len >> 24) & 0xff};

    write_full(port_fd, head, sizeof(head));
    write_full(port_fd, payload, len);
}

static _Noreturn void power_off(void)
{
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

__attribute__((format(printf, 1, 2))) static _Noreturn void die(const char *fmt, ...)
{
    char msg[512];
    int saved = errno;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(msg, sizeof(msg) - 64, fmt, ap);
    va_end(ap);
    if (n < 0 || n > (int)sizeof(msg) - 64)
        n = (int)sizeof(msg) - 65;
    n += snprintf(msg + n, 64, ": %s\n", strerror(saved));
    dprintf(STDERR_FILENO, "init: %s", msg);
    if (port_fd >= 0)
        send_frame('F', msg, (size_t)n);
    power_off();
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die("write '%s' to %s", text, path);
    close(fd);
}

static void must_mount(const char *src, const char *dst, const char *type, unsigned long flags,
                       const char *data)
{
    if (mount(src, dst, type, flags, data) < 0)
        die("mount %s on %s", src, dst);
}

static void make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        die("mkdir %s", path);
}

static void make_device(const char *path, dev_t dev)
{
    /* a kernel that has the driver built in has made it */
    if ((mknod(path, S_IFCHR | 0666, dev) < 0 && errno != EEXIST) || chmod(path, 0666) < 0)
        die("mknod %s", path);
}

static void make_dirs(const char *path)
{
    char part[PATH_MAX];

    for (size_t i = 1; path[i - 1] != '\0'; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        if (i >= sizeof(part)) {
            errno = ENAMETOOLONG;
            die("mkdir %s", path);
        }
        memcpy(part, path, i);
        part[i] = '\0';
        make_dir(part, 0755);
    }
}

/* The list is in dependency order and the files are uncompressed. */
static void load_modules(void)
{
    char path[256];
    FILE *list = fopen("/modules/list", "re");

    if (!list)
        die("open /modules/list");
    while (fgets(path, sizeof(path), list)) {
        int fd;

        path[strcspn(path, "\n")] = '\0';
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
            die("module %s", path);
        close(fd);
    }
    fclose(list);
}

/* Device probing ends some time after the module is in. */
static void wait_for(const char *path)
{
    for (int i = 0; i < 2000; i++) {
        struct timespec nap = {.tv_nsec = 5 * 1000 * 1000};

        if (access(path, F_OK) == 0)
            return;
        nanosleep(&nap, NULL);
    }
    errno = ENOENT;
    die("device %s", path);
}

static void open_port(void)
{
    wait_for(PORT);
    for (int i = 0; i < 2000; i++) {
        struct timespec nap = {.tv_nsec = 5 * 1000 * 1000};

        /* EBUSY or ENXIO until the control queue has introduced the port. */
        port_fd = open(PORT, O_RDWR | O_CLOEXEC);
        if (port_fd >= 0)
            return;
        nanosleep(&nap, NULL);
    }
    die("open " PORT);
}

static void enter_system_disk(void)
{
    wait_for("/dev/vda");
    must_mount("/dev/vda", "/root", "ext4", MS_NOATIME, "noinit_itable");
    must_mount("/dev", "/root/dev", NULL, MS_MOVE, NULL);
    /* Not pivot_root: the initramfs cannot be left that way. */
    if (chdir("/root") < 0)
        die("chdir /root");
    must_mount(".", "/", NULL, MS_MOVE, NULL);
    if (chroot(".") < 0 || chdir("/") < 0)
        die("chroot");
}

static void mount_api_filesystems(void)
{
    const unsigned long safe = MS_NOSUID | MS_NODEV | MS_NOEXEC;

    /* systemd leaves everything shared; engines must cope with that, so tests have to see it. */
    must_mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL);
    must_mount("proc", "/proc", "proc", safe, NULL);
    must_mount("sysfs", "/sys", "sysfs", safe, NULL);
    must_mount("securityfs", "/sys/kernel/security", "securityfs", safe, NULL);
    must_mount("cgroup2", CG, "cgroup2", safe, "nsdelegate,memory_recursiveprot");
    make_dir("/dev/pts", 0755);
    must_mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
               "gid=5,mode=620,ptmxmode=666");
    make_dir("/dev/shm", 01777);
    must_mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    must_mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
    if (symlink("/proc/self/fd", "/dev/fd") < 0 || symlink("/proc/self/fd/0", "/dev/stdin") < 0 ||
        symlink("/proc/self/fd/1", "/dev/stdout") < 0 ||
        symlink("/proc/self/fd/2", "/dev/stderr") < 0)
        die("symlinks in /dev");
    /* What udev makes ahead of time: opening them loads the module. */
    make_dir("/dev/net", 0755);
    make_device("/dev/net/tun", makedev(10, 200));
    make_device("/dev/fuse", makedev(10, 229));
    make_dir("/run/lock", 01777);
    make_dir("/run/user", 0755);
    make_dir("/run/user/2000", 0700);
    if (chown("/run/user/2000", TESTER_UID, TESTER_GID) < 0)
        die("chown /run/user/2000");
}

static void set_up_kernel(void)
{
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &ifr) < 0)
        die("bring lo up");
    close(s);
    if (sethostname("cordon-vm", 9) < 0)
        die("sethostname");
    write_file("/proc/sys/kernel/unprivileged_userns_clone", "1");
}

/* A group whose children may be limited; processes belong into the leaves only. */
static void make_inner_cgroup(const char *path)
{
    char file[PATH_MAX];

    make_dir(path, 0755);
    snprintf(file, sizeof(file), "%s/cgroup.subtree_control", path);
    write_file(file, CONTROLLERS);
}

/*
 * The same files systemd hands over with Delegate=yes: limits of the group itself stay root's.
 * The command starts in the group, which therefore has no controllers enabled below it yet; to
 * use them its user has to move into a child group first, as on a real machine.
 */
static void make_cgroups(void)
{
    static const char *const delegated[] = {CG_USER, CG_USER "/cgroup.procs",
                                            CG_USER "/cgroup.subtree_control",
                                            CG_USER "/cgroup.threads"};

    make_dir(CG "/init.scope", 0755);
    write_file(CG "/init.scope/cgroup.procs", "1");
    make_inner_cgroup(CG);
    /* The first limit of CPU time and the last one to go make the kernel patch its scheduler while
     * both processors run it, which qemu 7.2 gets wrong now and then (README.md): this one is set
     * before anything else runs, and stays. */
    make_dir(CG "/bandwidth.slice", 0755);
    write_file(CG "/bandwidth.slice/cpu.max", "50000 100000");
    make_inner_cgroup(CG "/system.slice");
    make_dir(CG_ROOT, 0755);
    make_inner_cgroup(CG "/user.slice");
    make_inner_cgroup(CG "/user.slice/user-2000.slice");
    make_dir(CG_USER, 0755);
    for (size_t i = 0; i < sizeof(delegated) / sizeof(delegated[0]); i++)
        if (chown(delegated[i], TESTER_UID, TESTER_GID) < 0)
            die("chown %s", delegated[i]);
}

static char *read_job(size_t *ret_len)
{
    char *data = malloc(JOB_MAX + 1);
    int fd = open("/run/job/job", O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n;

    if (!data || fd < 0)
        die("open job");
    while ((n = read(fd, data + len, JOB_MAX - len)) > 0)
        len += (size_t)n;
    if (n < 0 || len == JOB_MAX)
        die("read job");
    close(fd);
    data[len] = '\0';
    *ret_len = len;
    return data;
}

static void parse_job(struct job *job)
{
    size_t len, n_args = 0, n_env = 0, max = 1;

    job->data = read_job(&len);
    for (size_t i = 0; i < len; i++)
        max += job->data[i] == '\0';
    job->argv = calloc(max, sizeof(char *));
    job->envp = calloc(max, sizeof(char *));
    job->binds = calloc(max, sizeof(char *));
    if (!job->argv || !job->envp || !job->binds)
        die("job");
    for (char *p = job->data; p < job->data + len; p += strlen(p) + 1) {
        char *value = strchr(p, '=') ? strchr(p, '=') + 1 : p;

        if (strncmp(p, "arg=", 4) == 0)
            job->argv[n_args++] = value;
        else if (strncmp(p, "env=", 4) == 0)
            job->envp[n_env++] = value;
        else if (strncmp(p, "bind=", 5) == 0)
            job->binds[job->n_binds++] = value;
        else if (strncmp(p, "cwd=", 4) == 0)
            job->cwd = value;
        else if (strcmp(p, "user=tester") == 0)
            job->as_tester = true;
        else {
            errno = EINVAL;
            die("job line '%s'", p);
        }
    }
    errno = EINVAL;
    if (n_args == 0 || !job->cwd)
        die("job without command or directory");
}

static void take_job(struct job *job)
{
    char src[PATH_MAX];

    wait_for("/dev/vdb");
    make_dir("/run/job", 0700);
    must_mount("/dev/vdb", "/run/job", "ext4", MS_NOATIME, "noinit_itable");
    parse_job(job);
    for (size_t i = 0; i < job->n_binds; i++) {
        snprintf(src, sizeof(src), "/run/job/tree%s", job->binds[i]);
        make_dirs(job->binds[i]);
        must_mount(src, job->binds[i], NULL, MS_BIND, NULL);
    }
    if (umount2("/run/job", MNT_DETACH) < 0 || rmdir("/run/job") < 0)
        die("leave the job disk");
}

static _Noreturn void exec_command(const struct job *job, int out, int err)
{
    const struct rlimit nofile = {.rlim_cur = 1024, .rlim_max = 524288}; /* systemd's values */
    gid_t gid = TESTER_GID;
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);

    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(70);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    close_range(3, ~0U, 0);
    umask(022);
    setrlimit(RLIMIT_NOFILE, &nofile);
    int procs = open(job->as_tester ? CG_USER "/cgroup.procs" : CG_ROOT "/cgroup.procs", O_WRONLY);
    if (procs < 0 || write(procs, "0", 1) != 1) {
        dprintf(2, "init: cannot enter the job's cgroup: %s\n", strerror(errno));
        _exit(70);
    }
    close(procs);
    if (job->as_tester && (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0 ||
                           setresuid(TESTER_UID, TESTER_UID, TESTER_UID) < 0)) {
        dprintf(2, "init: cannot become tester: %s\n", strerror(errno));
        _exit(70);
    }
    if (chdir(job->cwd) < 0) {
        dprintf(2, "init: chdir %s: %s\n", job->cwd, strerror(errno));
        _exit(70);
    }
    environ = job->envp;
    execvp(job->argv[0], job->argv);
    dprintf(2, "init: %s: %s\n", job->argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

/* Returns true once the command itself has ended. Orphans of the whole machine end here too. */
static bool reap(pid_t command, int32_t *ret_status)
{
    bool ended = false;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != command)
            continue;
        ended = true;
        *ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return ended;
}

static void forward(struct pollfd *from, char type)
{
    static char buf[64 * 1024];
    ssize_t n;

    if (!(from->revents & (POLLIN | POLLHUP | POLLERR)))
        return;
    n = read(from->fd, buf, sizeof(buf));
    if (n > 0)
        send_frame(type, buf, (size_t)n);
    else if (n == 0 || errno != EINTR)
        from->fd = -1; /* poll skips it */
}

static int32_t pump(pid_t command, int out, int err, int signals)
{
    struct pollfd fds[3] = {{.fd = out, .events = POLLIN},
                            {.fd = err, .events = POLLIN},
                            {.fd = signals, .events = POLLIN}};
    bool ended = false;
    int32_t status = 0;

    /* A process left behind may hold the pipes: after the end only wait for silence. */
    while (!ended || fds[0].fd >= 0 || fds[1].fd >= 0) {
        int n = poll(fds, 3, ended ? LINGER_MS : -1);

        if (n < 0 && errno != EINTR)
            die("poll");
        if (n == 0)
            break;
        if (n < 0)
            continue;
        forward(&fds[0], 'O');
        forward(&fds[1], 'E');
        if (fds[2].revents & POLLIN) {
            struct signalfd_siginfo info;

            if (read(signals, &info, sizeof(info)) < 0 && errno != EINTR)
                die("signalfd");
            ended = reap(command, &status) || ended;
        }
    }
    return status;
}

static void run_command(const struct job *job)
{
    int out[2], err[2], signals;
    unsigned char wire[4];
    sigset_t chld;
    int32_t status;
    pid_t pid;

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signals = signalfd(-1, &chld, SFD_CLOEXEC);
    if (signals < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        die("pipes");
    send_frame('R', NULL, 0);
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        exec_command(job, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    status = pump(pid, out[0], err[0], signals);
    for (size_t i = 0; i < sizeof(wire); i++)
        wire[i] = (unsigned char)((uint32_t)status >> (8 * i));
    send_frame('X', wire, sizeof(wire));
}

int main(void)
{
    struct job job = {0};

    must_mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=755");
    load_modules();
    open_port();
    enter_system_disk();
    mount_api_filesystems();
    set_up_kernel();
    make_cgroups();
    take_job(&job);
    run_command(&job);
    power_off();
}
