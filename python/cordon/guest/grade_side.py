"""The tests' view of a submission: handles, names and exceptions. Runs in the sandbox of the tests.

Nothing of the submission's runs here. What it returns is plain data of exact builtin types or a handle; a
handle can be called, read, iterated, indexed and passed back, each of which is a question to the other side.
It has operators for other handles only: `f(x) - 3`, `f(x) < 3` or `f(x) == 3` would hand the expected value over
and believe the answer. `==` between handles is what their classes say, and never true of anything else.
"""
import _io
import _thread
import builtins
import opcode
import os
import sys

import grade_wire as wire

MAX_TEXT = 10000


class SubmissionGone(BaseException):
    """The submission ended: nothing more can be asked. Not an Exception, so that no test swallows it."""


class Trouble(BaseException):
    """What is nobody's exception: no test waits for it, and one that swallows it has not passed (Suite.result)."""

    seen = None

    def __init__(self, text):
        super().__init__(text)
        Trouble.seen = text


class Missing(Trouble):
    """A name that the submission does not define."""

    def __init__(self, name):
        super().__init__("the submission does not define %r" % name)


class CannotCross(Trouble):
    """Something only one interpreter for both could do."""

    def __init__(self, what):
        super().__init__("%s (in-process mode would allow it)" % what)


class SubmissionError(Exception):
    """An exception of the submission that has no counterpart among the tests' own."""

    def __init__(self, *args):
        pass  # the arguments are there, and all there is: the constructors of some bases want others

    def __str__(self):
        words = vars(self).get("__cordon_words__")
        return super().__str__() if words is None else words

    def __getattr__(self, name):
        itself = vars(self).get("__cordon_itself__")
        if itself is None or name.startswith("__"):
            raise AttributeError("%r has no attribute %r" % (type(self).__name__, name))
        return getattr(itself, name)


# Never AssertionError, StopIteration or what is outside Exception: with those a submission could end a loop
# or a test of somebody else's. Those whose constructors want more than a text are in the other table.
EXCEPTIONS = {name: value for name, value in vars(builtins).items()
              if isinstance(value, type) and issubclass(value, Exception) and value is not Exception
              and name not in ("AssertionError", "StopIteration", "StopAsyncIteration", "UnicodeDecodeError",
                               "UnicodeEncodeError", "UnicodeTranslateError", "ExceptionGroup")}
_LIBRARY = frozenset("""UnicodeDecodeError UnicodeEncodeError UnicodeTranslateError json.decoder.JSONDecodeError re.error struct.error
    dataclasses.FrozenInstanceError decimal.InvalidOperation decimal.DivisionByZero decimal.Overflow statistics.StatisticsError
    binascii.Error _queue.Empty queue.Full _csv.Error configparser.NoSectionError configparser.NoOptionError""".split())


def _of_python(name):
    """A class of exceptions of Python's own; of those in a module only if somebody here has it already."""
    if name in _LIBRARY:
        module, _, short = name.rpartition(".")
        return getattr(sys.modules.get(module or "builtins"), short, None)
    return EXCEPTIONS.get(name)


def _of_submission(name, number, bases):
    """A class for one of the submission's, below what it is below there."""
    if not any(issubclass(base, SubmissionError) for base in bases):
        bases = (SubmissionError, *bases)
    contents = {"__module__": "submission"} if number is None else {"__module__": "submission", "__cordon_number__": number}
    try:
        return type(name or "Exception", bases, contents)
    except TypeError:  # no order or no layout for all of them
        return type(name or "Exception", (SubmissionError,), contents)


