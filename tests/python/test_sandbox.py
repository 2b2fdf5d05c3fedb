"""cordon.Sandbox: results, limits, wrong arguments, threads, asyncio, streams, fork."""

import asyncio
import base64
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import cordon
from conftest import gone
from cordon import Sandbox, SandboxError

QUIET = os.environ.get("CORDON_TEST_QUIET") == "1"


def test_fields(sandbox):
    result = sandbox.run("print('é')")
    assert (result.stdout, result.stderr, result.exit_code, result.timed_out) == ("é\n", "", 0, False)
    assert result.verdict == "ok" and result.ok and result.stdout_bytes == 3 and result.stdout_encoding == "utf-8"
    assert result.runtime_ms == result.wall_ms > 0 and result.peak_memory_bytes > 0 and result.processes_peak >= 1
    assert result.enforcement["tier"] in ("full", "landlock") and result.denials == [] and result.limit is None
    assert result.stage == "run" and result.signal is None
    known = result.as_dict()
    assert known["stdout"] == "é\n" and known["version"] == 1 and known["changed_files"] == []


def test_binary_output(sandbox):
    result = sandbox.run_command(["printf", r"\377\000x"])
    assert result.stdout_encoding == "base64" and base64.b64decode(result.stdout) == result.stdout_raw == b"\xff\0x"


def test_executor_shows_binary_output(monkeypatch):
    """Its result has no field that could say base64."""
    from cordon import _docker, executor
    monkeypatch.setattr(_docker, "check", lambda image: None)
    monkeypatch.setattr(executor.SandboxExecutor, "_make", lambda self: Sandbox(timeout=10))
    run = asyncio.run(executor.SandboxExecutor().execute(r"printf 'a\377'; printf 'é' >&2"))
    assert (run.stdout, run.stderr, run.exit_code) == ("a\\xff", "é", 0)


def test_outputs(tmp_path):
    with Sandbox(output=[f"*.txt={tmp_path}/o"]) as sandbox:
        result = sandbox.run("open('a.txt', 'w').write('x')")
    assert [row["path"] for row in result.outputs] == ["a.txt"] and (tmp_path / "o/a.txt").read_text() == "x"
    with Sandbox() as sandbox:
        assert sandbox.run("1").outputs == []


def test_output_is_cut_between_characters():
    with Sandbox(max_output_bytes=4) as sandbox:
        result = sandbox.run("print('aéé')")
    assert result.stdout == "aé" and result.stdout_truncated and result.stdout_bytes == 6
    assert len(result.stdout_raw) == 4


def test_signal_and_limits(sandbox):
    result = sandbox.run_command(["sh", "-c", "kill -SEGV $$"])
    assert (result.verdict, result.signal, result.exit_code) == ("signaled", 11, 139)
    result = sandbox.run_command(["sleep", "10"], timeout=0.2)
    assert (result.verdict, result.exit_code, result.limit["value"]) == ("time_limit", 124, "0.2s")
    assert sandbox.run_command(["no-such-command"]).exit_code == 127


def test_imports(sandbox):
    result = sandbox.run("x = 1\nimport os")
    assert (result.verdict, result.exit_code) == ("rejected", 77)
    assert result.stderr == "blocked import: os (line 2)\n"
    assert sandbox.run("import math").ok
    assert "blocked" in sandbox.run("__import__('o' + 's')").stderr
    with Sandbox(allowed_imports=["os"]) as allowed:
        assert allowed.run("import os").ok
        assert allowed.run("import math").verdict == "rejected"
    with Sandbox(allowed_imports=["os"], blocked_imports=["os"]) as both:
        assert both.run("import os").verdict == "rejected"
    with Sandbox(allowed_imports=[]) as nothing:
        assert nothing.run("import math").verdict == "rejected"
        assert nothing.run("print(1)").ok


def test_languages(sandbox):
    assert sandbox.run("echo $1", "sh", args=["x"]).stdout == "x\n"
    assert sandbox.run("print 1", language="perl").stdout == "1"
    with pytest.raises(ValueError, match="unknown language 'cobol'"):
        sandbox.run("x", language="cobol")


