"""Forms that files of tests have: pytest with the submission used early, unittest.main(), a block of their own; and
what crosses between them and a submission keeps of its kind."""

import pytest

from test_grade_tests import ADD, grade, needs_pytest, statuses  # noqa: F401

BOX = "class Box:\n    def __init__(self): self.d = []\n    def put(self, x): self.d.append(x)\ndef add(a, b): return a + b\ndef keep(f): return f\ndef leave(): import os; os._exit(0)\n" \
      "def total(row): return sum(row)\ndef put_in_order(row): row.sort()\ndef ask(): return input()\n"
EARLY = {
    "an object": ("import pytest\nb = Box()\nb.put(1)\ndef test_a(capsys): assert b.d == [1]\n", ["passed"]),
    "the same object": ("b = Box()\nput = b.put\nclass TestA:\n    def test_a(self):\n        put(1)\n        assert b.d == [1]\n", ["passed"]),
    "of a class": ("class TestA:\n    b = Box()\n    def test_a(self): assert self.b.d == []\n    def test_b(self): assert self.b.d == [1]\n",
                   ["passed", "failed"]),
    "what is expected": ("import pytest\nWANT = [add(i, 1) for i in range(3)]\n@pytest.mark.parametrize('i', [0, 2])\n"
                         "def test_a(i): assert WANT[i] == i + 1\n", ["passed", "passed"]),
    "parameters": ("import pytest\n@pytest.mark.parametrize('x', [add(1, 1), add(add(1, 1), 1)])\ndef test_a(x): assert x == 2\n",
                   ["passed", "failed"]),
    "given to another": ("import pytest\nb = Box()\nkeep([b])[0].put(1)\ndef test_a(capsys): assert b.d == [1]\n", None),
    "changed in place": ("import pytest\nrow, got = [], []\nfor i in range(3):\n    row.append(i)\n    got.append(total(row))\ndata = [3, 1, 2]\nput_in_order(data)\n"
                         "def test_a(capsys): assert got == [0, 1, 3]\ndef test_b(capsys): assert data == [1, 2, 3]\n", ["passed", "passed"]),
    "an exception": ("import pytest\ntry:\n    add(1, 'x')\n    refused = False\nexcept TypeError:\n    refused = True\ndef test_a(capsys): assert refused\n", ["passed"]),
    "a question": ("import pytest\nfrom unittest.mock import patch\nwith patch('builtins.input', return_value='5'):\n    got = ask()\n"
                   "def test_a(capsys): assert got == '5'\n", ["passed"]),
    "an assert beside": ("import pytest\nassert add(1, 2) == 3 and \\\n    add(1, 1) == 2; x = 1\nclass TestA:\n    def test_a(self): assert x == 1\n", ["passed"]),
}


@needs_pytest
@pytest.mark.parametrize("form", EARLY)
def test_the_submission_is_called_before_the_tests(grade, form):
    """Collected without it, called in that order when it is there. What would steer the collection is our error."""
    tests, expected = EARLY[form]
    report = grade(tests, BOX)
    if expected is None:
        assert report["status"] == 70 and "while they are collected" in report["error"] and "???" not in report["error"], report
    else:
        assert statuses(report) == expected and not report["error"], report


@needs_pytest
@pytest.mark.parametrize("tests,says", [
    ("import pytest\nfor i in add([1], [2]):\n    pass\ndef test_a(capsys): pass\n", "the tests use 'add'"),
    ("import pytest\nif add(1, 1) == 2:\n    def test_a(capsys): pass\ndef test_b(capsys): pass\n", "the tests use 'add'"),
    ("import pytest\nx = add(1, 1)\nassert x is None\ndef test_a(capsys): pass\n", "assert 2 is None"),
    ("import pytest\nif add(1, 1) is not None:\n    assert add(1, 1) == 3\ndef test_a(capsys): pass\n", "the tests use 'add'"),
    ("import pytest\n@keep\ndef test_a(capsys): pass\n", "no tests were found"),
    ("import pytest\nx = Box('too', 'many')\ndef test_a(capsys): pass\n", "TypeError"),
    ("import pytest\nx = leave()\ndef test_a(capsys): pass\n", "the submission exited with status 0"),
    ("import pytest\nx = nosuch(1)\ndef test_a(capsys): pass\n", "does not define 'nosuch'"),
    ("import pytest\nif not isinstance(add(1, 1), int):\n    def test_a(capsys): pass\ndef test_b(capsys): assert False\n", "depends on the submission"),
    ("import pytest\nif isinstance(add(1, 1), int):\n    def test_a(capsys): pass\ndef test_b(capsys): pass\n", "depends on the submission"),
    ("import pytest\n@pytest.mark.parametrize('x', list(range(1 if isinstance(add(1, 1), int) else 2)))\ndef test_a(x): pass\n", "depends on the submission"),
    ("import pytest\n@keep\ndef test_a(capsys): assert False\ndef test_b(capsys): pass\n", "stands for: test_a"),
    ("import pytest\ndef check(): assert False\ntest_a = keep(check)\ndef test_b(capsys): pass\n", "stands for: test_a"),
    ("class Base:\n    @keep\n    def test_a(self): assert False\nclass TestMore(Base):\n    def test_b(self): pass\n", "stands for: Base.test_a, TestMore.test_a"),
])
def test_what_is_called_early_makes_no_test_pass(grade, tests, says):
    report = grade(tests, BOX)
    assert report["passed"] == 0 and report["status"] != 0 and says in report["error"], report


