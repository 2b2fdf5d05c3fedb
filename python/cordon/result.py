"""How a run ended. The fields are those of cordon-result(5)."""

from __future__ import annotations

import base64
import codecs
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple


@dataclass(frozen=True)
class ExecutionResult:
    """The result of one run.

    >>> from cordon import Sandbox
    >>> with Sandbox() as sandbox:
    ...     result = sandbox.run('print("hello")')
    >>> result.stdout, result.exit_code, result.verdict
    ('hello\\n', 0, 'ok')

    ``stdout`` and ``stderr`` are text. Output that is not UTF-8 stands there as base64, and
    ``stdout_encoding`` says so; ``stdout_raw`` has the bytes themselves in either case.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    runtime_ms: float
    verdict: str = "ok"
    signal: Optional[int] = None
    stdout_encoding: str = "utf-8"
    stderr_encoding: str = "utf-8"
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    wall_ms: float = 0.0
    cpu_user_ms: float = 0.0
    cpu_sys_ms: float = 0.0
    peak_memory_bytes: int = 0
    processes_peak: int = 0
    oom_kills: int = 0
    throttled_ms: float = 0.0
    limit: Optional[Dict[str, Any]] = None
    error: Optional[str] = None
    denials: List[Dict[str, Any]] = field(default_factory=list)
    network: Optional[Dict[str, Any]] = None
    enforcement: Dict[str, Any] = field(default_factory=dict)
    changed_files: List[Dict[str, Any]] = field(default_factory=list)
    diff: Optional[str] = None
    outputs: List[Dict[str, Any]] = field(default_factory=list)
    stage: Optional[str] = None
    workspace_id: Optional[str] = None
    version: int = 1
    stdout_raw: bytes = field(default=b"", repr=False)
    stderr_raw: bytes = field(default=b"", repr=False)
    json_fields: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Did the guest end by itself with status 0?"""
        return self.verdict == "ok"

    def as_dict(self) -> Dict[str, Any]:
        """The object the command prints with ``--json``."""
        return {**self.json_fields, "stdout": self.stdout, "stdout_encoding": self.stdout_encoding,
                "stderr": self.stderr, "stderr_encoding": self.stderr_encoding, "verdict": self.verdict}


def as_text(data: bytes, truncated: bool) -> Tuple[str, str]:
    """(text, encoding) of a stream. A cut may fall inside a character: the part that is left of it goes too."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, not truncated), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def shown(result: ExecutionResult) -> Tuple[str, str]:
    """Both streams for results that cannot say how they are encoded: other bytes stand as ``\\xff``."""
    return (result.stdout if result.stdout_encoding == "utf-8" else result.stdout_raw.decode("utf-8", "backslashreplace"),
            result.stderr if result.stderr_encoding == "utf-8" else result.stderr_raw.decode("utf-8", "backslashreplace"))


_PLAIN = frozenset(ExecutionResult.__dataclass_fields__) - {
    "stdout", "stderr", "runtime_ms", "stdout_encoding", "stderr_encoding", "stdout_raw", "stderr_raw", "json_fields"}


def from_engine(text: bytes, out: bytes, err: bytes) -> ExecutionResult:
    """From the engine's JSON (its stdout and stderr are left out there) and the bytes of the streams."""
    fields = json.loads(text)
    stdout, stdout_encoding = as_text(out, fields["stdout_truncated"])
    stderr, stderr_encoding = as_text(err, fields["stderr_truncated"])
    return ExecutionResult(
        stdout=stdout, stderr=stderr, runtime_ms=fields["wall_ms"], stdout_encoding=stdout_encoding,
        stderr_encoding=stderr_encoding, stdout_raw=out, stderr_raw=err, json_fields=fields,
        **{name: value for name, value in fields.items() if name in _PLAIN})
