"""The root that lies ready: the same as the one that is made anew, nobody's to change, and not taken where anybody but
root could have written to it."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from cordon_run import run, start

ROOTS = pathlib.Path("/var/lib/cordon/roots")
WHERE = ["--", "/usr/bin/awk", "$5 == \"/\"", "/proc/self/mountinfo"]
# every entry of the root but what is mounted on it: kind, mode, size, target, content
LOOK = r"""
import hashlib, os, stat
def look(path):
    for name in sorted(os.listdir(path)):
        at = os.path.join(path, name)
        st = os.lstat(at)
        row = [at, stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode) if at not in MOUNTS else None, st.st_rdev]
        if stat.S_ISLNK(st.st_mode):
            row.append(os.readlink(at))
        elif stat.S_ISREG(st.st_mode) and not at.startswith(("/etc/ld.so", "/etc/ssl")):
            row.append(hashlib.sha256(open(at, "rb").read()).hexdigest())
        print(row)
        if stat.S_ISDIR(st.st_mode) and at not in MOUNTS:
            look(at)
DEVICES = {"/dev/" + name for name in ("null", "zero", "full", "random", "urandom", "tty")}
MOUNTS = ({line.split()[4] for line in open("/proc/self/mountinfo")} | DEVICES) - {"/", "/dev"}
look("/")
"""


@pytest.fixture(autouse=True)
def of_root(world):
    if not world.is_root:
        pytest.skip("needs root, who makes them")
    if not world.full:
        pytest.skip("needs tier full (user namespaces); this host gives tier " + world.tier)


def is_ready():
    r = run(*WHERE)
    assert r.code == 0, r
    return "/roots/" in r.out.split()[3] and " - tmpfs none " not in r.out


def made():
    """The one of a plain run, made by a run if it is not there."""
    deadline = time.monotonic() + 20
    while not is_ready():
        assert time.monotonic() < deadline, list(ROOTS.iterdir()) if ROOTS.exists() else "nothing"
        time.sleep(0.1)
    return next(p for p in ROOTS.iterdir() if not p.name.startswith("."))


def settle():
    """No maker at work; no more than one root, and none put aside."""
    deadline = time.monotonic() + 10
    while (names := {p.name for p in ROOTS.iterdir()} - {".lock"}) and len(names) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(names) == 1 and not names.pop().startswith(".")


def state(top):
    rows = []
    for path in sorted(top.rglob("*")):
        st = path.lstat()
        text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        rows.append((str(path), st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_mtime_ns, hashlib.sha256(text).hexdigest()))
    return rows


@pytest.fixture
def fresh():
    shutil.rmtree(ROOTS, ignore_errors=True)
    yield
    shutil.rmtree(ROOTS, ignore_errors=True)


def test_it_is_the_same_as_a_new_one(fresh):
    first = run("--", "/usr/bin/python3", "-c", LOOK)
    assert first.code == 0 and "/etc/passwd" in first.out
    made()
    second = run("--", "/usr/bin/python3", "-c", LOOK)
    assert is_ready() and second.out == first.out
    settle()


def test_guests_cannot_change_it():
    top = made()
    before = state(top)
    r = run("--", "/usr/bin/python3", "-c", """
import os
tries = [lambda p: open(p, "a"), os.unlink, lambda p: os.chmod(p, 0o777), lambda p: os.rename(p, p + "x"), os.rmdir,
         lambda p: open(p + "/new", "w"), lambda p: os.mkdir(p + "/new"), lambda p: os.symlink("x", p + "/new"),
         lambda p: os.utime(p, (1, 1)), lambda p: os.setxattr(p, "user.x", b"1"), lambda p: os.chown(p, 1000, 1000),
         lambda p: os.link(p, "/tmp/linked")]
