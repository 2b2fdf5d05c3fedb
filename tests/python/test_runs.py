"""Runs and streams: how long a guest lives, and what it holds of the caller's."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import cordon
from conftest import gone
from cordon import Sandbox, SandboxError


def test_run_object(sandbox):
    run = sandbox.start_command(["sleep", "14.1421"])
    assert not run.done()
    with pytest.raises(TimeoutError):
        run.wait(0.2)
    run.signal(signal.SIGTERM)
    assert run.wait().signal == signal.SIGTERM and run.done()
    run = sandbox.start_command(["sleep", "14.1421"])
    run.cancel()
    assert run.wait(5).verdict == "cancelled"
    assert run.wait() is run.wait()
    with pytest.raises(ValueError):
        run.stream()


def test_interrupt_ends_the_guest():
    code = ("import signal, cordon\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nprint('on', flush=True)\n"
            "cordon.Sandbox(timeout=60).run_command(['sleep', '26.4575'])")
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(cordon.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment) as process:
        assert process.stdout.readline() == "on\n"
        time.sleep(1)
        assert not gone("^sleep 26.4575", within=0.01)
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate(timeout=10)[1]
    assert gone("^sleep 26.4575")


class Late(Exception):
    pass


@pytest.mark.parametrize("raised", [Late, TimeoutError, SystemExit])
@pytest.mark.parametrize("way", [
    lambda s: s.run_command(["sleep", "24.4948"]), lambda s: s.run("exec sleep 24.4948", "sh"),
    lambda s: list(s.stream_command(["sleep", "24.4948"])), lambda s: s.start_command(["sleep", "24.4948"]).wait(60),
    lambda s: asyncio.run(s.run_command_async(["sleep", "24.4948"]))], ids="command code stream wait async".split())
def test_exception_of_a_signal_handler_ends_the_guest(way, raised):
    def handler(*_):
        raise raised
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with Sandbox(timeout=60) as sandbox:
            sandbox.run_command(["true"])
            fds = len(os.listdir("/proc/self/fd"))
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(raised):
                way(sandbox)
            assert gone("^sleep 24.4948") and len(os.listdir("/proc/self/fd")) <= fds
            assert not sandbox._active and sandbox.run_command(["echo", "on"]).stdout == "on\n"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_timeout_of_wait_leaves_the_guest():
    with Sandbox(timeout=60) as sandbox:
        run = sandbox.start_command(["sh", "-c", "sleep 0.6; echo done"])
        with pytest.raises(TimeoutError):
            run.wait(0.1)
        with pytest.raises(TypeError):
            run.wait("soon")
        assert run.wait(float("inf")).stdout == "done\n" and run.wait(1e10).ok


def test_dropped_runs_end():
    with Sandbox(timeout=60) as sandbox:
        sandbox.run_command(["true"])
        before = len(os.listdir("/proc/self/fd"))
        for event in sandbox.stream_command(["sh", "-c", "echo 1; exec sleep 28.2842"]):
            break
        sandbox.start_command(["sleep", "28.2842"])
        run = sandbox.start_command(["sleep", "28.2842"])
        with pytest.raises(TimeoutError):
            run.wait(0.2)
        run.cancel()
        del run
        assert gone("^sleep 28.2842") and len(os.listdir("/proc/self/fd")) <= before
        for _ in range(100):
            sandbox.start_command(["true"])
        assert len(os.listdir("/proc/self/fd")) <= before and not sandbox._active


def test_held_runs_stay():
    """Also when the sandbox itself, or the stream, is held by them alone."""
    with Sandbox(timeout=60) as sandbox:
        run = sandbox.stream_command(["echo", "1"]).run
        held = [sandbox.start_command(["echo", str(i)]) for i in range(100)]
        assert run.wait(30).stdout == "1\n"
        until = time.monotonic() + 60
        while not all(one.done() for one in held) and time.monotonic() < until:
            time.sleep(0.05)
        assert [one.wait().stdout for one in held] == [f"{i}\n" for i in range(100)]
    alone = Sandbox(timeout=60).start_command(["sh", "-c", "sleep 0.3; echo on"])
    assert alone.wait(30).stdout == "on\n"


def test_runs_that_ended_give_their_descriptors_back():
    with Sandbox(timeout=60) as sandbox:
        sandbox.run_command(["true"])
        before = len(os.listdir("/proc/self/fd"))
        held = []
        for _ in range(150):
            held.append(sandbox.start_command(["true"]))
            time.sleep(0.02)
        assert len(os.listdir("/proc/self/fd")) - before < 200
        assert all(one.wait().ok for one in held) and sandbox.stats().runs == 151


def test_dropped_at_the_end_of_python():
    code = ("import cordon\nsandbox = cordon.Sandbox(timeout=60)\nrun = sandbox.start_command(['sleep', '33.1662'])\n"
            "stream = sandbox.stream_command(['sh', '-c', 'echo 1; exec sleep 33.1662'])\nprint(next(stream).text)\n")
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(cordon.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n\n", "", 0) and gone("^sleep 33.1662")


def test_fork_keeps_its_hands_off_the_runs():
    with Sandbox(timeout=60) as sandbox:
        run = sandbox.start_command(["sh", "-c", "sleep 1; echo parent"])
        stream = sandbox.stream_command(["sh", "-c", "sleep 1; echo parent"])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                stream.close()
                for act in (run.cancel, run.done, run.wait, lambda: next(stream)):
                    try:
                        act()
                    except SandboxError as e:
                        assert e.code == 64
                    else:
                        assert False
                del run, stream
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert run.wait(30).stdout == "parent\n" and list(stream)[-1].result.stdout == "parent\n"


def test_run_has_one_stream(sandbox):
    run = sandbox.start_command(["echo", "1"], stream=True)
    stream = run.stream()
    with pytest.raises(ValueError, match="already"):
        run.stream()
    assert list(stream)[-1].result.stdout == "1\n"


FEW = """
import os, resource
from cordon import Sandbox, SandboxError, library_version
library_version()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
os.closerange(3, 1024)
for most in range(4, 12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        Sandbox().run_command(["true"])
    except SandboxError as e:
        print(e.code)
"""


def test_no_descriptors_for_a_supervisor():
    """Not a wrong call (64): the program is there."""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(cordon.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-B", "-c", FEW], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout and set(done.stdout.split()) <= {"69", "70"}, done


def test_no_descriptors_left():
    """Ours or the engine's, it is a SandboxError, and nothing stays behind."""
    import resource
    with Sandbox(timeout=60) as sandbox:
        sandbox.run_command(["true"])
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = os.listdir("/proc/self/fd")
        top = max(map(int, before))
        for more in range(1, 12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (top + more, hard))
            try:
                sandbox.run_command(["true"])
            except SandboxError as e:
                assert e.code == 70
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert not sandbox._active and len(os.listdir("/proc/self/fd")) == len(before)
        assert sandbox.run_command(["true"]).ok
