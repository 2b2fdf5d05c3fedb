"""Landlock in tier full: which rights it handles, seen from inside through a rule of the guest's own and from the plan."""

import json
import os
import shutil
import socket as net
import subprocess

import pytest

from cordon_run import CORDON, host_env, run


LIGHT = "all but to read, make and remove plain files and folders"
GRANTS = [None, "--allow-read", "--allow-write"]


def plan(*options):
    done = subprocess.run([CORDON, "explain", "--json", *options, "--", "/bin/true"], cwd="/", capture_output=True, text=True, env=host_env())
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    return (found.get("plan") or found)["landlock"]


def test_plain_files_are_left_to_the_mounts_only_where_nothing_can_be_written(full, shared, need):
    need(plan()["abi"] > 0, "needs Landlock")
    (shared / "f").write_text("x")
    (shared / "folder").mkdir()
    socket = net.socket(net.AF_UNIX)
    socket.bind(str(shared / "s"))
    assert plan()["rights"] == LIGHT
    assert plan("--file", f"f={shared / 'f'}")["rights"] == LIGHT, "a copy in the guest's own folder"
    assert plan("--temp-dir=/scratch")["rights"] == LIGHT
    for options in (["--allow-read", shared], ["--allow-read", shared / "f"], ["--mount", f"{shared}:/mnt/x"], ["--workspace", f"{shared}:ro"],
                    ["--allow-read", shared, "--deny", shared / "f"]):
        assert plan(*map(str, options))["rights"] == LIGHT, options
    for options in (["--allow-write", shared], ["--mount", f"{shared}:/mnt/x:rw"], ["--workspace", f"{shared}:rw"], ["--workspace", shared],
                    ["--allow-read", shared, "--allow-write", shared / "folder"], ["--allow-read", shared / "s"],
                    ["--allow-read", "/sys/kernel/mm"]):
        assert plan(*map(str, options))["rights"] == "all", options
    socket.close()
    (shared / "s").unlink()


def test_results_say_which(full, shared, need):
    need(plan()["abi"] > 0, "needs Landlock")
    assert run("--", "/bin/true").result["enforcement"]["layers"]["landlock_rights"] == LIGHT
    assert run("--allow-read", shared, "--", "/bin/true").result["enforcement"]["layers"]["landlock_rights"] == LIGHT
    assert run("--allow-write", shared, "--", "/bin/true").result["enforcement"]["layers"]["landlock_rights"] == "all"


def test_other_walls_have_all_of_it(full, world, need):
    if not world.is_root:
        pytest.skip("needs root, or ids of one's own")
    need(shutil.which("runc"), "needs runc")
    assert plan("--backend", "oci")["rights"] == "all"


@pytest.mark.parametrize("granted", GRANTS)
def test_pipes_of_the_host_cannot_be_written_to(full, shared, world, granted):
    """A mount that is read-only does not keep anybody from writing into a pipe."""
    if not world.is_root:
        pytest.skip("needs root, to make a pipe in /usr")
    pipe = f"/usr/local/cordon-e2e-{os.getpid()}"
    os.mkfifo(pipe)
    try:
        os.chmod(pipe, 0o666)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        options = [granted, shared] if granted else []
        r = run(*options, "--time-limit", "20s", "--", "/bin/sh", "-c", f"ls {pipe}; echo leaked > {pipe}; (echo leaked 1<>{pipe}) 2>/dev/null; cat 1<>{pipe} </dev/null")
        assert r.out == pipe + "\n" and r.code != 0, r
        with pytest.raises((BlockingIOError, AssertionError)):
            assert os.read(reader, 100) != b"", "nobody has it open"
        # the twin: outside, and inside a pipe of the guest's own
        subprocess.run(["/bin/sh", "-c", f"echo told > {pipe}"], check=True)
        assert os.read(reader, 100) == b"told\n"
        os.close(reader)
        r = run("--", "/bin/sh", "-c", "mkfifo /tmp/p; echo own > /tmp/p & cat /tmp/p")
        assert r.out == "own\n"
    finally:
        os.unlink(pipe)


@pytest.mark.parametrize("place", [None, "/data", "/srv/in/it"])
def test_pipes_in_a_grant_to_read_cannot_be_written_to(full, shared, place):
    """The twin: where it may be written to. Below /tmp and home it can be (SECURITY.md, What is not promised)."""
    shared.chmod(0o777)
    os.mkfifo(shared / "p")
    (shared / "p").chmod(0o666)
    reader = os.open(shared / "p", os.O_RDONLY | os.O_NONBLOCK)
    at = place or str(shared)
    script = f"test -p {at}/p && echo there; echo leaked > {at}/p; echo leaked 1<>{at}/p"

    def told(mode):
        options = ["--mount", f"{shared}:{place}:{mode}"] if place else ["--allow-read" if mode == "ro" else "--allow-write", shared]
        r = run(*options, "--time-limit", "20s", "--", "/bin/sh", "-c", script)
        assert r.out.startswith("there\n"), r
        try:
            return os.read(reader, 100)
        except BlockingIOError:
            return b""
    assert told("ro") == b""
    assert told("rw").startswith(b"leaked\n")
    os.close(reader)


