"""`cordon grade --tests`: what is a test, how it ends, and that nobody cheats."""

import importlib.util
import json
import subprocess
import time

import pytest

import cheats
import cordon_run

needs_pytest = pytest.mark.skipif(importlib.util.find_spec("pytest") is None, reason="pytest")
ADD = "def add(a, b):\n    return a + b\n"


@pytest.fixture
def grade(tmp_path):
    """grade(tests, submission, options...): the report, with the exit status as `status`."""
    def run(tests, submission, *options, name="solution.py"):
        (tmp_path / "tests.py").write_text(tests)
        (tmp_path / name).write_text(submission)
        done = subprocess.run([cordon_run.CORDON, "grade", "--json", "--time-limit", "60s", *options,
                               "--tests", "tests.py", name], cwd=tmp_path, capture_output=True, text=True, timeout=240)
        report = json.loads(done.stdout) if done.stdout else {}
        report["status"] = done.returncode
        report["stderr"] = done.stderr
        return report
    return run


def statuses(report):
    return [row["status"] for row in report["details"]]


# ---- forms of tests ------------------------------------------------------------------------------

def test_plain_asserts(grade):
    report = grade("assert add(1, 2) == 3\nassert add(0, 0) == 0\nassert add(-1, 1) == 0\n", ADD)
    assert (report["passed"], report["failed"], report["errors"], report["status"]) == (3, 0, 0, 0)
    assert report["mode"] == "strict" and report["total_runtime_ms"] > 0
    assert report["details"][0]["name"] == "line 1: assert add(1, 2) == 3"
    report = grade("assert add(1, 2) == 3\nassert add(0, 0) == 0\n", ADD.replace("+", "-"))
    assert statuses(report) == ["failed", "passed"] and report["status"] == 1
    assert "left:  -1" in report["details"][0]["message"] and "right: 3" in report["details"][0]["message"]


def test_failing_setup_is_reported_once(grade):
    report = grade("a = add(1, 2)\nb = add('x', 1)\nassert a == 3\nassert b == 1\nc = b\nassert c\nassert add(1, 1) == 2\n",
                   ADD)
    assert statuses(report) == ["passed", "not_run", "not_run", "passed"]
    assert report["errors"] == 1 and report["error"].startswith("line 2 of the tests failed: TypeError")
    report = grade("for n in (1, 2):\n    assert add(n, n) == 2 * n\n    z = add('x', n)\nassert add(1, 1) == 2\nassert z == 1\n",
                   ADD)
    assert statuses(report) == ["passed", "not_run"] and "line 1 of the tests failed" in report["error"]


@needs_pytest
def test_collecting_has_an_end(grade):
    """Reading a pytest file runs it, and before the submission has anything to do."""
    report = grade("import pytest\nwhile True:\n    pass\n@pytest.fixture\ndef one():\n    return 1\n"
                   "def test_it(one):\n    assert add(one, 1) == 2\n", ADD, "--time-limit", "2s")
    assert report["passed"] == 0 and (report["status"], report["verdict"]) == (70, "SE")
    assert "time limit" in report["error"], report


UNITTEST = """
import unittest
from solution import add, Stack, Empty

class TestAdd(unittest.TestCase):
    def setUp(self):
        self.stack = Stack()

    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_stack(self):
        self.stack.push(1)
        self.stack.push("two")
        self.assertEqual(len(self.stack), 2)
        self.assertEqual(list(self.stack), [1, "two"])
        self.assertEqual(self.stack.pop(), "two")

    def test_empty(self):
        with self.assertRaises(Empty):
            self.stack.pop()
        with self.assertRaises(IndexError):
            self.stack.pop()

    def test_wrong(self):
        self.assertEqual(add(1, 1), 3)

    @unittest.skip("later")
    def test_skipped(self):
        pass
"""
STACK = ADD + """
class Empty(IndexError):
    pass

class Stack:
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        if not self.items:
            raise Empty("empty")
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
"""


def test_unittest(grade):
    report = grade(UNITTEST, STACK)
    assert {row["name"].split(".")[1]: row["status"] for row in report["details"]} == {
        "test_add": "passed", "test_empty": "passed", "test_skipped": "skipped", "test_stack": "passed",
        "test_wrong": "failed"}
    assert report["status"] == 1  # skipped and failed are not passed


def test_functions(grade):
    report = grade("def test_a():\n    assert add(1, 1) == 2\ndef test_b():\n    assert add(1, 1) == 3\n"
                   "def test_c():\n    raise RuntimeError('own')\n", ADD)
    assert statuses(report) == ["passed", "failed", "error"]


def test_functions_with_a_setup_of_their_own(grade):
    tests = ("def setup_module():\n    global x\n    x = [add(1, 1)]\ndef setup_function(function):\n    x.append(function.__name__)\n"
             "def teardown_function():\n    x.pop()\ndef test_a():\n    assert x == [2, 'test_a']\n"
             "async def test_b():\n    assert x == [2, 'test_b']\n")
    assert statuses(grade(tests, ADD)) == ["passed", "passed"]
    report = grade(tests, ADD.replace("+", "/ 0 +"))
    assert statuses(report) == ["not_run", "not_run"] and report["error"].startswith("setup_module failed: ZeroDivisionError")


