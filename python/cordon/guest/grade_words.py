"""Names of the submission's in test code; and what a test came to, in words: values, exceptions, and the output it
made. Runs in the sandbox of the tests."""
import ast
import builtins
import io
import operator
import sys

import grade_side as side_module
import grade_wire as wire
from grade_side import Missing

MAX_OUTPUT = 64 * 1024


# ---- names of the submission's in test code ------------------------------------------------------

_CALLED = "(...)"


class Deferred:
    """A name of the submission's that was imported before the submission runs, or that it does not define. Every use is
    one of what it stands for. While tests are only counted it can be called; what that gives stands for nothing."""

    def __init__(self, suite, *path):
        vars(self).update(__cordon_suite__=suite, __cordon_path__=path)

    def __cordon_its__(self):
        suite, (name, *more) = self.__cordon_suite__, self.__cordon_path__
        try:
            value = suite.its(name)
        except KeyError:
            raise Missing(name) from None
        if _CALLED in more:
            raise side_module.Trouble("the tests kept %r from when they were counted" % self)
        for part in more:
            value = getattr(value, part)
        return value

    def __call__(self, *args, **keywords):
        if self.__cordon_suite__.side is None:
            return Deferred(self.__cordon_suite__, *self.__cordon_path__, _CALLED)
        return self.__cordon_its__()(*args, **keywords)

    def __getattr__(self, name):
        if name.startswith("_"):  # what pytest asks everything for
            raise AttributeError(name)
        if self.__cordon_suite__.side is None:
            return Deferred(self.__cordon_suite__, *self.__cordon_path__, name)
        return getattr(self.__cordon_its__(), name)

    def __setattr__(self, name, value):
        setattr(self.__cordon_its__(), name, value)

    def __repr__(self):
        return "<%s of the submission>" % ".".join(self.__cordon_path__).replace("." + _CALLED, _CALLED)

    def __hash__(self):
        return id(self) if self.__cordon_suite__.side is None else hash(self.__cordon_its__())

    def __instancecheck__(self, value):
        return isinstance(value, self.__cordon_its__())

    def __subclasscheck__(self, kind):
        return issubclass(kind, self.__cordon_its__())


def _use(method):
    def use(self, *args, **keywords):
        return getattr(self.__cordon_its__(), method)(*args, **keywords)
    return use


def _function(work, turned=False):
    if turned:
        return lambda self, other: work(other, self.__cordon_its__())
    return lambda self, *others: work(self.__cordon_its__(), *others)


for _name in "eq ne lt le gt ge add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor neg pos abs invert index getitem " \
             "setitem delitem contains".split():
    _work = getattr(operator, _name)
    setattr(Deferred, "__%s__" % _name.strip("_"), _function(_work))
    if _name in "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split():
        setattr(Deferred, "__r%s__" % _name.strip("_"), _function(_work, turned=True))
for _name, _work in {"bool": bool, "str": str, "int": int, "float": float, "complex": complex, "round": round, "divmod": divmod,
                     "iter": iter, "next": next, "len": len, "reversed": reversed, "format": format}.items():
    setattr(Deferred, "__%s__" % _name, _function(_work))
for _name in ("__enter__", "__exit__", "__await__"):
    setattr(Deferred, _name, _use(_name))


def perhaps_missing(tree):
    """Names the tests look for on purpose: in a `try` that has a handler of NameError."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(isinstance(inner, ast.Name) and inner.id == "NameError" for handler in node.handlers
                                             if handler.type is not None for inner in ast.walk(handler.type)):
            found.update(inner.id for part in node.body for inner in ast.walk(part) if isinstance(inner, ast.Name))
    return found


class Names(dict):
    """The builtins of test code, and behind them what only the submission defines."""

    def __init__(self, lookup, perhaps=()):
        super().__init__(vars(builtins))
        self._lookup, self._perhaps = lookup, perhaps

    def __missing__(self, name):
        if name.startswith("__"):
            raise KeyError(name)
        try:
            return self._lookup(name)
        except KeyError:
            if name in self._perhaps:
                raise
            raise Missing(name) from None


# ---- arrays without elements ---------------------------------------------------------------------

_kinds = []


def _empty_array(array):
    """An array without elements equals every number, for numpy and pytest: no element of it differs. One of a submission's
    equals what is empty, too, and nothing else, and there is no difference between it and something."""
    if _kinds:
        return array.view(_kinds[0])
    import numpy

    class Empty(numpy.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
            inputs = [numpy.asarray(part) for part in inputs]
            if method == "__call__" and any(part.size for part in inputs):
                if ufunc in (numpy.equal, numpy.not_equal):
                    return numpy.bool_(ufunc is numpy.not_equal)
                if ufunc in (numpy.add, numpy.subtract):
                    raise side_module.Trouble("an empty array of the submission's has no difference to what is not empty")
            if keywords.get("out"):
                keywords["out"] = tuple(numpy.asarray(part) for part in keywords["out"])
            answer = getattr(ufunc, method)(*inputs, **keywords)
            return answer.view(Empty) if isinstance(answer, numpy.ndarray) and not answer.size else answer

        def __array_function__(self, function, kinds, args, keywords):
            if function in (numpy.allclose, numpy.isclose, numpy.array_equiv) and any(
                    numpy.asarray(part).size for part in args[:2]):
                return numpy.bool_(False)
            return super().__array_function__(function, kinds, args, keywords)

        @property
        def flat(self):
            """pytest.approx(3.5) looks for an element that differs."""
            asks = sys._getframe(1).f_globals.get("__name__")
            return iter([None]) if asks == "_pytest.python_api" else numpy.asarray(self).flat

    _kinds.append(Empty)
    return array.view(Empty)


wire.empty_array = _empty_array


# ---- words ---------------------------------------------------------------------------------------


def clean(text):
    """Text every reader takes: no NUL, no half surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def shown(value):
    """A value for a message: bounded, and never by asking the submission."""
    if isinstance(value, side_module.Handle):
        return "<%s of the submission>" % value.__cordon_name__
    try:
        text = repr(value)
    except Exception as e:
        text = "<a value whose repr raises %s>" % type(e).__name__
    return text if len(text) <= 500 else text[:240] + " ... " + text[-240:]


