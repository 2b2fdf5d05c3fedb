"""Test files written for pytest. Runs in the sandbox of the tests.

pytest collects with the submission's names deferred, so that the list of tests cannot depend on it; then they
are bound, and the tests run.
"""
import ast
import inspect
import operator
import os
import sys

import grade_plain
import grade_side
from grade_words import Captured, Deferred, describe, ran


def run(suite, tree):
    import tempfile
    import pytest
    from _pytest.assertion import rewrite
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "test_file.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(suite.text)
    original = rewrite.AssertionRewritingHook.exec_module

    def exec_module(self, module):
        if getattr(module, "__file__", None) == path or module.__name__ == "test_file":
            for name, value in suite.globals(tree).items():
                if name not in ("__name__", "__file__"):
                    module.__dict__[name] = value
            for name in suite.ordered(module.__dict__):
                module.__dict__[name] = Deferred(suite, name)
        original(self, module)

    rewrite.AssertionRewritingHook.exec_module = exec_module
    sys.dont_write_bytecode = True
    plugin = _Plugin(suite, path, tree)
    os.chdir(folder)
    with Captured():
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--noconftest", "-c", os.devnull,
                              "--rootdir", folder, "--capture=sys", path], plugins=[plugin])
    if not plugin.numbers and not plugin.errors:
        suite.broken("pytest found no tests (status %d)" % status)
    if plugin.gone is not None:
        raise plugin.gone


class _Plugin:
    def __init__(self, suite, path, tree):
        self.suite, self.path, self.tree = suite, path, tree
        self.never = {}  # tests that would not run, and why
        self.numbers = {}
        self.errors = []
        self.parts = {}
        self.gone = None

    def pytest_collectreport(self, report):
        if report.failed:
            text = str(report.longrepr)
            self.errors.append(text.rpartition(" grade_side.Trouble: ")[2] if " grade_side.Trouble: " in text else text)

    def pytest_collection_finish(self, session):
        if self.errors:
            self.suite.broken("the tests cannot be collected: %s" % self.errors[0])
            session.items.clear()
            return
        if self.suite.calls and any(isinstance(node, ast.Assert) for node in self.tree.body):
            self.suite.broken("asserts beside tests that need pytest, about what is called before them: put them into a test")
            session.items.clear()
            return
        names = [item.nodeid.partition("::")[2].replace("::", ".") for item in session.items]
        if not names:
            self.suite.broken("no tests were found")
            return
        left_out = self._left_out(names) + self._wrapped(session.items)
        if left_out:
            self.suite.broken("tests that pytest does not collect: %s" % ", ".join(left_out))
        self.numbers = {item.nodeid: number for number, item in enumerate(session.items)}
        self.never = {item.nodeid: reason for item in session.items for reason in [_never(item)] if reason is not None}
        if not self.suite.collected(names) or not self._bind(session.items):
            session.items.clear()

    def _left_out(self, names):
        """Classes with tests that pytest passes over (one with __init__, say), unless they say that it should."""
        wanted = grade_plain.plain_classes(self.tree) - {name.split(".")[0] for name in names}
        return sorted(node.name for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name in wanted
                      and not any(isinstance(inner, ast.Name) and inner.id == "__test__" for inner in ast.walk(node)))

    def _wrapped(self, items):
        """Tests that a decorator of the submission's stands for: nobody knows yet what it makes of them."""
        return sorted({name for item in items for kind in (item.module, getattr(item, "cls", None)) if kind is not None
                       for name, value in vars(kind).items() if type(value) is Deferred and name in _functions(self.tree)})

    def pytest_pyfunc_call(self, pyfuncitem):
        """As pytest does it, but for what a function returned that should have run."""
        if inspect.iscoroutinefunction(pyfuncitem.obj) or pyfuncitem.nodeid in self.never:
            return None
        ran(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
        return True

    def _bind(self, items):
        """The submission is there: what stands for its values is replaced by them, wherever collecting has put it."""
        real = _Real(self.suite)
        try:
            for call in self.suite.calls:
                call.make(real.value)
        except grade_side.SubmissionGone as e:
            self.gone = e
            return False
        except (Exception, grade_side.Trouble) as e:
            grade_side.Trouble.seen = None
            return self.suite.broken("what is called before the tests failed: %s" % describe(e))
        try:
            for module in {item.module for item in items}:
                self.suite.bind(module.__dict__)
                real.names_of(module.__dict__, module.__name__)
            for item in items:
                if hasattr(item, "callspec"):
                    real.inside(item.callspec.params)
                for mark in item.iter_markers():
                    real.inside(mark.kwargs)
                    object.__setattr__(mark, "args", real.value(mark.args))
        except grade_side.Missing as e:
            grade_side.Trouble.seen = None
            return self.suite.broken(str(e))
        return True

    def pytest_runtest_logstart(self, nodeid, location):
        self.parts = {}
        self.suite.begin(self.numbers[nodeid])

    def pytest_runtest_makereport(self, item, call):
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, grade_side.SubmissionGone):
            self.gone = error

    def pytest_exception_interact(self, node, call, report):
        pass

    def pytest_runtest_logreport(self, report):
        number = self.numbers[report.nodeid]
        self.parts[report.when] = report
        if report.when != "teardown":
            return
        failed = next((part for part in self.parts.values() if part.failed), None)
        skipped = next((part for part in self.parts.values() if part.skipped), None)
        seconds = sum(part.duration for part in self.parts.values())
        output = report.capstdout + report.capstderr
        if self.gone is not None:
            self.suite.result(number, "error", str(self.gone), output, seconds)
        elif report.nodeid in self.never:
            self.suite.result(number, "error", self.never[report.nodeid], output, seconds)
        elif failed is not None:
            is_failure = failed.when == "call" and _crash(failed).startswith(("AssertionError", "assert", "Failed"))
            self.suite.result(number, "failed" if is_failure else "error", _words(failed), output, seconds)
        elif skipped is not None and (not hasattr(skipped, "wasxfail") or "[NOTRUN]" in skipped.wasxfail):
            self.suite.result(number, "skipped", _reason(skipped), output, seconds)
        else:
            self.suite.result(number, "passed", "", output, seconds)

    def pytest_runtest_protocol(self, item, nextitem):
        if self.gone is not None:
            item.session.shouldstop = str(self.gone)
            return True
        return None


