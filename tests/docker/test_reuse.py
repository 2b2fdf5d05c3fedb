"""One container for a sequence of trusted commands of one handle."""

import fcntl
import os
import shutil
import signal
import socket
import time

import pytest

from cordon import Sandbox, SandboxError


@pytest.fixture
def warm(engine):
    """A sandbox whose kept container stands."""
    with Sandbox(timeout=20, max_memory_mb=128, backend="docker", reuse=True, processes=20) as sandbox:
        first = sandbox.run_command(["true"])
        assert first.exit_code == 0 and "reuse" not in first.enforcement["layers"]
        end = time.monotonic() + 40
        while "reuse" not in (run := sandbox.run_command(["true"])).enforcement["layers"]:
            assert time.monotonic() < end, "no container was kept"
            time.sleep(0.1)
        assert "weaker" in run.enforcement["layers"]["reuse"]
        yield sandbox
    engine.wait_for(0)


def _sh(sandbox, script, **options):
    run = sandbox.run_command(["bash", "-c", script], **options)
    assert "reuse" in run.enforcement["layers"], run
    return run


@pytest.mark.both
def test_a_sequence(warm, engine):
    kept = engine.wait_for(1)[0]["Id"]
    assert _sh(warm, "echo hello; exit 3").exit_code == 3
    assert _sh(warm, "cat", stdin=b"x" * 100_000).stdout == "x" * 100_000
    assert _sh(warm, "(setsid sleep 300 & ) ; sleep 0.1; echo left").stdout == "left\n"
    assert _sh(warm, "ps -e -o comm= | grep -c sleep; true").stdout == "0\n", "a process outlived its command"
    assert _sh(warm, "kill -9 $$").verdict == "signaled"
    assert _sh(warm, "touch /etc/x; id -un; grep NoNewPrivs /proc/self/status").stdout == "sandbox\nNoNewPrivs:\t1\n"
    assert [c["Id"] for c in engine.containers()] == [kept]


def test_limits(warm):
    assert _sh(warm, "sleep 100", timeout=1).timed_out
    run = _sh(warm, "python3 -c 'x = bytearray(400 << 20)'")
    assert run.verdict == "memory_limit"
    run = _sh(warm, "true")
    assert run.verdict == "ok" and run.oom_kills == 0, "what an earlier command did is counted to a later one"
    run = _sh(warm, "for i in $(seq 30); do sleep 5 & done 2>/dev/null; wait")
    assert run.verdict == "process_limit"
    assert _sh(warm, "echo alive").stdout == "alive\n"
    run = _sh(warm, "for i in $(seq 19); do sleep 1 & done; wait")
    assert run.verdict == "ok" and run.processes_peak == 20, (run.verdict, run.processes_peak)


def test_busy_and_other_requests_have_their_own(warm):
    run = warm.start_command(["sleep", "3"])
    time.sleep(0.3)
    other = warm.run_command(["echo", "1"])
    assert other.stdout == "1\n" and "reuse" not in other.enforcement["layers"]
    run.cancel()
    assert run.wait().verdict == "cancelled"
    assert _sh(warm, "ps -e -o comm= | grep -c sleep; true").stdout == "0\n"


def test_streams_and_files(warm, folder):
    data = os.urandom(2_000_000)
    run = _sh(warm, "cat; echo err >&2; exit 9", stdin=data)
    assert run.stdout_bytes == len(data) and run.stderr == "err\n" and run.exit_code == 9
    assert _sh(warm, "exec 0<&-; sleep 0.2; echo alive", stdin=data).stdout == "alive\n"
    assert _sh(warm, "readlink /proc/self/fd/0 /proc/self/fd/1 | cut -d: -f1 | sort -u; ls /proc/self/fd | tr '\\n' ' '").stdout == (
        "pipe\n0 1 2 3 ")
    assert _sh(warm, "cat /dev/stdin; echo to >/dev/stdout", stdin=b"from\n").stdout == "from\nto\n"