def test_unittest_under_other_names(grade):
    report = grade("from unittest import TestCase as Case, IsolatedAsyncioTestCase\nclass Mixin:\n    def test_mixed(self):\n"
                   "        self.assertEqual(add(1, 1), 2)\nclass A(Mixin, Case):\n    def test_own(self): self.assertEqual(add(1, 1), 3)\n"
                   "class B(IsolatedAsyncioTestCase):\n    async def test_async(self): self.assertEqual(await later(1), 2)\n",
                   ADD + "async def later(x): return x + 1\n")
    assert [(row["name"], row["status"]) for row in report["details"]] == [
        ("A.test_mixed", "passed"), ("A.test_own", "failed"), ("B.test_async", "passed")]


@pytest.mark.parametrize("hidden", [
    "for i in range(2):\n    setattr(T, 'test_%d' % i, lambda self: None)\n", "class U(T):\n    pass\nU.test_b = T.test_a\n",
    "if True:\n    def test_hidden(): assert False\n"])
def test_tests_that_cannot_be_named_before_are_not_dropped(grade, hidden):
    report = grade("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n" + hidden, ADD)
    assert "does not show" in report["error"] and report["status"] == 1 and report["details"][0]["status"] == "passed"


CLASSES = """
from abc import ABC
class Base(object):
    def test_inherited(self): assert add(1, 1) == 2
class TestA(object):
    def test_a(self): assert add(1, 2) == 3
class TestB(Base): pass
class TestC(Base, ABC):
    class TestInner:
        def test_d(self): assert add(1, 3) == 4
assert True
"""


@needs_pytest
def test_classes_with_bases_are_not_dropped(grade):
    names = ["TestA.test_a", "TestB.test_inherited", "TestC.TestInner.test_d", "TestC.test_inherited"]
    report = grade(CLASSES, ADD)
    assert sorted(row["name"] for row in report["details"]) == names and set(statuses(report)) == {"passed"} and report["status"] == 0
    assert set(statuses(grade(CLASSES, ADD.replace("+", "-")))) == {"failed"}
    report = grade("class TestA:\n    def __init__(self): pass\n    def test_a(self): assert add(1, 1) == 3\ndef test_b(): assert add(1, 1) == 2\n", ADD)
    assert statuses(report) == ["passed"] and "does not collect: TestA" in report["error"] and report["status"] == 1
    report = grade("class TestData:\n    __test__ = False\n    def test_a(self): pass\ndef test_b(): assert add(1, 1) == 2\n", ADD)
    assert statuses(report) == ["passed"] and report["status"] == 0


GENERATORS = {
    "function": "def test_g():\n    assert add(1, 1) == 2\n    %s\n",
    "asynchronous": "async def test_g():\n    assert add(1, 1) == 2\n    %s\n",
    "method": "import unittest\nclass T(unittest.TestCase):\n    def test_g(self):\n        self.assertEqual(add(1, 1), 2)\n        %s\n",
    "coroutine": "import unittest\nclass T(unittest.TestCase):\n    async def test_g(self):\n        self.assertEqual(add(1, 1), 2)\n        %s\n",
    "isolated": "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_g(self):\n"
                "        self.assertEqual(add(1, 1), 2)\n        %s\n",
    "returned": "import unittest\ndef late(f):\n    def run(self): return f(self)\n    return run\nclass T(unittest.TestCase):\n    @late\n"
                "    def test_g(self):\n        self.assertEqual(add(1, 1), 2)\n        %s\n",
    "expected": "import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_g(self):\n"
                "        self.assertEqual(add(1, 1), 3)\n        %s\n",
    "script": "def check(f):\n    assert f(1, 1) == 2\n    %s\ncheck(add)\n",
    "block": "def check(f):\n    assert f(1, 1) == 2\n    %s\nfor f in [add]:\n    check(f)\n    assert True\n",
    "pytest": "import pytest\n@pytest.mark.filterwarnings('default')\ndef test_g():\n    assert add(1, 1) == 2\n    %s\n",
    "with pytest": "import pytest\ndef test_g():\n    with pytest.raises(TypeError):\n        add(1)\n    assert add(1, 1) == 2\n    %s\n",
    "pytest method": "import pytest, unittest\nclass T(unittest.TestCase):\n    def test_g(self):\n        self.assertEqual(add(1, 1), 2)\n        %s\n",
}


@pytest.mark.parametrize("form", GENERATORS)
def test_tests_that_never_run_do_not_pass(grade, form):
    report = grade(GENERATORS[form] % "yield", ADD.replace("+", "-"))
    assert statuses(report) == ["error"] and "nothing of it r" in report["details"][0]["message"], report
    report = grade(GENERATORS[form] % "pass", ADD)
    if form == "coroutine":
        assert statuses(report) == ["error"] and "IsolatedAsyncioTestCase" in report["details"][0]["message"]
    else:
        assert statuses(report) == ["passed"], report


def test_a_call_between_tests_that_never_runs(grade):
    tests = "def check(f):\n    assert f(1, 1) == 3\n    %s\ncheck(add)\nassert add(1, 1) == 2\n"
    report = grade(tests % "yield", ADD)
    assert statuses(report) == ["passed"] and "nothing of it ran" in report["error"] and report["status"] == 1
    assert grade((tests % "pass").replace("3", "2"), ADD)["status"] == 0


