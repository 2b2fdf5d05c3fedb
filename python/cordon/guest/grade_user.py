"""A submission's side of strict grading: loads the submission and answers calls, nothing else.

Runs in a sandbox of its own, together with the submission and therefore entirely at its mercy: nothing here
is trusted by anyone. Tests, expected values and results never come here; what leaves is plain data, which the
other side reads with care. Requests come on descriptor 0, answers leave on 1; both are moved away
before the submission runs, so that what it prints goes to its own output.
"""
import builtins
import io
import posix
import sys

import grade_wire as wire

NAME = "submission"
INPUT, OUTPUT = 200, 201
MAX_PRINTED = 1 << 20
_FLAGS = (("c", "__call__"), ("i", "__iter__"), ("n", "__next__"), ("l", "__len__"), ("g", "__getitem__"),
          ("w", "__enter__"), ("a", "__await__"))
_WORDS = {"and": "and_", "or": "or_"}  # operators that are words of Python
_INPUT = builtins.input
CHANGED_MAX = 8 << 20


class _Printed(io.BytesIO):
    """What was printed since the last answer, up to a bound."""

    def write(self, data):
        room = MAX_PRINTED - self.tell()
        if room > 0:
            super().write(data[:room])
        return len(data)

    def fileno(self):
        return 1