PLACES = ("/", "/etc", "/usr", "/usr/bin", "/dev", "/proc", "/var", "/home", "/root", "/opt", "/run")
TRY = """
import os, sys
def act(name, fn):
    try:
        fn()
        print("DONE", name)
    except OSError:
        pass
for top in %r:
    act(top + " make", lambda: open(top + "/new", "w"))
    act(top + " folder", lambda: os.mkdir(top + "/new"))
    act(top + " link", lambda: os.symlink("x", top + "/new"))
    act(top + " pipe", lambda: os.mkfifo(top + "/new"))
for path in ("/etc/passwd", "/usr/bin/env", "/etc/ld.so.cache", "/proc/1/environ", "/proc/sys/kernel/hostname", "/etc/hosts"):
    act(path + " write", lambda: open(path, "r+b"))
    act(path + " truncate", lambda: os.truncate(path, 0))
    act(path + " remove", lambda: os.unlink(path))
    act(path + " move", lambda: os.rename(path, "/tmp/moved"))
    act(path + " hard link", lambda: os.link(path, "/tmp/linked"))
os.mkdir("/tmp/a"); os.mkdir("/tmp/b")
open("/tmp/a/f", "w").write("x")
os.rename("/tmp/a/f", "/tmp/b/f"); os.link("/tmp/b/f", "/tmp/a/g"); os.symlink("f", "/tmp/b/s"); os.mkfifo("/tmp/b/p")
os.truncate("/tmp/b/f", 0); os.unlink("/tmp/a/g"); os.rmdir("/tmp/a")
print(sorted(os.listdir("/tmp/b")))
""" % (PLACES,)


@pytest.mark.parametrize("granted", GRANTS)
def test_nothing_can_be_changed_but_scratch(full, shared, granted):
    """With the light fence and with the whole one; what is the guest's own works with both."""
    r = run(*([granted, shared] if granted else []), "--", "/usr/bin/python3", "-c", TRY)
    assert (r.code, r.out) == (0, "['f', 'p', 's']\n"), r


CHANGE = """
import os, sys
top = sys.argv[1]
def act(name, fn):
    try:
        fn()
        print(name)
    except OSError:
        pass
f, d = top + "/f", top + "/d"
here = os.open(top, os.O_PATH)
act("write", lambda: os.open(f, os.O_WRONLY))
act("read and write", lambda: os.open(f, os.O_RDWR))
act("open and truncate", lambda: os.open(f, os.O_RDONLY | os.O_TRUNC))
act("truncate", lambda: os.truncate(f, 1))
act("write again", lambda: os.open("/proc/self/fd/%d" % os.open(f, os.O_RDONLY), os.O_RDWR))
act("mode", lambda: os.chmod(f, 0o600))
act("times", lambda: os.utime(f, (1, 1)))
act("attribute", lambda: os.setxattr(f, "user.x", b"1"))
act("make", lambda: os.open(top + "/new", os.O_CREAT | os.O_WRONLY))
act("make beside", lambda: os.open("new2", os.O_CREAT | os.O_RDONLY, dir_fd=here))
act("make without a name", lambda: os.open(top, os.O_TMPFILE | os.O_RDWR))
act("folder", lambda: os.mkdir(top + "/new3"))
act("link", lambda: os.symlink("f", top + "/new4"))
act("hard link", lambda: os.link(f, top + "/new5"))
act("pipe", lambda: os.mkfifo(top + "/new6"))
act("move in", lambda: os.rename("/tmp/own", top + "/new7") if open("/tmp/own", "w") else 0)
act("move out", lambda: os.rename(d + "/g", "/tmp/g"))
act("move", lambda: os.rename(f, top + "/moved"))
act("remove", lambda: os.unlink(d + "/h"))
act("remove folder", lambda: os.rmdir(d + "/empty"))
"""


def test_a_grant_to_read_changes_nothing(full, shared):
    """However much of the fence stands. The twin: with a grant to write all of it is done."""
    shared.chmod(0o777)
    for folder in ("d", "d/empty"):
        (shared / folder).mkdir()
        (shared / folder).chmod(0o777)
    for name in ("f", "d/g", "d/h"):
        (shared / name).write_text("of the caller's\n")
        (shared / name).chmod(0o666)

    def listing():
        found = sorted(shared.rglob("*"))
        return [(str(p), p.lstat().st_mode, p.lstat().st_mtime_ns, p.read_text() if p.is_file() else None) for p in found]

    before = listing()
    r = run("--allow-read", shared, "--", "/usr/bin/python3", "-c", CHANGE, shared)
    assert (r.code, r.out) == (0, "") and listing() == before, r
    r = run("--allow-write", shared, "--", "/usr/bin/python3", "-c", CHANGE, shared)
    done = r.out.splitlines()
    assert r.code == 0 and {"write", "truncate", "mode", "times", "make", "make beside", "folder", "link", "hard link", "pipe", "remove", "move",
                            "remove folder"} <= set(done), r
    assert listing() != before