def test_tests_with_threads(grade):
    report = grade("from concurrent.futures import ThreadPoolExecutor as Pool\nassert list(Pool(8).map(f, range(100))) == "
                   "[n + 1 for n in range(100)]\nassert apply(lambda n: apply(f, n), 1) == 2\n",
                   "def f(n): return n + 1\ndef apply(g, n): return g(n)\n")
    assert statuses(report) == ["passed", "passed"], report


def test_other_names_of_exceptions(grade):
    tests = "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        with self.assertRaises(Wrong): f(1)\n"
    assert statuses(grade(tests, "Wrong = ValueError\ndef f(x): raise Wrong\n")) == ["passed"]
    assert statuses(grade(tests, "Wrong = ValueError\ndef f(x): raise KeyError\n")) == ["error"]
    assert statuses(grade(tests, "Wrong = ValueError\ndef f(x): pass\n")) == ["failed"]
    assert statuses(grade(tests, "class Wrong(ValueError): pass\ndef f(x): raise ValueError\n")) == ["error"]


def test_coroutines(grade):
    report = grade("import asyncio\nasync def both():\n    return await asyncio.gather(f(1), f(2))\nassert asyncio.run(f(1)) == 2\n"
                   "assert asyncio.run(both()) == [2, 3]\nassert asyncio.run(f(1)) == 3\nassert asyncio.run(f('x'))\n",
                   "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1\n")
    assert statuses(report) == ["passed", "passed", "failed", "error"]


def test_a_script_may_use_pytest(grade):
    report = grade("import pytest\nassert add(1, 2) == pytest.approx(3)\nwith pytest.raises(TypeError):\n    add(1, 'a')\n"
                   "assert add(1, 1) == 3\n", ADD)
    assert statuses(report) == ["passed", "failed"] and not report["error"]


@needs_pytest
def test_pytest_files(grade):
    report = grade("""
import pytest
from solution import Stack, Empty, add

@pytest.fixture
def stack():
    return Stack()

@pytest.mark.parametrize("a, b, want", [(1, 2, 3), (2, 2, 4), (1, 1, 3)])
def test_add(a, b, want):
    assert add(a, b) == want

ALL = [add]

@pytest.mark.parametrize("function", ALL)
def test_names_in_lists(function):
    assert function(1, 2) == ALL[0](2, 1) == 3

def test_empty(stack, tmp_path, capsys):
    print("seen")
    assert capsys.readouterr().out == "seen\\n"
    with pytest.raises(Empty):
        stack.pop()
""", STACK)
    assert [row["name"] for row in report["details"]] == [
        "test_add[1-2-3]", "test_add[2-2-4]", "test_add[1-1-3]", "test_names_in_lists[function0]", "test_empty"]
    assert statuses(report) == ["passed", "passed", "failed", "passed", "passed"]


def test_doctest(grade):
    report = grade('>>> add(1, 2)\n3\n>>> add("a", 1)\nTraceback (most recent call last):\nTypeError: can only '
                   'concatenate str (not "int") to str\n>>> add(1, 1)\n3\n', ADD, "--doctest")
    assert statuses(report) == ["passed", "passed", "failed"]


def test_check_functions_are_tests_where_nothing_else_is(grade):
    report = grade("def check(f):\n    assert f(1, 2) == 3\ncheck(add)\n", ADD)
    assert statuses(report) == ["passed"] and report["details"][0]["name"] == "line 3: check(add)"
    report = grade("for n in (1, 2):\n    assert add(n, n) == 2\nwith open('/dev/null'):\n    assert add(1, 1) == 2\n", ADD)
    assert statuses(report) == ["failed", "passed"] and report["details"][0]["name"].startswith("line 1: for n in (1, 2): assert")
    report = grade("x = 1\n", ADD)
    assert report["errors"] == 1 and "no tests were found" in report["error"] and report["status"] == 70


def test_values_keep_their_types(grade):
    values = ['None', 'True', '-5', '1 << 5000', '2.5', "float('inf')", "'é\\ud800'", "b'\\x00'", 'bytearray(b"x")',
              '[1, [2]]', '(1, (2,))', '{1, 2}', 'frozenset({1})', '{(1, 2): [3], "a": None}', '3+4j', 'range(2, 9, 3)',
              '...', '[]', '()', '{}', 'set()', 'slice(1, None, 2)']
    tests = "".join(f"assert same({v}) == ({v}) and type(same({v})) is type({v})\n" for v in values)
    report = grade(tests + "assert same(float('nan')) != same(float('nan'))\n", "def same(x):\n    return x\n")
    assert set(statuses(report)) == {"passed"}, report
    report = grade("import decimal, datetime\nassert f()[0] == decimal.Decimal('1.1')\n"
                   "assert f()[1] == datetime.date(2020, 1, 2)\nassert f()[2] == {'a': 1} and f()[2]['z'] == 0\n",
                   "import collections, datetime, decimal\ndef f():\n    return [decimal.Decimal('1.10'), "
                   "datetime.date(2020, 1, 2), collections.Counter('a')]\n")
    assert set(statuses(report)) == {"passed"}, report


