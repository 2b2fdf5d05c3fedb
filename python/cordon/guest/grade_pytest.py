"""Test files written for pytest. Runs in the sandbox of the tests.

pytest collects with the submission's names deferred, so that the list of tests cannot depend on it; then they
are bound, and the tests run.
"""
import os
import sys

import grade_side
from grade_words import Captured, describe


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
        original(self, module)

    rewrite.AssertionRewritingHook.exec_module = exec_module
    sys.dont_write_bytecode = True
    plugin = _Plugin(suite, path)
    os.chdir(folder)
    with Captured():
        status = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--noconftest", "-c", os.devnull,
                              "--rootdir", folder, "--capture=sys", path], plugins=[plugin])
    if not plugin.numbers and not plugin.errors:
        suite.broken("pytest found no tests (status %d)" % status)
    if plugin.gone is not None:
        raise plugin.gone


class _Plugin:
    def __init__(self, suite, path):
        self.suite, self.path = suite, path
        self.numbers = {}
        self.errors = []
        self.parts = {}
        self.gone = None

    def pytest_collectreport(self, report):
        if report.failed:
            self.errors.append(str(report.longrepr))

    def pytest_collection_finish(self, session):
        if self.errors:
            self.suite.broken("the tests cannot be collected: %s" % self.errors[0])
            session.items.clear()
            return
        names = [item.nodeid.partition("::")[2].replace("::", ".") for item in session.items]
        if not names:
            self.suite.broken("no tests were found")
            return
        self.numbers = {item.nodeid: number for number, item in enumerate(session.items)}
        if not self.suite.collected(names) or not self._bind(session.items):
            session.items.clear()

    def _bind(self, items):
        for module in {item.module for item in items}:
            space = module.__dict__
            self.suite.bind(space)
            for name, value in list(space.items()):
                if isinstance(value, grade_side.Deferred):
                    try:
                        space[name] = self.suite.side.get(value.name)
                    except KeyError:
                        return self.suite.broken("the submission does not define %r" % value.name)
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
        elif failed is not None:
            is_failure = failed.when == "call" and _crash(failed).startswith(("AssertionError", "assert", "Failed"))
            self.suite.result(number, "failed" if is_failure else "error", _words(failed), output, seconds)
        elif skipped is not None and not hasattr(skipped, "wasxfail"):
            self.suite.result(number, "skipped", _reason(skipped), output, seconds)
        else:
            self.suite.result(number, "passed", "", output, seconds)

    def pytest_runtest_protocol(self, item, nextitem):
        if self.gone is not None:
            item.session.shouldstop = str(self.gone)
            return True
        return None


def _crash(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash is not None else ""


def _words(report):
    return _crash(report) or str(report.longrepr)


def _reason(report):
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else describe(Exception(str(report.longrepr)))
