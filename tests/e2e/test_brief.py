"""Guests that end at once, which the supervisor does not watch, and those that take a little longer: the same results."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from cordon_run import CORDON, host_env, run

# before and after the moment in which the supervisor begins to watch
WAITS = ["", "sleep 0.001; ", "sleep 0.002; ", "sleep 0.004; ", "sleep 0.02; "]


def shell(wait, script, *options, stdin=subprocess.DEVNULL):
    done = subprocess.run([CORDON, "run", "--json", *options, "--", "/bin/sh", "-c", wait + script], cwd="/", stdin=stdin,
                          capture_output=True, env=host_env(), timeout=60)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("wait", WAITS)
def test_what_it_wrote_and_how_it_ended(wait):
    for _ in range(5):
        code, r = shell(wait, "echo out; echo err >&2; exit 3")
        assert (code, r["verdict"], r["stdout"], r["stderr"]) == (3, "nonzero_exit", "out\n", "err\n")
        assert r["processes_peak"] >= 1 and r["wall_ms"] > 0
    code, r = shell(wait, "kill -9 $$")
    assert (code, r["verdict"], r["signal"]) == (137, "signaled", 9)


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("size", [1, 4096, 65536, 65537, 400000])
def test_output_is_whole_whatever_its_size(wait, size):
    """65536 is what lies in a pipe that nobody reads."""
    code, r = shell(wait, f"head -c {size} /dev/zero | tr '\\0' a; head -c {size} /dev/zero | tr '\\0' b >&2")
    assert (code, r["stdout_bytes"], r["stderr_bytes"]) == (0, size, size)
    assert r["stdout"] == "a" * size and r["stderr"] == "b" * size


@pytest.mark.parametrize("wait", WAITS)
def test_output_beyond_the_limit(wait):
    code, r = shell(wait, "printf 123456789", "--max-output", "5")
    assert (code, r["stdout"], r["stdout_truncated"], r["stdout_bytes"]) == (0, "12345", True, 9)
    code, r = shell(wait, "printf 123456789; sleep 20", "--max-output", "5", "--kill-on-output-limit")
    assert (code, r["verdict"]) == (122, "output_limit") and r["wall_ms"] < 15000
    code, r = shell(wait, "printf 123456789", "--max-output", "5", "--kill-on-output-limit")
    assert (code, r["verdict"]) == (122, "output_limit")
    # the twin
    code, r = shell(wait, "printf 12345", "--max-output", "5", "--kill-on-output-limit")
    assert (code, r["verdict"], r["stdout"]) == (0, "ok", "12345")


@pytest.mark.parametrize("wait", WAITS)
def test_who_is_left_behind_ends_with_it(wait):
    marker = f"{os.getpid() % 1000 + 4000}.125"
    code, r = shell(wait, f"sleep {marker} & echo started")
    assert (code, r["stdout"]) == (0, "started\n") and r["wall_ms"] < 15000
    assert subprocess.run(["pgrep", "-f", f"sleep {marker}"], capture_output=True).returncode == 1


@pytest.mark.parametrize("limit", ["1ms", "2ms", "3ms", "20ms"])
def test_time_limits_as_short_as_the_wait(limit):
    code, r = shell("", "while :; do :; done", "--time-limit", limit)
    assert (code, r["verdict"], r["limit"]["name"]) == (124, "time_limit", "time_limit")


def test_input_is_there_from_the_start():
    """Who has input is watched from its first moment: the wait would be its."""
    r = run("--", "/bin/cat", stdin=b"given\n")
    assert (r.code, r.out) == (0, "given\n")
    done = subprocess.run([CORDON, "run", "--", "/bin/cat"], cwd="/", input=b"x" * 300000, capture_output=True, env=host_env())
    assert done.returncode == 0 and done.stdout == b"x" * 300000


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 20])
def test_it_can_be_cancelled_at_any_moment(after_ms):
    guest = subprocess.Popen([CORDON, "run", "--json", "--", "/bin/sleep", "30.0625"], cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=host_env())
    time.sleep(0.002 + after_ms / 1000)  # until it holds its signals
    guest.send_signal(signal.SIGTERM)
    out, _ = guest.communicate(timeout=30)
    assert guest.returncode in (130, -signal.SIGTERM)
    assert guest.returncode < 0 or json.loads(out)["verdict"] == "cancelled"
    assert subprocess.run(["pgrep", "-f", "sleep 30.0625"], capture_output=True).returncode == 1


def test_a_result_on_a_descriptor_and_live_output():
    read, write = os.pipe()
    done = subprocess.run([CORDON, "run", "--status-fd", str(write), "--", "/bin/echo", "live"], cwd="/", stdin=subprocess.DEVNULL,
                          capture_output=True, pass_fds=[write], env=host_env())
    os.close(write)
    result = json.loads(os.read(read, 1 << 16))
    os.close(read)
    assert (done.returncode, done.stdout, result["stdout"], result["verdict"]) == (0, b"live\n", "live\n", "ok")


def test_a_reader_that_went_away():
    done = subprocess.run(["/bin/bash", "-c", f"{CORDON} run -- /bin/echo x </dev/null | true; echo ${{PIPESTATUS[0]}}"], cwd="/",
                          capture_output=True, text=True, env=host_env())
    assert done.stdout.strip() in ("0", "141"), done


def test_what_cannot_be_executed_is_the_guests():
    for command, status in (("/nonexistent", 127), ("/etc/passwd", 126)):
        done = subprocess.run([CORDON, "run", "--json", "--", command], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, env=host_env())
        r = json.loads(done.stdout)
        assert (done.returncode, r["verdict"], bool(r["error"])) == (status, "nonzero_exit", True), r


def test_what_only_counts_is_made_for_who_reads_it(world):
    """CPU time has a v1 group of its own on some hosts, which holds nothing: no result, no verbose log, no limit, no group."""
    base = pathlib.Path("/sys/fs/cgroup/cpuacct")
    if not world.is_root or "v1" not in world.cgroup or not base.is_dir() or base.is_symlink():
        pytest.skip("needs a v1 hierarchy for CPU time alone, as root")

    def groups():
        return {str(p) for p in base.rglob("cordon-*") if p.is_dir()}

    for options, counts in (([], False), (["--cpu-time", "9s"], True), (["--log", "verbose"], True), (["--result", "/dev/null"], True), (["--json"], True)):
        before = groups()
        with subprocess.Popen([CORDON, "run", *options, "--", "/bin/sh", "-c", "echo begun; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=host_env()) as p:
            if options == ["--json"]:
                until = time.monotonic() + 10
                while not groups() - before and time.monotonic() < until:
                    time.sleep(0.01)
            else:
                assert p.stdout.readline() == b"begun\n"
            assert bool(groups() - before) == counts, options
            p.stdin.close()
            p.stdout.read()
        assert p.returncode == 1 and not groups() - before, options


BURN = """
import time
begin, used = time.monotonic(), time.process_time()
while time.monotonic() - begin < 2.5:
    pass
print((time.process_time() - used) / (time.monotonic() - begin))
"""


@pytest.mark.parametrize("options", [[], ["--result", "/dev/null"]])
def test_a_share_is_held_without_a_group_for_shares(world, options):
    """Memory and processes by v1 groups, and nothing that shares a core out or freezes: by looking, whoever reads the numbers."""
    shares = pathlib.Path("/sys/fs/cgroup/cpu")
    if not world.is_root or "v1" not in world.cgroup or not os.path.ismount(shares):
        pytest.skip("needs a v1 hierarchy for CPU shares alone, as root")
    hide = "umount /sys/fs/cgroup/cpu && { umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"; }"
    done = subprocess.run(["/usr/bin/unshare", "-m", "/bin/sh", "-c", hide, "sh", CORDON, "run", "--cpu-limit", "30", *options, "--",
                           "/usr/bin/python3", "-c", BURN], cwd="/", capture_output=True, text=True, env=host_env(), timeout=60)
    assert done.returncode == 0 and 0.1 < float(done.stdout) < 0.4, done
    assert done.stderr == "Warning: CPU usage throttled to 30%\n", done