class Handle:
    """Something of the submission's. Its own names are none that a program has."""

    __slots__ = ("__cordon_side__", "__cordon_number__", "__cordon_name__", "__weakref__")

    def __init__(self, side, number, name):
        if not isinstance(side, Side):  # `class Ours(Theirs)`
            raise CannotCross("a class of the submission's cannot be a base of the tests' own")
        object.__setattr__(self, "__cordon_side__", side)
        object.__setattr__(self, "__cordon_number__", number)
        object.__setattr__(self, "__cordon_name__", name)

    def __cordon_ask__(self, what, *values):
        return self.__cordon_side__.ask(what, self.__cordon_number__, *values)

    def __getattr__(self, name):
        if name == "__name__" and hasattr(type(self), "__call__"):
            return self.__cordon_name__
        if name.startswith("__"):
            raise AttributeError("%r has no attribute %r" % (self.__cordon_name__, name))
        return self.__cordon_ask__("attr", name)

    def __setattr__(self, name, value):
        self.__cordon_ask__("setattr", name, value)

    def __delattr__(self, name):
        self.__cordon_ask__("delattr", name)

    def __bool__(self):
        return self.__cordon_ask__("bool") is True

    def __str__(self):
        return _text(self.__cordon_ask__("text", "str"))

    def __repr__(self):
        return _text(self.__cordon_ask__("text", "repr"))

    def __format__(self, spec):
        return _text(self.__cordon_ask__("format", spec))

    # Equal to values of the tests' own is nothing of the submission's, whatever it says. What two of its own objects
    # are to each other only its classes know.
    def __eq__(self, other):
        return self is other or (isinstance(other, Handle) and self.__cordon_ask__("op", "eq", other) is True)

    def __ne__(self, other):
        return self is not other and (not isinstance(other, Handle) or self.__cordon_ask__("op", "ne", other) is True)

    def __hash__(self):
        return id(self)

    def __contains__(self, item):
        if isinstance(item, Handle):
            return self.__cordon_ask__("op", "contains", item) is True
        if hasattr(type(self), "__iter__") or hasattr(type(self), "__getitem__"):
            return any(one is item or one == item for one in self)
        return _refused(self, "__contains__", "in")

    def __instancecheck__(self, value):
        return isinstance(value, Handle) and value.__cordon_ask__("is", self) is True

    def __subclasscheck__(self, kind):
        return isinstance(kind, Handle) and kind.__cordon_ask__("sub", self) is True


def _refused(handle, method, sign):
    """An operator with a value of the tests' own: the value stays here. Without the method it is Python's TypeError."""
    if handle.__cordon_ask__("has", method) is True:
        raise CannotCross("%s between an object of the submission's and a value of the tests' cannot be asked" % sign)
    raise TypeError("unsupported operand for %s: %r" % (sign, handle.__cordon_name__))


def _operator(name, method, turned=False):
    def operate(self, other, *more):
        if not isinstance(other, Handle) or more:
            return _refused(self, method, name.strip("_"))
        left, right = (other, self) if turned else (self, other)
        return left.__cordon_ask__("op", name, right)
    return operate


def _unary(name):
    return lambda self, *more: self.__cordon_ask__("unary", name, *more)


for _name in "add sub mul truediv floordiv mod pow matmul lshift rshift and or xor divmod".split():
    setattr(Handle, "__%s__" % _name, _operator(_name, "__%s__" % _name))
    setattr(Handle, "__r%s__" % _name, _operator(_name, "__r%s__" % _name, turned=True))
    if _name != "divmod":
        setattr(Handle, "__i%s__" % _name, _operator("i" + _name, "__%s__" % _name))
for _name in "lt le gt ge".split():
    setattr(Handle, "__%s__" % _name, _operator(_name, "__%s__" % _name))
for _name in "neg pos abs invert int float complex index round trunc floor ceil".split():
    setattr(Handle, "__%s__" % _name, _unary(_name))


class _Callable:
    __slots__ = ()

    def __call__(self, *args, **keywords):
        return self.__cordon_side__.call(self.__cordon_number__, args, keywords)


class _Iterable:
    __slots__ = ()

    def __iter__(self):
        return self.__cordon_ask__("iter")


class _Itself:
    """An iterator of Python's own, for which that need not be asked."""

    __slots__ = ()

    def __iter__(self):
        return self


