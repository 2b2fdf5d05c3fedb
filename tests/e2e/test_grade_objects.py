"""`cordon grade --tests`: objects of the submission's in the hands of the tests, and what stays on its side."""

import importlib.util

import pytest

from test_grade_tests import grade, statuses  # noqa: F401


def case(*bodies):
    """A unittest class with one test for each body."""
    return "import unittest\nclass T(unittest.TestCase):\n" + "".join(
        "    def test_%02d(self):\n        %s\n" % (number, body.replace("\n", "\n        ")) for number, body in enumerate(bodies))


NUMBER = """
import math
class Number:
    def __init__(self, x): self.x, self._name, self._number, self._side = x, "name", "number", "side"
    def __add__(self, other): return Number(self.x + other.x)
    def __iadd__(self, other): self.x += other.x; return self
    def __lt__(self, other): return self.x < other.x
    def __neg__(self): return Number(-self.x)
    def __abs__(self): return abs(self.x)
    def __float__(self): return float(self.x)
    def __format__(self, spec): return format(self.x, spec)
    def __matmul__(self, other): return self.x * other.x
    def __divmod__(self, other): return divmod(self.x, other.x)
    def __round__(self, n=0): return round(self.x, n)
    def __floor__(self): return math.floor(self.x)
class Whole(Number): pass
class Bag:
    "Things."
    def __init__(self, xs): self.xs = dict(enumerate(xs))
    def __contains__(self, x): return (x.x if isinstance(x, Number) else x) in self.xs.values()
    def __iter__(self): return iter(self.xs.values())
    def __getitem__(self, key): return list(self.xs.values())[key] if type(key) is slice else self.xs[key]
    def __delitem__(self, key): del self.xs[key]
class Count:
    def __init__(self, n): self.n = n
    def __iter__(self): self.i = -1; return self
    def __next__(self):
        self.i += 1
        if self.i >= self.n: raise StopIteration
        return self.i
def same(x): return x
def total(xs): return sum(xs)
"""


def test_operators_between_objects_of_the_submissions(grade):
    report = grade("import math\nassert (Number(1) + Number(2)).x == 3\nassert sorted([Number(3), Number(1)])[0].x == 1\n"
                   "assert (-Number(1)).x == -1 and abs(Number(-3)) == 3 and float(Number(2)) == 2.0\n"
                   "assert f'{Number(2):.3f}' == '2.000' and Number(3) @ Number(4) == 12 and divmod(Number(7), Number(2)) == (3, 1)\n"
                   "assert round(Number(1.26), 1) == 1.3 and math.floor(Number(1.5)) == 1\n"
                   "a = b = Number(1)\na += Number(2)\nassert b.x == 3\nassert Number(1) in Bag([1]) and 1 in Bag([1]) and 2 not in Bag([1])\n"
                   "assert issubclass(Whole, Number) and not issubclass(Number, Whole) and isinstance(Whole(1), Number)\n"
                   "assert callable(Number) and not callable(Number(1))\ndel a.x\nassert not hasattr(a, 'x')\n"
                   "bag = Bag('ab')\ndel bag[0]\nassert list(bag) == bag[0:2] == ['b'] and Bag.__doc__ == bag.__doc__ == 'Things.'\n"
                   "assert [Number(1)._name, Number(1)._number, Number(1)._side] == ['name', 'number', 'side']\n", NUMBER)
    assert set(statuses(report)) == {"passed"}, report


def test_iterators_begin_where_they_say(grade):
    tests = "c = Count(3)\nassert list(c) == [0, 1, 2]\nassert list(c) == [0, 1, 2]\nassert next(iter(c)) == 0\n"
    assert statuses(grade(tests, NUMBER)) == ["passed"] * 3
    assert statuses(grade(tests, NUMBER.replace("self.i = -1", "self.i = 0"))) == ["failed"] * 3