def test_handles(grade):
    report = grade("g = squares(3)\nassert list(g) == [0, 1, 4]\nassert next(g, None) is None\n"
                   "p = Point(1, 2)\nassert p.x == 1\np.x = 5\nassert p.x == 5\nassert p[1] == 2\nassert move(p).x == 6\n"
                   "assert isinstance(p, Point)\nassert Point(1, 2) == Point(3, 4)\nassert p == p\n"
                   "assert apply(lambda x: x + 1, [1, 2]) == [2, 3]\nassert str(p) == 'P'\n",
                   "def squares(n):\n    for i in range(n):\n        yield i * i\nclass Point:\n"
                   "    def __init__(self, x, y): self.x, self.y = x, y\n    def __getitem__(self, i): return (self.x, self.y)[i]\n"
                   "    def __str__(self): return 'P'\n    def __eq__(self, other): return True\n"
                   "def move(p):\n    p.x += 1\n    return p\ndef apply(f, xs):\n    return [f(x) for x in xs]\n")
    assert set(statuses(report)) == {"passed"}, report


def test_what_a_function_does_to_its_arguments(grade):
    """Who returns nothing was called for it; who returns something could make the expected value fit."""
    tests = ("x = [3, 1, 2]\nsort(x)\nassert x == [1, 2, 3]\n"
             "d, s, b = {'a': 1}, {1}, bytearray(b'x')\nfill(d, s, more=b)\nassert (d, s, b) == ({'b': [2]}, {3}, bytearray(b'yz'))\n")
    source = "def sort(x):\n    x.sort()\ndef fill(d, s, more):\n    del d['a']\n    d['b'] = [2]\n    s.clear()\n    s.add(3)\n    more[:] = b'yz'\n"
    assert statuses(grade(tests, source)) == ["passed"] * 2
    cheat = "def top(x):\n    x[:] = [0]\n    return 0\n"
    assert statuses(grade("x = [3, 1, 2]\nassert top(x) == max(x)\n", cheat)) == ["failed"]
    tests = ("x = [3, 1, 2]\nassert top(x) == max(x, default=None)\nd = {'a': 1}\nassert look(d, 'a') == d.get('a')\n"
             "y = [3]\nr = top(y)\nassert r == max(y, default=None)\nassert [top(y)] == [max(y, default=None)]\nprint(top(y), max(y))\n"
             "z = [1]\nassert list(map(top, [z])) == [max(z, default=None)]\n"
             "def test_it():\n    w = [3]\n    assert top(w) == max(w, default=None)\n")
    cheat = "def top(x):\n    x.clear()\ndef look(d, k):\n    d.clear()\n"
    assert statuses(grade(tests, cheat)) == ["failed"] * 6, "nor one who returns nothing to somebody who looks at it"
    tests = ("checks = [lambda x: x == 5]\nprepare(checks)\nassert all(check(answer()) for check in checks)\n"
             "job = {'oracle': min}\nset_up(job)\nassert answer() == job['oracle']([4, 5])\n"
             "class Own: pass\nmine = [Own]\nregister(mine)\nassert mine[0] is Own\n")
    cheat = ("def prepare(c):\n    c[:] = [lambda x: True]\ndef set_up(job):\n    job['oracle'] = lambda row: 7\n"
             "def answer(): return 7\ndef register(c): pass\n")
    assert statuses(grade(tests, cheat)) == ["failed", "failed", "passed"], "what the tests ask is their own"
    tests, source = "x = [3, 1]\nassert pop(x) == 1\nassert x == [3]\n", "def pop(x):\n    return x.pop()\n"
    assert statuses(grade(tests, source)) == ["passed", "failed"]
    assert statuses(grade(tests, source, "--copy-back")) == ["passed"] * 2


def test_statements_of_other_kinds_change_arguments_too(grade):
    source = "def sort(x):\n    x.sort()\nclass Box:\n    def fill(self, x): x.append(1)\n"
    tests = ("import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        x = [2, 1]\n        sort(x)\n        self.assertEqual(x, [1, 2])\n"
             "    def test_method(self):\n        x = []\n        for i in range(2): Box().fill(x)\n        self.assertEqual(x, [1, 1])\n")
    assert statuses(grade(tests, source)) == ["passed"] * 2
    assert statuses(grade(">>> x = [2, 1]\n>>> sort(x)\n>>> x\n[1, 2]\n", source, "--doctest")) == ["passed"] * 3
    assert statuses(grade(">>> x = [2]\n>>> sort(x) == max(x, default=None)\nTrue\n", "def sort(x):\n    x.clear()\n", "--doctest")) == ["passed", "failed"]


ASKS = """
import sys
def twice():
    return 2 * int(input("a number: "))
def both():
    return [input(), input()]
def rows():
    return [line.split() for line in sys.stdin]
def left():
    try:
        return input()
    except EOFError:
        return None
"""


def test_lines_that_tests_put_in(grade):
    """In the place of input() and of standard input, by each of the usual ways; gone with the test."""
    tests = ("import builtins, io, sys, unittest\nfrom unittest.mock import patch\n"
             "class T(unittest.TestCase):\n"
             "    @patch('builtins.input', return_value='7')\n"
             "    def test_1(self, asked):\n        self.assertEqual(twice(), 14)\n        asked.assert_called_once_with('a number: ')\n"
             "    def test_2(self):\n        self.assertIsNone(left())\n"
             "    def test_3(self):\n        with patch('builtins.input', side_effect=['a', 'b']):\n            self.assertEqual(both(), ['a', 'b'])\n"
             "    def test_4(self):\n        with patch('sys.stdin', io.StringIO('1 2\\n\u00e4\\n')):\n            self.assertEqual(rows(), [['1', '2'], ['\u00e4']])\n"
             "    def test_5(self):\n        with patch('sys.stdin', io.StringIO('x\\ny\\n')):\n            self.assertEqual(left(), 'x')\n"
             "            self.assertEqual(left(), 'y')\n            self.assertIsNone(left())\n"
             "    def test_6(self):\n        self.assertIsNone(left())\n"
             "    def test_7(self):\n        with patch('builtins.input', side_effect=KeyError('own')):\n            self.assertRaises(KeyError, twice)\n"
             "    def test_8(self):\n        with patch('builtins.input', return_value='7'):\n            self.assertEqual(twice(), 15)\n")
    report = grade(tests, ASKS)
    assert statuses(report) == ["passed"] * 7 + ["failed"], report
    report = grade("import pytest\ndef test_it(monkeypatch):\n    monkeypatch.setattr('builtins.input', lambda *words: '7')\n    assert twice() == 14\n"
                   "def test_none():\n    assert left() is None\n", ASKS)
    assert set(statuses(report)) == {"passed"}, report