def test_stdin(sandbox, tmp_path):
    assert sandbox.run("print(input())", stdin="text\n").stdout == "text\n"
    assert sandbox.run_command(["cat"], stdin=b"\0bytes").stdout_raw == b"\0bytes"
    assert sandbox.run_command(["cat"]).stdout == ""
    (tmp_path / "in").write_text("file")
    with open(tmp_path / "in") as file:
        assert sandbox.run_command(["cat"], stdin=file).stdout == "file"
    with pytest.raises(TypeError):
        sandbox.run_command(["cat"], stdin=1.5)
    for wrong in (2 ** 32, 2 ** 31, -1):
        with pytest.raises(ValueError, match="no descriptor"):
            sandbox.run_command(["cat"], stdin=wrong)


def test_files(sandbox):
    many = {f"d{i % 50}/f{i}": str(i) for i in range(10_000)}
    with Sandbox(timeout=30, filesystem=many) as full:
        result = full.run("import glob; print(len(glob.glob('d*/f*')), open('d7/f57').read())")
    assert result.stdout == "10000 57\n"
    assert sandbox.run("print(open('x').read())", files={"x": b"1"}).stdout == "1\n"
    assert not sandbox.run("open('x')").ok


def test_environment(monkeypatch):
    monkeypatch.setenv("CORDON_TEST_SECRET", "secret")
    with Sandbox(env={"NAME": "a=b c"}) as sandbox:
        text = sandbox.run_command(["env"], env={"MORE": "1"}).stdout
    assert "NAME=a=b c\n" in text and "MORE=1\n" in text and "secret" not in text


def test_levels_and_limits():
    with Sandbox(level="strict") as strict:
        assert strict.run_command(["sleep", "30"], timeout=0.3).limit["value"] == "0.3s"
        result = strict.run("x = bytearray(300 << 20)")
        assert (result.verdict, result.limit["value"]) == ("memory_limit", "256M")
    with Sandbox(level="strict", max_memory_mb=64) as smaller:
        assert smaller.run("x = bytearray(100 << 20)").limit["value"] == "64M"
    with Sandbox(processes=1) as alone:
        assert not alone.run_command(["sh", "-c", "sleep 0 & wait; exec true; exit 3"]).ok


@pytest.mark.full_tier("mounts at another path")
def test_mounts(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x").write_text("seen")
    for mounts in ([(str(folder), "/mnt/data")], [f"{folder}:/mnt/data:ro"]):
        with Sandbox(mounts=mounts) as sandbox:
            result = sandbox.run_command(["sh", "-c", "cat /mnt/data/x; echo 1 > /mnt/data/x"])
            assert result.stdout == "seen" and not result.ok
    assert (folder / "x").read_text() == "seen"


@pytest.mark.parametrize("code, error", [
    (b"print(1)", TypeError), (None, TypeError), ("a\0b", ValueError), ("x = '\ud800'", ValueError),
    ("#" * (100 << 20), ValueError)])
def test_wrong_code(sandbox, code, error):
    with pytest.raises(error):
        sandbox.run(code)


def test_wrong_commands(sandbox):
    for command, error in (("ls", TypeError), ([], ValueError), ([""], ValueError), (["a\0"], ValueError), ([1], TypeError)):
        with pytest.raises(error):
            sandbox.run_command(command)


def test_engine_errors_are_exceptions():
    with Sandbox(profile="no-such-profile") as sandbox, pytest.raises(SandboxError) as caught:
        sandbox.run("1")
    assert caught.value.code == 78 and caught.value.stage and "no-such-profile" in str(caught.value)
    assert sandbox.stats().errors == 1
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.code, copy.stage, str(copy)) == (caught.value.code, caught.value.stage, str(caught.value))


class Own(SandboxError):
    def __init__(self, message, more):
        super().__init__(message, code=69, stage="own", hint="try")
        self.more = more


def test_subclasses_of_the_error_travel():
    copy = pickle.loads(pickle.dumps(Own("broken", [1])))
    assert type(copy) is Own and (str(copy), copy.message, copy.code, copy.hint, copy.more) == ("broken", "broken", 69, "try", [1])
    copy = pickle.loads(pickle.dumps(SandboxError("x", errno=5)))
    assert type(copy) is SandboxError and (copy.code, copy.errno, copy.args) == (70, 5, ("x",))


def test_executor_asks_for_docker_beside_the_loop(monkeypatch):
    """An engine that does not answer must not hold up other tasks."""
    from cordon import _docker, executor

    def slow(image):
        time.sleep(1)
        raise SandboxError("Docker is not running", code=69, stage="docker")

    async def main():
        task = asyncio.create_task(executor.SandboxExecutor().execute("true"))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.02)
            turns += 1
        with pytest.raises(SandboxError, match="not running"):
            await task
        return turns

    monkeypatch.setattr(_docker, "check", slow)
    assert asyncio.run(main()) > 5
    for wrong in (None, 5):
        with pytest.raises(TypeError, match="image"):
            executor.SandboxConfig(image=wrong)