class _Side:
    def __init__(self):
        self.printed = _Printed()
        # what the submission has for standard input and output
        self.files = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
                      io.TextIOWrapper(self.printed, encoding="utf-8", errors="surrogateescape", write_through=True))
        self.module = type(sys)(NAME)
        self.module.__file__ = NAME + ".py"
        self.names = self.module.__dict__
        self.input = wire.Reader(INPUT)
        self.output = OUTPUT
        self.read = wire.decoder(self.given)
        self.objects = {}
        self.numbers = {}
        self.tokens = {}
        self.copy_back = False
        self.loop = None

    def take_lines(self):
        """Our two lines get numbers nobody expects; the submission gets streams of its own."""
        posix.dup2(0, INPUT, inheritable=False)
        posix.dup2(1, OUTPUT, inheritable=False)
        posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)
        posix.dup2(2, 1)
        sys.stdin, sys.stdout = self.files

    # -- values -------------------------------------------------------------------------------

    def other(self, value):
        """What is no plain data stays here; the tests get a number for it."""
        kind = type(value)
        if kind is object:
            for number, token in self.tokens.items():
                if token is value:
                    return '{"o":%d}' % number
        if kind.__module__ in ("decimal", "fractions", "datetime") or (
                kind.__module__ == "numpy" and hasattr(value, "dtype")) or (
                not issubclass(kind, type) and issubclass(kind, (int, float, str, bytes, bytearray, dict, list, tuple,
                                                                  set, frozenset))):
            return None
        return self.handle(value)

    def handle(self, value):
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects) + 1
            self.objects[number] = value
        kind = type(value)
        flags = "".join(flag for flag, name in _FLAGS if _has(kind, name))
        if "n" in flags and "i" in flags and kind.__module__ in ("builtins", "itertools"):
            flags = flags.replace("i", "s")
        name = getattr(value, "__name__", None) if callable(value) else None
        name = name if type(name) is str else kind.__name__
        if isinstance(value, type) and issubclass(value, Exception):
            bases = [self.handle(base) for base in value.__bases__ if issubclass(base, Exception) and base is not Exception]
            return wire.encode_handle(number, flags + ("e" if value.__module__ == NAME else "p"), _full_name(value), bases)
        return wire.encode_handle(number, flags, name)

    def given(self, tag, content):
        if tag == "h":
            return self.objects[content]
        if tag == "c":
            return _Callback(self, content)
        if tag == "g":
            return _Items(_Callback(self, content))
        if tag == "o":
            return self.tokens.setdefault(content, object())
        if tag == "n":
            return vars(builtins)[content]
        raise ValueError("an unknown tag")

    def encoded(self, value):
        return wire.encode(value, self.other)

    # -- answers ------------------------------------------------------------------------------

    def answer(self, kind, *texts):
        if sys.stdout is not self.files[1]:  # ours keeps nothing back
            try:
                sys.stdout.flush()
            except BaseException:
                pass
        out = ""
        if self.printed.tell():
            out = self.printed.getvalue().decode("utf-8", "replace")
            self.printed.seek(0)
            self.printed.truncate()
        text = "[%s]" % ",".join((wire.encode(kind), wire.encode(out)) + texts)
        wire.write_frame(self.output, b"A", text.encode("ascii"))

    def answer_error(self, error):
        kind = type(error)
        try:
            args = wire.encode([part if type(part) in (str, int, float, bool, type(None)) else str(part)
                                for part in error.args])
        except BaseException:
            args = "[]"
        try:
            text = str(error)
        except BaseException:
            text = ""
        own = itself = "null"
        line = _place(error)
        for base in kind.__mro__:
            if base.__module__ == NAME:
                own, itself = self.handle(base), self.handle(error.with_traceback(None))
                break
        thrown = getattr(error, "__cordon_thrown__", None)
        self.answer("error", wire.encode([_full_name(base) for base in kind.__mro__ if issubclass(base, BaseException)]), args,
                    wire.encode(text[:10000]), own, wire.encode(line), wire.encode(thrown if type(thrown) is int else None), itself)

    def load(self, source, options, guard):
        try:
            if guard is not None:
                rules = guard["Rules"](options["imports"])
                refused = guard["check"](rules, source)
                if refused:
                    raise ImportError(refused[0])
                builtins.__import__ = guard["_Hook"](rules, builtins.__import__)
            exec(compile(source, NAME + ".py", "exec", dont_inherit=True), self.names)
        except BaseException as e:
            self.answer_error(e)
        else:
            self.answer("ok", wire.encode([name for name in list(self.names) if type(name) is str]),
                        self.first(options.get("entry", ())))

    def first(self, names):
        """What will be asked for first, so that it need not be asked for."""
        texts = []
        for name in names:
            try:
                texts.append("%s,%s" % (wire.encode(name), self.encoded(self.names[name])))
            except BaseException:  # it says so when it is asked
                pass
        return '{"d":[%s]}' % ",".join(texts)

    def serve(self):
        """Answers requests until there are no more."""
        while True:
            try:
                kind, data = self.input.frame()
            except (EOFError, OSError):
                return
            if kind != b"Q":
                return
            self.one(data)

    def one(self, data):
        request = self.read(data)
        try:
            texts = getattr(self, "do_" + request[0])(*request[1:])
        except StopIteration as e:
            return self.answer("stop") if request[0] == "next" else self.answer_error(e)
        except BaseException as e:  # SystemExit too: a call that exits is a call that failed
            return self.answer_error(e)
        self.answer("ok", *texts)

    # -- requests -----------------------------------------------------------------------------

    def do_names(self):
        return [wire.encode([name for name in self.names if type(name) is str])]

    def do_get(self, name):
        if name not in self.names:
            return []
        return [self.encoded(self.names[name])]

    def do_call(self, number, args, keywords, repeated=()):
        for place, first in repeated:
            value = (args if type(first) is int else keywords)[first]
            (args if type(place) is int else keywords)[place] = value
        value = self.objects[number](*args, **keywords)
        texts = [self.encoded(value)]
        if self.copy_back:
            texts.append(self.encoded([args, keywords]))
        elif value is None:
            texts += self.changed(args, keywords)
        return texts

    def do_lines(self, ask, text, keeps):
        """What the tests put in the place of input() and standard input; None: what was there."""
        builtins.input = ask or _INPUT
        if not keeps:
            sys.stdin = self.files[0] if text is None else io.TextIOWrapper(
                io.BytesIO(text.encode("utf-8", "surrogatepass")), encoding="utf-8", errors="surrogatepass", newline="\n")
        return ["null"]

    def changed(self, args, keywords):
        """The arguments of a function that returns nothing: it was called for what it does to them."""
        if not any(map(wire.can_change, (*args, *keywords.values()))):
            return []
        try:
            text = self.encoded([args, keywords])
        except (wire.WireError, RecursionError):  # it is none that could be sent
            return []
        return [text] if len(text) <= CHANGED_MAX else []

    def do_attr(self, number, name):
        return [self.encoded(getattr(self.objects[number], name))]

    def do_setattr(self, number, name, value):
        setattr(self.objects[number], name, value)
        return ["null"]

    def do_delattr(self, number, name):
        delattr(self.objects[number], name)
        return ["null"]

    def do_item(self, number, key):
        return [self.encoded(self.objects[number][key])]

    def do_setitem(self, number, key, value):
        self.objects[number][key] = value
        return ["null"]

    def do_delitem(self, number, key):
        del self.objects[number][key]
        return ["null"]

    def do_op(self, number, name, other):
        import _operator
        name = _WORDS.get(name, name)
        return [self.encoded(getattr(_operator, name, divmod)(self.objects[number], other))]

    def do_unary(self, number, name, *more):
        import _operator
        import math
        work = getattr(_operator, name, None) or getattr(builtins, name, None) or getattr(math, name)
        return [self.encoded(work(self.objects[number], *more))]

    def do_has(self, number, name):
        return [wire.encode(_has(type(self.objects[number]), name))]

    def do_iter(self, number):
        return [self.handle(iter(self.objects[number]))]

    def do_next(self, number):
        return [self.encoded(next(self.objects[number]))]

    def do_len(self, number):
        return [wire.encode(len(self.objects[number]))]

    def do_bool(self, number):
        return [wire.encode(bool(self.objects[number]))]

    def do_text(self, number, how):
        return [wire.encode(str(self.objects[number]) if how == "str" else repr(self.objects[number]))]

    def do_format(self, number, spec):
        return [wire.encode(format(self.objects[number], spec))]

    def do_is(self, number, kind):
        return [wire.encode(isinstance(self.objects[number], kind))]

    def do_sub(self, number, kind):
        return [wire.encode(issubclass(self.objects[number], kind))]

    def do_await(self, number):
        if self.loop is None:
            import asyncio
            self.loop = asyncio.new_event_loop()

        async def run():
            return await self.objects[number]
        return [self.encoded(self.loop.run_until_complete(run()))]

    def do_enter(self, number):
        return [self.encoded(type(self.objects[number]).__enter__(self.objects[number]))]

    def do_exit(self, number, told):
        error = _told(*told) if told is not None else None
        leave = type(self.objects[number]).__exit__
        try:
            answer = leave(self.objects[number], type(error) if error is not None else None, error, None)
        except BaseException as e:
            if e is not error:
                raise
            answer = False
        return [wire.encode(bool(answer))]


