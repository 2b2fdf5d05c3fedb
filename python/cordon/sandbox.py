"""The sandbox: what guests may use, and the ways to run them."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _explain, _lib, _settings
from ._run import Run, Stream
from .errors import SandboxError
from .result import ExecutionResult

LEVELS = ("permissive", "standard", "strict")
BLOCKED_BY_DEFAULT = ("os", "subprocess", "shutil", "sys", "socket")
_SAMPLES = 4096
_LOOK_AT = 32  # runs that are held; from here on those that have ended give their descriptors back

Stdin = Union[None, str, bytes, int, Any]


class _DefaultFloat(float):
    """A default that a level or profile may replace; a value given by the caller is a plain float."""


class _DefaultInt(int):
    """As above."""


@dataclass(frozen=True)
class Stats:
    """What a sandbox has seen. Percentiles are over its last 4,096 runs; None before the first.

    The fields from ``prepared`` on are of the supervisor, which all sandboxes of a process share: runs
    that found a guest ready, runs whose guest was made from a template, runs that started from nothing
    though a guest could have been ready, guests that wait now, and the time from the request's arrival
    to the guest's own code over the last 512 runs of the first two kinds (None before the first)."""

    runs: int
    errors: int
    verdicts: Dict[str, int]
    wall_ms_p50: Optional[float]
    wall_ms_p99: Optional[float]
    peak_memory_bytes_p50: Optional[float]
    peak_memory_bytes_p99: Optional[float]
    prepared: int = 0
    spawned: int = 0
    cold: int = 0
    waiting: int = 0
    start_ms_p50: Optional[float] = None
    start_ms_p99: Optional[float] = None


def _percentile(values: Sequence[float], percent: float) -> Optional[float]:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else None


_sandboxes: "weakref.WeakSet[Sandbox]" = weakref.WeakSet()


def _after_fork() -> None:
    """A child has none of the parent's runs, and locks that other threads held at the fork stay held for ever."""
    for sandbox in list(_sandboxes):
        sandbox._lock = threading.Lock()
        sandbox._active = weakref.WeakSet()


os.register_at_fork(after_in_child=_after_fork)


