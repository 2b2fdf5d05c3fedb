"""One container for a sequence of trusted commands of one handle."""

import os
import signal
import time

import pytest

from cordon import Sandbox


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


def test_busy_and_other_requests_have_their_own(warm):
    run = warm.start_command(["sleep", "3"])
    time.sleep(0.3)
    other = warm.run_command(["echo", "1"])
    assert other.stdout == "1\n" and "reuse" not in other.enforcement["layers"]
    run.cancel()
    assert run.wait().verdict == "cancelled"
    assert _sh(warm, "ps -e -o comm= | grep -c sleep; true").stdout == "0\n"


def test_supervisor_is_killed(engine):
    sandbox = Sandbox(timeout=20, backend="docker", reuse=True)
    sandbox.run_command(["true"])
    engine.wait_for(1)
    os.kill(sandbox._lease.supervisor_pid(), signal.SIGKILL)
    engine.wait_for(0)


def test_a_command_by_itself_keeps_nothing(run, engine):
    result = run("--reuse", "--", "true")
    assert result.verdict == "ok" and "reuse" not in result.layers and engine.containers() == []