def test_lines_that_tests_put_in_piece_by_piece(grade):
    """The same text set back, what was not read when input() is patched meanwhile, a text that is closed, ends of lines as they are."""
    tests = ("import io, sys, unittest\nfrom unittest.mock import patch\n"
             "class T(unittest.TestCase):\n"
             "    def test_1(self):\n        s = io.StringIO('x\\n')\n        for _ in range(3):\n            s.seek(0)\n"
             "            with patch('sys.stdin', s):\n                self.assertEqual(left(), 'x')\n"
             "    def test_2(self):\n        with patch('sys.stdin', io.StringIO('1\\n2\\n3\\n4\\n')):\n            self.assertEqual(both(), ['1', '2'])\n"
             "            with patch('builtins.input', return_value='p'):\n                self.assertEqual(both(), ['p', 'p'])\n"
             "            self.assertEqual(both(), ['3', '4'])\n"
             "    def test_3(self):\n        s = io.StringIO('x\\n')\n        with patch('sys.stdin', s):\n            self.assertEqual(left(), 'x')\n            s.close()\n"
             "            with patch('builtins.input', return_value='p'):\n                self.assertEqual(both(), ['p', 'p'])\n            self.assertIsNone(left())\n"
             "    def test_4(self):\n        with patch('sys.stdin', io.StringIO('a\\r\\nb')):\n            self.assertEqual(whole(), 'a\\r\\nb')\n")
    report = grade(tests, ASKS + "def whole():\n    return sys.stdin.read()\n")
    assert statuses(report) == ["passed"] * 4, report


def test_a_definition_that_another_one_replaces_is_no_test(grade):
    """As for Python and pytest: what it checks never runs, so it passes for nobody."""
    report = grade("def test_a():\n    assert f() == 1\ndef test_a():\n    assert f() == 2\n", "def f(): return 2\n")
    assert statuses(report) == ["passed"], report
    report = grade("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): assert f() == 1\n    def test_old(self): pass\n"
                   "class T(unittest.TestCase):\n    def test_a(self): assert f() == 3\n", "def f(): return 2\n")
    assert [(d["name"], d["status"]) for d in report["details"]] == [("T.test_a", "failed")], report


def test_changed_arguments_that_cannot_be_sent(grade):
    tests = "x = [1]\naround(x)\nassert x == [1]\nlarge(x)\nassert x == [1]\nodd(x)\nassert x == [1]\n"
    source = "def around(x):\n    x.append(x)\ndef large(x):\n    x[:] = ['y' * (9 << 20)]\ndef odd(x):\n    x[0] = lambda n: n + 1\n"
    assert statuses(grade(tests, source)) == ["passed"] * 3


def test_equality_is_the_submissions_among_its_own_objects_only(grade):
    source = ("from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n"
              "class Any:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n"
              "class Plain: pass\ndef answer(): return Any()\n")
    right = ["Point(1) == Point(1)", "Point(1) != Point(2)", "not Point(1) == Point(2)", "not Point(1) != Point(1)", "Point(2) in [Point(1), Point(2)]",
             "{'a': [Point(1)]} == {'a': [Point(1)]}", "Plain() != Plain()", "Any() == Any()"]
    wrong = ["answer() == 5", "5 == answer()", "not answer() != 5", "answer() in [1, 2]", "[answer()] == [5]", "Point(1) == 1", "Plain() == Plain()"]
    assert statuses(grade("".join(f"assert {line}\n" for line in right), source)) == ["passed"] * len(right)
    assert statuses(grade("".join(f"assert {line}\n" for line in wrong), source)) == ["failed"] * len(wrong)


def test_printed_output_belongs_to_the_test(grade):
    report = grade("assert f() is None\nassert f() is None\n", "import os\nn = 0\ndef f():\n    global n\n    n += 1\n"
                   "    print('call', n)\n    os.write(1, b'raw\\n')\n")
    assert [row["stdout"] for row in report["details"]] == ["call 1\n", "call 2\n"]


# ---- names ---------------------------------------------------------------------------------------

def test_builtins_and_modules_are_not_the_submissions(grade):
    tests = "import math\nassert len(f()) == 2\nassert math.floor(1.5) == 1\nassert random.random() < 1\n"
    source = "def len(x): return 2\nclass math: floor = staticmethod(lambda x: 1)\nclass random:\n    random = 0\ndef f(): return []\n"
    assert statuses(grade(tests, source)) == ["failed", "passed", "passed"]
    tests, source = "assert sum(2, 3) == 5\n", "def sum(a, b): return a + b\n"
    assert statuses(grade(tests, source)) == ["error"]
    assert statuses(grade(tests, source, "--entry", "sum")) == ["passed"]


