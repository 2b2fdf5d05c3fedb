"""The tests of seed 004, unchanged but for the imports, and its interface."""

import dataclasses
import logging

import pytest

from cordon import SandboxError
from cordon.runner import (DockerRunner, InProcessRunner, SandboxConfig, SandboxedRunner, SandboxResult, SecurityLevel,
                           SubprocessRunner, create_runner)


def test_memory_limit_enforced():
    runner = SubprocessRunner(SandboxConfig(max_memory_mb=50))
    result = runner.execute("x = 'a' * (100 * 1024 * 1024)", {})
    assert not result.success
    assert "MemoryError" in result.error or "killed" in result.error.lower()


def test_timeout_enforced():
    runner = SubprocessRunner(SandboxConfig(timeout_seconds=1))
    result = runner.execute("import time; time.sleep(10)", {})
    assert not result.success
    assert result.execution_time_ms < 2000


def test_network_blocked():
    runner = SubprocessRunner(SandboxConfig())
    result = runner.execute("import urllib.request; urllib.request.urlopen('http://example.com')", {})
    assert not result.success


def test_limits_without_module_control():
    """The same three with the modules allowed: it is the wall that holds, too."""
    runner = SubprocessRunner(SandboxConfig(timeout_seconds=1, allowed_modules=("time",)))
    result = runner.execute("import time; time.sleep(10)", {})
    assert result.error == "killed: Execution exceeded time limit (1s)" and result.execution_time_ms < 2000
    runner = SubprocessRunner(SandboxConfig(allowed_modules=("urllib",)))
    result = runner.execute("import urllib.request; urllib.request.urlopen('http://example.com')", {})
    assert not result.success and result.exception.type == "URLError"
    result = SubprocessRunner(SandboxConfig(max_memory_mb=50)).execute("x = 'a' * (100 * 1024 * 1024)", {})
    assert result.error == "killed: Memory limit exceeded (50M)" and result.memory_used_mb > 0


def test_interface():
    assert [level.value for level in SecurityLevel] == ["permissive", "standard", "strict"]
    assert SandboxConfig() == SandboxConfig.for_level(SecurityLevel.STANDARD)
    assert SandboxConfig.for_level(SecurityLevel.STRICT) == SandboxConfig(
        SecurityLevel.STRICT, 10.0, 256, ("math", "statistics", "json"))
    assert SandboxConfig.for_level(SecurityLevel.PERMISSIVE) == SandboxConfig(
        SecurityLevel.PERMISSIVE, 60.0, 1024, ("pandas", "math", "statistics", "json", "numpy", "datetime"))
    assert [f.name for f in dataclasses.fields(SandboxResult)][:7] == [
        "success", "result", "stdout", "stderr", "error", "execution_time_ms", "memory_used_mb"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        SandboxConfig().max_memory_mb = 1


def test_create_runner(caplog):
    assert type(create_runner()) is SubprocessRunner
    assert type(create_runner(SecurityLevel.PERMISSIVE)) is InProcessRunner
    with caplog.at_level(logging.WARNING):
        with create_runner(SecurityLevel.STRICT) as runner:
            assert isinstance(runner, SandboxedRunner)
            result = runner.execute("import math\nmath.sqrt(16)", {})
    assert result.result == 4.0 and result.execution.enforcement["backend"] == "native"
    assert "Docker unavailable, using subprocess for STRICT level" in caplog.messages
    with pytest.raises(SandboxError, match="Docker is not running"):
        DockerRunner(SandboxConfig())