class Sandbox:
    """Runs code that nobody trusts.

    >>> from cordon import Sandbox
    >>> with Sandbox(timeout=2, filesystem={"data.txt": "42"}) as sandbox:
    ...     sandbox.run('print(int(open("data.txt").read()) + 1)').stdout
    '43\\n'

    ``timeout`` seconds of wall clock, ``max_memory_mb`` for the whole process tree and
    ``max_output_bytes`` per stream hold for every run. A ``level`` or ``profile`` (or a ``config`` file)
    brings limits of its own, which replace those defaults unless they are given.

    ``allowed_imports``  the modules Python source may import; without it, here and in the configuration,
                         all but os, subprocess, shutil, sys and socket. A convenience on top of the wall, not a part of it.
    ``blocked_imports``  modules it may not import, whatever allows them
    ``filesystem``       files for the working directory: ``{"data.csv": "a,b", "sub/x.bin": b"…"}``
    ``env``              ``{"NAME": "value"}``; nothing of the caller's environment is inherited
    ``allow_network``    None or False: none; names and patterns; True: every public name
    ``mounts``           ``"SRC:DST[:rw]"`` or ``(src, dst, "rw")``
    ``preload``          modules most runs use, for a library that keeps warm interpreters; others start
                         them cold, with the same results
    ``discover``         read the user's and the project's cordon.toml and the CORDON_* variables, too
    ``**settings``       any other key of cordon.toml: ``processes=16``, ``disk_limit="64M"``

    One sandbox serves any number of threads and tasks at once; each run has a guest of its own.
    """

    def __init__(self, timeout: Union[float, str] = _DefaultFloat(5.0), max_memory_mb: int = _DefaultInt(256),
                 max_output_bytes: int = _DefaultInt(1_000_000), allowed_imports: Optional[Sequence[str]] = None,
                 filesystem: Optional[Mapping[str, Union[str, bytes]]] = None, *,
                 level: Any = None, profile: Optional[str] = None,
                 config: Union[None, str, "os.PathLike[str]"] = None,
                 env: Union[None, Mapping[str, Optional[str]], Sequence[str]] = None,
                 allow_network: Union[None, bool, str, Sequence[str]] = None,
                 mounts: Optional[Sequence[Any]] = None, preload: Sequence[str] = (),
                 blocked_imports: Optional[Sequence[str]] = None, discover: bool = False, **settings: Any) -> None:
        self._lease = _lib.Lease()
        self._lock = threading.Lock()
        self._active: "weakref.WeakSet[Run]" = weakref.WeakSet()  # a run that is dropped ends
        self._look_at = _LOOK_AT
        self._closed = False
        self._verdicts: Counter[str] = Counter()
        self._errors = 0
        self._wall: Deque[float] = deque(maxlen=_SAMPLES)
        self._memory: Deque[float] = deque(maxlen=_SAMPLES)

        self._profile = _profile(level, profile)
        self._config = None if config is None else os.path.abspath(os.fspath(config))
        self._discover = bool(discover)
        self._preload = _settings.modules("preload", preload) or []
        self._allowed = _settings.modules("allowed_imports", allowed_imports)
        self._blocked = _settings.modules("blocked_imports", blocked_imports)
        self._files = _settings.files(filesystem)
        self._settings: List[Tuple[str, str]] = []
        self.timeout = self._limit("timeout", "time_limit", timeout)
        self.max_memory_mb = self._limit("max_memory_mb", "memory_limit", max_memory_mb)
        self.max_output_bytes = self._limit("max_output_bytes", "max_output", max_output_bytes)
        self._settings += [("env", pair) for pair in _settings.environment(env)]
        self._settings += list(_settings.network(allow_network))
        self._settings += [("preload", module) for module in self._preload]
        self._settings += [("mount", mount) for mount in _settings.mounts(mounts)]
        for name, value in settings.items():
            if name not in _settings.NAMES:
                raise TypeError(f"Sandbox() got an unexpected keyword argument {name!r}")
            self._settings += list(_settings.setting(name, value))
        _sandboxes.add(self)
        self._finalizer = weakref.finalize(self, _lib.Lease.release, self._lease)

    def _limit(self, name: str, key: str, value: Any) -> Any:
        if isinstance(value, (_DefaultFloat, _DefaultInt)):
            if self._profile or self._config or self._discover:
                return None
            value = float(value) if isinstance(value, _DefaultFloat) else int(value)
        if name == "timeout":
            text = _settings.duration(name, value)
        elif name == "max_memory_mb":
            text = f"{_settings.whole(name, value, 1)}M"
        else:
            text = str(_settings.whole(name, value, 0))
        self._settings.append((key, text))
        return value

    # -- requests -------------------------------------------------------------------------------

    def _imports(self) -> List[Tuple[str, str]]:
        """Module control of Python source. What is allowed, here or in the configuration, replaces the default block."""
        # an empty list allows nothing, and one that is not set allows everything
        allowed = self._allowed if self._allowed is None else self._allowed or ["__future__"]
        is_default = allowed is None and not ((self._config or self._discover) and _explain.allows_imports(
            self._config, self._profile, self._discover))
        blocked = [*(BLOCKED_BY_DEFAULT if is_default else ()), *(self._blocked or ())]
        return [("allowed_imports", name) for name in allowed or ()] + [("blocked_imports", name) for name in blocked]

    def _request(self, stdin: Stdin, streamed: bool, timeout: Any, env: Any,
                 files: Optional[Mapping[str, Union[str, bytes]]]) -> _lib.Request:
        request = _lib.Request()
        if self._profile:
            request.set_profile(self._profile)
        if self._config:
            request.set_config(self._config)
        for name, value in self._settings:
            request.set(name, value)
        if timeout is not None:
            request.set("time_limit", _settings.duration("timeout", timeout))
        for pair in _settings.environment(env):
            request.set("env", pair)
        for name, data in {**dict(self._files), **dict(_settings.files(files))}.items():
            request.add_file(name, data)
        if isinstance(stdin, str):
            request.set_stdin(stdin.encode())
        elif isinstance(stdin, (bytes, bytearray, memoryview)):
            request.set_stdin(bytes(stdin))
        elif stdin is not None:
            request.set_stdin_fd(_descriptor(stdin))
        request.set_flags(_lib.FLAG_BRIEF_JSON | (_lib.FLAG_STREAM if streamed else 0) |
                          (_lib.FLAG_DISCOVER if self._discover else 0))
        return request

    def _start(self, request: _lib.Request, streamed: bool) -> Run:
        with self._lock:
            if self._closed:
                raise ValueError("this sandbox is closed")
            run = Run(self._lease, request, streamed, self._ended)
            self._active.add(run)
            held = list(self._active) if len(self._active) >= self._look_at else []
        if held:
            ended = sum(one._collect() for one in held)
            self._look_at = max(_LOOK_AT, 2 * (len(held) - ended))
        return run

    def _ended(self, run: Run, outcome: Union[ExecutionResult, SandboxError]) -> None:
        with self._lock:
            self._active.discard(run)
            if isinstance(outcome, SandboxError):
                self._errors += outcome.code != 130
                return
            self._verdicts[outcome.verdict] += 1
            self._wall.append(outcome.wall_ms)
            self._memory.append(outcome.peak_memory_bytes)

    # -- source text ----------------------------------------------------------------------------

    def start(self, code: str, language: str = "python", *, stdin: Stdin = None, args: Sequence[str] = (),
              timeout: Union[None, float, str] = None,
              env: Union[None, Mapping[str, Optional[str]], Sequence[str]] = None,
              files: Optional[Mapping[str, Union[str, bytes]]] = None, stream: bool = False) -> Run:
        """Starts source text and returns at once. The run ends when nobody holds it any more."""
        if not isinstance(language, str):
            raise TypeError(f"language must be text, not {type(language).__name__}")
        source = _settings.source(code)
        request = self._request(stdin, stream, timeout, env, files)
        for name, value in self._imports():
            request.set(name, value)
        request.set_source(language, source, _settings.strings("args", args))
        return self._start(request, stream)

    def run(self, code: str, language: str = "python", **options: Any) -> ExecutionResult:
        """Runs source text and waits for its end. Options are those of ``start``: ``stdin``, ``args``,
        ``timeout``, ``env``, ``files`` for this run only.

        How the code ended is in the result; an exception means that Cordon or this host failed
        (``SandboxError``) or that the call was wrong (``TypeError``, ``ValueError``).
        """
        return self.start(code, language, **options).wait()

    async def run_async(self, code: str, language: str = "python", **options: Any) -> ExecutionResult:
        """As ``run``, for asyncio. Cancelling the task ends the guest."""
        return await self.start(code, language, **options)

    def stream(self, code: str, language: str = "python", **options: Any) -> Stream:
        """Runs source text and gives its output as it comes, for ``for`` and for ``async for``."""
        return self.start(code, language, stream=True, **options).stream()

    # -- commands -------------------------------------------------------------------------------

    def start_command(self, argv: Sequence[str], stdin: Stdin = None, *, timeout: Union[None, float, str] = None,
                      env: Union[None, Mapping[str, Optional[str]], Sequence[str]] = None,
                      files: Optional[Mapping[str, Union[str, bytes]]] = None,
                      allow_write: Sequence[str] = (), stream: bool = False) -> Run:
        """Starts a command and returns at once. The run ends when nobody holds it any more."""
        words = _settings.command(argv)
        request = self._request(stdin, stream, timeout, env, files)
        request.set_argv(words)
        for path in _settings.strings("allow_write", allow_write):
            request.set("allow_write", path)
        return self._start(request, stream)

    def run_command(self, argv: Sequence[str], stdin: Stdin = None, **options: Any) -> ExecutionResult:
        """Runs a command, given as a list of words. ``stdin`` is text, bytes, a descriptor or a file.

        >>> from cordon import Sandbox
        >>> with Sandbox() as sandbox:
        ...     sandbox.run_command(["tr", "a-z", "A-Z"], stdin="hello").stdout
        'HELLO'
        """
        return self.start_command(argv, stdin, **options).wait()

    async def run_command_async(self, argv: Sequence[str], stdin: Stdin = None, **options: Any) -> ExecutionResult:
        """As ``run_command``, for asyncio."""
        return await self.start_command(argv, stdin, **options)

    def stream_command(self, argv: Sequence[str], stdin: Stdin = None, **options: Any) -> Stream:
        """Runs a command and gives its output as it comes."""
        return self.start_command(argv, stdin, stream=True, **options).stream()

    # -- the sandbox itself ---------------------------------------------------------------------

    def stats(self) -> Stats:
        """Runs, verdicts, and percentiles of time and memory since this sandbox was made; how the
        supervisor's prepared guests were used."""
        with self._lock:
            seen = (sum(self._verdicts.values()), self._errors, dict(self._verdicts),
                    _percentile(self._wall, 50), _percentile(self._wall, 99),
                    _percentile(self._memory, 50), _percentile(self._memory, 99))
            if self._closed or not seen[0]:
                return Stats(*seen)
            found = self._lease.stats()
        return Stats(*seen, found.hits, found.spawned, found.cold, found.waiting,
                     found.start_p50_ns / 1e6 or None, found.start_p99_ns / 1e6 or None)

    def close(self) -> None:
        """Ends every run of this sandbox, and gives its share of the supervisor back. May be called twice."""
        with self._lock:
            self._closed = True
            active = list(self._active)
        try:
            for run in active:
                with contextlib.suppress(SandboxError):
                    run.cancel()
            for run in active:
                with contextlib.suppress(SandboxError, ValueError):  # how it ended is not asked here
                    run.wait()
        finally:
            for run in active:
                run._free()
            self._finalizer()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> "Sandbox":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


def _profile(level: Any, profile: Optional[str]) -> Optional[str]:
    if level is None:
        if profile is not None and not isinstance(profile, str):
            raise TypeError(f"profile must be text, not {type(profile).__name__}")
        return profile
    if profile is not None:
        raise ValueError("level and profile exclude each other")
    name = getattr(level, "value", level)  # an enum's member is as good as its text
    if not isinstance(name, str):
        raise TypeError(f"level must be text, not {type(level).__name__}")
    if name not in LEVELS:
        raise ValueError(f"unknown level {name!r}; known are {', '.join(LEVELS)}")
    return name


def _descriptor(stdin: Any) -> int:
    try:
        fd = stdin if type(stdin) is int else stdin.fileno()
    except (AttributeError, OSError):
        raise TypeError(f"stdin must be text, bytes, a descriptor or a file, not {type(stdin).__name__}") from None
    if not 0 <= fd < 2 ** 31:  # a C int: the rest would be cut off
        raise ValueError(f"stdin: {fd} is no descriptor")
    return fd
