"""What the guest sees, line by line (contract, section 4), each refusal with its twin."""

import os
import socket
import stat
import threading

import pytest

from cordon_run import GUESTS, guest, guest_path, run

HIDDEN = {"full": {"ENOENT"}, "landlock": {"EACCES", "EPERM"}}
READ_ONLY = {"full": {"EROFS", "EACCES", "EPERM"}, "landlock": {"EROFS", "EACCES", "EPERM"}}


@pytest.fixture(scope="module")
def me(world):
    """One look from inside, shared by the cases of this file."""
    r = guest("identity")
    assert r.verdict == "ok", str(r)
    return r


def probe(*pairs, opts=(), **kw):
    return guest("probe", *map(str, pairs), opts=opts, **kw)


# ---- who -------------------------------------------------------------------------------------------

def test_uid_1000_in_tier_full(full, me):
    assert me.get("uids") == "1000 1000 1000" and me.get("gids") == "1000 1000 1000"
    # those a user has beside the own one cannot be given up, and are nobody's inside
    assert me.get("ngroups") in ("0", "1", "2") and set(run("--", "/usr/bin/id", "-G").out.split()) <= {"1000", "65534"}
    assert run("--", "/usr/bin/id", "-un").out == "sandbox\n"
    assert run("--", "/usr/bin/id", "-gn").out == "sandbox\n"


def test_never_uid_0(me):
    assert "0" not in me.get("uids").split() and "0" not in me.get("gids").split()


def test_no_capability_in_any_set(me, world):
    # Without a user namespace an ordinary caller cannot empty the bounding set, and no_new_privs makes it moot.
    sets = ("CapInh", "CapPrm", "CapEff", "CapAmb") + (("CapBnd",) if world.full or world.is_root else ())
    for name in sets:
        assert int(me.get(name), 16) == 0, name


def test_no_new_privs_and_filter(me):
    assert me.get("NoNewPrivs") == "1" and me.get("Seccomp") == "2"


def test_the_hosts_uid_is_unprivileged(world, shared):
    """What root starts is nobody in particular on the host, and what a guest writes is the caller's."""
    r = run("--allow-write", shared, "--", "/usr/bin/touch", shared / "x")
    assert r.verdict == "ok", str(r)
    st = (shared / "x").stat()
    if world.full:
        assert (st.st_uid, st.st_gid) == (os.getuid(), os.getgid())


def test_callers_files_appear_as_own(full, shared):
    (shared / "mine").write_text("x")
    r = run("--allow-read", shared, "--", "/usr/bin/stat", "-c", "%u %g", shared / "mine")
    assert r.out == "1000 1000\n"


# ---- files -----------------------------------------------------------------------------------------

def test_root_is_read_only(world):
    paths = ["/x", "/etc/x", "/usr/x", "/usr/bin/x", "/bin/x", "/lib/x", "/var/x", "/opt/x"]
    r = probe(*[w for p in paths for w in ("create", p)])
    for p in paths:
        assert r.get(f"create {p}") in READ_ONLY[world.tier] | {"ENOENT"}, p
    r = probe("open-write", "/etc/passwd", "unlink", "/usr/bin/env", "chmod", "/usr/bin/env", "rename", "/etc/hosts")
    for k, v in r.pairs():
        assert v in READ_ONLY[world.tier] | {"EXDEV"}, (k, v)


@pytest.mark.parametrize("place", ["/tmp", "/home/sandbox", "/dev/shm"])
def test_writable_places(full, place):
    r = probe("create", f"{place}/x", "read", f"{place}/x", "mkdir", f"{place}/d", "chmod", f"{place}/x", "unlink", f"{place}/x")
    assert {v for k, v in r.pairs() if not k.startswith("size")} == {"OK"}, str(r)


def test_writable_places_are_private_tmpfs(full, me):
    for place in ("/tmp", "/home/sandbox", "/dev/shm"):
        kind, size, inodes = me.get(f"fs {place}").split()
        assert kind == "1021994", f"{place} is no tmpfs"
        assert 0 < int(size) <= 256 << 20 and 0 < int(inodes) <= 65536