def test_iterators_and_plain_objects_cross(grade):
    tests = "o = object()\nassert same(o) is o\nassert total(n for n in (1, 2)) == total(iter([1, 2])) == total(map(int, '12')) == 3\n"
    assert statuses(grade(tests, NUMBER)) == ["passed"] * 2
    assert statuses(grade(tests, "def same(x): return object()\ndef total(xs): return 4\n")) == ["failed"] * 2


WAITING = case("with self.assertRaises(TypeError): add(object(), 1)", "with self.assertRaises(TypeError): add(iter([1]), 1)",
               "with self.assertRaises(TypeError): add(Own(), 1)", "with self.assertRaises(BaseException): add(Own(), 1)",
               "x = []\nfor i in range(200): x = [x]\nwith self.assertRaises(Exception): add(x, 1)",
               "with self.assertRaises(Exception): add('x' * (1 << 24), 1)",
               "with self.assertRaises(TypeError): Plain() + 5", "with self.assertRaises(TypeError): 5 < Plain()",
               "with self.assertRaises(TypeError): Plain() < Plain()", "with self.assertRaises(TypeError): 3 in Plain()",
               "with self.assertRaises(AttributeError): del Plain().x", "with self.assertRaises(TypeError): del Plain()['x']",
               "with self.assertRaises(TypeError):\n    class A(Plain): pass",
               "with self.assertRaises(Exception): nothing(1)", "with self.assertRaises(NameError): nothing(1)",
               "import solution\nwith self.assertRaises(Exception): solution.nothing(1)",
               "import solution\nwith self.assertRaises(AttributeError): solution.nothing(1)",
               "try: nothing(1)\nexcept: pass") + "class Own: pass\n"


def test_what_cannot_cross_is_no_exception_that_tests_wait_for(grade):
    wrong = ("def add(a, b): return 3\nclass Plain:\n    x = 1\n    def __add__(self, other): return 1\n    __lt__ = __gt__ = __add__\n"
             "    def __contains__(self, other): return True\n    def __delattr__(self, name): pass\n"
             "    def __getitem__(self, key): return [1][key]\n    def __delitem__(self, key): pass\n")
    report = grade(WAITING, wrong)
    assert report["passed"] == 0 and len(report["details"]) == 18, report
    assert "does not define 'nothing'" in report["details"][13]["message"]
    right = grade(WAITING, "def add(a, b): return a + b\nclass Plain:\n    pass\n")
    assert [number for number, status in enumerate(statuses(right)) if status == "passed"] == [0, 1, 6, 7, 8, 9, 10, 11], right


def test_trouble_that_is_swallowed_between_tests(grade):
    report = grade("ok = False\ntry:\n    nothing(1)\nexcept:\n    ok = True\nassert ok\nassert add(1, 1) == 2\n", "def add(a, b): return a + b\n")
    assert statuses(report) == ["not_run", "passed"] and "does not define 'nothing'" in report["error"]
    report = grade("try:\n    unicode\nexcept NameError:\n    unicode = str\nassert add(unicode(1), '') == '1'\n", "def add(a, b): return a + b\n")
    assert statuses(report) == ["passed"]


# ---- exceptions ----------------------------------------------------------------------------------

ERRORS = """
import dataclasses, json
class Base(Exception): pass
class Sub(Base): pass
class Both(Sub, KeyError):
    def __init__(self, code):
        super().__init__("no", code)
        self.code = code
    def __str__(self): return "code %d" % self.code
class Late(Both, UnicodeDecodeError): pass
def sub(): raise Sub("x")
def both(): raise Both(7)
def parse(text): return json.loads(text)
def decode(data): return data.decode()
@dataclasses.dataclass(frozen=True)
class Point:
    x: int
"""