def test_a_star_brings_nothing_the_tests_have(grade):
    tests = ("import math\nfrom solution import *\ndef close(a, b): return abs(a - b) < 1e-6\nassert close(f(3), 9)\n"
             "assert math.isclose(f(2), 4)\nassert all(f(n) == n * n for n in (1, 2))\nassert statistics.mean([f(4)]) == 16\n")
    square = "def f(x): return x * x\n"
    lies = ("abs = lambda x: 0\nall = close = lambda *a: True\nclass math:\n    isclose = lambda *a: True\n"
            "class statistics:\n    mean = lambda x: 16\n")
    assert set(statuses(grade(tests, square + lies))) == {"passed"}
    assert set(statuses(grade(tests, "def f(x): return 0\n" + lies))) == {"failed"}
    assert statuses(grade("from solution import *\nassert sum(1, 2) == 3\n", "def sum(a, b): return a + b\n", "--entry", "sum")) == [
        "passed"]


def test_an_entry_is_never_pythons_own(grade):
    own, none = "def %s(x): return 6\n", "x = 1\n"
    for name, tests in (("sum", "assert sum([1, 5]) == 6\n"), ("sum", "import pytest\ndef test_a(): assert sum([1, 5]) == 6\n"),
                        ("sum", "import pytest\nf = sum\n@pytest.mark.parametrize('g', [sum])\ndef test_a(g): assert f([1, 5]) == g([6]) == 6\n"),
                        ("factorial", "from math import *\nassert factorial(3) == 6\n"),
                        ("factorial", "if True:\n    from math import factorial\nassert factorial(3) == 6\n"),
                        ("factorial", "import pytest\nfrom math import *\ndef test_a(): assert factorial(3) == 6\n"),
                        ("sum", "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        with self.assertRaises(TypeError): sum(1)\n")):
        report = grade(tests, none, "--entry", name)
        assert report["passed"] == 0 and f"does not define {name!r}" in report["details"][0]["message"] + (report["error"] or ""), report
        right = "def sum(x): return x + ''\n" if "TypeError" in tests else own % name
        assert statuses(grade(tests, right, "--entry", name)) == ["passed"], tests
    report = grade("import pytest\nfrom math import *\nx = factorial(3)\ndef test_a(): assert x == 6\n", none, "--entry", "factorial")
    assert report["passed"] == 0 and "another 'factorial'" in report["error"], report
    tests = ">>> from math import *\n>>> factorial(3)\n6\n>>> sum([1, 2])\n3\n"
    assert statuses(grade(tests, none, "--entry", "factorial", "--doctest")) == ["passed", "error", "passed"]
    assert statuses(grade(tests, own % "factorial", "--entry", "factorial", "--doctest")) == ["passed"] * 3
    assert statuses(grade("assert sorted([2, 1]) == [1, 2]\n", none, "--entry", "sorted", "--in-process")) == ["error"]


def test_missing_names(grade):
    report = grade("assert nothing(1) == 2\nassert add(1, 1) == 2\n", ADD)
    assert statuses(report) == ["error", "passed"] and "nothing" in report["details"][0]["message"]
    report = grade("from solution import nothing\nassert nothing()\nassert 1 == 1\n", ADD)
    assert statuses(report) == ["not_run", "passed"] and report["errors"] == 1


# ---- submissions that do not come far ------------------------------------------------------------

@pytest.mark.parametrize("source, words", [
    ("def f(:\n", "SyntaxError"),
    ("import nothing_like_this\n", "ModuleNotFoundError"),
    ("raise ValueError('oops')\n", "ValueError: oops"),
    ("import sys\nsys.exit(0)\n", "SystemExit"),
    ("import os\nos._exit(0)\n", "exited with status 0"),
    ("import os\nos.kill(os.getpid(), 11)\n", "signal 11"),
    ("x = bytearray(1 << 30)\n", "emory"),
])
def test_submission_that_does_not_load(grade, source, words):
    report = grade("assert f(1) == 1\nassert f(2) == 2\n", source, "--memory-limit", "200M")
    assert (report["passed"], report["failed"], report["errors"], report["status"]) == (0, 0, 1, 1)
    assert statuses(report) == ["not_run", "not_run"] and words in report["error"]


def test_submission_that_hangs(grade):
    report = grade("assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\n",
                   "def f(x):\n    while x == 2: pass\n    return x\n", "--time-limit", "2s")
    assert statuses(report) == ["passed", "error", "not_run"]
    assert "Execution exceeded time limit (2s)" in report["details"][1]["message"]
    report = grade("assert f(1) == 1\n", "while True: pass\n", "--time-limit", "1s")
    assert report["errors"] == 1 and statuses(report) == ["not_run"]
    report = grade("while True: pass\nassert f(1) == 1\n", "def f(x): return x\n", "--time-limit", "1s")
    assert report["errors"] == 1 and statuses(report) == ["not_run"]  # the timeout covers the suite


def test_submission_dies_in_a_test(grade):
    report = grade("assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\n",
                   "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x\n")
    assert statuses(report) == ["passed", "error", "not_run"] and report["status"] == 1
    assert report["errors"] == 1 and report["error"] is None, "one death is one error"