def test_strict_level_has_smaller_places(full):
    r = guest("identity", opts=["--profile", "strict"])
    kind, size, inodes = r.get("fs /tmp").split()
    assert int(size) <= 64 << 20 and int(inodes) <= 16384
    assert r.get("rlimit nofile").split()[1] == "256"


def test_tmp_is_not_the_hosts(shared):
    mark = "/tmp/e2e-host-mark"
    with open(mark, "w"):
        pass
    try:
        r = probe("read", mark, "create", "/tmp/from-the-guest")
        assert r.get(f"read {mark}") in ("ENOENT", "EACCES")
    finally:
        os.unlink(mark)
    assert not os.path.exists("/tmp/from-the-guest")


def test_tmpdir_is_usable():
    r = run("--", "/bin/sh", "-c", 'echo x > "$TMPDIR/f" && cat "$TMPDIR/f" && echo y > "$HOME/g" && cat "$HOME/g"')
    assert (r.verdict, r.out) == ("ok", "x\ny\n"), str(r)


def test_temp_dir_option(full):
    r = run("--temp-dir", "--", "/bin/sh", "-c", 'd="$TMPDIR"; test -d "$d" && echo x > "$d/f" && echo ok')
    assert r.out == "ok\n", str(r)


@pytest.mark.parametrize("path", ["/tmp/a", "/tmp/a/b/c", "/home/sandbox/t", "/dev/shm/t", "/home/sandbox", "/scratch"])
def test_temp_dir_at_a_path_of_its_own(full, path):
    r = run(f"--temp-dir={path}", "--", "/bin/sh", "-c", 'echo "$TMPDIR"; echo x > "$TMPDIR/f" && echo y > /tmp/g && cat "$TMPDIR/f"')
    assert (r.verdict, r.out) == ("ok", f"{path}\nx\n"), str(r)


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/t", "/bin/t", "/proc/t", "/dev", "/home", "/workspace/t", "/granted"])
def test_temp_dir_covers_nothing_and_lies_in_no_grant(full, shared, path):
    r = run(f"--temp-dir={path}", "--workspace", shared, "--mount", f"{shared}:/granted", "--", "/bin/true")
    assert (r.code, r.verdict) == (64, "sandbox_error") and "temp_dir" in r.result["error"], str(r)


def test_grant_to_read(world, shared):
    (shared / "f").write_text("readable\n")
    r = probe("cat", shared / "f")
    assert r.get(f"cat {shared}/f") in HIDDEN[world.tier]
    r = probe("cat", shared / "f", "create", shared / "g", "open-write", shared / "f", "unlink", shared / "f",
              opts=["--allow-read", shared])
    assert r.get(f"cat {shared}/f") == "OK" and r.get("line") == "readable"
    for action in ("create " + str(shared / "g"), f"open-write {shared}/f", f"unlink {shared}/f"):
        assert r.get(action) in READ_ONLY[world.tier], action


def test_grant_to_write(world, shared):
    (shared / "f").write_text("old\n")
    os.chmod(shared / "f", 0o666)
    r = probe("create", shared / "g", "create", shared / "f", "mkdir", shared / "d", opts=["--allow-write", shared])
    assert {v for _, v in r.pairs()} == {"OK"}, str(r)
    assert (shared / "g").read_text() == "guest was here\n" and (shared / "d").is_dir()


def test_grant_of_one_file(world, shared):
    (shared / "f").write_text("one\n")
    (shared / "h").write_text("other\n")
    r = probe("cat", shared / "f", "cat", shared / "h", opts=["--allow-read", shared / "f"])
    assert r.get(f"cat {shared}/f") == "OK"
    assert r.get(f"cat {shared}/h") in HIDDEN[world.tier]