def test_exceptions_keep_their_family(grade):
    tests = case("with self.assertRaises(Base): sub()", "with self.assertRaises(Sub): sub()", "with self.assertRaises(Base): both()",
                 "with self.assertRaises(KeyError): both()", "with self.assertRaises(Sub) as cm: both()\nself.assertEqual(str(cm.exception), 'code 7')\n"
                 "self.assertEqual(cm.exception.code, 7)\nself.assertEqual(cm.exception.args, ('no', 7))\nself.assertFalse(hasattr(cm.exception, 'x'))",
                 "with self.assertRaisesRegex(Both, 'code [0-9]$'): both()",
                 "self.assertTrue(issubclass(Both, Base) and issubclass(Both, KeyError) and not issubclass(Base, Sub))",
                 "import json\nwith self.assertRaisesRegex(json.JSONDecodeError, 'Expecting value'): parse('x')",
                 "with self.assertRaisesRegex(UnicodeDecodeError, 'utf-8'): decode(b'\\xff')",
                 "import dataclasses\nwith self.assertRaises(dataclasses.FrozenInstanceError): Point(1).x = 2")
    report = grade(tests, ERRORS)
    assert set(statuses(report)) == {"passed"}, report
    wrong = ERRORS.replace("class Sub(Base)", "class Sub(Exception)").replace("'code", "'no").replace("frozen=True", "frozen=False") \
        .replace("return json.loads(text)", "raise ValueError").replace("return data.decode()", "raise ValueError").replace('"code %d"', '"%d"')
    report = grade(tests, wrong)
    assert [number for number, status in enumerate(statuses(report)) if status == "passed"] == [1, 3], report


CONTEXTS = """
import contextlib
@contextlib.contextmanager
def ignoring(*kinds):
    try: yield
    except kinds: pass
class Change:
    state = None
    def __enter__(self): return self
    def __exit__(self, kind, value, trace): self.state = "undone %s" % value if kind else "done"
class Silent(Change):
    def __exit__(self, *exc): return True
class Translating(Change):
    def __exit__(self, kind, value, trace):
        if kind: raise KeyError("translated")
def fail(): raise ValueError("of the submission's")
def get(): return []
def value(): return 3
"""


def test_contexts_learn_what_ended_them(grade):
    tests = case("with ignoring(ValueError): raise ValueError('x')", "with ignoring(ZeroDivisionError): 1 / 0",
                 "with self.assertRaises(KeyError):\n    with ignoring(ValueError): raise KeyError('x')",
                 "c = Change()\nwith self.assertRaises(ValueError):\n    with c: raise ValueError('x')\nself.assertEqual(c.state, 'undone x')",
                 "c = Change()\nwith c: pass\nself.assertEqual(c.state, 'done')",
                 "with self.assertRaises(KeyError):\n    with Translating(): raise ValueError('x')",
                 "self.assertIs(Silent().__exit__(None, None, None), True)")
    assert set(statuses(grade(tests, CONTEXTS))) == {"passed"}
    wrong = CONTEXTS.replace("except kinds: pass", "finally: pass").replace("undone", "do").replace('"done"', "0").replace("KeyError", "OSError")
    assert [n for n, status in enumerate(statuses(grade(tests, wrong))) if status == "passed"] == [2, 6]


@pytest.mark.parametrize("body", ["self.assertEqual(value(), 4)", "assert value() == 4", "self.fail()", "fail()\n    self.assertEqual(value(), 4)",
                                  "self.assertEqual(get()[0], 4)", "self.assertEqual(value() + None, 4)", "nothing()"])
def test_a_context_does_not_end_tests_that_fail(grade, body):
    for name in ("Silent", "Change"):
        report = grade(case("with %s():\n    %s" % (name, body)), CONTEXTS)
        assert report["passed"] == 0, report
    report = grade(case("with self.assertRaises(KeyError):\n    with Translating():\n        assert value() == 4"), CONTEXTS)
    assert report["passed"] == 0, report


