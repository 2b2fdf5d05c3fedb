"""A run that was started: waited for, awaited, streamed, signalled, cancelled.

Every C call on a job is short (waiting is done by poll on its descriptor), so one lock per run makes it
safe to use from any thread and lets a sandbox be closed while others wait. A run ends with the last reference
to it: the job's own finalizer frees it, without any lock, since the garbage collector may come at any moment.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import functools
import os
import select
import threading
import time
from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable, Dict, Generator, Iterator, List, Optional, Union

from . import _lib
from .errors import SandboxError
from .result import ExecutionResult, from_engine

LONGEST_SLEEP = 3600.0  # poll counts milliseconds in 31 bits
STREAMS = {_lib.STDOUT: "stdout", _lib.STDERR: "stderr"}


@dataclass(frozen=True)
class StreamEvent:
    """Something the guest wrote (``kind`` ``"stdout"`` or ``"stderr"``), or its end (``"result"``).

    ``data`` are the bytes, ``text`` the characters that are complete with them.
    """

    kind: str
    data: bytes = b""
    text: str = ""
    result: Optional[ExecutionResult] = None


def _out_of_descriptors(e: BaseException) -> bool:
    return isinstance(e, OSError) and e.errno in (errno.EMFILE, errno.ENFILE)


class Run:
    """One run. ``wait()`` for its result, ``await`` it, or read ``stream()``. A run that nobody holds any
    more is ended."""

    def __init__(self, lease: _lib.Lease, request: _lib.Request, streamed: bool,
                 on_end: Callable[["Run", Union[ExecutionResult, SandboxError]], Any]) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._streamed = streamed
        self._has_stream = False
        self._on_end = on_end
        self._outcome: Union[ExecutionResult, SandboxError, None] = None
        self._wakers: List[Callable[[], Any]] = []  # of those who wait while somebody else takes the result
        # A request that a dying supervisor never took may be sent once more. Not with live output, whose
        # descriptors others hold, nor with a stream of the caller's as input.
        self._again = None if streamed or request.has_stdin_fd else (lease, request)
        self._job = _lib.Job(lease, request)

    # -- ending ---------------------------------------------------------------------------------

    def _collect(self) -> bool:
        """Takes the result if there is one. The job is freed when its streams are not wanted."""
        with self._lock:
            if self._outcome is not None:
                return True
            try:
                found = self._job.wait(0)
                if found is None:
                    return False
                outcome: Union[ExecutionResult, SandboxError] = from_engine(*found)
            except SandboxError as e:
                if self._restart(e):
                    return False
                outcome = e
            self._outcome = outcome
            self._again = None
            if not self._streamed:
                self._job.free()
            self._wake()
        self._on_end(self, outcome)
        return True

    def _restart(self, failure: SandboxError) -> bool:
        if self._again is None or failure.stage != "supervisor" or failure.errno != errno.ECONNRESET:
            return False
        again, self._again = self._again, None
        self._job.free()
        try:
            self._job = _lib.Job(*again)
        except SandboxError:
            return False
        self._wake()  # whoever waits, waits for the old one
        return True

    def _wake(self) -> None:
        for waker in self._wakers:
            waker()

    def _check_own(self) -> None:
        if os.getpid() != self._pid:
            raise SandboxError("this run belongs to the process that started it", code=64, stage="run")

    def _free(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._streamed = False
            self._job.free()
            self._wake()
            if self._outcome is not None:
                return
            self._outcome = outcome = SandboxError("the run was given up", code=130, stage="run")
        self._on_end(self, outcome)

    def _end(self) -> ExecutionResult:
        if isinstance(self._outcome, SandboxError):
            if self._outcome.message.startswith("unknown language"):  # the caller's mistake, as any wrong argument
                raise ValueError(self._outcome.message)
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def _own_fd(self, stream: int = 0) -> int:
        """A duplicate, so that another thread that frees the job takes nothing from under us; -1: ended."""
        self._check_own()
        with self._lock:
            if not self._job.pointer or (not stream and self._outcome is not None):
                return -1
            fd = self._job.stream_fd(stream) if stream else self._job.fd
            return os.dup(fd) if fd >= 0 else -1

    # -- for everyone ---------------------------------------------------------------------------

    def done(self) -> bool:
        """Has it ended? Never waits."""
        self._check_own()
        return self._collect()

    def wait(self, timeout: Optional[float] = None) -> ExecutionResult:
        """The result. TimeoutError when it does not come within ``timeout`` seconds; the run goes on. Any
        other exception, such as one of a signal's handler, ends it."""
        self._check_own()
        until = None if timeout is None else time.monotonic() + timeout
        try:
            ended = self._poll(until)
        except BaseException as e:
            self._give_up(e)
            raise
        if not ended:
            raise TimeoutError("the run has not ended")
        return self._end()

    def _give_up(self, why: BaseException) -> None:
        """Whoever waited cannot any more."""
        self._free()
        if _out_of_descriptors(why):
            raise SandboxError("no descriptor for a run", stage="run", hint="raise the limit of open files",
                               errno=errno.EMFILE) from why

    def _poll(self, until: Optional[float]) -> bool:
        """Has it ended by then?"""
        while (fd := self._fd_after_look()) >= 0:
            try:
                left = None if until is None else max(0.0, until - time.monotonic())
                if not self._sleep([fd], left) and left == 0.0:
                    return False
            finally:
                os.close(fd)
        return True

    def _fd_after_look(self) -> int:
        """The look comes first, because it may start the run anew; -1: ended."""
        return -1 if self._collect() else self._own_fd()

    def _sleep(self, fds: List[int], timeout: Optional[float]) -> bool:
        """Until one of the descriptors is readable, or the run has ended by another thread's hand."""
        read, write = os.pipe()
        waker = functools.partial(os.write, write, b"x")
        try:
            with self._lock:
                if self._outcome is not None and not self._job.pointer:
                    return True
                self._wakers.append(waker)
            poll = select.poll()
            for fd in (*fds, read):
                poll.register(fd, select.POLLIN)
            return bool(poll.poll(None if timeout is None else min(timeout, LONGEST_SLEEP) * 1000 + 1))
        finally:
            with self._lock:
                if waker in self._wakers:
                    self._wakers.remove(waker)
            os.close(read)
            os.close(write)

    async def _async_sleep(self, fds: List[int]) -> None:
        """The same for asyncio."""
        loop = asyncio.get_running_loop()
        ready: "asyncio.Future[None]" = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        def waker() -> None:
            try:
                loop.call_soon_threadsafe(wake)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

        with self._lock:
            if self._outcome is not None and not self._job.pointer:
                return
            self._wakers.append(waker)
        for fd in fds:
            loop.add_reader(fd, wake)
        try:
            await ready
        finally:
            for fd in fds:
                loop.remove_reader(fd)
            with self._lock:
                self._wakers.remove(waker)

    def cancel(self) -> None:
        """Ends the guest. Its result follows with the verdict ``cancelled``, unless it ended before."""
        self._check_own()
        with self._lock:
            if self._outcome is None and self._job.pointer:
                self._job.cancel()

    def signal(self, number: int) -> None:
        """Sends a signal to the guest's main process."""
        self._check_own()
        with self._lock:
            if self._outcome is None and self._job.pointer:
                self._job.signal(int(number))

    # -- asyncio --------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, ExecutionResult]:
        return self._await().__await__()

    async def _await(self) -> ExecutionResult:
        self._check_own()
        try:
            while (fd := self._fd_after_look()) >= 0:
                try:
                    await self._async_sleep([fd])
                finally:
                    os.close(fd)
        except BaseException as e:  # cancelled, most likely
            self._give_up(e)
            raise
        return self._end()

    # -- output as it comes ---------------------------------------------------------------------

    def stream(self) -> "Stream":
        """Events as they come; the last one holds the result. For ``for`` and for ``async for``."""
        with self._lock:
            if not self._streamed or self._has_stream:
                raise ValueError("this run was not started with stream=True, or is being streamed already")
            self._has_stream = True
        return Stream(self)