def test_grant_below_tmp(shared, tmp_path):
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if parent == parent.parent or not os.access(parent, os.W_OK) or str(parent) == "/tmp":
            break
        os.chmod(parent, 0o755)
    (tmp_path / "f").write_text("below /tmp\n")
    assert run("--allow-read", tmp_path, "--", "/bin/cat", tmp_path / "f").out == "below /tmp\n"


def test_deny_wins_over_a_grant(full, shared):
    (shared / "keep.txt").write_text("keep\n")
    (shared / ".env").write_text("deny\n")
    (shared / "sub").mkdir()
    (shared / "sub" / "x").write_text("deny too\n")
    opts = ["--allow-read", shared, "--deny", shared / ".env", "--deny", shared / "sub"]
    r = run(*opts, "--", "/bin/sh", "-c", f"cat {shared}/keep.txt; cat {shared}/.env {shared}/sub/x; true")
    assert r.out == "keep\n", str(r)
    r = run("--allow-read", shared, "--", "/bin/cat", shared / ".env")
    assert r.out == "deny\n"


@pytest.mark.parametrize("denied", [("sub", "sub/in"), ("sub/in", "sub"), ("sub", "link"), ("sub/**", "sub/in/x"), ("sub", "sub/in/*")])
@pytest.mark.parametrize("grants", [("",), ("", "sub/in"), ("sub/in", "")])
def test_what_is_denied_twice_is_denied(full, shared, denied, grants):
    """By itself, with the folder around it, through a link: the user's file and the project's may each name their own."""
    (shared / "sub" / "in").mkdir(parents=True)
    (shared / "sub" / "in" / "x").write_text("SECRET\n")
    (shared / "keep").write_text("keep\n")
    (shared / "link").symlink_to("sub/in")
    opts = [w for g in grants for w in ("--allow-read", shared / g)]
    script = f"cat {shared}/keep {shared}/sub/in/x {shared}/link/x; true"
    r = run(*opts, *[w for d in denied for w in ("--deny", shared / d)], "--", "/bin/sh", "-c", script)
    assert r.verdict == "ok" and r.out == "keep\n", str(r)
    assert "SECRET" in run(*opts, "--", "/bin/sh", "-c", script).out


def test_symlink_in_a_grant_leads_nowhere_outside(shared, canary, world):
    (shared / "out").symlink_to(canary / "secret.txt")
    r = probe("cat", shared / "out", opts=["--allow-write", shared])
    assert r.get(f"cat {shared}/out") in HIDDEN[world.tier]


def test_caller_only_folder_can_be_granted(shared):
    """A file below a 0700 folder of the caller, which the guest's own uid could not reach by path."""
    private = shared / "private"
    private.mkdir(mode=0o700)
    (private / "f").write_text("reached\n")
    r = run("--allow-read", private, "--", "/bin/cat", private / "f")
    if r.tier == "full":
        assert r.out == "reached\n", str(r)


def test_virtual_fs(full, shared):
    (shared / "f").write_text("seen\n")
    r = run("--virtual-fs", "--mount", f"{shared}:/only", "--", "/bin/sh", "-c", "cat /only/f; ls /")
    assert r.out.startswith("seen\n"), str(r)
    assert "only" in r.out.split() and not {"srv", "boot", "mnt"} & set(r.out.split())


def test_top_of_the_root_shows_no_host_folder(full):
    r = probe("list", "/")
    allowed = {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc", "root",
               "run", "sbin", "srv", "sys", "tmp", "usr", "var", "workspace"}
    grants = {"/" + GUESTS.parts[1], "/"}
    extra = {e for e in r.all("entry") if e not in allowed and "/" + e not in grants}
    assert not extra, extra
    for secret in ("/root/.ssh", "/root/.bashrc", "/boot/grub", "/home/cordontest"):
        assert probe("stat", secret).get(f"stat {secret}") in ("ENOENT", "EACCES")


def test_no_sys(full):
    r = probe("list", "/sys")
    assert r.get("list /sys") == "ENOENT" or not r.all("entry")


