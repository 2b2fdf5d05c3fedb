"""The tests' view of a submission: handles, names and exceptions. Runs in the sandbox of the tests.

Nothing of the submission's runs here. What it returns is plain data of exact builtin types or a handle; a
handle can be called, read, iterated, indexed and passed back, each of which is a question to the other side.
It has no operators: `f(x) - 3`, `3 in f(x)` or `f(x) == 3` would hand the expected value over and
believe the answer. `==` with a handle is identity.
"""
import _thread
import builtins
import os
import sys

import grade_wire as wire

MAX_TEXT = 10000


class SubmissionGone(BaseException):
    """The submission ended: nothing more can be asked. Not an Exception, so that no test swallows it."""


class SubmissionError(Exception):
    """An exception of the submission that has no counterpart among the tests' own."""


# Never AssertionError, StopIteration or what is outside Exception: with those a submission could end a loop
# or a test of somebody else's. Those whose constructors want more than a text are told by their base.
EXCEPTIONS = {name: value for name, value in vars(builtins).items()
              if isinstance(value, type) and issubclass(value, Exception) and value is not Exception
              and name not in ("AssertionError", "StopIteration", "StopAsyncIteration", "UnicodeDecodeError",
                               "UnicodeEncodeError", "UnicodeTranslateError", "ExceptionGroup")}


class Handle:
    """Something of the submission's."""

    __slots__ = ("_side", "_number", "_name", "__weakref__")

    def __init__(self, side, number, name):
        object.__setattr__(self, "_side", side)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name):
        if name == "__name__" and hasattr(type(self), "__call__"):
            return self._name
        if name.startswith("__") and name != "__doc__":
            raise AttributeError("%r has no attribute %r" % (self._name, name))
        return self._side.ask("attr", self._number, name)

    def __setattr__(self, name, value):
        self._side.ask("setattr", self._number, name, value)

    def __bool__(self):
        return self._side.ask("bool", self._number) is True

    def __str__(self):
        return _text(self._side.ask("text", self._number, "str"))

    def __repr__(self):
        return _text(self._side.ask("text", self._number, "repr"))

    def __format__(self, spec):
        return format(str(self), spec)

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return self is not other

    def __hash__(self):
        return id(self)

    def __instancecheck__(self, value):
        return isinstance(value, Handle) and self._side.ask("is", value._number, self._number) is True


class _Callable:
    __slots__ = ()

    def __call__(self, *args, **keywords):
        return self._side.call(self._number, args, keywords)


class _Iterable:
    __slots__ = ()

    def __iter__(self):
        return self._side.ask("iter", self._number)


class _Iterator:
    __slots__ = ()

    def __iter__(self):
        return self

    def __next__(self):
        return self._side.ask("next", self._number)


class _Sized:
    __slots__ = ()

    def __len__(self):
        return _whole(self._side.ask("len", self._number))


class _Indexed:
    __slots__ = ()

    def __getitem__(self, key):
        return self._side.ask("item", self._number, key)

    def __setitem__(self, key, value):
        self._side.ask("setitem", self._number, key, value)


class _Context:
    __slots__ = ()

    def __enter__(self):
        return self._side.ask("enter", self._number)

    def __exit__(self, *exc):
        self._side.ask("exit", self._number)
        return False


class _Awaitable:
    """A coroutine of the submission's: it runs there, to its end, when it is awaited here."""

    __slots__ = ()

    def __await__(self):
        return self._side.ask("await", self._number)
        yield

    def send(self, value):
        raise StopIteration(self._side.ask("await", self._number))

    def throw(self, kind, value=None, trace=None):
        raise kind if value is None else value

    def close(self):
        pass


_PARTS = {"a": _Awaitable, "c": _Callable, "n": _Iterator, "i": _Iterable, "l": _Sized, "g": _Indexed, "w": _Context}
_kinds = {}


