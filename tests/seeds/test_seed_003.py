"""Seed 003: its errors, and its table of behaviours and verify list behind the native wall. (The same rows in
a container belong to the container backend.)"""

import asyncio

import pytest

from cordon import Sandbox
from cordon.executor import ExecutionResult, SandboxConfig, SandboxError, SandboxExecutor


@pytest.fixture(scope="module")
def bash():
    with Sandbox(timeout=5) as sandbox:
        yield lambda command, **options: sandbox.run_command(["bash", "-c", command], **options)


def test_interface():
    config = SandboxConfig()
    assert (config.image, config.timeout, config.memory_limit, config.cpu_limit, config.runtime, config.network_mode,
            config.workspace_access) == ("cordon-sandbox:latest", 60, "512m", 1.0, "runc", "none", "rw")
    assert ExecutionResult(0, "", "", False).timed_out is False
    for wrong in ({"runtime": "lxc"}, {"network_mode": "host"}, {"workspace_access": "x"}, {"timeout": -1}):
        with pytest.raises(ValueError):
            SandboxConfig(**wrong)


def test_docker_not_running(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    with pytest.raises(SandboxError) as caught:
        asyncio.run(SandboxExecutor(SandboxConfig(), {"KEY": "value"}).execute("echo hello"))
    assert str(caught.value) == "Docker is not running"


@pytest.mark.full_tier("a read-only root")
def test_behaviours(bash):
    result = bash("echo hello")
    assert result.exit_code == 0 and result.stdout == "hello\n"
    assert bash("exit 42").exit_code == 42
    assert bash("sleep 120", timeout=1).timed_out is True
    assert bash("rm -rf /").exit_code != 0
    result = bash("rm -rf --no-preserve-root / 2>&1")
    assert result.exit_code != 0 and "Read-only" in result.stdout
    assert bash("sudo whoami").exit_code != 0


@pytest.mark.full_tier("a user, /tmp and home of its own")
@pytest.mark.parametrize("name, command, status, output", [
    ("user_is_sandbox", "id -un", 0, "sandbox\n"),
    ("user_not_root", "test $(id -u) != 0", 0, ""),
    ("sudo_blocked", "sudo -n true 2>/dev/null && echo yes", None, ""),
    ("etc_readonly", "touch /etc/x 2>/dev/null", 1, ""),
    ("usr_readonly", "touch /usr/x 2>/dev/null", 1, ""),
    ("tmp_writable", "echo 1 > /tmp/x && cat /tmp/x", 0, "1\n"),
    ("home_writable", "echo 1 > /home/sandbox/x && cat ~/x", 0, "1\n"),
    ("python_available", "python3 -c 'print(1)'", 0, "1\n"),
    ("bash_available", "echo ${BASH_VERSION:+bash}", 0, "bash\n"),
    ("exit_code_preserved", "exit 7", 7, ""),
])
def test_verify(bash, name, command, status, output):
    result = bash(command)
    assert result.stdout == output
    assert result.exit_code == status if status is not None else result.exit_code != 0
