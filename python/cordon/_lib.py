"""ctypes over libcordon: where the library is, its prototypes, and owners for its objects.

Nothing outside this file touches a C pointer. One handle (a supervisor process) serves every sandbox of
this process; it is opened by the first run, closed when the last sandbox is closed, and opened anew in a
forked child. Runs in the calling program.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import threading
from collections import deque
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_ssize_t, c_uint, c_uint64, c_void_p
from typing import Deque, Iterator, Optional, Sequence, Tuple

from .errors import SandboxError

SONAME = "libcordon.so.0"
STDOUT, STDERR = 1, 2
FLAG_DISCOVER, FLAG_STREAM, FLAG_BRIEF_JSON = 1, 2, 4


class _Err(ctypes.Structure):
    _fields_ = [("code", c_int), ("sys_errno", c_int), ("stage", c_char * 32), ("message", c_char * 1024),
                ("hint", c_char * 512)]

    def exception(self) -> SandboxError:
        return SandboxError(self.message.decode("utf-8", "replace") or "unknown failure", code=self.code,
                            stage=self.stage.decode("utf-8", "replace"),
                            hint=self.hint.decode("utf-8", "replace"), errno=self.sys_errno)


class _Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("binary", c_char_p)]


class _Stats(ctypes.Structure):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "runs_now", "hits", "spawned", "cold", "waiting", "start_p50_ns", "start_p99_ns")]


class _TaskOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("work_root", c_char_p), ("logs_dir", c_char_p),
                ("allowed_binaries", POINTER(c_char_p)), ("time_limit", c_char_p), ("cpu_time", c_char_p),
                ("memory_limit", c_char_p), ("backend", c_char_p), ("settings", POINTER(c_char_p))]


class _TaskFile(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_char_p), ("len", c_size_t), ("executable", c_int)]


class _TaskAction(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("command", POINTER(c_char_p)), ("time_limit", c_char_p),
                ("env", POINTER(c_char_p)), ("stdin_data", c_char_p), ("stdin_len", c_size_t)]


# name: (result, arguments). Functions whose result is None here return 0 or -1 with an error.
_PROTOTYPES = {
    "cordon_version": (c_char_p, ()),
    "cordon_open": (c_int, (POINTER(_Options), POINTER(c_void_p), POINTER(_Err))),
    "cordon_close": (None, (c_void_p,)),
    "cordon_supervisor_pid": (c_int, (c_void_p,)),
    "cordon_stats": (c_int, (c_void_p, POINTER(_Stats), POINTER(_Err))),
    "cordon_request_new": (c_void_p, ()),
    "cordon_request_free": (None, (c_void_p,)),
    "cordon_request_set": (c_int, (c_void_p, c_char_p, c_char_p, POINTER(_Err))),
    "cordon_request_set_profile": (c_int, (c_void_p, c_char_p, POINTER(_Err))),
    "cordon_request_set_config": (c_int, (c_void_p, c_char_p, POINTER(_Err))),
    "cordon_request_set_cwd": (c_int, (c_void_p, c_char_p, POINTER(_Err))),
    "cordon_request_set_flags": (c_int, (c_void_p, c_uint, POINTER(_Err))),
    "cordon_request_set_argv": (c_int, (c_void_p, POINTER(c_char_p), POINTER(_Err))),
    "cordon_request_set_source": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, POINTER(c_char_p),
                                          POINTER(_Err))),
    "cordon_request_set_stdin": (c_int, (c_void_p, c_char_p, c_size_t, POINTER(_Err))),
    "cordon_request_set_stdin_fd": (c_int, (c_void_p, c_int, POINTER(_Err))),
    "cordon_request_add_file": (c_int, (c_void_p, c_char_p, c_char_p, c_size_t, POINTER(_Err))),
    "cordon_start": (c_int, (c_void_p, c_void_p, POINTER(c_void_p), POINTER(_Err))),
    "cordon_job_fd": (c_int, (c_void_p,)),
    "cordon_job_wait": (c_int, (c_void_p, c_int, POINTER(c_void_p), POINTER(_Err))),
    "cordon_job_read": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "cordon_job_stream_fd": (c_int, (c_void_p, c_int)),
    "cordon_job_signal": (c_int, (c_void_p, c_int, POINTER(_Err))),
    "cordon_job_cancel": (c_int, (c_void_p, POINTER(_Err))),
    "cordon_job_free": (None, (c_void_p,)),
    "cordon_result_free": (None, (c_void_p,)),
    "cordon_result_output": (c_void_p, (c_void_p, c_int, POINTER(c_size_t))),
    "cordon_result_json": (c_void_p, (c_void_p, POINTER(c_size_t))),
    "cordon_task_prepare": (c_int, (POINTER(_TaskOptions), c_char_p, POINTER(_TaskFile), c_size_t, POINTER(c_void_p),
                                    POINTER(_Err))),
    "cordon_task_open": (c_int, (POINTER(_TaskOptions), c_char_p, POINTER(c_void_p), POINTER(_Err))),
    "cordon_task_path": (c_char_p, (c_void_p,)),
    "cordon_task_cleanup": (c_int, (c_void_p, POINTER(_Err))),
    "cordon_task_free": (None, (c_void_p,)),
    "cordon_task_start": (c_int, (c_void_p, c_void_p, c_int, POINTER(_TaskAction), POINTER(c_void_p), POINTER(_Err))),
    "cordon_task_run_fd": (c_int, (c_void_p,)),
    "cordon_task_run_wait": (c_int, (c_void_p, c_int, POINTER(c_void_p), POINTER(_Err))),
    "cordon_task_run_free": (None, (c_void_p,)),
    "cordon_task_result_free": (None, (c_void_p,)),
    "cordon_task_result_run": (c_void_p, (c_void_p,)),
    "cordon_task_result_exit_code": (c_int, (c_void_p,)),
    "cordon_task_result_error": (c_char_p, (c_void_p,)),
    "cordon_task_result_duration_ns": (c_uint64, (c_void_p,)),
    "cordon_task_result_diff": (c_void_p, (c_void_p, POINTER(c_size_t))),
    "cordon_task_result_changed": (c_char_p, (c_void_p, c_size_t, POINTER(c_char_p))),
}


def _candidates() -> Iterator[Tuple[str, Optional[str]]]:
    """Library and, where the library cannot know it, the program that belongs to it."""
    named = os.environ.get("CORDON_LIBRARY")
    if named:
        yield named, _program_of_build(pathlib.Path(named))
        return
    package = pathlib.Path(__file__).resolve().parent
    if (package / "_bundled" / "lib" / SONAME).is_file():  # a wheel made where the project was built
        yield str(package / "_bundled" / "lib" / SONAME), None
    # PREFIX/lib/python3/dist-packages/cordon, PREFIX/lib/python3.11/site-packages/cordon, a venv
    for parent in package.parents[:4]:
        if parent.name in ("lib", "lib64"):
            for place in (parent, parent / "x86_64-linux-gnu"):
                if (place / SONAME).is_file():
                    yield str(place / SONAME), None
    built = package.parents[1] / "build" / "src" / "lib" / SONAME  # the source tree itself
    if (package.parents[1] / "include" / "cordon.h").is_file() and built.is_file():
        yield str(built), _program_of_build(built)
    for folder in ("/usr/local/lib", "/usr/local/lib/x86_64-linux-gnu"):  # not in every ld.so.conf
        if os.path.isfile(f"{folder}/{SONAME}"):
            yield f"{folder}/{SONAME}", None
    yield SONAME, None


def _program_of_build(library: pathlib.Path) -> Optional[str]:
    """BUILD/src/lib/libcordon.so.0 → BUILD/cordon; an installed library finds its program by itself."""
    if os.environ.get("CORDON_BINARY"):
        return None
    try:
        program = library.resolve().parents[2] / "cordon"
    except (IndexError, OSError):
        return None
    return str(program) if program.is_file() and library.resolve().parts[-3:-1] == ("src", "lib") else None


def program() -> str:
    """The cordon program that belongs to the library; looked for where the library would."""
    found = library()
    named = os.environ.get("CORDON_BINARY") or found.program
    if named:
        return os.path.realpath(named)
    folder = pathlib.Path(found.path).resolve().parent
    for place in (folder.parent, folder.parent.parent):
        if os.access(place / "bin" / "cordon", os.X_OK):
            return str(place / "bin" / "cordon")
    on_path = shutil.which("cordon")
    if on_path is None:
        raise SandboxError("the cordon program was not found", code=64, stage="open",
                           hint="install it, or name it in CORDON_BINARY")
    return on_path


class _Library:
    def __init__(self) -> None:
        failures = []
        for path, program in _candidates():
            try:
                self.dll = ctypes.CDLL(path, use_errno=True)
            except OSError as e:
                failures.append(str(e))
                continue
            self.path, self.program = path, program
            break
        else:
            raise SandboxError("libcordon was not found: " + "; ".join(failures), code=64, stage="open",
                               hint="install it, or name it in CORDON_LIBRARY")
        for name, (result, arguments) in _PROTOTYPES.items():
            try:
                function = getattr(self.dll, name)
            except AttributeError:
                raise SandboxError(f"{path} is of another version: it has no {name}", code=64,
                                   stage="open") from None
            function.restype, function.argtypes = result, arguments

    def call(self, name: str, *arguments) -> None:
        err = _Err()
        if getattr(self.dll, name)(*arguments, ctypes.byref(err)) < 0:
            raise err.exception()

    def read(self, name: str, *arguments) -> bytes:
        """Of a function that gives bytes and their number."""
        length = c_size_t()
        pointer = getattr(self.dll, name)(*arguments, ctypes.byref(length))
        return ctypes.string_at(pointer, length.value)

    def outcome(self, result) -> Tuple[bytes, bytes, bytes]:
        """(json, stdout, stderr) of a cordon_result."""
        return (self.read("cordon_result_json", result), self.read("cordon_result_output", result, STDOUT),
                self.read("cordon_result_output", result, STDERR))


_lock = threading.Lock()
_library: Optional[_Library] = None


def library() -> _Library:
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _Library()
    return _library


def version() -> str:
    """The version of libcordon, which may be newer than the package's."""
    return library().dll.cordon_version().decode()


