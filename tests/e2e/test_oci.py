"""OCI runtimes as the wall: what they refuse before anything starts, and what is seen from outside."""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from cordon_run import GUESTS, guest_path, run, start

pytestmark = pytest.mark.usefixtures("full")
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(params=["runc", "crun"])
def wall(request, need, world):
    need(shutil.which(request.param, path=FOLDERS), f"{request.param} is missing: install the package {request.param}")
    words = ["--backend", "oci", "--runtime", request.param]
    probe = run(*words, "--", "/bin/true")
    if probe.code == 69 and "second id" in probe.result["error"]:
        assert not world.is_root
        pytest.skip("this user has no range of ids in /etc/subuid")
    assert probe.verdict == "ok", probe
    return words


def test_refused_calls_are_counted(wall):
    got = run(*wall, "--allow-read", GUESTS, "--", guest_path("try_syscall"), "mount")
    assert got.denied("mount", "syscall"), got
    assert got.layers["denials"] == "observed" and got.layers["runtime"] == wall[-1]


def test_reuse_is_refused(wall):
    got = run(*wall, "--reuse", "--", "/bin/true")
    assert got.code == 69 and not got.result["enforcement"]["layers"], got


def test_runtime_of_another_backend(world):
    got = run("--backend", "gvisor", "--runtime", "runc", "--", "/bin/true")
    assert got.code == 78 and "runsc" in got.result["error"], got
    got = run("--runtime", "runc", "--", "/bin/true")
    assert got.code == 69, got


def test_gvisor_says_what_it_cannot_hold(need):
    need(shutil.which("runsc", path=FOLDERS), "runsc is missing: install the package runsc")
    got = run("--backend", "gvisor", "--memory-limit", "10M", "--", "/bin/true")
    assert got.code == 69 and re.search("gVisor|runsc", got.result["error"]), got


def test_gvisor_lacks_tasks(need):
    """The caller's own limit is tighter than ours: no reason not to start, and what ends a burst is no error of ours."""
    need(shutil.which("runsc", path=FOLDERS), "runsc is missing: install the package runsc")
    tight = {"prefix": ["prlimit", "--nproc=300:300", "--"]}
    words = ["--backend", "gvisor", "--processes", "100000", "--time-limit", "60s", "--allow-read", GUESTS, "--"]
    got = run(*words, guest_path("forks"), "process", "3", **tight)
    assert got.verdict == "ok" and "started: 3" in got.out, got
    got = run(*words, guest_path("fork_bomb"), **tight)
    assert got.verdict == "process_limit" and got.code == 122, got


def test_guest_cannot_reach_pid_1(wall):
    """The container's pid 1 is ours and holds the status page: not dumpable, nothing of it to be read."""
    got = run(*wall, "--", "sh", "-c", "ls -l /proc/1/fd; cat /proc/1/environ; cat /proc/1/maps; ls /proc/self/fd")
    assert "status" not in got.out and "denied" in got.err.lower(), got
    assert got.out.split() == ["0", "1", "2", "3"], got  # 3 is ls's own


def test_killed_launcher_takes_everything_along(wall):
    word = f"55.{os.getpid()}"
    child = start(*wall, "--time-limit", "60s", "--", "sh", "-c", f"echo up; exec sleep {word}")
    assert child.stdout.readline() == b"up\n"
    below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(child.pid)], capture_output=True, text=True, check=True)
    os.kill(int(below.stdout.split()[0]), signal.SIGKILL)
    out, _ = child.communicate(timeout=20)
    assert child.returncode != 0 and not out
    end = time.monotonic() + 5
    while time.monotonic() < end and subprocess.run(["pgrep", "-f", word], capture_output=True, check=False).returncode == 0:
        time.sleep(0.05)
    assert subprocess.run(["pgrep", "-f", word], capture_output=True, check=False).returncode == 1


def test_arguments_need_not_be_text(wall):
    got = run(*wall, "--", "printf", "%s", b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert got.stream("stdout") == b"\xff\xfe", got


def test_masked_and_denied(wall, shared):
    (shared / "key").write_text("secret\n")
    (shared / "open").write_text("open\n")
    got = run(*wall, "--allow-read", shared, "--deny", shared / "key", "--", "sh", "-c",
              f"cat {shared}/key; cat {shared}/open; head -c 5 /proc/kallsyms")
    assert got.out == "open\n", got


def test_files_in_and_out(wall, shared):
    (shared / "in").write_text("in\n")
    got = run(*wall, "--file", f"a/b={shared}/in", "--output", f"*.out={shared}/got", "--", "sh", "-c",
              "cat a/b; echo result > x.out; echo no > y")
    assert got.out == "in\n" and (shared / "got" / "x.out").read_text() == "result\n", got
    assert os.listdir(shared / "got") == ["x.out"]


def test_disk_limit_is_one_total(wall):
    got = run(*wall, "--disk-limit", "4M", "--", "sh", "-c",
              "head -c 3M /dev/zero > /tmp/a; head -c 3M /dev/zero > ~/b && echo both")
    assert got.verdict == "disk_limit" and "both" not in got.out, got
    assert run(*wall, "--disk-limit", "8M", "--", "sh", "-c",
               "head -c 3M /dev/zero > /tmp/a; head -c 3M /dev/zero > ~/b && echo both").out == "both\n"


def test_limits_behind_a_runtime(wall):
    """Whatever holds them on this host: control groups of either version, or looking."""
    got = run(*wall, "--memory-limit", "64M", "--time-limit", "60s", "--", "python3", "-c", "x = bytearray(300 << 20)")
    assert got.verdict == "memory_limit" and got.code == 125, got
    bomb = ("import os, time\nfor i in range(40):\n try:\n  if os.fork() == 0: time.sleep(20); os._exit(0)\n"
            " except OSError: os._exit(7)\nprint('all')")
    got = run(*wall, "--processes", "10", "--time-limit", "60s", "--", "python3", "-c", bomb)
    assert got.verdict == "process_limit" and "all" not in got.out, got
    held = got.layers["limits"]
    assert ("by cgroup" in held) == (got.layers["cgroup"] != "none"), got
    got = run(*wall, "--processes", "60", "--memory-limit", "512M", "--time-limit", "60s", "--", "python3", "-c", bomb)
    assert got.out == "all\n", got


def test_names_of_groups_are_hidden(wall):
    got = run(*wall, "--time-limit", "60s", "--", "cat", "/proc/self/cgroup")
    assert got.out and all(line.endswith(":/") for line in got.out.splitlines()), got