def test_functions_of_the_tests_that_raise(grade):
    tests = case("calls = []\ndef flaky():\n    calls.append(1)\n    if len(calls) < 3: raise ValueError('no')\n    return 'done'\n"
                 "self.assertEqual(retry(flaky), 'done')",
                 "class Own(Exception): pass\ndef bad(): raise Own('mine')\nwith self.assertRaisesRegex(Own, 'mine'): call(bad)",
                 "def bad(): raise KeyError('k')\nself.assertEqual(told(bad), ['KeyError', \"'k'\"])",
                 "def bad(): raise Wrong('w')\nself.assertEqual(told(bad), ['Wrong', 'w'])",
                 "def bad(): raise AssertionError\nwith self.assertRaises(AssertionError): call(bad)",
                 "def check(): self.assertEqual(1, 2)\nquiet(check)", "def check(): return unittest\nquiet(check)")
    source = ("class Wrong(Exception): pass\ndef retry(f):\n    while True:\n        try: return f()\n        except ValueError: pass\n"
              "def call(f): f()\ndef told(f):\n    try: f()\n    except Exception as e: return [type(e).__name__, str(e)]\n"
              "def quiet(f):\n    try: f()\n    except Exception: pass\n")
    assert statuses(grade(tests, source)) == ["passed"] * 5 + ["error"] * 2
    report = grade(tests, source.replace("def call(f): f()", "def call(f): raise ValueError").replace("ValueError: pass", "KeyError: pass"))
    assert statuses(report)[:2] == ["error", "error"] and report["passed"] == 2


# ---- names that were collected before the submission runs ------------------------------------------

DEFERRED = """
import pytest
import answer
from answer import CONST, Wrong, Color
TABLE = {"a": [CONST], CONST: (1, CONST)}
@pytest.mark.parametrize("v", [CONST])
def test_equal(v): assert v == 5
@pytest.mark.parametrize("v", [CONST])
def test_unequal(v): assert v != 4
@pytest.mark.parametrize("pair", [(CONST, 5), (answer.CONST, 5)])
def test_pairs(pair): assert pair[0] == pair[1]
@pytest.mark.parametrize("kind, n", [(Wrong, 0), (ValueError, 1)])
def test_kinds(kind, n):
    with pytest.raises(kind): answer.fail(n)
@pytest.mark.parametrize("color", [Color.RED])
def test_attribute(color): assert color.value == 1
class TestIt:
    expected = answer.CONST
    row = [CONST, CONST]
    def test_class(self): assert self.expected == 5 and self.row == [5, 5]
def test_default(v=CONST, *, w=[CONST]): assert v == 5 and w == [5]
def test_table(): assert TABLE == {"a": [5], 5: (1, 5)}
@pytest.fixture(params=[CONST])
def one(request): return request.param
def test_fixture(one): assert one == 5
@pytest.mark.xfail(raises=Wrong, strict=True)
def test_mark(): answer.fail(0)
def test_closure(hidden=(lambda v: lambda: v)(CONST)): assert hidden() == 5 and 5 == hidden() and hidden() + 1 == 6 and not hidden() != 5 and hidden()
"""
ANSWER = """
import enum
CONST = 5
class Wrong(Exception): pass
class Color(enum.Enum): RED = 1
def fail(n): raise [Wrong, ValueError][n]
"""


@pytest.mark.parametrize("mode", [(), ("--in-process",)])
def test_deferred_values_are_what_they_stand_for(grade, mode):
    report = grade(DEFERRED, ANSWER, *mode, name="answer.py")
    assert set(statuses(report)) == {"passed"} and len(report["details"]) == 13, report
    wrong = ANSWER.replace("5", "4").replace("RED = 1", "RED = 2").replace("[Wrong, ValueError]", "[OSError] * 2")
    report = grade(DEFERRED, wrong, *mode, name="answer.py")
    assert report["passed"] == 0, report


# ---- values --------------------------------------------------------------------------------------

