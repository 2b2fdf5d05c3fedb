"""The result cannot be forged: no process of ours inside can be touched by the guest (attacks K6, K7, K25)."""

import pathlib
import time

import pytest

from cordon_run import guest, guest_path, GUESTS, run, start

SIGNALS = {"sigstop", "sigkill", "sigusr1", "sigterm", "sigint", "sigcont"}
# Plain facts anybody may read of anybody in a /proc; everything else about our processes is refused.
# (The attr files open, and refuse what is written to those of another.)
OPEN_BY_DESIGN = {"pidfd_open", "attr/exec", "affinity", "idle", "nice"}


@pytest.fixture(scope="module")
def attack(world):
    r = guest("forge")
    return r


def test_the_attack_had_targets(full, attack):
    assert attack.all("target") == ["1"], "pid 1 is ours and must be the only other process"
    assert attack.get("alive") == "yes"


def test_nothing_is_stolen(attack):
    for key, answer in attack.pairs():
        if not key.startswith("pid "):
            continue
        road = key.split(" ", 2)[2]
        if road in SIGNALS or road in OPEN_BY_DESIGN:
            continue
        assert answer not in ("OK",), f"{key}: {answer}"


def test_descriptors_cannot_be_taken(full, attack):
    assert attack.get("pid 1 pidfd_getfd") in ("EPERM", "ENOSYS", "EACCES")
    for road in ("attach", "seize", "suspend_seccomp", "vm_readv", "vm_writev", "mem", "environ", "maps", "list fd", "readlink fd/3",
                 "readlink exe", "readlink cwd", "readlink root", "chmod exe", "exe", "kcmp"):
        assert attack.get(f"pid 1 {road}") in ("EPERM", "EACCES", "ENOENT", "ENOSYS", "EMPTY", "ESRCH", "EROFS"), road


def test_limits_of_ours_cannot_be_changed(full, attack):
    """prlimit on another process asks only for the same user: it could end pid 1 and with it the truth."""
    for what in ("nofile", "stack", "as", "cpu"):
        assert attack.get(f"pid 1 prlimit_{what}") in ("EPERM", "EACCES", "ENOSYS"), what
    assert attack.get("own prlimit") == "OK"


def test_signals_do_not_end_it(full, attack):
    assert attack.verdict == "ok" and attack.code == 0, str(attack)


def test_a_forged_result_does_not_count(full):
    """A guest that prints a result, closes its streams and fails, has failed."""
    lie = '{"version":1,"verdict":"ok","exit_code":0}'
    r = run("--", "/bin/sh", "-c", f"for fd in 1 2 3 4 5 6 7 8 9; do echo '{lie}' >&$fd; done 2>/dev/null; exec 1>&- 2>&-; exit 9")
    assert (r.verdict, r.code) == ("nonzero_exit", 9)


@pytest.mark.parametrize("how", ["kill -KILL 1", "kill -TERM 1", "kill -STOP 1", "kill -KILL -1", "kill -KILL 0", "kill -TERM $PPID"])
def test_shell_signals(full, how):
    r = run("--time-limit", "3s", "--", "/bin/sh", "-c", f"trap '' TERM; {how}; exit 7")
    assert r.verdict in ("nonzero_exit", "signaled"), str(r)
    assert r.code in (7, 137)


def _inside(p):
    """Host pids of the processes below the command: ours and the guest's."""
    found = []
    todo = [p.pid]
    while todo:
        pid = todo.pop()
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            for child in task.read_text().split():
                found.append(int(child))
                todo.append(int(child))
    return found


def test_none_of_ours_is_dumpable(full, world):
    """Looked at from outside: a dumpable process has /proc files that belong to its own user; those of a
    process that is not dumpable belong to root (or to nobody, where root is not mapped)."""
    p = start("--allow-read", GUESTS, "--", guest_path("sleeper"), "nanosleep", "3")
    try:
        assert p.stdout.readline() == b"waiting: nanosleep\n"
        time.sleep(0.1)
        pids = _inside(p)
        ours = [pid for pid in pids if "sleeper" not in pathlib.Path(f"/proc/{pid}/comm").read_text()]
        assert ours, "the guest's pid 1 is one of ours"
        for pid in ours:
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            uid = [line.split()[1] for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                   if line.startswith("Uid:")][0]
            owner = pathlib.Path(f"/proc/{pid}/environ").stat().st_uid
            inside = pathlib.Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split()
            if len(inside) < 2:
                continue  # not inside the guest's pid namespace
            assert str(owner) != uid, f"{name} ({pid}) is dumpable"
    finally:
        p.terminate()
        p.communicate(timeout=10)


def test_no_descriptor_of_ours_in_the_guest(full):
    r = run("--", "/bin/sh", "-c", "ls -l /proc/self/fd; ls /proc/1/fd 2>&1; cat /proc/1/cmdline | tr '\\0' ' '")
    assert "socket:" not in r.out and "anon_inode" not in r.out


def test_pid_1_has_no_telling_command_line(full):
    r = run("--env", "TOKEN=not-for-the-guest-to-see-twice", "--", "/bin/sh", "-c", "cat /proc/1/cmdline /proc/1/comm | tr '\\0' ' '")
    assert "not-for-the-guest" not in r.out and "--env" not in r.out