class _Iterator:
    __slots__ = ()

    def __next__(self):
        return self.__cordon_ask__("next")


class _Sized:
    __slots__ = ()

    def __len__(self):
        return _whole(self.__cordon_ask__("len"))


class _Indexed:
    __slots__ = ()

    def __getitem__(self, key):
        return self.__cordon_ask__("item", key)

    def __setitem__(self, key, value):
        self.__cordon_ask__("setitem", key, value)

    def __delitem__(self, key):
        self.__cordon_ask__("delitem", key)


class _Context:
    __slots__ = ()

    def __enter__(self):
        return self.__cordon_ask__("enter")

    def __exit__(self, kind, error, trace):
        return self.__cordon_side__.leave(self, error, trace)


class _Awaitable:
    """A coroutine of the submission's: it runs there, to its end, when it is awaited here."""

    __slots__ = ()

    def __await__(self):
        return self.__cordon_ask__("await")
        yield

    def send(self, value):
        raise StopIteration(self.__cordon_ask__("await"))

    def throw(self, kind, value=None, trace=None):
        raise kind if value is None else value

    def close(self):
        pass


_PARTS = {"a": _Awaitable, "c": _Callable, "s": _Itself, "n": _Iterator, "i": _Iterable, "l": _Sized, "g": _Indexed,
          "w": _Context}
_kinds = {}


def _kind(flags):
    found = _kinds.get(flags)
    if found is None:
        parts = [part for flag, part in _PARTS.items() if flag in flags]
        words = property(lambda self: self.__cordon_ask__("attr", "__doc__"))
        found = _kinds[flags] = type("Handle", (*parts, Handle), {"__slots__": (), "__doc__": words})
    return found


def _text(value):
    return value if type(value) is str else "<not a text>"


def _whole(value):
    if type(value) is not int:
        raise TypeError("the length is not a whole number")
    return value