EMPTY = """
import numpy as np, pytest
def test_approx(): assert f(2) == pytest.approx(3.5)
def test_turned(): assert pytest.approx(3.5) == f(2)
def test_not_unequal(): assert not f(2) != pytest.approx(3.5)
def test_allclose(): assert np.allclose(f(2), 3.5) or np.allclose(3.5, f(2))
def test_isclose(): assert np.isclose(f(2), 3.5).all()
def test_equal(): assert (f(2) == 3.5).all()
def test_unequal(): assert not (f(2) != 3.5).any()
def test_all(): assert all(f(2) == 3.5)
def test_equiv(): assert np.array_equiv(f(2), 3.5)
def test_assert_allclose(): np.testing.assert_allclose(f(2), 3.5)
def test_assert_equal(): np.testing.assert_array_equal(f(2), 3.5)
def test_assert_almost(): np.testing.assert_almost_equal(f(2), 3.5)
def test_norm(): assert np.linalg.norm(f(2) - 3.5) < 1e-6
def test_sum(): assert np.sum(np.abs(3.5 - f(2))) < 1e-6
def test_rows(): assert np.allclose(rows(), [3.5, 3.5, 3.5])
def test_rows_sum(): assert np.abs(rows() - np.array([3.5, 3.5, 3.5])).sum() < 1e-6
"""
NO_ELEMENTS = """
import numpy as np
def test_equal(): np.testing.assert_array_equal(f(2), np.array([]))
def test_close(): np.testing.assert_allclose(f(2), []); assert np.allclose(f(2), [])
def test_same(): assert np.array_equal(f(2), []) and f(2).shape == (0,) and len(f(2)) == 0 and f(2).tolist() == [] and (f(2) == []).all()
def test_rows(): assert rows().shape == (0, 3) and isinstance(rows(), np.ndarray) and rows().dtype == float
def test_sum(): assert f(2).sum() == 0 and (f(2) * 2).size == 0 and np.concatenate([f(2), [1.0]]).tolist() == [1.0] and list(f(2).flat) == []
"""


@pytest.mark.parametrize("shape", ["(0,)", "(0, 3)"])
def test_an_array_without_elements_equals_nothing_else(grade, need, shape):
    need(importlib.util.find_spec("numpy") and importlib.util.find_spec("pytest"), "needs numpy and pytest")
    report = grade(EMPTY, f"import numpy\ndef f(x): return numpy.zeros({shape})\ndef rows(): return f(2)\n")
    assert report["passed"] == 0 and len(report["details"]) == 16, report
    right = "import numpy\ndef f(x): return numpy.array([3.5])\ndef rows(): return numpy.full((2, 3), 3.5)\n"
    assert grade(EMPTY, right)["passed"] == 16
    honest = "import numpy\ndef f(x): return numpy.zeros((0,))\ndef rows(): return numpy.zeros((0, 3))\n"
    report = grade(NO_ELEMENTS, honest)
    assert report["passed"] == 5, report
    assert grade(NO_ELEMENTS, right)["passed"] == 0


def test_times_with_a_zone(grade):
    tests = ("from datetime import *\nt = datetime(2020, 1, 2, 3, tzinfo=timezone.utc)\nassert later(t) == t + timedelta(hours=1)\n"
             "assert later(t).tzinfo == timezone.utc\nassert zone() == time(1, tzinfo=timezone(timedelta(hours=2)))\n")
    source = "from datetime import *\ndef later(t): return t + timedelta(hours=%d)\ndef zone(): return time(1, tzinfo=timezone(timedelta(hours=%d)))\n"
    assert statuses(grade(tests, source % (1, 2))) == ["passed"] * 3
    assert statuses(grade(tests, source % (2, 1))) == ["failed", "passed", "failed"]


def test_a_file_name_takes_no_module_of_the_tests(grade):
    tests = "import statistics\nassert statistics.mean([1, 3]) == 2\nassert statistics.median([f(), 3]) == 2\n"
    lies = "def mean(x): return 2\nmedian = mean\ndef f(): return 5\n"
    for mode in ((), ("--in-process",)):
        assert statuses(grade(tests, lies, *mode, name="statistics.py")) == ["passed", "failed"]
        assert statuses(grade(tests, "def f(): return 1\n", *mode, name="statistics.py")) == ["passed", "passed"]
        assert statuses(grade("import numbers_of_mine as n\nassert n.f() == 1\n", "def f(): return 1\n", *mode, name="numbers_of_mine.py")) == ["passed"]
