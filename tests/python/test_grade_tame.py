"""Which tests need no fork: code that computes with values of its own, and nothing else."""

import ast
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python/cordon/guest"))
import grade_tame  # noqa: E402


def is_tame(text, known=("f", "check")):
    def attributes():
        return {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    return grade_tame.is_tame([compile(text, "t.py", "exec")], set(known), attributes)


@pytest.mark.parametrize("text", [
    "assert f(1) == 2",
    "def check(candidate):\n    for x in range(3):\n        assert candidate(x) == [y * 2 for y in range(x)]\n",
    "import math\nassert math.isclose(f(1), math.pi, rel_tol=1e-9)",
    "from typing import List, Optional\ndef g(xs: List[int]) -> Optional[int]:\n    return xs[0]\n",
    "import copy\nx = [1]\ny = copy.deepcopy(x)\ny.append(f(x))\nassert sorted(y) == [1, 2]",
    "try:\n    f(1)\nexcept ValueError as e:\n    assert e.args == ('x',)\nelse:\n    assert False",
    "words = {'a': 1}\nwords.update(b=2)\nassert ' '.join(words) == f('{} {}'.format(*words))",
    "assert unknown(1) == other(2)",
    "def gen():\n    yield 1\nassert list(gen()) == f(lambda x: x + 1)",
])
def test_tame(text):
    assert is_tame(text)


@pytest.mark.parametrize("text", [
    "import os",
    "seed = 7\nrandom.seed(seed)",  # modules that are there without an import
    "environ = {}\nos.environ.update(environ)",
    "os.remove('x')",
    "assert np.sort(f(1))",
    "def check(c):\n    import os\n",
    "import random\nassert f(random.random())",
    "import sys\nsys.setrecursionlimit(10)",
    "import math\nmath.pi = 3",
    "del f.x",
    "from math import *",
    "from os.path import join",
    "import os as f",
    "setattr(f, 'x', 1)",
    "exec('x = 1')",
    "open('/etc/passwd')",
    "getattr(f, 'x')",
    "f.__class__",
    "__builtins__",
    "__import__('os')",
    "globals()['x'] = 1",
    "import copy\ncopy.copyreg",
    "import typing\ntyping.sys.modules",
    "import collections\ncollections.abc",
    "g = (x for x in [1])\ng.gi_frame.f_back.f_globals",
    "def g():\n    yield\nassert g().gi_code",
    "class A:\n    pass",
    "async def test():\n    pass",
    "def g():\n    global f\n    f = 1\n",
    "try:\n    f()\nexcept Exception as e:\n    e.with_traceback(None)",
    "input()", "exit()", "quit()", "breakpoint()", "help()", "vars()", "type('A', (), {})", "memoryview(b'')",
    "x = other.strange",
])
def test_not_tame(text):
    assert not is_tame(text)
