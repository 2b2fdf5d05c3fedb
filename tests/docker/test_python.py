"""The Python package against the real engine: seeds 003 and 004."""

import asyncio
import logging

import pytest

from cordon import Sandbox
from cordon.executor import ExecutionResult, SandboxConfig, SandboxError, SandboxExecutor
from cordon.runner import DockerRunner, SecurityLevel, create_runner
from cordon.runner import SandboxConfig as RunnerConfig


def execute(command, timeout=None, environment=None, **config):
    async def main():
        executor = SandboxExecutor(SandboxConfig(**config), environment)
        try:
            return await executor.execute(command, timeout)
        finally:
            await executor.cleanup()
    return asyncio.run(main())


@pytest.mark.both
def test_seed_003_behaviours():
    assert execute("echo hello") == ExecutionResult(0, "hello\n", "", False)
    assert execute("exit 42").exit_code == 42
    assert execute("sleep 120", timeout=1).timed_out is True
    result = execute("rm -rf --no-preserve-root / 2>&1")
    assert result.exit_code != 0 and "Read-only" in result.stdout
    assert execute("sudo whoami").exit_code != 0


def test_seed_003_options(folder):
    assert execute("echo $API_KEY", environment={"API_KEY": "k"}).stdout == "k\n"
    (folder / "in").write_text("in\n")
    assert execute("cat in; echo out >out", workspace=str(folder)).stdout == "in\n"
    assert (folder / "out").read_text() == "out\n"
    assert "Read-only" in execute("touch x", workspace=str(folder), workspace_access="ro").stderr
    assert execute("pwd", workspace=str(folder), workspace_access="none").stdout == "/home/sandbox\n"
    result = execute("python3 -c 'x = bytearray(300 << 20)'", memory_limit="64m")
    assert result.exit_code == 125 and not result.timed_out


def test_seed_003_errors(monkeypatch):
    with pytest.raises(SandboxError, match="^Image not found"):
        execute("true", image="no-such-image:1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    with pytest.raises(SandboxError, match="^Docker is not running$"):
        execute("true")


def test_many_at_once():
    async def main():
        executor = SandboxExecutor(SandboxConfig())
        found = await asyncio.gather(*[executor.execute(f"echo {i}") for i in range(6)])
        await executor.cleanup()
        return [r.stdout for r in found]
    assert asyncio.run(main()) == [f"{i}\n" for i in range(6)]


def test_cleanup_ends_what_runs(engine):
    async def main():
        executor = SandboxExecutor(SandboxConfig())
        task = asyncio.create_task(executor.execute("sleep 100"))
        await asyncio.to_thread(engine.wait_running, 1)
        await executor.cleanup()
        assert (await task).exit_code == 130
    asyncio.run(main())
    engine.wait_for(0)


@pytest.mark.both
def test_create_runner_takes_docker(caplog):
    with caplog.at_level(logging.WARNING), create_runner(SecurityLevel.STRICT) as runner:
        assert type(runner) is DockerRunner
        result = runner.execute("import math\nresult = [math.sqrt(n) for n in numbers]", {"numbers": (4, 9)})
        assert result.success and result.result == [2.0, 3.0]
        assert result.execution.enforcement["backend"] == "docker"
        result = runner.execute("import os", {})
        assert not result.success and "blocked" in result.error
    assert "Docker unavailable" not in caplog.text


def test_docker_runner_limits():
    with DockerRunner(RunnerConfig(timeout_seconds=20, max_memory_mb=50)) as runner:
        assert runner.execute("x = bytearray(200 << 20)", {}).error == "killed: Memory limit exceeded (50M)"
    with DockerRunner(RunnerConfig(timeout_seconds=1)) as runner:
        assert "time limit" in runner.execute("while True: pass", {}).error


def test_fallback(monkeypatch, caplog):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    with caplog.at_level(logging.WARNING), create_runner(SecurityLevel.STRICT) as runner:
        assert type(runner) is not DockerRunner
    assert "Docker unavailable, using subprocess for STRICT level" in caplog.messages
    with pytest.raises(SandboxError, match="Docker is not running"):
        DockerRunner()


def test_sandbox_with_a_backend():
    with Sandbox(timeout=20, backend="docker") as sandbox:
        run = sandbox.run("print(6 * 7)")
        assert run.stdout == "42\n" and run.enforcement["backend"] == "docker"
        events = list(sandbox.stream_command(["bash", "-c", "echo a; sleep 0.2; echo b"]))
        assert b"".join(e.data for e in events if e.kind == "stdout") == b"a\nb\n"