open("/tmp/own", "w").close()
for path in ("/tmp/own", "/", "/etc", "/etc/passwd", "/etc/hosts", "/etc/localtime", "/var/none", "/var/empty", "/proc/kallsyms",
             "/proc/acpi", "/bin", "/usr", "/dev", "/home", "/run"):
    for i, t in enumerate(tries):
        try:
            t(path)
            print("DONE", path, i)
        except OSError as e:
            pass
""")
    # the twin: what is the guest's own it may open, and then remove
    assert (r.code, r.out) == (0, "DONE /tmp/own 0\nDONE /tmp/own 1\n"), r
    assert state(top) == before and is_ready()


DEVICES = r"""
import os, stat
for name in ("null", "zero", "full", "random", "urandom", "tty"):
    st = os.stat("/dev/" + name)
    print(name, stat.S_ISCHR(st.st_mode), os.major(st.st_rdev), os.minor(st.st_rdev), oct(stat.S_IMODE(st.st_mode)))
for act in (lambda: os.unlink("/dev/null"), lambda: os.chmod("/dev/null", 0o600), lambda: open("/dev/new", "w"),
            lambda: os.mknod("/tmp/node", 0o666 | stat.S_IFCHR, os.makedev(1, 3)), lambda: os.link("/dev/zero", "/tmp/zero"),
            lambda: os.rename("/dev/zero", "/dev/null")):
    try:
        act()
        print("DONE")
    except OSError:
        pass
with open("/dev/null", "w") as null, open("/dev/zero", "rb") as zero:
    print(null.write("x"), zero.read(2), len(open("/dev/urandom", "rb").read(3)))
