"""Python values in, a Python value out, under a security level.

>>> from cordon.runner import create_runner
>>> with create_runner() as runner:
...     runner.execute("total = sum(numbers)\\ntotal * 2", {"numbers": [1, 2, 3]}).result
12
"""

from __future__ import annotations

import importlib.util
import io
import logging
import marshal
import os
import pathlib
import secrets
import shutil
import tempfile
import threading
import zipfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from . import _docker, _settings
from .errors import SandboxError
from .guest.decode import DecodeError, decode
from .guest.encode import MAX_BYTES, EncodeError, encode
from .result import ExecutionResult
from .sandbox import Sandbox

__all__ = ["DockerRunner", "GuestException", "InProcessRunner", "SandboxConfig", "SandboxError", "SandboxResult",
           "SandboxedRunner", "SecurityLevel", "SubprocessRunner", "create_runner"]

logger = logging.getLogger("cordon.runner")

MAX_OUTPUT = 16 * 1024 * 1024
_ARCHIVE = ".cordon-run.zip"
_PARTS = ("__init__", "encode", "decode", "guard", "execute")


class SecurityLevel(Enum):
    """How much time, memory and how many modules code gets; the wall is the same."""

    PERMISSIVE = "permissive"
    STANDARD = "standard"
    STRICT = "strict"


@dataclass(frozen=True)
class SandboxConfig:
    """What a runner's code may use. ``data_dirs`` are folders it may read, at their own paths."""

    security_level: SecurityLevel = SecurityLevel.STANDARD
    timeout_seconds: float = 30.0
    max_memory_mb: int = 512
    allowed_modules: Tuple[str, ...] = ("pandas", "math", "statistics", "json")
    data_dirs: Tuple[str, ...] = ()

    @classmethod
    def for_level(cls, level: SecurityLevel) -> "SandboxConfig":
        """The configuration of a level."""
        level = SecurityLevel(level)
        timeout, memory, modules = _LEVELS[level]
        return cls(security_level=level, timeout_seconds=timeout, max_memory_mb=memory, allowed_modules=modules)

    @classmethod
    def from_environment(cls, environ: Optional[Mapping[str, str]] = None) -> "SandboxConfig":
        """The level CORDON_RUNNER_LEVEL names, changed by CORDON_RUNNER_TIMEOUT_SECONDS,
        CORDON_RUNNER_MAX_MEMORY_MB, CORDON_RUNNER_ALLOWED_MODULES and CORDON_RUNNER_DATA_DIRS (commas)."""
        found = os.environ if environ is None else environ
        config = cls.for_level(SecurityLevel(found.get("CORDON_RUNNER_LEVEL", "standard")))
        changes: Dict[str, Any] = {}
        kinds: Tuple[Tuple[str, Callable[[str], Any]], ...] = (
            ("timeout_seconds", _seconds), ("max_memory_mb", int), ("allowed_modules", _words), ("data_dirs", _words))
        for name, kind in kinds:
            text = found.get("CORDON_RUNNER_" + name.upper())
            if text is not None:
                try:
                    changes[name] = kind(text)
                except ValueError:
                    raise ValueError(f"CORDON_RUNNER_{name.upper()}: {text!r} is no such number") from None
        return replace(config, **changes)


def _seconds(text: str) -> float:
    _settings.duration("timeout_seconds", float(text))
    return float(text)


def _words(text: str) -> Tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


_LEVELS = {
    SecurityLevel.PERMISSIVE: (60.0, 1024, ("pandas", "math", "statistics", "json", "numpy", "datetime")),
    SecurityLevel.STANDARD: (30.0, 512, ("pandas", "math", "statistics", "json")),
    SecurityLevel.STRICT: (10.0, 256, ("math", "statistics", "json")),
}


@dataclass(frozen=True)
class GuestException:
    """An exception of the guest's code, as text: type, message, and traceback of its own lines."""

    type: str
    message: str
    traceback: str


@dataclass(frozen=True)
class SandboxResult:
    """How a piece of code ended.

    ``result`` is the value of the variable ``result``, else of the last expression. ``note`` is set when
    that value could not travel: ``result`` is then its ``repr``. ``execution`` has every field of a run.
    """

    success: bool
    result: Any
    stdout: str
    stderr: str
    error: Optional[str]
    execution_time_ms: float
    memory_used_mb: Optional[float]
    note: Optional[str] = None
    exception: Optional[GuestException] = None
    execution: Optional[ExecutionResult] = field(default=None, repr=False)


