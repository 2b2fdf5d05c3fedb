"""Shell commands in a container.

>>> import asyncio
>>> from cordon.executor import SandboxConfig, SandboxExecutor
>>> asyncio.run(SandboxExecutor(SandboxConfig()).execute("echo hello")).stdout    # doctest: +SKIP
'hello\n'

Every command has a container of its own, which is removed when it ends. Nothing is ever run with less than a
container: without Docker ``execute`` raises SandboxError.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any, Dict, Literal, Mapping, Optional, Tuple

from . import _docker, _settings
from .errors import SandboxError
from .result import shown
from .sandbox import Sandbox

__all__ = ["ExecutionResult", "SandboxConfig", "SandboxError", "SandboxExecutor"]


@dataclass
class SandboxConfig:
    """The container commands run in."""

    image: str = _docker.DEFAULT_IMAGE
    timeout: int = 60
    memory_limit: str = "512m"
    cpu_limit: float = 1.0
    runtime: Literal["runc", "runsc"] = "runc"
    network_mode: Literal["none", "bridge"] = "none"
    workspace_access: Literal["none", "ro", "rw"] = "rw"
    workspace: Optional[str] = None
    dns: Optional[str] = None
    http_proxy: Optional[str] = None
    seccomp_profile: Optional[str] = None
    apparmor_profile: Optional[str] = None

    def __post_init__(self) -> None:
        _settings.one_text("image", self.image)
        _settings.duration("timeout", self.timeout)
        _settings.size("memory_limit", self.memory_limit)
        if isinstance(self.cpu_limit, bool) or not isinstance(self.cpu_limit, (int, float)) or not 0 <= self.cpu_limit <= 1024:
            raise ValueError(f"cpu_limit: {self.cpu_limit!r} is not a number of cores")
        for name, allowed in _CHOICES:
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r} is none of {', '.join(allowed)}")


_CHOICES: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("runtime", ("runc", "runsc")), ("network_mode", ("none", "bridge")), ("workspace_access", ("none", "ro", "rw")))


@dataclass
class ExecutionResult:
    """How a command ended. Output that is not UTF-8 has its other bytes as ``\\xff``."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool


class SandboxExecutor:
    """Runs ``bash -c COMMAND`` in a container with the given variables."""

    def __init__(self, config: Optional[SandboxConfig] = None,
                 environment: Optional[Mapping[str, str]] = None) -> None:
        self.config = SandboxConfig() if config is None else config
        self.environment = dict(environment or {})
        _settings.environment(self.environment)
        self._sandbox = self._make()

    def _make(self) -> Sandbox:
        return Sandbox(level="standard", env=self.environment, **self._settings())

    async def execute(self, command: str, timeout: Optional[int] = None) -> ExecutionResult:
        """Runs one command; a time limit is a result with ``timed_out``."""
        if not isinstance(command, str):
            raise TypeError(f"command must be text, not {type(command).__name__}")
        if timeout is not None:
            _settings.duration("timeout", timeout)
        await asyncio.to_thread(_docker.check, self.config.image)
        run = await self._sandbox.run_command_async(["bash", "-c", command], timeout=timeout)
        return ExecutionResult(run.exit_code, *shown(run), run.timed_out)

    def _settings(self) -> Dict[str, Any]:
        config = self.config
        settings: Dict[str, Any] = {
            "backend": "docker", "image": config.image, "runtime": config.runtime, "network": config.network_mode,
            "memory_limit": config.memory_limit, "cpu_limit": round(config.cpu_limit * 100),
            "time_limit": config.timeout, "dns": config.dns, "http_proxy": config.http_proxy,
            "seccomp_profile": config.seccomp_profile, "apparmor_profile": config.apparmor_profile}
        if config.workspace is not None and config.workspace_access != "none":
            settings["workspace"] = f"{os.path.abspath(os.fspath(config.workspace))}:{config.workspace_access}"
        return settings

    async def cleanup(self) -> None:
        """Ends what still runs. The executor can be used again."""
        self._sandbox.close()
        self._sandbox = self._make()
