"""The list of known attacks (attacks.txt) names a test for each line, and those that have no better place."""

import os
import pathlib
import re
import subprocess
import threading
import time

import pytest

from cordon_run import LATE_S, PATIENCE, SECRET, guest, run

HERE = pathlib.Path(__file__).resolve().parent


def attacks():
    for line in (HERE / "attacks.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            ident, _, rest = line.partition(" ")
            _, tests = re.split(r"\s{2,}", rest.strip(), maxsplit=1) if "  " in rest.strip() else (rest, "")
            yield ident, [t.strip() for t in tests.split(",")]


def test_every_line_has_a_test():
    found = dict(attacks())
    assert len(found) > 70
    for ident, tests in found.items():
        assert tests and tests != [""], ident
        for test in tests:
            file, _, name = test.partition("::")
            text = (HERE / file).read_text()
            assert f"def {name}(" in text if name else "def test_" in text, (ident, test)


def test_control_groups_cannot_be_left(world, full):
    r = guest("cgroup_escape", opts=["--memory-limit", "64M", "--processes", "20"])
    assert r.verdict == "ok", str(r)
    for key, answer in r.pairs():
        if key.startswith(("mount", "mkdir")):
            assert answer in ("EPERM", "ENOSYS", "EACCES", "ENOENT", "EROFS"), (key, answer)
        if key.startswith("write"):
            assert answer != "OK", key
    assert r.get("list") == "ENOENT"
    assert [g for g in r.all("group") if not g.endswith(":/")] == [], "names of the host's groups"
    # the twin: the same limits are still in force after all that
    r = run("--memory-limit", "64M", "--time-limit", "20s", "--", "/usr/bin/python3", "-c", "bytearray(300 << 20)")
    assert r.verdict == "memory_limit", str(r)


def test_callers_that_die_in_their_question(world):
    r = guest("notify_abuse", "200", opts=["--time-limit", "60s"])
    assert r.verdict == "ok", str(r)
    assert r.get("odd_ends") == "0" and r.get("answered_after") == "20", str(r)


def test_thrashing_does_not_stop_a_neighbour(full):
    def neighbour():
        r = run("--time-limit", "60s", "--", "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i")
        assert r.out == "20000\n", str(r)
        return r.result["cpu_user_ms"]
    alone = min(neighbour() for _ in range(2))
    results = []
    thread = threading.Thread(target=lambda: results.append(
        guest("thrash", "/tmp", "2", opts=["--time-limit", "30s", "--memory-limit", "64M", "--disk-limit", "24M"])))
    thread.start()
    time.sleep(0.3)
    beside = min(neighbour() for _ in range(2))
    thread.join()
    assert beside <= 1.5 * alone * PATIENCE + 50, (alone, beside)
    assert results[0].verdict in ("ok", "memory_limit") and results[0].seconds < 3 + LATE_S * 4, str(results[0])


def test_a_grant_that_is_swapped_for_a_link(full, shared, canary):
    """The name of a grant changes between folder and link while runs start: what is mounted was checked."""
    place = shared / "place"
    stop = threading.Event()

    def swap():
        folder, link = shared / "folder", shared / "link"
        folder.mkdir()
        link.symlink_to(canary)
        (folder / "own.txt").write_text("own")
        while not stop.is_set():
            for source in (folder, link):
                try:
                    os.rename(source, place)
                    os.rename(place, source)
                except OSError:
                    pass

    inner = shared / "grant"
    inner.mkdir()
    (inner / "f").write_text("f")
    (inner / "way").symlink_to("../place")
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(25):
            # what the caller names by a link is the caller's affair; what a guest finds below a grant is not
            r = run("--allow-read", inner, "--", "/bin/sh", "-c", f"cat {inner}/f {inner}/way/secret.txt {place}/secret.txt")
            assert SECRET not in r.out and r.out.startswith("f"), str(r)
    finally:
        stop.set()
        thread.join()


def test_a_false_proc_is_not_believed(world, full):
    """With a /proc that is no /proc nothing starts: our own writes go there."""
    if not world.is_root:
        pytest.skip("needs root: to put another file system over /proc")
    script = ("mount -t tmpfs none /proc && mkdir -p /proc/self/fd /proc/self/ns /proc/sys/user && "
              "touch /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups && exec \"$@\"")
    from cordon_run import command, host_env
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh",
                           *map(str, command("--json", "--", "/bin/echo", "ran"))], env=host_env(), capture_output=True, timeout=60)
    if done.returncode == 0:  # it may start only with every layer really there
        assert b'"tier":"full"' in done.stdout and b'"pid_ns":"on"' in done.stdout
    else:
        assert done.returncode in (69, 70), (done.returncode, done.stdout, done.stderr)
    assert run("--", "/bin/echo", "ran").out == "ran\n"


def test_numbers_of_the_host_name_nobody(full):
    """What /proc shows of the host are numbers: no process, user, device or path of it."""
    files = ["meminfo", "stat", "loadavg", "uptime", "cpuinfo", "diskstats", "partitions", "swaps", "mounts", "net/dev", "net/tcp",
             "net/unix", "net/route", "locks", "filesystems", "version"]
    script = "; ".join(f"echo == {f}; cat /proc/{f} 2>/dev/null" for f in files)
    r = run("--", "/bin/sh", "-c", script)
    assert r.verdict == "ok" and SECRET not in r.out
    shown = r.out.replace("/home/sandbox", "")
    for word in (os.uname().nodename, "/home/", "docker", str(HERE)):
        assert len(word) < 4 or word not in shown, word
    sockets = r.out.split("== net/unix")[1].split("== net/route")[0]
    assert len(sockets.strip().splitlines()) <= 1, "sockets of the host"