rows = [line.split() for line in open("/proc/self/mountinfo")]
print(sorted({row[4] for row in rows if "nodev" not in row[5].split(",")}), all("nosuid" in row[5] for row in rows))
"""


def test_its_devices_work_and_nothing_else_does(fresh):
    """Where they are mounted one by one, and where they lie in it: the same nodes, which nobody inside can change."""
    want = "null True 1 3 0o666\nzero True 1 5 0o666\nfull True 1 7 0o666\nrandom True 1 8 0o666\nurandom True 1 9 0o666\n" \
           "tty True 5 0 0o666\n1 b'\\x00\\x00' 3\n"
    first = run("--", "/usr/bin/python3", "-c", DEVICES)
    assert first.code == 0 and first.out.startswith(want), first
    top = made()
    second = run("--", "/usr/bin/python3", "-c", DEVICES)
    assert second.code == 0 and second.out == want + "['/dev', '/dev/pts'] True\n", second
    assert (top / "dev" / "null").is_char_device()


def test_where_devices_do_not_work_they_are_mounted(fresh):
    from cordon_run import CORDON
    made()
    script = f"mount --bind {ROOTS} {ROOTS} && mount -o remount,bind,nodev {ROOTS} && {CORDON} run -- /bin/sh -c 'cat /proc/self/mountinfo; echo x >/dev/null'"
    done = subprocess.run(["unshare", "-m", "/bin/sh", "-c", script], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and " /dev/null " in done.stdout and "/roots/" in done.stdout, done


@pytest.mark.parametrize("spoil", ["mode", "owner", "link", "parent", "file"])
def test_it_is_not_taken_where_others_could_write(fresh, spoil):
    top = made()
    if spoil == "mode":
        top.chmod(0o757)
    elif spoil == "owner":
        os.chown(top, 65534, 65534)
    elif spoil == "parent":
        ROOTS.chmod(0o777)
    else:
        kept = top.rename(top.with_name("kept"))
        top.symlink_to(kept) if spoil == "link" else top.write_text("")
    r = run("--", "/bin/sh", "-c", "cat /etc/hostname /proc/self/mountinfo")  # which may have another one made
    assert r.out.startswith("cordon\n") and "/roots/" not in r.out, r


def test_grants_show_nothing_of_it(full):
    top = made()
    before = state(top)
    for option in ("--allow-read", "--allow-write"):
        r = run(option, "/var/lib", "--", "/bin/sh", "-c",
                "ls -A /var/lib/cordon; ls /var/lib | grep -c .; mkdir /var/lib/cordon/x; rmdir /var/lib/cordon; "
                "mv /var/lib/cordon /var/lib/moved")
        assert int(r.out.splitlines()[0]) > 1, r  # the rest of it is there
        r = run(option, "/var", "--", "/bin/sh", "-c", "ls -A /var/lib/cordon; mv /var/lib /var/moved; ls -d /var/lib")
        assert r.out.splitlines()[-1] == "/var/lib", r
    assert state(top) == before
    for path in ("/var/lib/cordon", "/var/lib/cordon/roots", top, top / "etc"):
        r = run("--allow-write", path, "--", "/bin/true")
        assert r.code == 78 and "Cordon's own" in r.log_text, r
    assert is_ready()


def test_runs_with_grants_have_their_own(shared):
    made()
    r = run("--allow-read", shared, *WHERE)
    assert " - tmpfs none " in r.out and "/roots/" not in r.out
    assert run("--temp-dir", *WHERE).code == 0
    # the twin
    assert is_ready()


def test_what_a_killed_maker_left_goes(fresh):
    (ROOTS / ".new" / "etc" / "some").mkdir(parents=True)
    (ROOTS / ".new" / "etc" / "else").write_text("x")
    made()
    settle()


def test_what_was_put_aside_stays_for_who_runs_in_it(fresh):
    top = made()
    guest = start("--", "/bin/sh", "-c", "read x; ls /usr/bin/env /etc/passwd /proc/self/status", stdin=subprocess.PIPE)
    time.sleep(0.5)
    (top / "etc" / "hosts").unlink()
    made()
    made()
    out, _ = guest.communicate(b"\n", timeout=30)
    assert guest.returncode == 0 and b"/usr/bin/env" in out and b"/proc/self/status" in out, out


@pytest.mark.parametrize("fault", ["lstat=EPERM", "lstat=ENOSYS", "fstatfs=EPERM", "open_tree=EPERM", "open_tree=ENOSYS",
                                   "mount_setattr=EPERM", "fstat=EPERM", "mkdir=EPERM", "rename=EPERM", "flock=ENOSYS"])
def test_faults_on_the_way_to_it(fresh, fault):
    """With one that is there, and one that is to be made: the same wall, or an honest refusal."""
    from cordon_run import CORDON, FAULT, host_env
    for _ in range(2):
        done = subprocess.run([FAULT / "inject", fault, CORDON, "run", "--", "/bin/sh", "-c", "cat /etc/hostname /proc/kallsyms /proc/cmdline"],
                              cwd="/", capture_output=True, text=True, env=host_env())
        assert (done.returncode, done.stdout) == (0, "cordon\n") or (done.returncode in (69, 70) and done.stdout == ""), done
        made()


def test_a_failure_of_the_runs_own_costs_nobody_the_root(shared):
    top = made()
    (shared / "f").write_text("x")
    r = run("--file", f"a={shared / 'f'}", "--file", f"a/b={shared / 'f'}", "--", "/bin/true")
    assert r.code == 78 and r.result["error"].startswith("files: "), f"it does not get as far as the start: {r}"
    assert top.exists() and is_ready()


@pytest.mark.parametrize("part,hidden", [*((p, False) for p in ("etc/passwd", "etc/alternatives", "dev/full", "bin", "var/none")),
                                         *((p, True) for p in ("etc/alternatives", "dev/full", "tmp", "var/none", "var/empty"))])
def test_one_that_lacks_something_is_made_anew(fresh, part, hidden):
    """hidden: the time of change is put back, so that it is not seen before the start. Nothing may be left uncovered."""
    lacking = made() / part
    times = (lacking.parent.stat().st_atime_ns, lacking.parent.stat().st_mtime_ns)
    lacking.rmdir() if lacking.is_dir() and not lacking.is_symlink() else lacking.unlink()
    if hidden:
        os.utime(lacking.parent, ns=times)
    r = run("--", "/bin/sh", "-c", "cat /etc/hostname /proc/kallsyms /proc/cmdline; ls -A /proc/bus /proc/irq; : > /dev/full")
    assert (r.code, r.out) == (0, "cordon\n/proc/bus:\n\n/proc/irq:\n"), r
    if not hidden or not part.startswith("var/"):  # for those it is a tmpfs again, and stays so
        assert (made() / part).lstat() and is_ready()


@pytest.mark.parametrize("place", ["home/sandbox", "etc/ssl/certs"])
def test_a_place_inside_that_is_gone_costs_nobody_a_run(fresh, place):
    lacking = made() / place
    lacking.rmdir() if lacking.is_dir() else lacking.unlink()
    r = run("--", "/bin/sh", "-c", "cat; ls -d /etc/ssl/certs", stdin=b"kept\n")
    assert (r.code, r.out) == (0, "kept\n/etc/ssl/certs\n"), r
    assert (made() / place).exists() and is_ready()


def test_an_ordinary_user_has_roots(fresh):
    """Found and used, and where something lacks, not: a user can neither make nor mend it."""
    from cordon_run import CORDON
    def line():
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", CORDON, "run", *WHERE], cwd="/",
                              capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, done
        return done.stdout
    assert " - tmpfs none " in line() and not ROOTS.exists()
    top = made()
    assert "/roots/" in line()
    (top / "home" / "sandbox").rmdir()
    assert " - tmpfs none " in line() and top.exists()


def test_a_strict_umask_of_the_caller_closes_nothing(fresh):
    from cordon_run import CORDON
    shutil.rmtree(ROOTS.parent / "roots", ignore_errors=True)
    subprocess.run([CORDON, "run", "--", "/bin/true"], cwd="/", check=True, preexec_fn=lambda: os.umask(0o077))
    made()
    assert {p.stat().st_mode & 0o777 for p in (ROOTS, ROOTS.parent)} == {0o755}


def test_a_maker_without_room_leaves_no_more_than_one(fresh):
    """The second try clears what the first one left."""
    from cordon_run import CORDON
    ROOTS.mkdir(parents=True)
    script = f"mount -t tmpfs -o size=64k,nr_inodes=20,mode=755 none {ROOTS} && for i in 1 2 3; do {CORDON} run -- /bin/true || exit 1; sleep 0.3; done; ls -A {ROOTS}"
    done = subprocess.run(["unshare", "-m", "/bin/sh", "-c", script], cwd="/", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ".lock\n.new\n"), done


def test_links_must_lead_somewhere(fresh, need):
    from cordon_run import CORDON
    made()
    script = f"mount --bind {ROOTS} {ROOTS} && mount -o remount,bind,nosymfollow {ROOTS} || exit 77; {CORDON} run -- /bin/true"
    done = subprocess.run(["unshare", "-m", "/bin/sh", "-c", script], cwd="/", capture_output=True, text=True)
    need(done.returncode != 77, "mount here does not know nosymfollow")
    assert done.returncode == 0, done


@pytest.mark.parametrize("where", ["/var/lib/cordon", "/var/lib/cordon/roots"])
def test_no_overlay_of_it_either(shared, where):
    made()
    r = run("--workspace", f"{where}:overlay", "--", "/bin/true")
    assert r.code == 78 and "Cordon's own" in r.log_text, r
    r = run("--workspace", f"{shared}:overlay", "--", "/bin/true")
    assert r.code == 0, r


def test_many_at_once_make_one(fresh):
    from cordon_run import CORDON
    started = [subprocess.Popen([CORDON, "run", "--", "/bin/sh", "-c", "sleep 0.2; ls /usr/bin/env"], cwd="/", stdout=subprocess.PIPE)
               for _ in range(12)]
    assert [(p.communicate()[0], p.returncode) for p in started] == [(b"/usr/bin/env\n", 0)] * 12
    made()
    settle()