# ---- the handle ---------------------------------------------------------------------------------

class _Handle:
    def __init__(self) -> None:
        lib = library()
        options = _Options(ctypes.sizeof(_Options), os.fsencode(lib.program) if lib.program else None)
        self.pointer = c_void_p()
        self.pid = os.getpid()
        self.users = 0
        lib.call("cordon_open", ctypes.byref(options), ctypes.byref(self.pointer))


_handle: Optional[_Handle] = None
_released: Deque[_Handle] = deque()


def _after_fork() -> None:
    """The parent's handle is not ours, and another thread may have held our lock when we were made."""
    global _lock, _handle
    _lock = threading.Lock()
    _handle = None
    _released.clear()


def _sweep() -> None:
    """Closes the handles nobody uses any more. Never waits for the lock: the garbage collector may bring us
    here while this very thread holds it, and whoever holds it sweeps afterwards."""
    global _handle
    while _released and _lock.acquire(blocking=False):
        unused = []
        try:
            while _released:
                handle = _released.popleft()
                handle.users -= 1
                if handle.users == 0:
                    unused.append(handle)
                    if _handle is handle:
                        _handle = None
        finally:
            _lock.release()
        for handle in unused:
            library().dll.cordon_close(handle.pointer)


os.register_at_fork(after_in_child=_after_fork)


