"""What a test came to, in words: values, exceptions, and the output it made. Runs in the sandbox of the tests."""
import ast
import io
import sys

import grade_side as side_module

MAX_OUTPUT = 64 * 1024


def clean(text):
    """Text every reader takes: no NUL, no half surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def shown(value):
    """A value for a message: bounded, and never by asking the submission."""
    if isinstance(value, side_module.Handle):
        return "<%s of the submission>" % value._name
    try:
        text = repr(value)
    except Exception as e:
        text = "<a value whose repr raises %s>" % type(e).__name__
    return text if len(text) <= 500 else text[:240] + " ... " + text[-240:]


def describe(error):
    kind = getattr(error, "__cordon_kind__", type(error).__name__)
    try:
        text = getattr(error, "__cordon_text__", None)
        text = str(error) if text is None else text
    except Exception:
        text = ""
    line = getattr(error, "__cordon_line__", 0)
    if isinstance(error, SyntaxError) and error.lineno:
        line, text = error.lineno, error.msg
    return kind + (": " + text if text else "") + (" (submission, line %d)" % line if line else "")


def status_of(error):
    return "failed" if isinstance(error, AssertionError) else "error"


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


class Asserts:
    """assert L op R  →  the same, with a message that has both values. Statements only: an assert is in no expression."""

    def __init__(self, text):
        self._text = Source(text)

    def statement(self, node):
        if isinstance(node, ast.Assert):
            self._speak(node)
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