def test_a_hostile_command(warm):
    """It ends its own pid 1, looks for the way its streams came by, and leaves processes: nothing stays."""
    began = time.monotonic()
    run = _sh(warm, "(setsid sleep 300 &) ; (setsid sleep 301 &); (setsid yes &); sleep 0.2; kill -9 $PPID; sleep 50")
    assert (run.verdict, run.signal) == ("signaled", 9) and time.monotonic() - began < 25, run
    end = time.monotonic() + 20
    while _sh(warm, "ps -e -o comm= | grep -cE 'sleep|yes'; true").stdout != "0\n":
        assert time.monotonic() < end, "processes outlived their command"
    assert _sh(warm, "ls -A /.cordon-channel; ls /proc/1/fd 2>/dev/null; touch /.cordon-channel/x").stdout == ""
    run = _sh(warm, "kill -9 1; kill -63 1; kill -64 1; kill -STOP 1; echo $?")
    assert run.exit_code == 0 and _sh(warm, "echo alive").stdout == "alive\n"


def test_without_the_short_way(engine, monkeypatch):
    """No place for its socket: commands go through the engine."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with Sandbox(timeout=20, backend="docker", reuse=True) as sandbox:
        end = time.monotonic() + 40
        while "reuse" not in (run := sandbox.run_command(["sh", "-c", "ls -d /.cordon-channel 2>/dev/null; cat"],
                                                         stdin=b"in")).enforcement["layers"]:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert run.stdout == "in"
        run = sandbox.run_command(["sh", "-c", "(setsid sleep 300 &) ; sleep 0.2; kill -9 $PPID; sleep 5"])
        assert run.verdict == "signaled", run
        end = time.monotonic() + 20
        while sandbox.run_command(["sh", "-c", "ps -e -o comm= | grep -c sleep; true"]).stdout != "0\n":
            assert time.monotonic() < end, "processes outlived their command"
    engine.wait_for(0)


def test_kill_9_of_its_own_init_is_its_own_end(warm):
    """Also behind a command that was out of memory, which is not this one's doing."""
    assert _sh(warm, "python3 -c 'x = bytearray(400 << 20)'").verdict == "memory_limit"
    for script in ("kill -9 -1; sleep 50", "sleep 0.1; exec python3 -c 'import os; os.kill(-1, 9)'"):
        run = _sh(warm, script)
        assert run.verdict == "signaled" and run.oom_kills == 0, run
    assert _sh(warm, "echo alive").stdout == "alive\n"


def test_kill_9_of_the_helper(warm, engine):
    """What it watched over is gone with the container; the next command has another."""
    kept = engine.wait_for(1)[0]["Id"]
    run = warm.start_command(["sleep", "15"])
    engine.wait_running(1)
    children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_run_helper(pid, warm._lease.supervisor_pid())]
    assert len(children) == 1, children
    os.kill(children[0], signal.SIGKILL)
    with pytest.raises(SandboxError, match="ended unexpectedly"):
        run.wait()
    assert kept not in [c["Id"] for c in engine.containers()], "the guest runs on"
    assert warm.run_command(["echo", "next"]).stdout == "next\n"


def _is_run_helper(pid, parent):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmd, open(f"/proc/{pid}/stat", "rb") as stat:
            words = cmd.read().split(b"\0")
            return words[0].endswith(b"/cordon-docker") and words[1] == b"run" and int(stat.read().rpartition(b")")[2].split()[1]) == parent
    except OSError:
        return False


def test_nothing_stays_in_the_cache(warm):
    left = [name for name in os.listdir(os.path.join(os.environ["XDG_CACHE_HOME"], "cordon")) if name.startswith("hold-")]
    assert left == []


def test_what_a_killed_holder_left_is_collected(engine):
    """What another holds stays."""
    cache = os.path.join(os.environ["XDG_CACHE_HOME"], "cordon")
    left, held = os.path.join(cache, "hold-gone00"), os.path.join(cache, "hold-held00")
    for top in (left, held):
        os.makedirs(os.path.join(top, "d"))
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with socket.socket(socket.AF_UNIX) as s, Sandbox(timeout=20, backend="docker", reuse=True) as sandbox:
            s.bind(os.path.join(left, "d", "s"))
            sandbox.run_command(["true"])
            engine.wait_for(1)
            assert not os.path.exists(left) and os.path.isdir(held)
    finally:
        os.close(lock)
        shutil.rmtree(held)
    engine.wait_for(0)


def test_supervisor_is_killed(engine):
    sandbox = Sandbox(timeout=20, backend="docker", reuse=True)
    sandbox.run_command(["true"])
    engine.wait_for(1)
    os.kill(sandbox._lease.supervisor_pid(), signal.SIGKILL)
    engine.wait_for(0)


def test_a_command_by_itself_keeps_nothing(run, engine):
    result = run("--reuse", "--", "true")
    assert result.verdict == "ok" and "reuse" not in result.layers and engine.containers() == []