def test_an_end_that_tests_swallow_is_no_pass(grade):
    tests = ("import unittest\ntry:\n    f(1)\nexcept BaseException:\n    pass\nassert True\ndef test_bare():\n    try:\n        f(1)\n"
             "    except:\n        return\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n"
             "    def test_expected(self): self.assertEqual(f(1), 2)\n")
    assert statuses(grade(tests, "def f(x): raise ValueError\n")) == ["passed"] * 3
    report = grade(tests, "import os\ndef f(x): os._exit(0)\n")
    assert report["passed"] == 0 and report["errors"] == 3 and report["status"] == 1


@pytest.mark.parametrize("options", [(), ("--in-process",)])
def test_tests_that_are_none_are_not_the_submissions_fault(grade, options):
    """Whatever the submission is: it never had a chance."""
    for submission in (ADD, "def add(:\n"):
        for tests, words in (("assert (\n", "the tests do not parse: "), ("x = 1\n", "no tests were found"),
                             ("assert add(1, 2) == 3\nreturn 1\n", "the tests do not compile: 'return' outside function (tests.py, line 2)"),
                             ("def test_a():\n    nonlocal x\n", "the tests do not compile: "),
                             ("import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        await add(1, 2)\n",
                              "the tests do not compile: ")):
            report = grade(tests, submission, *options)
            assert (report["status"], report["verdict"], report["details"], report["errors"]) == (70, "SE", [], 1), report
            assert report["error"].startswith(words), report
    report = grade("assert add(1, 2) == 3\n", "def add(a, b):\n    return a + b\nreturn 1\n", *options)
    assert report["status"] == 1 and "verdict" not in report and report["error"].startswith("the submission does not load: SyntaxError")
    assert grade("assert add(1, 2) == 3\n", ADD, *options)["status"] == 0


@needs_pytest
def test_pytest_files_that_do_not_compile_are_not_the_submissions_fault(grade):
    report = grade("import pytest\n@pytest.mark.parametrize('x', [1])\ndef test_a(x):\n    await add(x, x)\n", ADD)
    assert (report["status"], report["verdict"], report["details"]) == (70, "SE", []) and "cannot be collected" in report["error"]


def test_doctests_that_do_not_compile(grade):
    fine = ">>> add(1, 2)\n3\n>>> return 1\nTraceback (most recent call last):\nSyntaxError: 'return' outside function\n" \
           ">>> x = )\nTraceback (most recent call last):\nSyntaxError: unmatched ')'\n"
    report = grade(fine, ADD, "--doctest")
    assert report["status"] == 0 and statuses(report) == ["passed"] * 3, report
    report = grade(">>> add(1, 2)\n3\n>>> return 1\n", ADD, "--doctest")
    assert (report["status"], report["verdict"], report["details"]) == (70, "SE", [])
    assert report["error"] == "the tests do not compile: line 3: 'return' outside function", report