class Lease:
    """A sandbox's share of the process's handle. The last one that is released closes it."""

    def __init__(self) -> None:
        self._held: Optional[_Handle] = None

    def pointer(self) -> c_void_p:
        global _handle
        if self._held is not None and self._held.pid == os.getpid():
            return self._held.pointer
        library()
        with _lock:
            if _handle is None:
                _handle = _Handle()
            _handle.users += 1
            self._held = _handle
        _sweep()
        return self._held.pointer

    def release(self) -> None:
        """No run of this lease may be going on."""
        held, self._held = self._held, None
        if held is not None and held.pid == os.getpid():
            _released.append(held)
            _sweep()

    def stats(self) -> _Stats:
        found = _Stats(ctypes.sizeof(_Stats))
        library().call("cordon_stats", self.pointer(), ctypes.byref(found))
        return found

    def supervisor_pid(self) -> int:
        return library().dll.cordon_supervisor_pid(self.pointer())


# ---- requests -----------------------------------------------------------------------------------

def _text(value: str) -> bytes:
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"a NUL character in {value!r}")
    return data


def _array(words: Sequence[str]) -> "ctypes.Array[c_char_p]":
    return (c_char_p * (len(words) + 1))(*[_text(word) for word in words], None)


class Request:
    """A cordon_request. The caller has checked types; values are judged when the run starts."""

    def __init__(self) -> None:
        self._lib = library()
        self.has_stdin_fd = False
        self.pointer = c_void_p(self._lib.dll.cordon_request_new())
        if not self.pointer:
            raise MemoryError("cordon_request_new")

    def __del__(self) -> None:
        pointer = getattr(self, "pointer", None)
        if pointer:
            self._lib.dll.cordon_request_free(pointer)

    def set(self, name: str, value: Optional[str]) -> None:
        self._lib.call("cordon_request_set", self.pointer, _text(name), None if value is None else _text(value))

    def set_profile(self, name: str) -> None:
        self._lib.call("cordon_request_set_profile", self.pointer, _text(name))

    def set_config(self, path: str) -> None:
        self._lib.call("cordon_request_set_config", self.pointer, _text(path))

    def set_flags(self, flags: int) -> None:
        self._lib.call("cordon_request_set_flags", self.pointer, flags)

    def set_argv(self, argv: Sequence[str]) -> None:
        self._lib.call("cordon_request_set_argv", self.pointer, _array(argv))

    def set_source(self, language: str, source: bytes, args: Sequence[str]) -> None:
        self._lib.call("cordon_request_set_source", self.pointer, _text(language), None, source, len(source),
                       _array(args))

    def set_stdin(self, data: bytes) -> None:
        self._lib.call("cordon_request_set_stdin", self.pointer, data, len(data))

    def set_stdin_fd(self, fd: int) -> None:
        self._lib.call("cordon_request_set_stdin_fd", self.pointer, fd)
        self.has_stdin_fd = True

    def add_file(self, name: str, data: bytes) -> None:
        self._lib.call("cordon_request_add_file", self.pointer, _text(name), data, len(data))


