"""Landlock in tier full: which rights it handles, seen from inside through a rule of the guest's own and from the plan."""

import json
import os
import shutil
import subprocess

import pytest

from cordon_run import CORDON, host_env, run


LIGHT = "all but to read, make and remove plain files"


def plan(*options):
    done = subprocess.run([CORDON, "explain", "--json", *options, "--", "/bin/true"], cwd="/", capture_output=True, text=True, env=host_env())
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    return (found.get("plan") or found)["landlock"]


def test_plain_files_are_left_to_the_mounts_only_where_nothing_is_granted(full, shared, need):
    need(plan()["abi"] > 0, "needs Landlock")
    (shared / "f").write_text("x")
    assert plan()["rights"] == LIGHT
    assert plan("--file", f"f={shared / 'f'}")["rights"] == LIGHT, "a copy in the guest's own folder"
    assert plan("--temp-dir=/scratch")["rights"] == LIGHT
    for options in (["--allow-read", shared], ["--allow-write", shared], ["--mount", f"{shared}:/mnt/x"], ["--mount", f"{shared}:/mnt/x:rw"],
                    ["--workspace", f"{shared}:ro"], ["--workspace", f"{shared}:rw"]):
        assert plan(*map(str, options))["rights"] == "all", options


def test_results_say_which(full, shared, need):
    need(plan()["abi"] > 0, "needs Landlock")
    assert run("--", "/bin/true").result["enforcement"]["layers"]["landlock_rights"] == LIGHT
    assert run("--allow-read", shared, "--", "/bin/true").result["enforcement"]["layers"]["landlock_rights"] == "all"


def test_other_walls_have_all_of_it(full, world, need):
    if not world.is_root:
        pytest.skip("needs root, or ids of one's own")
    need(shutil.which("runc"), "needs runc")
    assert plan("--backend", "oci")["rights"] == "all"


@pytest.mark.parametrize("granted", [False, True])
def test_pipes_of_the_host_cannot_be_written_to(full, shared, world, granted):
    """A mount that is read-only does not keep anybody from writing into a pipe."""
    if not world.is_root:
        pytest.skip("needs root, to make a pipe in /usr")
    pipe = f"/usr/local/cordon-e2e-{os.getpid()}"
    os.mkfifo(pipe)
    try:
        os.chmod(pipe, 0o666)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        options = ["--allow-read", shared] if granted else []
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


@pytest.mark.parametrize("granted", [False, True])
def test_nothing_can_be_changed_but_scratch(full, shared, granted):
    """With the light fence and with the whole one; what is the guest's own works with both."""
    r = run(*(["--allow-read", shared] if granted else []), "--", "/usr/bin/python3", "-c", TRY)
    assert (r.code, r.out) == (0, "['f', 'p', 's']\n"), r