# A wrong submission, and what a file of tests does with it before its tests: (tests, wrong, right).
SEEN = {
    "how long": ("import time\nstart = time.perf_counter()\nr = f(1)\nlong = time.perf_counter() - start\nclass TestA:\n    def test_a(self): assert long < 0.5\n",
                 "import time\ndef f(x): time.sleep(1)\n", "def f(x): pass\n"),
    "how many": ("N = len({f(i) for i in range(5)})\nclass TestA:\n    def test_a(self): assert N == 5\n", "def f(x): return 7\n", "def f(x): return x\n"),
    "none": ("found = f(1) is not None\nclass TestA:\n    def test_a(self): assert found\n", "def f(x): return None\n", "def f(x): return 1\n"),
    "kind": ("odd = isinstance(f(4), float)\nclass TestA:\n    def test_a(self): assert not odd\n", "def f(x): return x / 2\n", "def f(x): return x // 2\n"),
    "member": ("bad = [n for n in range(3) if f(n) in {'root'}]\nclass TestA:\n    def test_a(self): assert bad == []\n", "def f(x): return 'root'\n", "def f(x): return 'x'\n"),
    "printed": ("import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out): f(1)\nclass TestA:\n    def test_a(self): assert out.getvalue() == ''\n",
                "def f(x): print('debug')\n", "def f(x): pass\n"),
    "left alone": ("data = [3, 1, 2]\nf(data)\nclass TestA:\n    def test_a(self): assert data == [3, 1, 2]\n", "def f(x): x.sort()\n", "def f(x): pass\n"),
    "words": ("DOC = f.__doc__\nclass TestA:\n    def test_a(self): assert DOC\n", "def f(x): pass\n", "def f(x): 'It does.'\n"),
    "two": ("same = f(1) is f(1)\nclass TestA:\n    def test_a(self): assert not same\n", "box = object()\ndef f(x): return box\n", "class A: pass\ndef f(x): return A()\n"),
    "in a loop": ("for x in (1, 2):\n    assert f(x) is not None\nclass TestA:\n    def test_a(self): pass\n", "def f(x): pass\n", "def f(x): return x\n"),
    "held by another": ("import types\nns = types.SimpleNamespace(got=f(1))\nclass TestA:\n    def test_a(self): assert ns.got is not None\n", "def f(x): pass\n", "def f(x): return x\n"),
    "a mark": ("import pytest\n@pytest.mark.xfail(not isinstance(f(1), int), reason='x')\ndef test_a(): assert f(1) == 3\n", "def f(x): return 5\n", "def f(x): return 3\n"),
    "an attribute": ("b = f(1)\nbefore = b.x\nb.move()\nclass TestA:\n    def test_a(self): assert before == 1 and b.x == 2\n",
                     "class B:\n    x = 1\n    def move(self): pass\ndef f(x): return B()\n", "class B:\n    x = 1\n    def move(self): self.x = 2\ndef f(x): return B()\n"),
}


@needs_pytest
@pytest.mark.parametrize("form", SEEN)
def test_what_is_seen_before_the_tests_is_the_submission(grade, form):
    tests, wrong, right = SEEN[form]
    report = grade(tests, wrong)
    assert report["passed"] == 0 and report["status"] != 0, report
    report = grade(tests, right)
    assert statuses(report) == ["passed"] and report["status"] == 0 and not report["error"], report


LOST = [
    "import sys\nif sys.version_info >= (3, 8):\n    class TestModern:\n        def test_b(self): assert f(2) == 4\n",
    "import sys\nclass TestSquares:\n    if sys.version_info >= (3, 8):\n        def test_two(self): assert f(2) == 4\n",
    "def make(x, y):\n    def check(self): assert f(x) == y\n    return check\nclass TestSquares: pass\nfor x in range(3): setattr(TestSquares, 'test_%d' % x, make(x, x * x))\n",
    "import functools\ndef check(x, y): assert f(x) == y\ndef test_three(): assert f(3) == 9\ntest_two = functools.partial(check, 2, 4)\n",
]


@needs_pytest
@pytest.mark.parametrize("tests", LOST)
def test_no_test_of_a_pytest_file_is_lost(grade, tests):
    tests = "import pytest\nfrom solution import f\ndef test_neg():\n    with pytest.raises(ValueError):\n        f(-1)\n" + tests
    user = "def f(x):\n    if x < 0: raise ValueError\n    return %s\n"
    report = grade(tests, user % "99")
    assert report["status"] == 1 and report["failed"] >= 1, report
    assert grade(tests, user % "x * x")["status"] == 0