class Stream(Iterator[StreamEvent], AsyncIterator[StreamEvent]):
    """Events of a run. Closing it before its end (or leaving its ``with``, or dropping it) ends the guest."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.result: Optional[ExecutionResult] = None
        self._over = False
        self._open = dict(STREAMS)
        self._ready: List[StreamEvent] = []
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: Dict[int, codecs.IncrementalDecoder] = {s: decoder("replace") for s in STREAMS}

    def __iter__(self) -> "Stream":
        return self

    def __aiter__(self) -> "Stream":
        return self

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the guest if it still runs."""
        self._over = True
        self.run._free()

    def __next__(self) -> StreamEvent:
        self.run._check_own()
        try:
            while (event := self._event()) is None:
                fds = self._fds()
                try:
                    self.run._sleep(fds, None)
                finally:
                    for fd in fds:
                        os.close(fd)
            return event
        except StopIteration:
            raise
        except BaseException as e:
            self._over = True
            self.run._give_up(e)
            raise

    async def __anext__(self) -> StreamEvent:
        self.run._check_own()
        try:
            while (event := self._event()) is None:
                fds = self._fds()
                try:
                    await self.run._async_sleep(fds)
                finally:
                    for fd in fds:
                        os.close(fd)
            return event
        except StopIteration:
            raise StopAsyncIteration from None
        except BaseException as e:
            self._over = True
            self.run._give_up(e)
            raise

    def _fds(self) -> List[int]:
        """What to wait for: the open streams, and when they are at their end, the run itself."""
        found: List[int] = []
        try:
            for stream in [*self._open] or [0]:
                found.append(self.run._own_fd(stream))
        except OSError:
            for fd in found:
                if fd >= 0:
                    os.close(fd)
            raise
        return [fd for fd in found if fd >= 0]

    def _event(self) -> Optional[StreamEvent]:
        """The next event; None: nothing there yet."""
        if self._ready:
            return self._ready.pop(0)
        if self._over:
            raise StopIteration
        for stream, kind in list(self._open.items()):
            with self.run._lock:
                data = self.run._job.read(stream) if self.run._job.pointer else b""
            if data is None:
                continue
            if not data:
                del self._open[stream]
            text = self._decoders[stream].decode(data, not data)
            if data or text:
                self._ready.append(StreamEvent(kind, data, text))
        if self._ready:
            return self._ready.pop(0)
        if self._open or not self.run._collect():
            return None
        self._over = True
        self.run._free()
        self.result = self.run._end()
        return StreamEvent("result", result=self.result)