class _Callback:
    """A function of the tests: called here, runs there."""

    def __init__(self, side, number):
        self._side, self._number = side, number

    def __call__(self, *args, **keywords):
        side = self._side
        side.answer("callback", wire.encode(self._number), side.encoded(list(args)), side.encoded(keywords))
        while True:
            kind, data = side.input.frame()
            if kind != b"Q":
                posix._exit(1)
            request = side.read(data)
            if request[0] == "return":
                return request[1]
            if request[0] == "stop":
                raise StopIteration
            if request[0] == "raise":
                error = _told(*request[2:])
                error.__cordon_thrown__ = request[1]
                raise error
            side.one(data)


class _Items:
    """An iterator of the tests."""

    def __init__(self, more):
        self._more = more

    def __iter__(self):
        return self

    def __next__(self):
        return self._more()


def _full_name(kind):
    return kind.__name__ if kind.__module__ in ("builtins", NAME) else "%s.%s" % (kind.__module__, kind.__name__)


def _told(names, args, own):
    """An exception of the tests, or one of ours that was there."""
    if isinstance(own, BaseException):
        return own
    for kind in [own] + [vars(builtins).get(name) for name in names]:
        try:
            if issubclass(kind, BaseException):
                return kind(*args)
        except Exception:
            pass
    return RuntimeError("a function of the tests failed")


def _has(kind, name):
    """Do objects of the kind have the method? Not the kind itself, whose own kind may have one."""
    for base in kind.__mro__:
        if base is not object and name in vars(base):
            return vars(base)[name] is not None
    return False


def _place(error):
    """The line of the submission an exception comes from."""
    line = 0
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == NAME + ".py":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line or getattr(error, "lineno", 0) or 0


_REHEARSAL = b"""
from typing import List, Tuple
import math

def f(numbers: List[float], limit: float) -> bool:
    \"\"\" What is looked for. \"\"\"
    for index, one in enumerate(sorted(numbers)):
        if one > limit and index % 2 == 0:
            return True
    return len(str(limit)) == len([one for one in numbers])
"""
_QUESTIONS = (b'["get","f"]', b'["call",1,[[1.0,2.5,3],0.3],{"d":[]}]', b'["call",1,[[1],"a"],{"d":[]}]',
              b'["call",1,[["a",null,true,{"t":[1]}],{"d":["a",1]}],{"d":[]}]')


def prepared():
    """A side that has done all of it already, with a submission and questions of no consequence: what an interpreter
    writes to its memory when something is done for the first time, its copies need not write."""
    read, write = posix.pipe()
    for _ in range(12):
        side = _Side()
        side.output = write
        side.load(_REHEARSAL, {"entry": ["f"]}, None)
        for question in _QUESTIONS:
            side.one(question)
        posix.read(read, 1 << 16)
    posix.close(read)
    posix.close(write)
    return _Side()


def main(options, source, guard, side=None):
    """options: what the caller said; source: the submission's text; guard: module control, or None; side: one that was
    prepared before."""
    side = side or _Side()
    side.take_lines()
    side.copy_back = bool(options.get("copy_back"))
    for name in (NAME, "__main__", options.get("module")):
        if name:
            sys.modules[name] = side.module
    sys.argv = [NAME + ".py"]
    sys.path.insert(0, posix.getcwd())
    for name in ("grade_wire", "grade_user"):
        sys.modules.pop(name, None)
    side.load(source, options, guard)
    side.serve()
    posix._exit(0)