class Side:
    """The other sandbox, seen from this one."""

    def __init__(self, reader, output_fd, copy_back):
        self._input, self._output = reader, output_fd
        self._read = wire.decoder(self._handle)
        self._copy_back = copy_back
        self._handles = {}
        self._callbacks = []
        self._thrown = []  # exceptions of functions of the tests
        self._tokens = []  # what is object() and nothing more
        self._first = {}  # values of names that came with its list of names
        self._lines = (builtins.input, None)  # what the submission reads from: input(), text of standard input
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
            raise CannotCross("%s to the submission" % e) from None
        first = len(self._thrown)
        with self._turn:
            self._send(text)
            answer = self._receive()
            while answer[0] == "callback" and len(answer) == 5:
                self._call_back(*answer[2:])
                answer = self._receive()
        if answer[0] == "stop" and what == "next":
            raise StopIteration
        self._raise(answer, first)
        if len(answer) == 2 and what != "get":
            self._breach("an answer without a value")
        return answer[2:] or (_MISSING,)

    def _stand_in(self):
        """What the tests put in the place of input() and standard input stands there for the submission, too."""
        stdin = sys.stdin
        if type(stdin) not in (_io.StringIO, _io.TextIOWrapper) or stdin is sys.__stdin__ or stdin.closed:
            stdin = None
        with self._turn:
            asked, stood = self._lines
            text = None if stdin is None else stdin.read()  # more of it: set back, or written to
            if asked is builtins.input and stood is stdin and not text:
                return
            self._lines = builtins.input, stdin
            keeps = stood is stdin and not text
            self.ask("lines", None if builtins.input is _INPUT else builtins.input, text, keeps)

    def call(self, number, args, keywords):
        self._stand_in()
        answer = self._finish("call", (number, list(args), keywords, *_repeated(args, keywords)))
        if len(answer) == 2 and (self._copy_back or answer[0] is None and _is_statement(sys._getframe(2))):
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
        if tag == "o" and type(content) is int and 0 <= content < len(self._tokens):
            return self._tokens[content]
        if tag != "h" or type(content) is not list or not 3 <= len(content) <= 4:
            raise ValueError("an unknown tag")
        number, flags, name = content[:3]
        if type(number) is not int or type(flags) is not str or type(name) is not str or len(flags) > 20:
            raise ValueError("not a handle")
        found = self._handles.get(number)
        if found is None:
            if "e" in flags or "p" in flags:
                bases = content[3] if len(content) == 4 else None
                if type(bases) is not list or len(bases) > 20 or not all(isinstance(base, type) and issubclass(base, Exception) for base in bases):
                    raise ValueError("not a class of exceptions")
                found = _of_python(name) if "p" in flags else None
                found = found or _of_submission(name.rpartition(".")[2], number, tuple(dict.fromkeys(bases)))
            else:
                found = _kind("".join(sorted(set(flags) & set(_PARTS))))(self, number, name)
            self._handles[number] = found
        return found

    def _other(self, value):
        if isinstance(value, Handle):
            return '{"h":%d}' % value.__cordon_number__
        if hasattr(type(value), "__cordon_its__"):  # a deferred name
            return wire.encode(value.__cordon_its__(), self._other)
        if isinstance(value, type) and issubclass(value, SubmissionError) and "__cordon_number__" in vars(value):
            return '{"h":%d}' % value.__cordon_number__
        if type(value) is object:
            return '{"o":%d}' % _number(self._tokens, value)
        if hasattr(type(value), "__next__") and type(value).__module__ in ("builtins", "itertools"):
            return '{"g":%d}' % _number(self._callbacks, value.__next__)
        if callable(value) and not isinstance(value, type):
            return '{"c":%d}' % _number(self._callbacks, value)
        if isinstance(value, type) and vars(builtins).get(value.__name__) is value:
            return '{"n":%s}' % wire.encode(value.__name__)
        return None

    def _call_back(self, number, args, keywords):
        if type(number) is not int or not 0 <= number < len(self._callbacks) or type(args) is not list \
                or type(keywords) is not dict or not all(type(name) is str for name in keywords):
            self._breach("a call of nothing")
        try:
            text = self._returned(self._callbacks[number](*args, **keywords))
        except StopIteration:
            text = '["stop"]'
        except Exception as e:
            if isinstance(e, AssertionError):
                Trouble(_lost(e))  # also when the submission makes light of it
            self._thrown.append(e)
            text = wire.encode(["raise", len(self._thrown) - 1, *self._told(e, not isinstance(e, AssertionError))], self._other)
        self._send(text)

    def _returned(self, value):
        try:
            return wire.encode(["return", value], self._other)
        except wire.WireError as e:
            CannotCross("%s to the submission" % e)
            return '["raise",-1,[],[],null]'

    def _raise(self, answer, first=0):
        """first: of the exceptions of the tests' own that this question has met."""
        if answer[0] == "ok":
            return
        if answer[0] != "error":
            self._breach("an answer of no known kind")
        kinds, args, text, own, line, thrown, itself = (answer[2:] + [None] * 7)[:7]
        if type(thrown) is int and first <= thrown < len(self._thrown):
            error = self._thrown[thrown]
            Trouble.seen = None if Trouble.seen == _lost(error) else Trouble.seen
            raise error
        kinds = [kind for kind in kinds if type(kind) is str] if type(kinds) is list else []
        args = args if type(args) is list else []
        text = _text(text)[:MAX_TEXT]
        name = kinds[0].rpartition(".")[2] if kinds else "an error"
        kind = next(filter(None, map(_of_python, kinds)), None)
        if isinstance(own, type) and issubclass(own, SubmissionError):
            error = own(*args)
            error.__cordon_words__ = text
            error.__cordon_itself__ = itself if isinstance(itself, Handle) else None
        elif kind is None:
            error = SubmissionError("%s: %s" % (name, text))
        elif EXCEPTIONS.get(kind.__name__) is kind:
            error = kind(*(args if not issubclass(kind, SyntaxError) else [text]))
        else:
            error = _of_submission(kind.__name__, None, (kind,))(*args)
            error.__cordon_words__ = text
        error.__cordon_line__ = line if type(line) is int else 0
        error.__cordon_kind__ = name
        error.__cordon_text__ = text
        raise error

    # -- exceptions of the tests ----------------------------------------------------------------

    @staticmethod
    def _told(error, whole):
        """An exception for the other side: names, arguments, and what of it is theirs. Those of an assertion have
        expected values in them."""
        names = [kind.__name__ for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind]
        args = [part if type(part) in (str, int, float, bool, type(None)) else str(part) for part in error.args] if whole else []
        own = next((kind for kind in type(error).__mro__ if "__cordon_number__" in vars(kind)), None)
        return [names, args, vars(error).get("__cordon_itself__") or own]

    def leave(self, handle, error, trace):
        """__exit__ of a context of theirs. It may end what a `raise` below its own `with` began, and nothing else:
        with the rest it could end tests that fail."""
        if error is None:
            return self.ask("exit", handle.__cordon_number__, None) is True
        if isinstance(error, (SubmissionGone, Trouble)):
            return False
        passing = not isinstance(error, Exception) or isinstance(error, AssertionError)
        ours = hasattr(error, "__cordon_kind__")
        raised = not passing and not ours and (trace is None or _is_raised(trace))  # without a trace: a call, not a `with`
        try:
            answer = self.ask("exit", handle.__cordon_number__, self._told(error, raised or ours))
        except Exception:
            if passing:
                return False
            raise
        if answer is True and not passing and not raised:
            raise CannotCross("%s, which no `raise` of the tests' began here, was suppressed by __exit__ of the submission's"
                              % type(error).__name__) from error
        return answer is True and raised


