"""Grading: tests or cases against code that nobody trusts.

>>> from cordon import Sandbox, TestRunner
>>> runner = TestRunner(Sandbox(timeout=10))
>>> result = runner.run_tests("def add(a, b): return a + b", "assert add(1, 2) == 3")
>>> result.passed, result.failed
(1, 0)

Tests and submission run in two sandboxes and exchange plain data only, so that a submission can neither see
the tests nor forge their results. The work is done by the ``cordon`` program, which is started for each call.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _explain, _lib, _settings
from .errors import SandboxError
from .sandbox import Sandbox

_FLAGS = {"seccomp_profile": "seccomp", "apparmor_profile": "apparmor", "allowed_imports": "allow-import",
          "blocked_imports": "block-import", "allow_domains": "allow-network", "allow_patterns": "allow-network"}
_KEYS_ONLY = {"scratch_size": "sandbox.filesystem", "scratch_inodes": "sandbox.filesystem",
              "allow_filesystem": "sandbox"}
MODES = ("strict", "in-process")


@dataclass(frozen=True)
class TestResult:
    """What tests found. Each of ``details`` is a dict with ``name``, ``status`` (passed, failed, error, skipped,
    not_run), ``message``, ``runtime_ms`` and ``stdout``.

    ``errors`` counts tests that ended in an error, and one more if something kept the suite as a whole from
    running (a submission that does not parse, exits or is killed): ``error`` then says what.
    """

    __test__ = False  # not a class of tests, whatever a test runner thinks of its name

    passed: int
    failed: int
    errors: int
    details: List[Dict[str, Any]]
    total_runtime_ms: float
    skipped: int = 0
    not_run: int = 0
    error: Optional[str] = None
    mode: str = "strict"

    @property
    def all_passed(self) -> bool:
        return bool(self.details) and self.passed == len(self.details) and self.error is None


class TestRunner:
    """Runs tests against user code under the limits of a sandbox; the time limit covers the suite.

    ``mode``       ``"strict"``: two sandboxes; ``"in-process"``: one interpreter for both, for tests that need
                   the user code's own objects. Weaker: user code that wants to can then forge results.
    ``entry``      names the tests take from the user code even where Python has one like it
    ``copy_back``  functions that return something change their arguments, too, and tests look at that
    ``doctest``    the test code is examples of a doctest
    """

    __test__ = False

    def __init__(self, sandbox: Optional[Sandbox] = None, *, mode: str = "strict", entry: Sequence[str] = (),
                 copy_back: bool = False, doctest: bool = False) -> None:
        sandbox = Sandbox() if sandbox is None else sandbox
        if not isinstance(sandbox, Sandbox):
            raise TypeError(f"sandbox must be a Sandbox, not {type(sandbox).__name__}")
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        self.sandbox = sandbox
        self._words = [*(word for name in _settings.strings("entry", entry) for word in ("--entry", name)),
                       *(["--copy-back"] if copy_back else []), *(["--doctest"] if doctest else []),
                       *(["--in-process"] if mode == "in-process" else [])]

    def run_tests(self, user_code: str, test_code: str) -> TestResult:
        """Runs ``test_code`` against ``user_code``. How the code did is in the result, whatever it did; an
        exception means that Cordon or this host failed, or that the call was wrong."""
        with self._call(user_code, test_code) as call:
            return _test_result(call.run())

    async def run_tests_async(self, user_code: str, test_code: str) -> TestResult:
        """As ``run_tests``, for asyncio. Cancelling the task ends the guests."""
        with self._call(user_code, test_code) as call:
            return _test_result(await call.run_async())

    def _call(self, user_code: str, test_code: str) -> "_Call":
        call = _Call(self.sandbox)
        call.words += [*self._words, "--tests", call.file(_settings.source(test_code)),
                       call.file(_settings.source(user_code))]
        return call


def _test_result(report: Mapping[str, Any]) -> TestResult:
    return TestResult(report["passed"], report["failed"], report["errors"], report["details"],
                      report["total_runtime_ms"], report["skipped"], report["not_run"], report["error"],
                      report["mode"])


# ---- judge mode ----------------------------------------------------------------------------------

@dataclass(frozen=True)
class JudgeResult:
    """How a program did on its cases. ``verdict`` is that of the first case that was not accepted, else ``AC``;
    each of ``cases`` is a dict with ``name``, ``verdict``, ``runtime_ms``, ``memory_bytes``, ``message`` and
    what the program wrote. ``score`` is None after a failure of ours (``SE``), which is never a score."""

    verdict: str
    passed: int
    cases: List[Dict[str, Any]]
    total_runtime_ms: float
    score: Optional[float] = None
    points: Optional[float] = None
    error: Optional[str] = None
    report: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def accepted(self) -> bool:
        return self.verdict == "AC"


Case = Union[Tuple[str, str], Mapping[str, Any]]


def judge(code: str, cases: Sequence[Case], language: str = "python", *, compare: str = "trimmed",
          sandbox: Optional[Sandbox] = None, jobs: int = 1, stop_on_fail: bool = False) -> JudgeResult:
    """Runs a program on cases and compares what it writes with what is expected.

    A case is ``(input, output)``, or a dict with ``input`` and ``output`` and perhaps ``name``, ``group``, ``points``,
    ``time_limit``, ``memory_limit``. The limits of the sandbox hold for each case.

    >>> from cordon.grade import judge
    >>> judge("print(int(input()) * 2)", [("2", "4"), ("5", "10")]).verdict
    'AC'
    """
    with _judge_call(code, cases, language, compare, sandbox, jobs, stop_on_fail) as call:
        return _judge_result(call.run())


async def judge_async(code: str, cases: Sequence[Case], language: str = "python", *, compare: str = "trimmed",
                      sandbox: Optional[Sandbox] = None, jobs: int = 1, stop_on_fail: bool = False) -> JudgeResult:
    """As ``judge``, for asyncio."""
    with _judge_call(code, cases, language, compare, sandbox, jobs, stop_on_fail) as call:
        return _judge_result(await call.run_async())


def _judge_call(code: str, cases: Sequence[Case], language: str, compare: str, sandbox: Optional[Sandbox], jobs: int,
                stop_on_fail: bool) -> "_Call":
    rows = []
    for case in cases:
        if isinstance(case, Mapping):
            rows.append(dict(case))
        else:
            given, wanted = case
            rows.append({"input": given, "output": wanted})
    if not rows:
        raise ValueError("no cases")
    call = _Call(Sandbox() if sandbox is None else sandbox)
    call.stdin = _settings.source(code)
    call.words += ["--cases", call.file(json.dumps(rows).encode()), "--compare", compare, "--language", language,
                   "--jobs", str(_settings.whole("jobs", jobs, 1)), *(["--stop-on-fail"] if stop_on_fail else []), "-"]
    return call


def _judge_result(report: Mapping[str, Any]) -> JudgeResult:
    return JudgeResult(report["verdict"], report["passed"], report["details"], report["total_runtime_ms"],
                       report.get("score"), report.get("points"), report["error"], report)


# ---- the program ---------------------------------------------------------------------------------

class _Call:
    """One start of ``cordon grade``. Texts go in as memory files: nothing is left anywhere."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._fds: List[int] = []
        self.stdin = b""
        self._environ = _explain.environment(sandbox._discover)
        self.words = [_lib.program(), "grade", "--json"]
        if sandbox._profile:
            self.words += ["--profile", sandbox._profile]
        config = b""  # for what has no flag
        for name, value in [*sandbox._settings, *sandbox._imports()]:
            if name in _KEYS_ONLY:
                if sandbox._config or sandbox._discover:
                    raise ValueError(f"{name} is a key of the configuration, which the sandbox has already")
                text = value if value in ("true", "false") or value.isdigit() else json.dumps(value)
                config += f"[{_KEYS_ONLY[name]}]\n{name} = {text}\n".encode()
            elif name == "env":
                name, _, content = value.partition("=")
                if "=" in value:
                    self._environ[name] = content  # not on the line, where others can read it
                self.words += ["--env", name]
            else:
                self.words.append(f"--{_FLAGS.get(name, name.replace('_', '-'))}={value}")
        if sandbox._config or not sandbox._discover:
            self.words += ["--config", sandbox._config or self.file(config)]
        for name, data in sandbox._files:
            self.words += ["--file", f"{name}={self.file(data)}"]

    def file(self, data: bytes) -> str:
        fd = os.memfd_create("cordon-grade", os.MFD_CLOEXEC)
        self._fds.append(fd)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        return f"/proc/self/fd/{fd}"

    def __enter__(self) -> "_Call":
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def run(self) -> Dict[str, Any]:
        import subprocess
        done = subprocess.run(self.words, input=self.stdin, capture_output=True, env=self._environ,
                              pass_fds=self._fds, check=False)
        return _report(done.returncode, done.stdout, done.stderr)

    async def run_async(self) -> Dict[str, Any]:
        import asyncio
        process = await asyncio.create_subprocess_exec(
            *self.words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env=self._environ, pass_fds=self._fds)
        try:
            out, said = await process.communicate(self.stdin)
        except BaseException:
            process.kill()  # its guests end with it
            await process.wait()
            raise
        return _report(process.returncode or 0, out, said)


def _report(status: int, out: bytes, said: bytes) -> Dict[str, Any]:
    if status in (0, 1) or (status == 70 and out):
        found: Dict[str, Any] = json.loads(out)
        return found
    words = said.decode("utf-8", "replace").strip().splitlines() or [f"cordon grade ended with status {status}"]
    message = words[0][len("Error: "):] if words[0].startswith("Error: ") else words[0]
    raise SandboxError(message, code=status, stage="grade", hint="; ".join(words[1:]))
