"""Typed plain data between tests and a submission: JSON with tags, exact builtin types only, bounded.

The same text runs on both sides, in two sandboxes. What is read here may be hostile: the reader builds
nothing but exact builtin types (and handles, which the side that reads them makes), runs no code of the
sender's, and every breach is one exception. The scanner is the C one, used without `json`, and `posix` serves
without `os`: importing those costs more than most submissions cost to run.
"""
from _json import encode_basestring_ascii as _quoted, make_scanner as _make_scanner
import posix
import sys

MAX_FRAME = 16 * 1024 * 1024
MAX_DEPTH = 100
_LARGE = 1 << 256  # from here on numbers are written as hexadecimal: decimal takes time


class WireError(Exception):
    """The value cannot cross, or what came is no message."""


# ---- frames: one letter, four bytes of length, the payload --------------------------------------

class Reader:
    """Frames from a descriptor. What came too early stays for the next."""

    def __init__(self, fd):
        self.fd = fd
        self._got = b""

    def frame(self):
        got = self._got
        while len(got) < 5:
            got += self._more(5)
        size = 5 + int.from_bytes(got[1:5], "little")
        if len(got) < size:
            parts, have = [got], len(got)
            while have < size:
                parts.append(self._more(size - have))
                have += len(parts[-1])
            got = b"".join(parts)
        self._got = got[size:]
        return got[:1], got[5:size]

    def _more(self, size):
        part = posix.read(self.fd, max(size, 4096) if size < 1 << 20 else 1 << 20)
        if not part:
            raise EOFError
        return part


def write_frame(fd, kind, data):
    data = memoryview(kind + len(data).to_bytes(4, "little") + data)
    while data:
        data = data[posix.write(fd, data):]


# ---- writing ------------------------------------------------------------------------------------

def encode(value, other=None):
    """The value as text. `other` gives the text of what is no plain data, or None."""
    parts = []
    _write(value, parts.append, other, 0)
    text = "".join(parts)
    if len(text) > MAX_FRAME - 1024:
        raise WireError("the value is larger than 16 MiB")
    return text


def _write(value, out, other, depth):
    kind = type(value)
    if kind is str:
        out(_quoted(value))
    elif kind is int:
        out(int.__repr__(value) if -_LARGE < value < _LARGE else '{"i":"%x"}' % value)
    elif value is None:
        out("null")
    elif kind is bool:
        out("true" if value else "false")
    elif kind is float:
        out(_float(value))
    else:
        if depth >= MAX_DEPTH:
            raise WireError("the value is nested deeper than %d" % MAX_DEPTH)
        for known, write in _WRITERS.items():
            if kind is known:
                return write(value, out, other, depth + 1)
        held = _container(kind, value)
        if held is not None:
            out('{"z":')
            _row(held, out, other, depth + 1)
            return out("}")
        text = other(value) if other is not None else None
        if text is not None:
            return out(text)
        for base, plain in _BASES:  # a subclass is worth what it holds, not how it behaves
            if issubclass(kind, base):
                return _write(plain(value), out, other, depth)
        if kind.__module__ == "numpy" and hasattr(value, "dtype"):
            return _numpy(value, out, other, depth)
        special = _special(kind, value)
        if special is None:
            raise WireError("a value of type %s cannot cross" % kind.__name__)
        out(special)


def encode_handle(number, flags, name, bases=None):
    """bases: of a class of exceptions, as texts."""
    more = "" if bases is None else ",[%s]" % ",".join(bases)
    return '{"h":[%d,"%s",%s%s]}' % (number, flags, _quoted(name[:200]), more)


_ODD = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _float(value):
    text = float.__repr__(value)
    return _ODD[text] if text[-1] in "nf" else text


def _row(items, out, other, depth):
    mark = "["
    for item in items:
        out(mark)
        mark = ","
        kind = type(item)
        if kind is float:  # as _write() does it; most of what crosses are rows of these
            out(_float(item))
        elif kind is str:
            out(_quoted(item))
        elif kind is int and -_LARGE < item < _LARGE:
            out(int.__repr__(item))
        else:
            _write(item, out, other, depth)
    out("]" if mark == "," else "[]")


def _tagged(tag, items=None):
    def write(value, out, other, depth):
        out('{"%s":' % tag)
        _row(value if items is None else items(value), out, other, depth)
        out("}")
    return write


def _pairs(value):
    for key, content in dict.items(value):
        yield key
        yield content