def _functions(tree):
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name.startswith("test")}


class _Real:
    """Deferred names, and containers of such, as what they stand for."""

    def __init__(self, suite):
        self._suite, self._known, self._seen = suite, {}, set()

    def value(self, value):
        kind = type(value)
        if kind is Deferred:
            path = value.__cordon_path__
            if path not in self._known:
                self._known[path] = value.__cordon_its__()
            return self._known[path]
        if kind in (tuple, frozenset):
            parts = kind(map(self.value, value))
            return value if all(map(operator.is_, parts, value)) else parts
        if kind in (list, dict, set):
            self.inside(value)
        return value

    def inside(self, value):
        """What can be changed is changed where it is: others may have it, too."""
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if type(value) is list:
            value[:] = map(self.value, value)
        elif type(value) is set:
            parts = list(map(self.value, value))
            value.clear()
            value.update(parts)
        else:
            pairs = [(self.value(key), self.value(content)) for key, content in value.items()]
            value.clear()
            value.update(pairs)

    def names_of(self, space, module):
        """Global names, attributes of classes, defaults of functions."""
        for name, value in list(space.items()):
            if name == "__builtins__":
                continue
            real = self.value(value)
            if real is not value:
                space[name] = real
            self._deeper(value, module)

    def _deeper(self, value, module):
        value = getattr(value, "__func__", value) if isinstance(value, (classmethod, staticmethod)) else value
        if getattr(value, "__module__", None) != module or id(value) in self._seen:
            return
        if isinstance(value, type):
            self._seen.add(id(value))
            for name, content in list(vars(value).items()):
                real = self.value(content)
                if real is not content:
                    setattr(value, name, real)
                self._deeper(content, module)
        elif inspect.isfunction(value):
            self._seen.add(id(value))
            if value.__defaults__:
                value.__defaults__ = self.value(value.__defaults__)
            if value.__kwdefaults__:
                self.inside(value.__kwdefaults__)


def _never(item):
    """Other coroutines pytest skips, or has a plugin for."""
    unittest = sys.modules.get("unittest")
    kind = getattr(item, "cls", None)
    is_case = unittest is not None and kind is not None and issubclass(kind, unittest.TestCase)
    return grade_plain.never_runs(getattr(item, "obj", None), kind if is_case else None)


def _crash(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash is not None else ""


def _words(report):
    return _crash(report) or str(report.longrepr)


def _reason(report):
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else describe(Exception(str(report.longrepr)))
