"""Shell commands in a container.

This version of Cordon has no container backend yet: the interface is here, and ``execute`` says so with the
error a missing Docker gives. Nothing is ever run with less than a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Mapping, Optional, Tuple

from . import _settings
from .errors import SandboxError

__all__ = ["ExecutionResult", "SandboxConfig", "SandboxError", "SandboxExecutor"]


@dataclass
class SandboxConfig:
    """The container commands run in."""

    image: str = "cordon-sandbox:latest"
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
        _settings.duration("timeout", self.timeout)
        for name, allowed in _CHOICES:
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: {getattr(self, name)!r} is none of {', '.join(allowed)}")


_CHOICES: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("runtime", ("runc", "runsc")), ("network_mode", ("none", "bridge")), ("workspace_access", ("none", "ro", "rw")))


@dataclass
class ExecutionResult:
    """How a command ended."""

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

    async def execute(self, command: str, timeout: Optional[int] = None) -> ExecutionResult:
        """Runs one command; a time limit is a result with ``timed_out``."""
        if not isinstance(command, str):
            raise TypeError(f"command must be text, not {type(command).__name__}")
        if timeout is not None:
            _settings.duration("timeout", timeout)
        raise SandboxError("Docker is not running", code=69, stage="docker",
                           hint="this version has no container backend; cordon.Sandbox runs behind the native wall")

    async def cleanup(self) -> None:
        """Removes what the executor keeps; it keeps nothing."""