@needs_pytest
def test_a_file_with_asserts_beside_its_tests(grade):
    tests = "import pytest\nassert add(1, 2) == %d\ndef test_a():\n    with pytest.raises(TypeError):\n        add(1)\n"
    report = grade(tests % 3, ADD)
    assert statuses(report) == ["passed"] and not report["error"] and report["status"] == 0, report
    report = grade(tests % 4, ADD)
    assert statuses(report) == ["not_run"] and "assert 3 == 4" in report["error"] and report["status"] == 1, report


def test_a_file_that_runs_its_cases_itself(grade):
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(add(1, 2), %d)\n%sunittest.main()\n"
    for before in ("", "if __name__ == '__main__': "):
        report = grade(tests % (3, before), ADD)
        assert statuses(report) == ["passed"] and not report["error"] and report["status"] == 0, report
        assert statuses(grade(tests % (4, before), ADD)) == ["failed"]


def test_asserts_that_a_file_has_for_itself(grade):
    main = "if __name__ == '__main__':\n    x = add(1, 1)\n    assert x == 2\n    assert x == 3\n"
    assert statuses(grade(main, ADD)) == ["passed", "failed"]
    # beside tests it is what such a block always was: not run
    assert statuses(grade("assert add(1, 1) == 2\n" + main, ADD)) == ["passed"]


def test_one_object_given_twice_is_one(grade):
    user = "def swap(a, b, *, c=None):\n    a.append(1)\n    b.append(2)\n    if c is not None: c.append(3)\n"
    for call, want in (("swap(x, x)", [1, 2]), ("swap(x, [])", [1]), ("swap([], x)", [2]), ("swap(x, x, c=x)", [1, 2, 3]), ("swap([], b=x, c=x)", [2, 3])):
        report = grade(f"x = []\n{call}\nassert x == {want}\n", user)
        assert statuses(report) == ["passed"], (call, report)
    assert statuses(grade("x, y = [], []\nswap(x, y)\nassert x == [1] and y == [2]\n", user)) == ["passed"], "equal is not the same"


def test_containers_of_collections_keep_their_kind(grade):
    user = ("from collections import *\nimport typing\nP = namedtuple('P', 'x y')\nclass N(typing.NamedTuple):\n    a: int\n    b: str = 'b'\n"
            "def same(v): return v\ndef p(): return P(1, [2])\ndef n(): return N(1)\ndef c(): return Counter('aab')\ndef d(): return deque([1, 2], 5)\n"
            "def o(): return OrderedDict(b=1, a=2)\ndef kind(v): return type(v).__name__\ndef push(v): v.append(3)\n"
            "class Liar(tuple):\n    _fields = ('x', 'class')\n    def __eq__(self, other): return True\ndef liar(): return Liar((1, 2))\n")
    report = grade("from collections import Counter, OrderedDict, deque\nassert p() == (1, [2]) and p().x == 1 and p().y[0] == 2\n"
                   "assert p()._replace(x=5) == (5, [2])\nassert n().a == 1 and n().b == 'b'\nassert c() == {'a': 2, 'b': 1} and c().most_common(1) == [('a', 2)]\n"
                   "assert c()['z'] == 0\nassert d() == deque([1, 2]) and d().maxlen == 5\nassert list(o()) == ['b', 'a'] and o() != OrderedDict(a=2, b=1)\n"
                   "assert [kind(same(v)) for v in (deque(), Counter(), OrderedDict(), p())] == ['deque', 'Counter', 'OrderedDict', 'P']\n"
                   "q = deque([1])\npush(q)\nassert q == deque([1, 3])\nassert liar() == (1, 2) and liar() != (1, 3)\n", user)
    assert set(statuses(report)) == {"passed"} and not report["error"], report
    report = grade("assert c() == {'a': 1}\nassert p() == (1, [3])\nassert d() == [1, 2]\n", user)
    assert statuses(report) == ["failed"] * 3, report


@pytest.mark.parametrize("hidden", [
    "if True:\n    class TestA:\n        def test_a(self): assert False\n",
    "import functools\ndef check(x): assert x == 1\ntest_a = functools.partial(check, 2)\n",
    "from unittest.mock import patch\nif True:\n    @patch('builtins.input', lambda *_: '3')\n    def test_a(): assert False\n",
    "def check(): assert False\ntest_a = keep(check)\n",
    "def make():\n    class TestA:\n        def test_a(self): assert False\n    return TestA\nTestB = make()\n",
])
def test_no_test_of_a_script_is_lost(grade, hidden):
    """The twin: what is called so and is no test."""
    report = grade("assert add(1, 1) == 2\n" + hidden, BOX)
    assert report["status"] == 1 and "that reading the file does not show: " in report["error"], report
    report = grade("assert add(1, 1) == 2\ntest_data = [1]\ntest_box = Box()\nclass TestData: x = 1\nfrom os.path import join as test_join\n", BOX)
    assert report["status"] == 0 and not report["error"], report
