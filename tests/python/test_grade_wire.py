"""The data between tests and submission: every breach is one exception, and nothing but plain data comes out."""

import pathlib
import random
import sys

import pytest

GUEST = pathlib.Path(__file__).resolve().parents[2] / "python" / "cordon" / "guest"
sys.path.insert(0, str(GUEST))
import grade_side  # noqa: E402
import grade_wire as wire  # noqa: E402

VALUES = [None, True, False, 0, -1, 1 << 300, -(1 << 5000), 0.1, -0.0, 1e300, float("inf"), "", "é\ud800\0", b"", b"\xff",
          bytearray(b"x"), [], [[1], (2,)], (), {}, {"a": {1: (2, frozenset({3}))}}, set(), {1, "a"}, 1j, range(0), range(5, 1, -2),
          ...]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    back = wire.decode(wire.encode(value).encode("ascii"))
    assert back == value and type(back) is type(value)


def test_subclasses_are_worth_what_they_hold():
    class Int(int):
        def __eq__(self, other):
            return True
        __hash__ = int.__hash__

    class List(list):
        def __iter__(self):
            return iter([7])

    class Dict(dict):
        def items(self):
            return [(1, 1)]

    assert type(wire.decode(wire.encode(Int(3)))) is int and wire.decode(wire.encode(Int(3))) != 4
    assert wire.decode(wire.encode(List([1, 2]))) == [1, 2]
    assert wire.decode(wire.encode(Dict(a=1))) == {"a": 1}


@pytest.mark.parametrize("text", [
    "", "[", "[1", "{}", '{"t":1}', '{"t":[],"s":[]}', '{"q":[]}', '{"d":[1]}', '{"d":[[],1]}', '{"s":[[]]}', '{"b":"x"}',
    '{"b":"0"}', '{"i":"zz"}', '{"j":[1]}', '{"j":["a",1]}', '{"r":[1,2]}', '{"r":[1,2,0]}', '{"x":["Decimal"]}', '{"x":["os","x"]}',
    '{"x":["Decimal","zz"]}', '{"x":["Fraction","1/0"]}', '{"x":["date","9"]}', '{"x":["timedelta","9999999999 0 0"]}', "1 2", "nan",
    '{"y":["O8",[1],"00"]}', '{"y":["i8",[-1],""]}', '{"y":["i8",[99999999999],""]}', '{"y":["i8",[0,99999999999],""]}', '{"y":["i8",[2],"00"]}', '{"k":"x"}',
    "[" * 100000, '{"t":[' * 50000, '"\\ud8"', "1" * 5000, '{"h":[1,2,3]}',
])
def test_breaches(text):
    with pytest.raises(wire.WireError):
        wire.decode(text)


def test_too_large_and_too_deep():
    with pytest.raises(wire.WireError):
        wire.encode("x" * (17 << 20))
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(wire.WireError):
        wire.encode(deep)
    loop = []
    loop.append(loop)
    with pytest.raises(wire.WireError):
        wire.encode(loop)


def test_mangled_messages():
    """Whatever the bytes: a value of plain types, or WireError."""
    plain = (type(None), bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset, complex, range, type(...))
    rng = random.Random(5)
    for _ in range(20000):
        text = bytearray(wire.encode(VALUES[rng.randrange(len(VALUES))]).encode("ascii"))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text[at:at + rng.randrange(2)] = bytes([rng.choice(b'{}[]":,0123456789tdsbxyhkijrf\\u \xff')])
        try:
            assert type(wire.decode(bytes(text))) in plain
        except (wire.WireError, UnicodeDecodeError):
            pass


def test_exceptions_of_the_table():
    for name in ("AssertionError", "StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "KeyboardInterrupt",
                 "Exception", "BaseException"):
        assert name not in grade_side.EXCEPTIONS
    assert grade_side.EXCEPTIONS["ValueError"] is ValueError


def test_a_handle_has_operators_for_handles_only(monkeypatch):
    """What the tests compare with, or compute with, is nothing that a question tells."""
    side, asked = grade_side.Side(wire.Reader(0), 1, False), []
    handle, other = side._handle("h", [1, "cignlw", "x"]), side._handle("h", [2, "c", "y"])
    monkeypatch.setattr(side, "ask", lambda *question: asked.append(question) or True)
    assert handle == handle and not handle == 1 and handle != 1 and not asked
    for operation in (lambda: handle - 7, lambda: 7 - handle, lambda: handle < 7, lambda: 7 < handle, lambda: pow(handle, 7),
                      lambda: 7 in other, lambda: divmod(7, handle)):
        with pytest.raises(grade_side.CannotCross):
            operation()
    assert grade_side.Trouble.seen and {question[0] for question in asked} == {"has"} and 7 not in sum(asked, ())
    monkeypatch.setattr(side, "ask", lambda *question: asked.append(question))
    with pytest.raises(TypeError):  # it has no such method
        handle - 7
    assert (handle - other) is None and asked[-1] == ("op", 1, "sub", other)
