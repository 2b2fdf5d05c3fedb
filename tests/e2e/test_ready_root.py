"""The root that lies ready for guests of root: the same as the one that is made anew, nobody's to change, and not
taken where anybody else could have written to it."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from cordon_run import run

ROOTS = pathlib.Path("/var/lib/cordon/roots")
WHERE = ["--", "/usr/bin/awk", "$5 == \"/\"", "/proc/self/mountinfo"]
# every entry of the root but what is mounted on it: kind, mode, size, target, content
LOOK = r"""
import hashlib, os, stat
def look(path):
    for name in sorted(os.listdir(path)):
        at = os.path.join(path, name)
        st = os.lstat(at)
        row = [at, stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode) if at not in MOUNTS else None]
        if stat.S_ISLNK(st.st_mode):
            row.append(os.readlink(at))
        elif stat.S_ISREG(st.st_mode) and not at.startswith(("/etc/ld.so", "/etc/ssl")):
            row.append(hashlib.sha256(open(at, "rb").read()).hexdigest())
        print(row)
        if stat.S_ISDIR(st.st_mode) and at not in MOUNTS:
            look(at)
MOUNTS = {line.split()[4] for line in open("/proc/self/mountinfo")} - {"/"}
look("/")
"""


@pytest.fixture(autouse=True)
def of_root(world):
    if not world.is_root:
        pytest.skip("needs root: only its guests have one")
    if not world.full:
        pytest.skip("needs tier full (user namespaces); this host gives tier " + world.tier)


def is_ready():
    r = run(*WHERE)
    assert r.code == 0, r
    return f" {ROOTS}/" in r.out or " /cordon/roots/" in r.out or " /lib/cordon/roots/" in r.out


def made():
    """The one of a plain run, made by a run if it is not there."""
    deadline = time.monotonic() + 20
    while not is_ready():
        assert time.monotonic() < deadline, list(ROOTS.iterdir()) if ROOTS.exists() else "nothing"
        time.sleep(0.1)
    return next(p for p in ROOTS.iterdir() if not p.name.startswith("."))


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
    assert not [p for p in ROOTS.iterdir() if p.name.startswith(".")]


def test_guests_cannot_change_it():
    top = made()
    before = state(top)
    r = run("--", "/usr/bin/python3", "-c", """
import os
tries = [lambda p: open(p, "a"), os.unlink, lambda p: os.chmod(p, 0o777), lambda p: os.rename(p, p + "x"), os.rmdir,
         lambda p: open(p + "/new", "w"), lambda p: os.mkdir(p + "/new"), lambda p: os.symlink("x", p + "/new"),
         lambda p: os.utime(p, (1, 1)), lambda p: os.setxattr(p, "user.x", b"1"), lambda p: os.chown(p, 1000, 1000),
         lambda p: os.link(p, "/tmp/linked")]
for path in ("/", "/etc", "/etc/passwd", "/etc/hosts", "/etc/localtime", "/var/none", "/var/empty", "/proc/kallsyms",
             "/proc/acpi", "/bin", "/usr", "/dev", "/home", "/run"):
    for i, t in enumerate(tries):
        try:
            t(path)
            print("DONE", path, i)
        except OSError as e:
            pass
""")
    assert r.code == 0 and r.out == "", r
    assert state(top) == before and is_ready()


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
    r = run("--", "/bin/cat", "/etc/hostname")
    assert r.out == "cordon\n" and not is_ready()


def test_grants_show_nothing_of_it(full):
    top = made()
    before = state(top)
    for option in ("--allow-read", "--allow-write"):
        r = run(option, "/var/lib", "--", "/bin/sh", "-c",
                "ls -A /var/lib/cordon; ls /var/lib | grep -c .; mkdir /var/lib/cordon/x; rmdir /var/lib/cordon; "
                "mv /var/lib/cordon /var/lib/moved")
        assert r.out.splitlines()[0].isdigit(), r
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
    assert "tmpfs" in r.out.split(" - ")[1] and "cordon/roots" not in r.out
    assert run("--temp-dir", *WHERE).code == 0
    # the twin
    assert is_ready()


def test_what_a_killed_maker_left_goes(fresh):
    left = ROOTS / ".new-4194000"
    (left / "etc").mkdir(parents=True)
    (left / "etc" / "passwd").write_text("x")
    os.utime(left, (time.time() - 7200,) * 2)
    young = ROOTS / ".new-4194001"
    young.mkdir()
    made()
    deadline = time.monotonic() + 10
    while left.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left.exists() and young.exists()


def test_many_at_once_make_one(fresh):
    from cordon_run import CORDON
    started = [subprocess.Popen([CORDON, "run", "--", "/bin/true"], cwd="/") for _ in range(12)]
    assert [p.wait() for p in started] == [0] * 12
    made()
    deadline = time.monotonic() + 10
    while [p for p in ROOTS.iterdir() if p.name.startswith(".")] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list(ROOTS.iterdir())) == 1