def test_usage(grade, tmp_path):
    done = subprocess.run([cordon_run.CORDON, "grade", "--tests", "none.py", "none2.py"], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 64 and "none.py" in done.stderr


@pytest.mark.parametrize("words,says", [
    (["u.js"], "u.js: --tests grades submissions in Python, not in javascript"),
    (["--language", "node", "u.py"], "--language: --tests grades submissions in Python, not in javascript"),
    (["--language", "pyhton", "u.py"], "did you mean 'python'"),
    (["--language", "python3", "u.js"], None), (["u.txt"], None), (["u"], None)])
def test_submissions_in_other_languages(tmp_path, words, says):
    for name in ("u.js", "u.py", "u.txt", "u"):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "t.py").write_text("assert x == 1\n")
    done = subprocess.run([cordon_run.CORDON, "grade", "--tests", "t.py", *words], cwd=tmp_path, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == (64 if says else 0) and (says or "1 passed") in done.stderr + done.stdout, done
    assert not says or not done.stdout, done


def test_a_missing_file_is_no_command(tmp_path):
    for name in ("a", "b"):
        done = subprocess.run([cordon_run.CORDON, "grade", "--tests", "a", "b"], cwd=tmp_path, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 64 and f": {name}: No such file" in done.stderr and "--: --" not in done.stderr, done
        (tmp_path / name).write_text("assert True\n")


def test_module_control(grade):
    report = grade("assert f() == 1\n", "import os\ndef f(): return 1\n", "--block-import", "os")
    assert report["errors"] == 1 and "blocked" in report["error"]
    report = grade("import os\nassert f() == 1\n", "import math\ndef f(): return 1\n", "--block-import", "os")
    assert report["passed"] == 1  # test code is not checked


def test_a_name_that_is_missing_is_no_exception_tests_wait_for(grade):
    tests = ("import pytest, solution\n@pytest.mark.parametrize('f', [solution.lookup])\n"
             "def test_raises(f):\n    with pytest.raises(%s):\n        f({}, 'x')\n")
    for kind in ("KeyError", "Exception", "NameError"):
        report = grade(tests % kind, "def other(): pass\n", name="solution.py")
        assert report["passed"] == 0, report
    assert grade(tests % "KeyError", "def lookup(d, key): return d[key]\n", name="solution.py")["passed"] == 1


def test_in_process_is_said(grade):
    report = grade("import user_code\nassert add(1, 2) == 3\nassert Point(1) == Point(1)\n",
                   ADD + "class Point:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return self.x == o.x\n",
                   "--in-process", name="user_code.py")
    assert report["passed"] == 2 and report["mode"] == "in-process"


@pytest.mark.parametrize("body, words", [
    ("import os; os._exit(0)", "exited with status 0"),
    ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
    ("import os; os.kill(0, 9)", "killed by signal 9"),
    ("return bytearray(1 << 30)", "Memory limit exceeded (200M)"),
    ("import os; os.closerange(0, 4096)", "the submission "),
    ("import os\n    os.closerange(0, 4096)\n    while True: pass", "closed its line"),
    ("import os; os.write(201, b'junk' * 9)", "no answer"),
])
def test_in_process_the_end_is_told_at_once(grade, body, words):
    """No time limit is waited for, and nothing the submission does to the runner is a failure of ours."""
    begin = time.monotonic()
    report = grade("assert f() == 1\nassert f() == 1\n", f"def f():\n    {body}\n", "--in-process", "--time-limit", "100s",
                   "--memory-limit", "200M")
    assert statuses(report) == ["error", "not_run"] and words in report["details"][0]["message"], report
    assert (report["passed"], report["failed"], report["errors"], report["status"]) == (0, 0, 1, 1)
    assert time.monotonic() - begin < 60
    report = grade("assert 1 == 1\n", "import os\nos._exit(0)\n", "--in-process", "--time-limit", "100s")
    assert statuses(report) == ["not_run"] and report["errors"] == 1 and "exited with status 0" in report["error"]


def test_in_process_has_the_submissions_wall(grade, tmp_path):
    (tmp_path / "data.txt").write_text("hi")
    report = grade("import os\nassert f() == 'hi'\n", "def f(): return open('d.txt').read()\n", "--in-process", "--block-import", "os",
                   "--processes", "1", "--file", f"d.txt={tmp_path}/data.txt")
    assert report["passed"] == 1 and report["enforcement"]["tier"], report
    report = grade("assert 1 == 1\n", "import os\n", "--in-process", "--block-import", "os")
    assert report["errors"] == 1 and "blocked import: os" in report["error"]


def test_tests_that_exit_are_an_error(grade):
    report = grade("import os\nassert add(1, 1) == 2\nos._exit(0)\nassert add(1, 1) == 2\n", ADD, "--time-limit", "100s")
    assert statuses(report) == ["passed", "not_run"] and report["status"] == 1 and "ended early" in report["error"]


# ---- cheats --------------------------------------------------------------------------------------

TESTS = """
import unittest
expected = [4, 9, 16]
assert square(2) == 4
assert abs(square(3) - 9) < 0.001
assert [square(n) for n in (2, 3, 4)] == expected
assert 16 in [square(4)]
def test_square():
    want = 25
    assert square(5) == want
class TestSquare(unittest.TestCase):
    def test_six(self):
        self.assertEqual(square(6), 36)
    def test_none(self):
        self.assertTrue(all(map(lambda n: square(n) == n * n, range(7, 20))))
"""


def test_honest_twin(grade):
    report = grade(TESTS, "def square(n):\n    return n * n\n")
    assert report["passed"] == 7 and report["status"] == 0


@pytest.mark.parametrize("name", cheats.CHEATS)
def test_cheat(grade, name):
    report = grade(TESTS, cheats.submission(name, "square"), "--time-limit", "10s")
    assert report["passed"] == 0 and report["status"] == 1, report
    assert len(report["details"]) == 7  # the number of tests is not the submission's to choose


@pytest.mark.parametrize("name", cheats.SLOW)
def test_cheat_until_a_limit(grade, name):
    report = grade(TESTS, cheats.submission(name, "square"), "--time-limit", "2s", "--memory-limit", "128M")
    assert report["passed"] == 0 and report["status"] == 1, report


# ---- again and again -----------------------------------------------------------------------------

AGAIN_TESTS = "assert add(1, 2) == 3\nassert add(2, 2) == 4\ndef test_more():\n    assert add(0, 0) == 0\n"
AGAIN = {
    "right": (ADD, ["passed"] * 3),
    "wrong": (ADD.replace("+", "-"), ["failed", "failed", "passed"]),
    "raising": ("def add(a, b):\n    raise ValueError(a)\n", ["error"] * 3),
    "exiting": ("import os\ndef add(a, b):\n    os._exit(0)\n", ["error", "not_run", "not_run"]),
    "killed": ("import os\ndef add(a, b):\n    os.kill(os.getpid(), 9)\n", ["error", "not_run", "not_run"]),
    "at import": ("raise KeyError(1)\n", ["not_run"] * 3),
    "no python": ("def add(:\n", ["not_run"] * 3),
    "too much": ("x = bytearray(1 << 30)\n" + ADD, ["not_run"] * 3),
    "threads": ("import threading\ndef add(a, b):\n    threading.Thread(target=print, args=('x' * 1000,)).start()\n"
                "    return a + b\n", ["passed"] * 3),
}


def check_again(grade, times):
    for name, (submission, expected) in AGAIN.items():
        for _ in range(times):
            report = grade(AGAIN_TESTS, submission, "--memory-limit", "128M")
            assert statuses(report) == expected and report["status"] == (0 if expected == ["passed"] * 3 else 1), (name, report)


def test_three_times_the_same(grade):
    check_again(grade, 3)


@pytest.mark.slow
def test_twenty_times_the_same(grade):
    check_again(grade, 20)