def _kind(flags):
    found = _kinds.get(flags)
    if found is None:
        parts = [part for flag, part in _PARTS.items() if flag in flags and not (flag == "i" and "n" in flags)]
        found = _kinds[flags] = type("Handle", (*parts, Handle), {"__slots__": ()})
    return found


def _text(value):
    return value if type(value) is str else "<not a text>"


def _whole(value):
    if type(value) is not int:
        raise TypeError("the length is not a whole number")
    return value


class Missing(BaseException):
    """A name that the submission does not define: no exception that tests could be waiting for."""


class Deferred:
    """A name of the submission's that was imported before the submission runs."""

    def __init__(self, suite, name):
        self.suite, self.name = suite, name

    def _its(self):
        try:
            return self.suite.its(self.name)
        except KeyError:
            raise Missing("the submission does not define %r" % self.name) from None

    def __call__(self, *args, **keywords):
        return self._its()(*args, **keywords)

    def __iter__(self):
        return iter(self._its())

    def __getitem__(self, key):
        return self._its()[key]

    def __len__(self):
        return len(self._its())


class Side:
    """The other sandbox, seen from this one."""

    def __init__(self, reader, output_fd, copy_back):
        self._input, self._output = reader, output_fd
        self._read = wire.decoder(self._handle)
        self._copy_back = copy_back
        self._handles = {}
        self._callbacks = []
        self._first = {}  # values of names that came with its list of names
        self._turn = _thread.RLock()  # tests may have threads; the submission answers one question after the other
        self.gone = None
        self.asking = False  # an answer is due, or in the middle of being read
        self.received = 0  # bytes

    # -- the line -----------------------------------------------------------------------------

    def _receive(self):
        self.asking = True
        kind, data = self._input.frame()
        self.asking = False
        if kind == b"X":
            self.gone = str(data, "utf-8", "replace")
            raise SubmissionGone(self.gone)
        if kind != b"A":
            os._exit(70)
        self.received += len(data)
        try:
            answer = self._read(data)
            if type(answer) is not list or len(answer) < 2 or type(answer[0]) is not str \
                    or type(answer[1]) is not str:
                raise wire.WireError("not an answer")
        except (wire.WireError, UnicodeDecodeError) as e:
            self._breach(str(e)[:200])
        if answer[1]:
            sys.stdout.write(answer[1])
        return answer

    def _breach(self, what):
        """It does not keep to the protocol: it is not asked again. A failed test, never a fault of ours."""
        self.gone = "the submission sent what is no answer: " + what
        raise SubmissionGone(self.gone) from None

    def _send(self, text):
        if self.gone is not None:
            raise SubmissionGone(self.gone)
        self.asking = True
        wire.write_frame(self._output, b"Q", text.encode("ascii"))

    def wait_loaded(self):
        """The submission's names; SubmissionGone or the exception it ended its import with."""
        answer = self._receive()
        self._raise(answer)
        if len(answer) != 4 or type(answer[2]) is not list or type(answer[3]) is not dict:
            self._breach("not its names")
        self._first = answer[3]
        return {name for name in answer[2] if type(name) is str}

    def ask(self, what, *values):
        return self._finish(what, values)[0]

    def _finish(self, what, values):
        try:
            text = wire.encode([what, *values], self._other)
        except wire.WireError as e:
            raise TypeError("%s to the submission (in-process mode would allow it)" % e) from None
        with self._turn:
            self._send(text)
            answer = self._receive()
            while answer[0] == "callback" and len(answer) == 5:
                self._call_back(*answer[2:])
                answer = self._receive()
        if answer[0] == "stop" and what == "next":
            raise StopIteration
        self._raise(answer)
        if len(answer) == 2 and what != "get":
            self._breach("an answer without a value")
        return answer[2:] or (_MISSING,)

    def call(self, number, args, keywords):
        answer = self._finish("call", (number, list(args), keywords))
        if self._copy_back and len(answer) == 2:
            back = answer[1]
            if type(back) is list and len(back) == 2 and type(back[0]) is list and type(back[1]) is dict:
                for ours, theirs in zip(args, back[0]):
                    _copy_into(ours, theirs)
                for name, ours in keywords.items():
                    _copy_into(ours, back[1].get(name))
        return answer[0]

    def get(self, name):
        """The value of one of its names; KeyError without."""
        value = self._first.pop(name, _MISSING)
        if value is _MISSING:
            value = self.ask("get", name)
        if value is _MISSING:
            raise KeyError(name)
        return value

    # -- values -------------------------------------------------------------------------------

    def _handle(self, tag, content):
        if tag != "h" or type(content) is not list or len(content) != 3:
            raise ValueError("an unknown tag")
        number, flags, name = content
        if type(number) is not int or type(flags) is not str or type(name) is not str or len(flags) > 10:
            raise ValueError("not a handle")
        found = self._handles.get(number)
        if found is None:
            if "e" in flags:
                name, _, base = name.partition("|")
                if name == base and base in EXCEPTIONS:  # another name for one of Python's own
                    return EXCEPTIONS[base]
                bases = (SubmissionError,) + ((EXCEPTIONS[base],) if base in EXCEPTIONS else ())
                found = type(name or "Exception", bases, {"_number": number, "__module__": "submission"})
            else:
                found = _kind("".join(sorted(set(flags) & set(_PARTS))))(self, number, name)
            self._handles[number] = found
        return found

    def _other(self, value):
        if isinstance(value, Handle):
            return '{"h":%d}' % value._number
        if isinstance(value, type) and issubclass(value, SubmissionError) and "_number" in vars(value):
            return '{"h":%d}' % value._number
        if callable(value) and not isinstance(value, type):
            self._callbacks.append(value)
            return '{"c":%d}' % (len(self._callbacks) - 1)
        if isinstance(value, type) and vars(builtins).get(value.__name__) is value:
            return '{"n":%s}' % wire.encode(value.__name__)
        return None

    def _call_back(self, number, args, keywords):
        if type(number) is not int or not 0 <= number < len(self._callbacks) or type(args) is not list \
                or type(keywords) is not dict or not all(type(name) is str for name in keywords):
            self._breach("a call of nothing")
        try:
            text = wire.encode(["return", self._callbacks[number](*args, **keywords)], self._other)
        except Exception:
            text = '["raise"]'
        self._send(text)

    def _raise(self, answer):
        if answer[0] == "ok":
            return
        if answer[0] != "error":
            self._breach("an answer of no known kind")
        kinds, args, text, own, line = (answer[2:] + [None] * 5)[:5]
        kinds = [kind for kind in kinds if type(kind) is str] if type(kinds) is list else []
        args = args if type(args) is list else []
        text = _text(text)[:MAX_TEXT]
        kind = next((EXCEPTIONS[kind] for kind in kinds if kind in EXCEPTIONS), None)
        if isinstance(own, type) and issubclass(own, SubmissionError):
            kind = own
        if kind is None:
            error = SubmissionError("%s: %s" % (kinds[0] if kinds else "an error", text))
        else:
            error = kind(*(args if not issubclass(kind, SyntaxError) else [text]))
        error.__cordon_line__ = line if type(line) is int else 0
        error.__cordon_kind__ = kinds[0] if kinds else "an error"
        error.__cordon_text__ = text
        raise error


_MISSING = object()


def _copy_into(ours, theirs):
    """What a function did to its argument, for tasks whose functions change them."""
    if type(ours) is not type(theirs):
        return
    if type(ours) in (list, bytearray):
        ours[:] = theirs
    elif type(ours) in (dict, set):
        ours.clear()
        ours.update(theirs)


class Names(dict):
    """The builtins of test code, and behind them what only the submission defines."""

    def __init__(self, lookup):
        super().__init__(vars(builtins))
        self._lookup = lookup

    def __missing__(self, name):
        if name.startswith("__"):
            raise KeyError(name)
        return self._lookup(name)