def _hexadecimal(tag):
    return lambda value, out, other, depth: out('{"%s":"%s"}' % (tag, value.hex()))


_WRITERS = {
    list: lambda value, out, other, depth: _row(list.__iter__(value), out, other, depth),
    dict: _tagged("d", _pairs),
    tuple: _tagged("t"),
    set: _tagged("s"),
    frozenset: _tagged("f"),
    bytes: _hexadecimal("b"),
    bytearray: _hexadecimal("a"),
    complex: _tagged("j", lambda value: (value.real, value.imag)),
    range: _tagged("r", lambda value: (value.start, value.stop, value.step)),
    slice: _tagged("l", lambda value: (value.start, value.stop, value.step)),
    type(...): lambda value, out, other, depth: out('{"k":"Ellipsis"}'),
}
_BASES = (
    (int, lambda value: int.__add__(value, 0)),
    (float, lambda value: float.__add__(value, 0.0)),
    (str, lambda value: str.__add__("", value)),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (bytes, lambda value: bytes.__add__(b"", value)),
    (bytearray, lambda value: bytearray(bytearray.__iter__(value))),
)


def _container(kind, value):
    """What of `collections` holds plain data and has a type worth keeping: its name, what makes it, what it holds."""
    if issubclass(kind, tuple):
        fields = getattr(kind, "_fields", None)
        if type(fields) is tuple and len(fields) == tuple.__len__(value) and _are_names([kind.__name__, *fields]):
            return "tuple", [kind.__name__, *fields], list(tuple.__iter__(value))
    elif kind.__module__ == "collections":
        if issubclass(kind, dict) and kind.__qualname__ in ("Counter", "OrderedDict"):
            return kind.__qualname__, None, list(_pairs(value))
        if is_deque(value) and (value.maxlen is None or type(value.maxlen) is int and value.maxlen <= sys.maxsize):
            return "deque", value.maxlen, list(value)
    return None


def is_deque(value):
    return type(value).__module__ == "collections" and type(value).__qualname__ == "deque"


def can_change(value):
    """May whoever is given it change it?"""
    return isinstance(value, (list, dict, set, bytearray)) or is_deque(value)


def _are_names(names):
    return len(names) <= 100 and all(type(name) is str and len(name) <= 100 and name.isascii() and name.isidentifier()
                                     and name[0] != "_" for name in names)


def _numpy(value, out, other, depth):
    """A scalar is worth its Python number; an array of numbers is its kind, its shape and its bytes."""
    if not hasattr(value, "tobytes") or value.dtype.kind not in "biufc" or value.dtype.itemsize > 16:
        raise WireError("a value of type numpy %s cannot cross" % value.dtype)
    if getattr(value, "ndim", 1) == 0:
        return _write(value.item(), out, other, depth)
    out('{"y":["%s%d",' % (value.dtype.kind, value.dtype.itemsize))
    _row(value.shape, out, None, depth)
    out(',"%s"]}' % value.astype(value.dtype.newbyteorder("<")).tobytes().hex())


def _special(kind, value):
    """Values of the standard library that are plain in all but their type."""
    name = "%s.%s" % (kind.__module__, kind.__qualname__)
    if name == "decimal.Decimal":
        return '{"x":["Decimal",%s]}' % _quoted(str(value))
    if name == "fractions.Fraction":
        return '{"x":["Fraction",%s]}' % _quoted("%d/%d" % (value.numerator, value.denominator))
    if name in ("datetime.date", "datetime.datetime", "datetime.time") and (
            getattr(value, "tzinfo", None) is None or type(value.tzinfo).__qualname__ == "timezone"):
        return '{"x":[%s,%s]}' % (_quoted(name[9:]), _quoted(value.isoformat()))
    if name == "datetime.timedelta":
        return '{"x":["timedelta","%d %d %d"]}' % (value.days, value.seconds, value.microseconds)
    return None


# ---- reading ------------------------------------------------------------------------------------

def decode(text, handle=None):
    """The value a text stands for. `handle` makes what is no plain data from its tag and content."""
    return decoder(handle)(text)


