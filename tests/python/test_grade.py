"""TestRunner and the judge from Python."""

import asyncio
import threading

import pytest

from cordon import Sandbox, SandboxError, TestResult, TestRunner
from cordon.grade import judge, judge_async

ADD = "def add(a, b):\n    return a + b\n"


@pytest.fixture(scope="module")
def runner():
    return TestRunner(Sandbox(timeout=20))


def test_result(runner):
    result = runner.run_tests(ADD, "assert add(1, 2) == 3\nassert add(1, 1) == 3\nassert add('a', 1)\n")
    assert isinstance(result, TestResult)
    assert (result.passed, result.failed, result.errors, result.mode) == (1, 1, 1, "strict")
    assert [row["status"] for row in result.details] == ["passed", "failed", "error"]
    assert {"name", "status", "message", "runtime_ms"} <= set(result.details[0])
    assert result.total_runtime_ms > 0 and not result.all_passed


@pytest.mark.parametrize("mode", ["strict", "in-process"])
def test_tests_that_do_not_compile_are_a_result(sandbox, mode):
    result = TestRunner(sandbox, mode=mode).run_tests("def add(a, b): return a + b", "assert add(1, 2) == 3\nreturn 1")
    assert (result.passed, result.failed, result.errors, result.details) == (0, 0, 1, []) and not result.all_passed
    assert result.error.startswith("the tests do not compile: 'return' outside function")


@pytest.mark.parametrize("code, words", [("def add(:", "SyntaxError"), ("import nothing_at_all", "ModuleNotFoundError"),
                                         ("raise SystemExit(0)", "SystemExit"), ("import os", "blocked")])
def test_code_that_does_not_load(runner, code, words):
    result = runner.run_tests(code, "assert add(1, 2) == 3\nassert add(1, 1) == 2\n")
    assert (result.passed, result.failed, result.errors, result.not_run) == (0, 0, 1, 2)
    assert words in result.error


def test_timeout_covers_the_suite():
    result = TestRunner(Sandbox(timeout=1)).run_tests("def f(n):\n    while n: pass\n", "assert f(0) is None\nassert f(1)\nassert f(0)\n")
    assert [row["status"] for row in result.details] == ["passed", "error", "not_run"]
    assert "Execution exceeded time limit (1s)" in result.details[1]["message"]


def test_settings_of_the_sandbox_hold():
    sandbox = Sandbox(timeout=20, filesystem={"data.txt": "42", "sub/x.bin": b"\0"}, env={"NAME": "value, with = and comma"},
                      allowed_imports=["os"], max_memory_mb=128)
    runner = TestRunner(sandbox)
    result = runner.run_tests("import os\ndef f():\n    return open('data.txt').read(), os.environ['NAME'], len(open('sub/x.bin', 'rb').read())\n"
                              "def g():\n    return len(bytearray(300 << 20))\n",
                              "assert f() == ('42', 'value, with = and comma', 1)\nassert g()\n")
    assert result.details[0]["status"] == "passed", result.details[0]
    assert result.details[1]["status"] == "error"
    assert "blocked" in runner.run_tests("import json", "assert 1").error


def test_modes():
    point = "class P:\n    def __init__(s, x): s.x = x\n    def __eq__(s, o): return s.x == o.x\ndef push(l): l.append(1)\n"
    assert TestRunner(Sandbox(timeout=20)).run_tests(point, "assert P(1) == P(1)").passed == 1
    assert TestRunner(Sandbox(timeout=20)).run_tests(point, "class Q(P): pass\nassert Q(1)").passed == 0
    result = TestRunner(Sandbox(timeout=20), mode="in-process").run_tests(point, "class Q(P): pass\nassert Q(1)")
    assert result.passed == 1 and result.mode == "in-process"
    assert TestRunner(Sandbox(timeout=20)).run_tests(point, "l = []\npush(l)\nassert l == [1]\n").passed == 1
    point += "def pop(l): return l.pop()\n"
    tests = "l = [1, 2]\nn = pop(l)\nassert l == [1]\n"
    assert TestRunner(Sandbox(timeout=20)).run_tests(point, tests).passed == 0
    assert TestRunner(Sandbox(timeout=20), copy_back=True).run_tests(point, tests).passed == 1
    assert TestRunner(Sandbox(timeout=20), entry=["sum"]).run_tests("def sum(a, b): return 7", "assert sum(1, 2) == 7").passed == 1
    assert TestRunner(Sandbox(timeout=20), doctest=True).run_tests(ADD, ">>> add(1, 2)\n3\n").passed == 1
    with pytest.raises(ValueError):
        TestRunner(mode="loose")
    with pytest.raises(TypeError):
        TestRunner("no sandbox")


def test_threads_and_tasks(runner):
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(runner.run_tests(ADD, f"assert add({n}, 1) == {n + 1}")))
               for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.passed for result in results] == [1, 1, 1]

    async def both():
        return await asyncio.gather(runner.run_tests_async(ADD, "assert add(1, 1) == 2"),
                                    judge_async("print(input())", [("a", "a")], sandbox=Sandbox(timeout=20)))
    tests, judged = asyncio.run(both())
    assert tests.all_passed and judged.accepted


def test_cancelled_task_ends_its_guests(runner):
    async def cancelled():
        task = asyncio.ensure_future(runner.run_tests_async("import time\nx = 1", "while True: pass\nassert x == 1"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(cancelled())


def test_judge():
    result = judge("print(int(input()) * 2)", [("2", "4"), {"name": "five", "input": "5", "output": "11"}],
                   sandbox=Sandbox(timeout=20))
    assert (result.verdict, result.passed, result.accepted) == ("WA", 1, False)
    assert [(case["name"], case["verdict"]) for case in result.cases] == [("1", "AC"), ("five", "WA")]
    with pytest.raises(ValueError):
        judge("print(1)", [])
    with pytest.raises(SandboxError) as caught:
        judge("print(1)", [("", "1")], compare="float:x")
    assert caught.value.code in (64, 78)