def test_stats():
    with Sandbox() as sandbox:
        assert sandbox.stats() == cordon.Stats(0, 0, {}, None, None, None, None)
        for status in (0, 0, 3):
            sandbox.run_command(["sh", "-c", f"exit {status}"])
        stats = sandbox.stats()
    assert stats.runs == 3 and stats.verdicts == {"ok": 2, "nonzero_exit": 1}
    assert 0 < stats.wall_ms_p50 <= stats.wall_ms_p99 and stats.peak_memory_bytes_p99 > 0


def test_threads(sandbox):
    found = {}

    def work(i):
        for j in range(5):
            found[i, j] = sandbox.run_command(["echo", f"{i} {j}"]).stdout

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(i, j): f"{i} {j}\n" for i in range(8) for j in range(5)}


def test_asyncio(sandbox):
    async def main():
        started = time.monotonic()
        results = await asyncio.gather(*(sandbox.run_command_async(["sh", "-c", f"sleep 0.3; echo {i}"])
                                         for i in range(10)), sandbox.run_async("print('code')"))
        return results, time.monotonic() - started

    results, seconds = asyncio.run(main())
    assert [r.stdout for r in results] == [f"{i}\n" for i in range(10)] + ["code\n"]
    assert seconds < (2.5 if QUIET else 30)


def test_async_cancellation_kills_the_guest():
    async def main():
        async with Sandbox(timeout=60) as sandbox:
            task = asyncio.create_task(sandbox.run_command_async(["sleep", "31.4159"]))
            await asyncio.sleep(0.5)
            assert not gone("^sleep 31.4159", within=0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert gone("^sleep 31.4159")
            assert (await sandbox.run_command_async(["true"])).ok

    asyncio.run(main())


def test_async_timeout_kills_the_guest():
    async def main():
        with Sandbox(timeout=60) as sandbox:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sandbox.run_command_async(["sleep", "27.1828"]), 0.4)
            assert gone("^sleep 27.1828")

    asyncio.run(main())


def test_stream(sandbox):
    code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.25)\nraise ValueError"
    times, texts, result = [], "", None
    for event in sandbox.stream(code):
        if event.kind == "stdout":
            times.append(time.monotonic())
            texts += event.text
        elif event.kind == "result":
            result = event.result
    assert texts == result.stdout == "0\n1\n2\n" and result.exit_code == 1 and "ValueError" in result.stderr
    assert times[-1] - times[0] > 0.3


def test_stream_of_half_characters(sandbox):
    stream = sandbox.stream_command(["sh", "-c", r"printf '\303'; sleep 0.2; printf '\251'; printf '\377' >&2"])
    events = list(stream)
    assert "".join(e.text for e in events if e.kind == "stdout") == "é"
    assert "".join(e.text for e in events if e.kind == "stderr") == "\ufffd"
    assert b"".join(e.data for e in events if e.kind == "stderr") == b"\xff"
    assert stream.result.ok and events[-1].kind == "result"


def test_stream_that_is_left_ends_the_guest(sandbox):
    with sandbox.stream_command(["sh", "-c", "echo 1; exec sleep 16.1803"]) as stream:
        assert next(stream).data == b"1\n"
    assert gone("^sleep 16.1803")


def test_async_stream(sandbox):
    async def main():
        return [e.kind async for e in sandbox.stream_command(["sh", "-c", "echo 1; sleep 0.2; echo 2 >&2"])]

    assert asyncio.run(main()) == ["stdout", "stderr", "result"]


def test_close_ends_what_runs():
    sandbox = Sandbox(timeout=60)
    found = []
    thread = threading.Thread(target=lambda: found.append(sandbox.run_command(["sleep", "17.3205"])))
    thread.start()
    time.sleep(0.5)
    sandbox.close()
    thread.join(5)
    assert not thread.is_alive() and found[0].verdict == "cancelled" and gone("^sleep 17.3205")
    sandbox.close()
    with pytest.raises(ValueError, match="closed"):
        sandbox.run("1")