class SandboxedRunner(ABC):
    """What all runners can do."""

    @abstractmethod
    def __init__(self, config: SandboxConfig) -> None:
        """Initialize with configuration."""

    @abstractmethod
    def execute(self, code: str, context: Dict[str, Any]) -> SandboxResult:
        """Runs ``code`` with the variables of ``context``."""

    @abstractmethod
    def cleanup(self) -> None:
        """Releases what the runner holds."""

    def __enter__(self) -> "SandboxedRunner":
        return self

    def __exit__(self, *args: Any) -> None:
        self.cleanup()


class SubprocessRunner(SandboxedRunner):
    """The native wall: a process of its own behind namespaces, filters and limits."""

    def __init__(self, config: Optional[SandboxConfig] = None, **settings: Any) -> None:
        config = SandboxConfig() if config is None else config
        if not isinstance(config, SandboxConfig):
            raise TypeError(f"config must be a SandboxConfig, not {type(config).__name__}")
        modules = _settings.modules("allowed_modules", config.allowed_modules) or []
        folders = [os.path.abspath(folder) for folder in _settings.strings("data_dirs", config.data_dirs)]
        self.config = config
        self._rules = f"only;{','.join(modules)};"
        self._sandbox = Sandbox(timeout=config.timeout_seconds, max_memory_mb=config.max_memory_mb,
                                max_output_bytes=MAX_OUTPUT, level=SecurityLevel(config.security_level).value,
                                allow_read=folders or None,
                                max_file_size=MAX_BYTES, **settings)

    def execute(self, code: str, context: Optional[Dict[str, Any]] = None) -> SandboxResult:
        """Runs ``code`` with the variables of ``context``. Code that fails, is refused or is killed is a
        result with ``success`` False; an exception means that the call was wrong or Cordon failed."""
        with _Outcome() as outcome:
            run = self._sandbox.start_command(["python3", "-I", _ARCHIVE], files={_ARCHIVE: _archive()},
                                              stdin=self._encoded(code, context, outcome), allow_write=[outcome.path])
            return _result(run.wait(), outcome)

    async def execute_async(self, code: str, context: Optional[Dict[str, Any]] = None) -> SandboxResult:
        """As ``execute``, for asyncio."""
        with _Outcome() as outcome:
            run = self._sandbox.start_command(["python3", "-I", _ARCHIVE], files={_ARCHIVE: _archive()},
                                              stdin=self._encoded(code, context, outcome), allow_write=[outcome.path])
            return _result(await run, outcome)

    def _encoded(self, code: str, context: Optional[Mapping[str, Any]], outcome: "_Outcome") -> bytes:
        _settings.source(code)
        context = {} if context is None else context
        if not isinstance(context, Mapping):
            raise TypeError(f"context must map names to values, not be {type(context).__name__}")
        for name in context:
            if not isinstance(name, str):
                raise TypeError(f"context: the name {name!r} is not text")
        try:
            request = encode({"code": code, "context": dict(context), "rules": self._rules})
        except EncodeError as e:
            raise _unfit(context, e) from None
        head = encode({"outcome": outcome.path, "max_bytes": MAX_BYTES})
        return b"".join((len(head).to_bytes(4, "little"), head, request))

    def stats(self) -> Any:
        """See ``Sandbox.stats``."""
        return self._sandbox.stats()

    def cleanup(self) -> None:
        self._sandbox.close()


class InProcessRunner(SubprocessRunner):
    """Keeps the name of the level for development. Nothing runs in the caller's process: it is the native
    wall at level ``permissive``."""

    def __init__(self, config: Optional[SandboxConfig] = None) -> None:
        super().__init__(SandboxConfig.for_level(SecurityLevel.PERMISSIVE) if config is None else config)


class DockerRunner(SubprocessRunner):
    """The same in a container of a Docker engine, behind the same configuration. The code runs with the image's
    Python. SandboxError where there is no engine or no image."""

    def __init__(self, config: Optional[SandboxConfig] = None, image: str = _docker.DEFAULT_IMAGE,
                 runtime: Optional[str] = None) -> None:
        _docker.check(_settings.one_text("image", image))
        super().__init__(SandboxConfig.for_level(SecurityLevel.STRICT) if config is None else config,
                         backend="docker", image=image, runtime=runtime)


