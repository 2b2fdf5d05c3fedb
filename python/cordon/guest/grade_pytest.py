"""Test files written for pytest. Runs in the sandbox of the tests.

pytest collects them twice. First without the submission, whose names stand for nothing then: this says which tests there
are, and is sent before the submission gets its text. Then with it, and the tests run if what is collected is the same.
"""
import ast
import inspect
import os
import sys

import grade_plain
import grade_side
from grade_words import Captured, Deferred, describe, ran

MODULE = "test_file"


def run(suite, tree):
    names = _counted(suite, tree)
    if names is None or not suite.collected(names):
        return
    plugin = _Run(suite, tree, names)
    status = _main(suite, tree, suite.text, plugin)
    if not plugin.numbers and not plugin.is_told:
        suite.broken("pytest found no tests (status %d)" % status)
    if plugin.gone is not None:
        raise plugin.gone


def _counted(suite, tree):
    """The names of the tests; None: there are none, and it was said why."""
    plugin = _Plugin(suite, tree)
    status = _main(suite, tree, _without_asserts(suite.text), plugin)
    grade_side.Trouble.seen = None
    if plugin.errors:
        suite.broken("the tests cannot be collected: %s" % plugin.errors[0])
    elif plugin.names is None:
        suite.broken("pytest found no tests (status %d)" % status)
    elif not plugin.names:
        suite.broken("no tests were found")
    else:
        left_out = _left_out(tree, plugin.names)
        if left_out:
            suite.broken("tests that pytest does not collect: %s" % ", ".join(left_out))
        return plugin.names
    return None


def _left_out(tree, names):
    """Classes with tests that pytest passes over (one with __init__, say), unless they say that it should."""
    wanted = grade_plain.plain_classes(tree) - {name.split(".")[0] for name in names}
    return sorted(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name in wanted
                  and not any(isinstance(inner, ast.Name) and inner.id == "__test__" for inner in ast.walk(node)))


def _without_asserts(text):
    """Without those at the top: what they are about is not there yet. Line by line the same otherwise."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.Assert):
            first, last = node.lineno - 1, node.end_lineno - 1
            rest = lines[last][node.end_col_offset:]
            lines[first:last + 1] = [lines[first][:node.col_offset] + b"pass" + rest] + [b""] * (last - first)
    return b"\n".join(lines).decode("utf-8", "surrogatepass")


def _main(suite, tree, text, plugin):
    import tempfile
    import pytest
    from _pytest.assertion import rewrite
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, MODULE + ".py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    original = rewrite.AssertionRewritingHook.exec_module

    def exec_module(self, module):
        if getattr(module, "__file__", None) == path or module.__name__ == MODULE:
            for name, value in suite.globals(tree).items():
                if name not in ("__name__", "__file__"):
                    module.__dict__[name] = value
            if suite.side is not None:
                suite.bind(module.__dict__)
            else:
                for name in suite.ordered(module.__dict__):
                    module.__dict__[name] = Deferred(suite, name)
        original(self, module)
        if suite.side is not None:
            plugin.rebound(module)

    rewrite.AssertionRewritingHook.exec_module = exec_module
    sys.modules.pop(MODULE, None)
    sys.dont_write_bytecode = True
    os.chdir(folder)
    try:
        with Captured():
            return pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--noconftest", "-c", os.devnull,
                                "--rootdir", folder, "--capture=sys", path], plugins=[plugin])
    finally:
        rewrite.AssertionRewritingHook.exec_module = original


class _Plugin:
    """Collects, and runs nothing."""

    def __init__(self, suite, tree):
        self.suite, self.tree = suite, tree
        self.names = None
        self.errors = []

    def pytest_collectreport(self, report):
        if report.failed:
            text = str(report.longrepr)
            self.errors.append(text.rpartition(" grade_side.Trouble: ")[2] if " grade_side.Trouble: " in text else text)

    def pytest_collection_finish(self, session):
        self.names = [item.nodeid.partition("::")[2].replace("::", ".") for item in session.items]
        session.items.clear()


class _Run(_Plugin):
    def __init__(self, suite, tree, names):
        super().__init__(suite, tree)
        self.wanted = names
        self.never = {}  # tests that would not run, and why
        self.numbers = {}
        self.parts = {}
        self.gone = None
        self.is_told = False

    def pytest_collection_finish(self, session):
        items = list(session.items)
        super().pytest_collection_finish(session)
        problem = self._problem()
        if problem:
            self.suite.broken(problem)
            self.is_told = True
            grade_side.Trouble.seen = None
            return
        session.items[:] = items
        self.numbers = {item.nodeid: number for number, item in enumerate(items)}
        self.never = {item.nodeid: reason for item in items for reason in [_never(item)] if reason is not None}

    def rebound(self, module):
        """Names that are the submission's by order, and that an import of the tests put another's in the place of."""
        lost = [name for name in self.suite.ordered(module.__dict__) if name not in self.suite.own
                and module.__dict__.get(name) is not self.suite.bound.get(name)]
        used = {name for node in self.tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
                for name in grade_plain.names(node, ast.Load)}
        self.errors += ["the tests import another %r and use it before they begin" % name for name in lost if name in used]
        self.suite.bind(module.__dict__, again=True)

    def _problem(self):
        if getattr(self.suite.side, "gone", None) is not None:
            return str(self.suite.side.gone)
        if self.errors:
            return "the tests cannot be collected with this submission: %s" % self.errors[0]
        if list(map(_shape, self.names)) != list(map(_shape, self.wanted)):
            return "which tests there are depends on the submission"
        hidden = self._hidden(sys.modules[MODULE])
        return "tests that a value of the submission's stands for: %s" % ", ".join(hidden) if hidden else None

    def _hidden(self, module):
        """Behind a decorator of the submission's, say: pytest does not see that they are tests."""
        seen, collected = set(), set(map(_shape, self.names))
        for name, value in vars(module).items():
            if name in self.suite.own and name.startswith(("test", "Test")) and _is_its(value):
                seen.add(name)
            if isinstance(value, type) and value.__module__ == module.__name__:
                seen.update("%s.%s" % (name, part) for kind in value.__mro__ for part, content in vars(kind).items()
                            if part.startswith("test") and _is_its(content))
        return sorted(seen - collected)

    def pytest_pyfunc_call(self, pyfuncitem):
        """As pytest does it, but for what a function returned that should have run."""
        if inspect.iscoroutinefunction(pyfuncitem.obj) or pyfuncitem.nodeid in self.never:
            return None
        ran(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
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


def _shape(name):
    """Without parameters, whose names may be the submission's values."""
    return name.partition("[")[0]


def _is_its(value):
    value = getattr(value, "__func__", value) if isinstance(value, (classmethod, staticmethod)) else value
    return isinstance(value, (Deferred, grade_side.Handle))


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