def decoder(handle):
    """decode() for many texts."""
    scan = _make_scanner(_Parts(handle))

    def read(text):
        if len(text) > MAX_FRAME:
            raise WireError("a message larger than 16 MiB")
        if type(text) is bytes:
            text = str(text, "ascii", "strict")
        try:
            value, end = scan(text, 0)
        except StopIteration:
            raise WireError("a message that is no JSON") from None
        except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError, ImportError, SyntaxError) as e:
            raise WireError("a message that cannot be read: %s" % str(e)[:200]) from None
        if end != len(text):
            raise WireError("a message with more behind it")
        return value
    return read


_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Parts:
    strict = True
    object_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_CONSTANTS.__getitem__)
    memo = {}

    def __init__(self, handle):
        self._handle = handle

    def object_pairs_hook(self, pairs):
        if len(pairs) != 1:
            raise ValueError("not a tag")
        tag, content = pairs[0]
        build = _BUILDERS.get(tag)
        if build is not None:
            kind, make = build
            if type(content) is not kind:
                raise ValueError("not the content of a tag")
            return make(content)
        if tag == "k" and content == "Ellipsis":
            return ...
        if self._handle is None:
            raise ValueError("an unknown tag")
        return self._handle(tag, content)


def _dict(row):
    if len(row) % 2:
        raise ValueError("half a pair")
    return dict(zip(row[::2], row[1::2]))


def _numbers(row, count, kinds):
    if len(row) != count or any(type(item) not in kinds for item in row):
        raise ValueError("not numbers")
    return row


def _slice(row):
    if len(row) != 3:
        raise ValueError("not a slice")
    return slice(*row)


def _integer(text):
    if len(text) > 1 << 20:
        raise ValueError("too large a number")
    return int(text, 16)


def _array(row):
    if len(row) != 3 or row[0] not in _ARRAYS or type(row[1]) is not list or type(row[2]) is not str:
        raise ValueError("not an array")
    _numbers(row[1], len(row[1]), (int,))
    data = bytes.fromhex(row[2])
    size = int(row[0][1:])
    most = len(data) or (MAX_FRAME if 0 in row[1] else 0)  # without elements the other sides may have any length
    for side in row[1]:
        if not 0 <= side <= most:
            raise ValueError("not the shape of an array")
        size *= side
    if len(row[1]) > 32 or size != len(data):
        raise ValueError("not the bytes of an array")
    import numpy
    array = numpy.frombuffer(data, dtype="<" + row[0]).reshape(row[1]).copy()
    return array if data or empty_array is None else empty_array(array)


empty_array = None  # what one side makes of those


_ARRAYS = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split())


def _extra(row):
    if len(row) != 2 or type(row[0]) is not str or type(row[1]) is not str or len(row[1]) > 10000:
        raise ValueError("not a special value")
    name, text = row
    if name == "Decimal":
        from decimal import Decimal
        return Decimal(text)
    if name == "Fraction":
        from fractions import Fraction
        over, _, under = text.partition("/")
        return Fraction(int(over), int(under))
    import datetime
    if name == "timedelta":
        return datetime.timedelta(*[int(part) for part in text.split(" ", 2)])
    if name in ("date", "datetime", "time"):
        return getattr(datetime, name).fromisoformat(text)
    raise ValueError("not a special value")


_named = {}


def _held(row):
    if len(row) != 3 or type(row[0]) is not str or type(row[2]) is not list:
        raise ValueError("not a container")
    name, about, items = row
    import collections
    if name in ("Counter", "OrderedDict"):
        return getattr(collections, name)(_dict(items))
    if name == "deque" and (about is None or type(about) is int and 0 <= about <= sys.maxsize):
        return collections.deque(items, about)
    if name != "tuple" or type(about) is not list or len(about) != len(items) + 1 or not _are_names(about):
        raise ValueError("not a container")
    kind = _named.get(tuple(about))
    if kind is None:
        if len(_named) >= 256:  # kinds cost more than what they hold
            return tuple(items)
        kind = _named[tuple(about)] = collections.namedtuple(about[0], about[1:], rename=True)
    return kind._make(items)


_BUILDERS = {
    "t": (list, tuple),
    "d": (list, _dict),
    "s": (list, set),
    "f": (list, frozenset),
    "b": (str, bytes.fromhex),
    "a": (str, bytearray.fromhex),
    "i": (str, _integer),
    "j": (list, lambda row: complex(*_numbers(row, 2, (float, int)))),
    "r": (list, lambda row: range(*_numbers(row, 3, (int,)))),
    "l": (list, _slice),
    "x": (list, _extra),
    "y": (list, _array),
    "z": (list, _held),
}