def create_runner(level: SecurityLevel = SecurityLevel.STANDARD,
                  config: Optional[SandboxConfig] = None) -> SandboxedRunner:
    """The runner of a level. ``STRICT`` prefers a container and falls back, with a warning, to the native
    wall with the limits of that level."""
    level = SecurityLevel(level)
    if config is None:
        config = SandboxConfig.for_level(level)
    if level == SecurityLevel.STRICT:
        if _docker.available():
            return DockerRunner(config)
        logger.warning("Docker unavailable, using subprocess for STRICT level")
        return SubprocessRunner(config)
    if level == SecurityLevel.STANDARD:
        return SubprocessRunner(config)
    return InProcessRunner(config)


# ---- the way in and out -------------------------------------------------------------------------

_archive_lock = threading.Lock()
_archive_data: Optional[bytes] = None


def _archive() -> bytes:
    """The guest's side as one file Python can run; with byte code for an interpreter like this one."""
    global _archive_data
    with _archive_lock:
        if _archive_data is None:
            folder = pathlib.Path(__file__).parent / "guest"
            parts = {f"cordon_guest/{name}": (folder / f"{name}.py").read_bytes() for name in _PARTS}
            parts["__main__"] = b"import sys\nfrom cordon_guest.execute import main\nmain(sys.path[0])\n"
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for name, source in parts.items():
                    archive.writestr(name + ".py", source)
                    archive.writestr(name + ".pyc", _byte_code(name, source))
            _archive_data = buffer.getvalue()
        return _archive_data


def _byte_code(name: str, source: bytes) -> bytes:
    """A hash-based pyc that is not checked against its source (PEP 552)."""
    code = compile(source, f"<{name}>", "exec", dont_inherit=True)
    digest: Any = importlib.util.source_hash(source)
    return b"".join((importlib.util.MAGIC_NUMBER, b"\1\0\0\0", digest, marshal.dumps(code)))


class _Outcome:
    """A file for what the guest has to say. We keep it open from before the guest exists: nothing the
    guest does to names can lead us to another file. It can write there and nowhere else on the host, and
    no more than the largest file it may write."""

    def __enter__(self) -> "_Outcome":
        self._folder = tempfile.mkdtemp(prefix="cordon-")
        try:
            self.path = os.path.join(self._folder, secrets.token_hex(16))
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if os.geteuid() == 0:  # in tier landlock a guest of root's is somebody else; the name is a secret
                os.fchmod(self._fd, 0o666)
                os.chmod(self._folder, 0o711)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
        shutil.rmtree(self._folder, ignore_errors=True)

    def read(self) -> Dict[str, Any]:
        size = os.fstat(self._fd).st_size
        if size > MAX_BYTES:
            raise DecodeError(f"larger than {MAX_BYTES} bytes")
        found = decode(os.pread(self._fd, size, 0))
        if type(found) is not dict or type(found.get("success")) is not bool:
            raise DecodeError("no outcome")
        return found


def _unfit(context: Mapping[str, Any], e: EncodeError) -> Exception:
    """The exception that names what cannot travel; all of it together may be what is too much."""
    for name, value in context.items():
        try:
            encode(value)
        except EncodeError as own:
            return TypeError(f"context[{name!r}]: {own}")
    return ValueError(f"context: {e}")


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name, "")
    return value if type(value) is str else ""


def _result(ended: ExecutionResult, outcome: _Outcome) -> SandboxResult:
    fields: Dict[str, Any] = dict(stdout=ended.stdout, stderr=ended.stderr, execution_time_ms=ended.wall_ms,
                                  memory_used_mb=ended.peak_memory_bytes / 2 ** 20, execution=ended)
    if ended.verdict not in ("ok", "nonzero_exit"):
        why = ended.error or (f"signal {ended.signal}" if ended.signal else ended.verdict)
        return SandboxResult(success=False, result=None, error=f"killed: {why}", **fields)
    try:
        found = outcome.read()
    except DecodeError as e:
        why = ended.error or f"the code ended with status {ended.exit_code} and left no result"
        if os.fstat(outcome._fd).st_size:
            why = f"the result cannot be read: {e}"
        return SandboxResult(success=False, result=None, error=why, **fields)
    if not found["success"]:
        exception = GuestException(_text(found, "type"), _text(found, "message"), _text(found, "traceback"))
        return SandboxResult(success=False, result=None, error=_text(found, "error") or "failed",
                             exception=exception, **fields)
    if ended.verdict != "ok":
        return SandboxResult(success=False, result=None,
                             error=f"the code ended with status {ended.exit_code}", **fields)
    if "repr" in found:
        return SandboxResult(success=True, result=_text(found, "repr"), error=None, note=_text(found, "note"), **fields)
    return SandboxResult(success=True, result=found.get("value"), error=None, **fields)
