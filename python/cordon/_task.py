"""Task workspaces of libcordon: owners for its objects. Runs in the calling program."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time
from ctypes import c_void_p
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from ._lib import Lease, _array, _TaskAction, _TaskFile, _TaskOptions, _text, library
from .errors import SandboxError

ACTION, TESTS = 1, 2
_TURN = 0.01  # between two tries while another command works in the workspace


@dataclass(frozen=True)
class Options:
    """As struct cordon_task_options; texts as the command takes them."""

    work_root: str
    logs_dir: str
    allowed_binaries: Tuple[str, ...]
    time_limit: str
    cpu_time: str
    memory_limit: str
    backend: str


@dataclass(frozen=True)
class Outcome:
    """What cordon_task_result has. ``run`` is (json, stdout, stderr); None: the command is not allowed."""

    run: Optional[Tuple[bytes, bytes, bytes]]
    exit_code: int
    error: Optional[str]
    duration_sec: float
    diff: str
    changed: List[str]


class Task:
    """A cordon_task. A name or folder that cannot be used is a ValueError."""

    def __init__(self, options: Options, task_id: str, files: Optional[Sequence[Tuple[str, bytes]]] = None) -> None:
        self._lib = library()
        self.pointer = c_void_p()
        given = _TaskOptions(ctypes.sizeof(_TaskOptions), _text(options.work_root), _text(options.logs_dir),
                             _array(options.allowed_binaries), _text(options.time_limit), _text(options.cpu_time),
                             _text(options.memory_limit), _text(options.backend), None)
        made = ctypes.byref(self.pointer)
        if files is None:
            self._call("cordon_task_open", ctypes.byref(given), _text(task_id), made)
        else:
            rows = (_TaskFile * len(files))(*[_TaskFile(_text(name), data, len(data), 0) for name, data in files])
            self._call("cordon_task_prepare", ctypes.byref(given), _text(task_id), rows, len(files), made)

    def _call(self, name: str, *arguments) -> None:
        try:
            self._lib.call(name, *arguments)
        except SandboxError as e:
            if e.code == 64 and e.stage == "task" and e.errno != errno.EWOULDBLOCK:
                raise ValueError(f"{e.message}; {e.hint}" if e.hint else e.message) from None
            raise

    def __del__(self) -> None:
        pointer = getattr(self, "pointer", None)
        if pointer:
            self._lib.dll.cordon_task_free(pointer)

    @property
    def path(self) -> str:
        return os.fsdecode(self._lib.dll.cordon_task_path(self.pointer))

    def cleanup(self) -> None:
        self._call("cordon_task_cleanup", self.pointer)

    def run(self, event: int, command: Sequence[str], time_limit: Optional[str], env: Sequence[str],
            stdin: Optional[bytes]) -> Outcome:
        """Waits for its turn and for the end. An interrupt ends the guest."""
        action = _TaskAction(ctypes.sizeof(_TaskAction), _array(command),
                             None if time_limit is None else _text(time_limit), _array(env), stdin,
                             0 if stdin is None else len(stdin))
        lease = Lease()
        run = c_void_p()
        try:
            self._start(lease, event, action, run)
            result = self._wait(run)
            try:
                return self._outcome(result)
            finally:
                self._lib.dll.cordon_task_result_free(result)
        finally:
            if run:
                self._lib.dll.cordon_task_run_free(run)
            lease.release()

    def _start(self, lease: Lease, event: int, action: _TaskAction, run: c_void_p) -> None:
        while True:
            try:
                self._call("cordon_task_start", lease.pointer(), self.pointer, event, ctypes.byref(action),
                               ctypes.byref(run))
                return
            except SandboxError as e:
                if e.errno != errno.EWOULDBLOCK:
                    raise
            time.sleep(_TURN)

    def _wait(self, run: c_void_p) -> c_void_p:
        result = c_void_p()
        while True:
            self._lib.call("cordon_task_run_wait", run, 0, ctypes.byref(result))
            if result:
                return result
            poll = select.poll()
            poll.register(self._lib.dll.cordon_task_run_fd(run), select.POLLIN)
            poll.poll()

    def _outcome(self, result: c_void_p) -> Outcome:
        dll = self._lib.dll
        inner = dll.cordon_task_result_run(result)
        error = dll.cordon_task_result_error(result)
        changed: List[str] = []
        while (path := dll.cordon_task_result_changed(result, len(changed), None)) is not None:
            changed.append(os.fsdecode(path))
        return Outcome(None if not inner else self._lib.outcome(c_void_p(inner)),
                       dll.cordon_task_result_exit_code(result), None if error is None else error.decode("utf-8", "replace"),
                       dll.cordon_task_result_duration_ns(result) / 1e9,
                       self._lib.read("cordon_task_result_diff", result).decode(), changed)
