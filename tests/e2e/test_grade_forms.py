"""Forms that files of tests have: pytest with the submission used early, unittest.main(), a block of their own; and
what crosses between them and a submission keeps of its kind."""

import pytest

from test_grade_tests import ADD, grade, needs_pytest, statuses  # noqa: F401

BOX = "class Box:\n    def __init__(self): self.d = []\n    def put(self, x): self.d.append(x)\ndef add(a, b): return a + b\ndef keep(f): return f\ndef leave(): import os; os._exit(0)\n"
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
    ("import pytest\nx = add(1, 1)\nassert x is not None\ndef test_a(capsys): pass\n", "put them into a test"),
    ("import pytest\n@keep\ndef test_a(capsys): pass\n", "no tests were found"),
    ("import pytest\nx = Box('too', 'many')\ndef test_a(capsys): pass\n", "TypeError"),
    ("import pytest\nx = leave()\ndef test_a(capsys): pass\n", "the submission exited with status 0"),
    ("import pytest\nx = nosuch(1)\ndef test_a(capsys): pass\n", "does not define 'nosuch'"),
])
def test_what_is_called_early_makes_no_test_pass(grade, tests, says):
    report = grade(tests, BOX)
    assert report["passed"] == 0 and report["status"] != 0 and says in report["error"], report


@needs_pytest
def test_a_test_behind_a_decorator_of_the_submissions_is_missed(grade):
    report = grade("import pytest\n@keep\ndef test_a(capsys): assert False\ndef test_b(capsys): pass\n", BOX)
    assert report["status"] == 1 and "does not collect: test_a" in report["error"], report


@needs_pytest
def test_a_file_that_only_raises_with_pytest_is_a_script(grade):
    tests = ("import pytest\nfrom pytest import approx\nassert add(1, 2) == 3\ndef test_a():\n    with pytest.raises(TypeError):\n        add(1)\n"
             "def test_b():\n    with pytest.raises(ValueError):\n        add(1, 1)\ndef test_c():\n    pytest.skip('not now')\n"
             "def test_d():\n    pytest.fail('no')\ndef test_e():\n    assert add(0.1, 0.2) == approx(0.3)\n")
    report = grade(tests, ADD)
    assert statuses(report) == ["passed", "passed", "failed", "skipped", "failed", "passed"] and not report["error"], report
    assert "DID NOT RAISE" in report["details"][2]["message"] and report["status"] == 1


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