def test_etc_is_synthetic(full):
    r = probe("list", "/etc")
    entries = set(r.all("entry"))
    assert {"passwd", "group", "hosts", "resolv.conf", "nsswitch.conf", "services", "protocols"} <= entries
    assert not entries & {"shadow", "gshadow", "ssh", "sudoers", "sudoers.d", "machine-id", "fstab", "cron.d", "docker"}, entries
    r = run("--", "/bin/cat", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
    assert "sandbox:x:1000:1000" in r.out and "127.0.0.1" in r.out
    for name in ("hostname", "environment"):
        if name in entries and os.path.exists(f"/etc/{name}"):
            with open(f"/etc/{name}") as f:
                host = f.read().strip()
            assert not host or host != run("--", "/bin/cat", f"/etc/{name}").out.strip(), f"/etc/{name} is the host's"
    with open("/etc/passwd") as f:
        names = [line.split(":")[0] for line in f]
    inside = [line.split(":")[0] for line in run("--", "/bin/cat", "/etc/passwd").out.splitlines()]
    assert "sandbox" in inside and len(inside) <= 4
    assert not set(inside) & (set(names) - {"root", "nobody"})


def test_names_of_services_and_protocols(full):
    code = ("import socket as s\n"
            "print(s.getservbyname('https', 'tcp'), s.getservbyport(53, 'udp'), s.getservbyname('postgres'), s.getprotobyname('icmp'))")
    r = run("--", "/usr/bin/python3", "-c", code)
    assert r.out == "443 domain 5432 1\n", str(r)
    assert probe("read", "/etc/shadow").get("read /etc/shadow") == "ENOENT"


def test_runtime_parts_of_etc(full):
    r = probe("read", "/etc/ld.so.cache", "stat", "/etc/alternatives", "stat", "/etc/ssl/certs")
    for path in ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs"):
        if os.path.exists(path):
            assert "OK" in r.all(f"read {path}") + r.all(f"stat {path}"), str(r)
    assert probe("stat", "/etc/ssl/private").get("stat /etc/ssl/private") in ("ENOENT", "EACCES")


# ---- /dev ------------------------------------------------------------------------------------------

DEV = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"}


def test_dev_holds_exactly(full):
    assert set(probe("list", "/dev").all("entry")) == DEV
    assert probe("list", "/dev/pts").all("entry") in ([], ["ptmx"])


def test_dev_works(world):
    r = run("--", "/bin/sh", "-c", "head -c 4 /dev/zero | od -An -c; head -c 8 /dev/urandom | wc -c; echo x > /dev/null; "
            "echo y > /dev/full || echo full; echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/fd/0", stdin=b"in\n")
    assert r.out.split() == ["\\0", "\\0", "\\0", "\\0", "8", "full", "out", "in"], str(r)
    assert r.err.endswith("err\n")


def test_dev_cannot_be_changed(full):
    r = probe("create", "/dev/x", "unlink", "/dev/null", "mkdir", "/dev/d", "chmod", "/dev/null", "mknod", "/dev/m")
    for k, v in r.pairs():
        assert v in READ_ONLY["full"], (k, v)


def test_pty_works(full):
    r = run("--", "/usr/bin/python3", "-c", "import pty,os; m,s=pty.openpty(); os.write(s,b'hi\\n'); print(os.read(m,4))")
    assert "b'hi" in r.out, str(r)


# ---- /proc -----------------------------------------------------------------------------------------

def test_proc_shows_only_the_guest(full):
    entries = [e for e in probe("list", "/proc").all("entry") if e.isdigit()]
    assert 1 <= len(entries) <= 3 and "1" in entries
    r = run("--", "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "pytest" not in r.out and "E2E" not in r.out


@pytest.mark.parametrize("path", [
    "/proc/kcore", "/proc/kallsyms", "/proc/modules", "/proc/iomem", "/proc/ioports", "/proc/timer_list", "/proc/sched_debug",
    "/proc/keys", "/proc/key-users", "/proc/sysrq-trigger", "/proc/config.gz", "/proc/cmdline", "/proc/interrupts",
    "/proc/latency_stats", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/slabinfo", "/proc/vmallocinfo",
    "/proc/pagetypeinfo", "/proc/sys/kernel/random/boot_id", "/proc/1/environ", "/proc/1/maps",
])
def test_proc_masks(full, path):
    r = probe("read", path)
    answer = r.get(f"read {path}")
    if answer == "OK":
        assert r.get(f"size of read {path}") == "0", f"{path} can be read"
    else:
        assert answer in ("ENOENT", "EACCES", "EPERM", "EIO"), answer


@pytest.mark.parametrize("path", ["/proc/acpi", "/proc/scsi", "/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq",
                                  "/proc/driver", "/proc/tty"])
def test_proc_folders_are_empty_or_read_only(full, path):
    r = probe("create", f"{path}/x", "list", path)
    assert r.get(f"create {path}/x") != "OK"
    if path in ("/proc/acpi", "/proc/scsi", "/proc/asound"):
        assert not r.all("entry")


@pytest.mark.parametrize("path", ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
                                  "/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward",
                                  "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/pressure/memory",
                                  "/proc/pressure/cpu", "/proc/pressure/io"])
def test_proc_settings_cannot_be_written(full, path):
    assert probe("open-write", path).get(f"open-write {path}") in ("EACCES", "EROFS", "ENOENT", "EPERM")


def test_ordinary_proc_files_work(full):
    paths = ["/proc/self/status", "/proc/self/maps", "/proc/meminfo", "/proc/cpuinfo", "/proc/self/mountinfo", "/proc/stat",
             "/proc/uptime", "/proc/loadavg", "/proc/version", "/proc/filesystems", "/proc/self/net/dev",
             "/proc/sys/kernel/osrelease"]
    r = probe(*[w for p in paths for w in ("read", p)])
    for p in paths:
        assert r.get(f"read {p}") == "OK", p


def test_mountinfo_names_no_host_path(full, shared, canary):
    r = run("--allow-write", shared, "--", "/bin/cat", "/proc/self/mountinfo")
    for word in (str(canary), "upperdir", "lowerdir", "e2e-guard"):
        assert word not in r.out, word
    for line in r.out.splitlines():
        words = line.split()
        assert "nosuid" in words[5], line
        assert "shared:" not in line and "master:" not in line, "a mount is still tied to the host's: " + line


# ---- namespaces, host name, session ------------------------------------------------------------------

@pytest.mark.parametrize("space", ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"])
def test_own_namespaces(full, me, space):
    inside = me.get(f"ns/{space}")
    assert inside and inside != os.readlink(f"/proc/self/ns/{space}")


def test_two_guests_share_no_namespace(full, me):
    other = guest("identity")
    for space in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert isinstance(other.get(f"ns/{space}"), str)
    # Inode numbers are reused one after the other, so both must live at once.
    results = []
    threads = [threading.Thread(target=lambda: results.append(run(
        "--", "/bin/sh", "-c", "readlink /proc/self/ns/net /proc/self/ns/user; sleep 0.5"))) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert set(results[0].out.split()).isdisjoint(results[1].out.split())


def test_host_name(full, me):
    assert me.get("hostname") == "cordon"


def test_cgroup_path_is_hidden(full):
    r = run("--", "/bin/cat", "/proc/self/cgroup")
    assert "cordon" not in r.out and "guard" not in r.out
    for line in r.out.splitlines():
        assert line.endswith(":/"), line


def test_only_loopback(full):
    assert guest("net", "interfaces").all("interface") == ["lo"]


def test_only_three_descriptors(me):
    assert me.all("fd") == ["0", "1", "2"]
    for n in "012":
        assert me.get(f"fd {n}").startswith("pipe:") or me.get(f"fd {n}") == "/dev/null", me.get(f"fd {n}")


def test_inherited_descriptors_do_not_pass(canary):
    fds = [os.open(canary, os.O_RDONLY), os.open("/", os.O_RDONLY), os.open(canary / "secret.txt", os.O_RDONLY)]
    try:
        r = guest("identity", pass_fds=fds)
        assert r.all("fd") == ["0", "1", "2"]
    finally:
        for fd in fds:
            os.close(fd)


def test_new_session_without_terminal(me):
    assert me.get("sid") != "0"
    assert me.get("sid") in (me.get("pid"), me.get("ppid"), "1")
    assert me.get("tty") == "ENXIO" or me.get("tty") in ("EACCES", "EIO")


def test_not_pid_1(full, me):
    assert me.get("pid") != "1"


def test_umask_and_signals(me):
    assert me.get("umask") == "022"
    assert not me.all("signal not default") and not me.all("signal blocked")


def test_callers_signal_settings_do_not_pass():
    r = run("--allow-read", GUESTS, "--", guest_path("identity"), preexec_fn=_spoil)
    assert not r.all("signal not default") and not r.all("signal blocked"), str(r)
    assert r.get("umask") == "022"


def _spoil():
    import signal
    os.umask(0)
    for s in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(s, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD, signal.SIGALRM})


def test_clean_environment(world, me):
    env = dict(line.split("=", 1) for line in me.all("env"))
    assert set(env) == {"PATH", "HOME", "USER", "LANG", "TMPDIR"}, env
    assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin"
    if world.full:
        assert (env["HOME"], env["USER"], env["TMPDIR"]) == ("/home/sandbox", "sandbox", "/tmp")


def test_working_directory(full, me):
    assert me.get("cwd") == "/home/sandbox"


def test_core_limit(me):
    assert me.get("rlimit core") in ("1 1", "0 0")


def test_descriptor_limit():
    assert guest("identity", opts=["--file-descriptors", "77"]).get("rlimit nofile") == "77 77"


def test_more_descriptors_than_the_caller_may_have():
    """Asked for, that is an error; a level's own number is lowered."""
    few = ("/usr/bin/prlimit", "--nofile=900:900")
    r = run("--file-descriptors", "901", "--", "/bin/true", prefix=few)
    assert r.code == 69 and "file_descriptors = 901: a process may have 900 here" in r.log_text and "ulimit -Hn" in r.log_text, str(r)
    for words in (("--file-descriptors", "900"), ()):
        assert run(*words, "--", "/bin/sh", "-c", "ulimit -n", prefix=few).out == "900\n"


# ---- no way up ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["su", "mount", "umount", "passwd", "newgrp", "chsh", "sudo"])
def test_setuid_programs_give_nothing(name):
    for folder in ("/usr/bin", "/bin"):
        path = f"{folder}/{name}"
        if os.path.exists(path) and os.stat(path).st_mode & stat.S_ISUID:
            r = guest("suid_gain", path)
            assert "euid: 0" not in r.out
    if name in ("su", "sudo"):
        r = run("--", "/bin/sh", "-c", f"command -v {name} && {name} -c 'id -u'; echo status $?", stdin=b"\n")
        assert not r.out.startswith("0\n") and "\n0\n" not in r.out


def test_setuid_file_is_ignored(world, shared):
    """A setuid-root copy of a guest that only says who it is: as root it would say 0."""
    if not world.is_root:
        pytest.skip("needs root to make a file setuid root")
    copy = shared / "suid_gain"
    copy.write_bytes((GUESTS / "suid_gain").read_bytes())
    os.chmod(copy, 0o6755)
    r = run("--allow-read", shared, "--", copy, copy)
    assert r.get("euid") != "0" and r.get("egid") != "0", str(r)


def test_host_unix_socket(world, shared):
    path = shared / "s"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        os.chmod(path, 0o777)
        s.listen()
        assert probe("connect", path).get(f"connect {path}") in HIDDEN[world.tier] | {"EPERM"}