def test_fork(sandbox):
    assert sandbox.run_command(["true"]).ok
    run = sandbox.start_command(["sh", "-c", "sleep 0.5; echo parent"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = sandbox.run_command(["echo", "child"]).stdout
            try:
                run.wait()
            except SandboxError as e:
                text += str(e.code)
            with Sandbox() as own:
                text += own.run_command(["echo", "own"]).stdout
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        assert pipe.read() == "child\n64own\n"
    os.waitpid(child, 0)
    assert run.wait().stdout == "parent\n" and sandbox.run_command(["true"]).ok


def test_supervisor_that_is_killed_is_replaced():
    with Sandbox() as sandbox:
        sandbox.run_command(["true"])
        run = sandbox.start_command(["sleep", "5.4321"])
        pid = sandbox._lease.supervisor_pid()
        until = time.monotonic() + 10
        while gone("^sleep 5.4321$", 0.01) and time.monotonic() < until:  # before, it would be sent again
            pass
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxError) as caught:
            run.wait(5)
        assert caught.value.code == 70
        assert sandbox.run_command(["true"]).ok


def test_request_that_a_dying_supervisor_never_took_is_sent_again():
    with Sandbox() as sandbox:
        sandbox.run_command(["true"])
        pid = sandbox._lease.supervisor_pid()
        os.kill(pid, signal.SIGSTOP)
        run = sandbox.start_command(["echo", "hello"])
        threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
        assert run.wait(20).stdout == "hello\n"


def test_request_with_live_output_is_not():
    with Sandbox() as sandbox:
        sandbox.run_command(["true"])
        pid = sandbox._lease.supervisor_pid()
        os.kill(pid, signal.SIGSTOP)
        stream = sandbox.stream_command(["echo", "hello"])
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxError):
            list(stream)


def test_nothing_is_left():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with Sandbox() as sandbox:
            sandbox.run_command(["true"])
            list(sandbox.stream_command(["echo", "1"]))
            sandbox.start_command(["sleep", "9"])
    assert len(os.listdir("/proc/self/fd")) <= before


def test_close_inside_a_loop():
    async def main():
        sandbox = Sandbox(timeout=60)
        task = asyncio.create_task(sandbox.run_command_async(["sleep", "22.3606"]))
        stream = sandbox.stream_command(["sleep", "22.3606"])
        reader = asyncio.create_task(stream.__anext__())
        await asyncio.sleep(0.4)
        sandbox.close()
        assert (await asyncio.wait_for(task, 5)).verdict == "cancelled"
        assert (await asyncio.wait_for(reader, 5)).result.verdict == "cancelled"
        assert gone("^sleep 22.3606")

    asyncio.run(main())


def test_forgotten_sandboxes_close_the_supervisor():
    import gc
    sandbox = Sandbox()
    sandbox.run_command(["true"])
    sandbox.loop = sandbox  # only the garbage collector finds it
    del sandbox
    gc.collect()
    with Sandbox() as other:
        assert other.run_command(["true"]).ok


REMOVED_BESIDE = """
import os, sys, time
import cordon
top = sys.argv[1]
make = 'import os\\nos.chdir(os.environ["HOME"] if %r else ".")\\nfor i in range(12000):\\n    os.mkdir("d%%d" %% i)' % (sys.argv[2] == "home")
more = {"workspace": sys.argv[3] + ":overlay"} if sys.argv[2] == "workspace" else {}
with cordon.Sandbox(timeout=60, max_memory_mb=512, **more) as sandbox:
    first = sandbox.run_command(["python3", "-c", make])
    assert first.exit_code == 0, first
    assert sandbox.run_command(["echo", "next"]).stdout == "next\\n"
    until = time.monotonic() + 90
    while any(n.startswith(("cordon-guest-", "cordon-workspace-")) for n in os.listdir(top)) and time.monotonic() < until:
        time.sleep(0.05)
    assert os.listdir(top) == [], os.listdir(top)
    print(first.enforcement["tier"])
"""


@pytest.mark.parametrize("where", ["home", pytest.param("workspace", marks=pytest.mark.full_tier("an overlay"))])
def test_much_is_removed_beside_the_loop(where):
    """What a guest left goes when it is gone, also when that takes longer than the next run waits."""
    temp = pathlib.Path(tempfile.mkdtemp(prefix="cordon-beside-", dir="/var/tmp"))
    (temp / "tmp").mkdir()
    (temp / "project").mkdir()
    try:
        words = [sys.executable, "-c", REMOVED_BESIDE, str(temp / "tmp"), where, str(temp / "project")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=240,
                              env={**os.environ, "TMPDIR": str(temp / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path)})
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(temp, ignore_errors=True)