_RAISE, _CONST = opcode.opmap["RAISE_VARARGS"], opcode.opmap["LOAD_CONST"]


def _is_raised(trace):
    """By the block itself: a `raise`, or an operation with constants (1 / 0)."""
    code, last = trace.tb_frame.f_code.co_code, trace.tb_lasti
    return trace.tb_next is None and (code[last] == _RAISE or opcode.opname[code[last]].startswith("BINARY_")
                                      and last >= 4 and code[last - 2] == code[last - 4] == _CONST)


_INPUT = builtins.input


def _lost(error):
    return "a function of the tests failed: %s" % (str(error) or "AssertionError")


_POP, _PRINT = opcode.opmap["POP_TOP"], opcode.opmap.get("PRINT_EXPR")
_INTRINSIC = opcode.opmap.get("CALL_INTRINSIC_1")  # 1: what PRINT_EXPR was before Python 3.12


def _is_statement(frame):
    """Is nothing done with what this call gives, but to show it where it is an example of a doctest?"""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == 0:  # caches
        at += 2
    return at < len(code) and (code[at] in (_POP, _PRINT) or code[at] == _INTRINSIC and code[at + 1] == 1)


_MISSING = object()


def _number(row, value):
    row.append(value)
    return len(row) - 1


def _repeated(args, keywords):
    """Which arguments are one object: [[place, first place]], nothing without. Else each would be a copy of its own."""
    first, same = {}, []
    for place, value in (*enumerate(args), *keywords.items()):
        if wire.can_change(value) and first.setdefault(id(value), place) != place:
            same.append([place, first[id(value)]])
    return (same,) if same else ()


def _copy_into(ours, theirs):
    """What a function did to its argument."""
    if type(ours) is not type(theirs) or not _is_plain(theirs):
        return
    if type(ours) in (list, bytearray):
        ours[:] = theirs
    elif isinstance(ours, (dict, set)):
        ours.clear()
        ours.update(theirs)
    elif wire.is_deque(ours):
        ours.clear()
        ours.extend(theirs)


def _is_plain(value):
    """Nothing in it is asked of the submission."""
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)) or wire.is_deque(value):
        return all(map(_is_plain, value))
    return not isinstance(value, Handle)