def describe(error):
    if isinstance(error, side_module.Trouble):
        return str(error)
    kind = getattr(error, "__cordon_kind__", type(error).__name__)
    try:
        text = getattr(error, "__cordon_text__", None)
        text = str(error) if text is None else text
    except Exception:
        text = ""
    line = getattr(error, "__cordon_line__", 0)
    if isinstance(error, SyntaxError) and error.lineno:
        line, text = error.lineno, error.msg
    return kind + (": " + text if text else "") + (
        " (submission, line %d)" % line if line and not text.endswith("line %d)" % line) else "")


def status_of(error):
    return "failed" if isinstance(error, AssertionError) or _is_outcome(error, "Failed") else "error"


def is_skip(error):
    unittest = sys.modules.get("unittest")
    return unittest is not None and isinstance(error, unittest.SkipTest) or _is_outcome(error, "Skipped")


def _is_outcome(error, name):
    """What pytest.fail(), a pytest.raises() of nothing, or pytest.skip() raise."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return outcomes is not None and isinstance(error, getattr(outcomes, name))


def compared(source, left, right, message):
    """The message of a failed comparison: the source, both sides, and the test's own words."""
    text = "%s\n  left:  %s\n  right: %s" % (source, shown(left), shown(right))
    return text + ("\n  %s" % (message,) if message is not None else "")


def _common(kind, *content):
    """A node that all rewritten asserts share: only where they begin is theirs."""
    return kind(*content, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)


_LEFT, _RIGHT = (_common(ast.Name, name, ast.Store()) for name in ("@left", "@right"))
_ITS_LEFT, _ITS_RIGHT, _COMPARED = (_common(ast.Name, name, ast.Load()) for name in ("@left", "@right", "@compared"))
_NOTHING = _common(ast.Constant, None)
_RAN = _common(ast.Name, "@ran", ast.Load())


def _last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def dead_functions(tree):
    """Names of functions with checks that do not run when they are called: generators and coroutines."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_lazy(node) and any(
                isinstance(inner, ast.Assert) or (getattr(inner, "attr", None) or "").startswith("assert") for inner in ast.walk(node)):
            found.add(node.name)
    return found


def _is_lazy(function):
    if isinstance(function, ast.AsyncFunctionDef):
        return True
    stack = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack += ast.iter_child_nodes(node)
    return False


_LAZY = ("generator", "coroutine", "async_generator")


def ran(value):
    """The outcome of a call that should have run all of a function. What is one of these has not begun."""
    if type(value).__name__ in _LAZY and type(value).__module__ == "builtins":
        raise side_module.Trouble("it gives a %s: nothing of it ran" % type(value).__name__.replace("_", " "))
    return value


class Asserts:
    """assert L op R  →  the same, with a message that has both values. Statements only: an assert is in no expression.
    Calls as statements whose body would never run (`dead`: names of functions) are looked at when they return."""

    def __init__(self, text, dead=()):
        self._text, self._dead = Source(text), dead

    def statement(self, node):
        if isinstance(node, ast.Assert):
            self._speak(node)
            return
        if isinstance(node, ast.Expr):
            call = node.value
            if self._dead and isinstance(call, ast.Call) and _last_name(call.func) in self._dead:
                node.value = _at(call, ast.Call(_RAN, [call], []))
            return
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, name, None)
            if type(below) is list:
                for part in below:
                    self.statement(part)

    def _speak(self, node):
        test = node.test
        source = _common(ast.Constant, self._text.of(node, 300) or "assert")
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            node.msg = node.msg or source
            return
        test.left = _at(test.left, ast.NamedExpr(_LEFT, test.left))
        test.comparators = [_at(test.comparators[0], ast.NamedExpr(_RIGHT, test.comparators[0]))]
        node.msg = _at(node, ast.Call(_COMPARED, [source, _ITS_LEFT, _ITS_RIGHT, node.msg or _NOTHING], []))


def _at(place, node):
    node.lineno, node.col_offset = place.lineno, place.col_offset
    node.end_lineno, node.end_col_offset = place.end_lineno, place.end_col_offset
    return node


class Source:
    """The text of a node, without going through the whole file for each."""

    def __init__(self, text):
        self._lines = text.split("\n")

    def of(self, node, limit):
        first, last = node.lineno - 1, min(node.end_lineno, node.lineno + 20)
        lines = [line.encode() for line in self._lines[first:last]]
        if not lines:
            return ""
        if last == node.end_lineno:
            lines[-1] = lines[-1][:node.end_col_offset]
        lines[0] = lines[0][node.col_offset:]
        text = b"\n".join(lines).decode("utf-8", "replace")
        return text if len(text) <= limit else text[:limit] + " ..."


class Captured:
    """Output of one test, up to a bound."""

    class _Text(io.StringIO):
        def write(self, text):
            room = MAX_OUTPUT - self.tell()
            if room > 0:
                super().write(text[:room])
            return len(text)

    def __enter__(self):
        self._text = self._Text()
        self._before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self._text
        return self

    def __exit__(self, *exc):
        sys.stdout, sys.stderr = self._before

    def text(self):
        return self._text.getvalue()