# ---- jobs ---------------------------------------------------------------------------------------

class Job:
    """A run that was started. Used by one thread at a time; free() may come from any, once."""

    def __init__(self, lease: Lease, request: Request) -> None:
        self._lib = library()
        self._pid = os.getpid()
        self.pointer: Optional[c_void_p] = c_void_p()
        self._lib.call("cordon_start", lease.pointer(), request.pointer, ctypes.byref(self.pointer))
        self.fd: int = self._lib.dll.cordon_job_fd(self.pointer)
        if self.fd < 0:
            self.free()
            raise SandboxError("no descriptor for a run", stage="start", hint="raise the limit of open files")

    def wait(self, timeout_ms: int) -> Optional[Tuple[bytes, bytes, bytes]]:
        """(json, stdout, stderr), or None when the time was over first. Gives the result once."""
        result = c_void_p()
        self._lib.call("cordon_job_wait", self.pointer, timeout_ms, ctypes.byref(result))
        if not result:
            return None
        try:
            return self._lib.outcome(result)
        finally:
            self._lib.dll.cordon_result_free(result)

    def stream_fd(self, stream: int) -> int:
        return self._lib.dll.cordon_job_stream_fd(self.pointer, stream)

    def read(self, stream: int, size: int = 65536) -> Optional[bytes]:
        """What is there; b"" at the end of the stream; None when there is nothing yet."""
        buffer = ctypes.create_string_buffer(size)
        n = self._lib.dll.cordon_job_read(self.pointer, stream, buffer, size)
        return None if n < 0 else buffer.raw[:n]

    def signal(self, number: int) -> None:
        self._lib.call("cordon_job_signal", self.pointer, number)

    def cancel(self) -> None:
        self._lib.call("cordon_job_cancel", self.pointer)

    def free(self, getpid=os.getpid) -> None:  # while Python ends, the module's own names are None
        pointer, self.pointer = self.pointer, None
        if pointer and self._pid == getpid():
            self._lib.dll.cordon_job_free(pointer)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self.free()
