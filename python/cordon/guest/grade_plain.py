"""Plain scripts, test functions and unittest classes. Runs in the sandbox of the tests."""
import ast
import functools
import re
import sys
import time

import grade_side
import grade_tame
import grade_words
from grade_words import Captured, describe, is_skip, ran, status_of


class _Item:
    """One test of the file, found by reading it."""

    def __init__(self, kind, name, node, owner=None):
        self.kind, self.name, self.node, self.owner = kind, name, node, owner


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def find(tree, text):
    """Every top-level assert; test functions; methods of TestCase classes; without any of them, calls of
    functions that assert, and loops and blocks that do."""
    source = grade_words.Source(text)
    items = []
    cases, strange = _classes(tree), plain_classes(tree)
    defined = {node.name: node for node in tree.body if isinstance(node, _DEFINITIONS)}
    for node in tree.body:
        if isinstance(node, _DEFINITIONS) and defined[node.name] is not node:
            continue  # a later one of that name takes its place: what it checks would never run
        if isinstance(node, ast.Assert):
            items.append(_Item("assert", _label(node, source), node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            items.append(_Item("function", node.name, node))
        elif isinstance(node, ast.ClassDef):
            is_case, methods = cases[node.name]
            if is_case:
                items += [_Item("method", "%s.%s" % (node.name, name), node, name) for name in sorted(methods)]
            elif node.name in strange:
                items.append(_Item("class", node.name, node))
    if items:
        return items
    checks = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)
              and any(isinstance(inner, ast.Assert) for inner in ast.walk(node))}
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) \
                and isinstance(node.value.func, ast.Name) and node.value.func.id in checks \
                or isinstance(node, (ast.For, ast.While, ast.With, ast.Try)) \
                and any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
            items.append(_Item("assert", _label(node, source), node))
    return items


def _classes(tree):
    """Of each class at the top of the file: is it a TestCase, and the names of its test methods."""
    found = {name: (True, frozenset()) for name in _case_names(tree)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = _class(node, found)
    return found


def plain_classes(tree):
    """Classes that are tests for pytest only: by their name, with methods that are tests or bases that may have some."""
    classes = _classes(tree)
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
            and not classes[node.name][0] and (classes[node.name][1] or any(
                isinstance(inner, ast.ClassDef) and inner.name.startswith("Test") for inner in node.body) or any(
                _base_name(base) not in classes and _base_name(base) not in _BARE for base in node.bases))}


_BARE = ("object", "ABC", "Exception", "Enum", "IntEnum", "NamedTuple", "TypedDict", "Protocol", "Generic", "dict", "list")


def _base_name(base):
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _case_names(tree):
    """Names the file has for unittest's own classes."""
    return {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "unittest"
            for alias in node.names if alias.name.endswith("TestCase")}


def _label(node, source):
    return "line %d: %s" % (node.lineno, " ".join(source.of(node, 200).split()))


def _class(node, classes):
    """Is it a TestCase, and the names of its test methods, with those of its bases."""
    is_case, names = False, set()
    for base in node.bases:
        name = _base_name(base)
        known_case, inherited = classes.get(name, (name.endswith("TestCase"), ()))
        is_case = is_case or known_case
        names.update(inherited)
    return is_case, names | {inner.name for inner in node.body if isinstance(
        inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name.startswith("test")}


def prepared(suite, tree):
    """Finds the tests, names them and makes their code; gives what runs them."""
    tree.body = [node for node in tree.body if not _runs_cases(node)]
    items = find(tree, suite.text)
    if not items and any(map(_is_main, tree.body)):
        tree.body = [inner for node in tree.body for inner in (node.body if _is_main(node) else [node])
                     if not _runs_cases(inner)]
        items = find(tree, suite.text)
    if not items:
        suite.broken("no tests were found: top-level asserts, test_* functions, unittest.TestCase classes")
        return None
    numbers = {id(item.node): number for number, item in enumerate(items) if item.kind == "assert"}
    known = suite.known(tree)
    try:  # before they are named: code that cannot be made is no test, and nothing of the submission's
        steps = _steps(suite, tree, numbers)
        codes = [step.code for step in steps] + suite.background()
    except (SyntaxError, ValueError) as e:
        suite.broken("the tests do not compile: %s" % e)
        return None
    if not suite.announce([item.name for item in items]):
        return None
    if suite.job.get("mode") == "strict" and not any(item.kind == "method" for item in items):
        suite.tame = grade_tame.is_tame(codes, known | (suite.defined or set()), lambda: suite.attributes(tree))
    return lambda: run(suite, tree, items, steps)


def _runs_cases(node):
    """unittest.main(): the cases are run in any case."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "main" \
        and isinstance(call.func.value, ast.Name) and call.func.value.id == "unittest"


def _is_main(node):
    """What a file does that is run by itself, where it does nothing else."""
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__" \
        and isinstance(test.ops[0], ast.Eq) and isinstance(test.comparators[0], ast.Constant) \
        and test.comparators[0].value == "__main__"


def run(suite, tree, items, steps):
    if not suite.load():
        return
    space = suite.globals(tree)
    suite.bind(space)
    space["@compared"] = grade_words.compared
    space["@ran"] = ran
    module = type(sys)("tests")
    space = suite.space = _adopt(module, space)
    if not suite.tame:
        sys.modules["tests"] = module
    _script(suite, steps, space)
    _functions(suite, items, space)
    _cases(suite, items, space)
    for number, item in enumerate(items):
        if item.kind == "class":
            suite.result(number, "error", "a test class that is no unittest.TestCase needs pytest, which is not installed")


def _adopt(module, space):
    module.__dict__.update(space)
    return module.__dict__


# ---- scripts -------------------------------------------------------------------------------------

_LAZY = re.compile(r"\b(yield|async)\b")


class _Step:
    """One statement of the file: its code, the number of its test if it is one."""

    def __init__(self, node, code, number):
        self.node, self.code, self.number = node, code, number
        self.imports = not isinstance(node, (ast.Assert, ast.Expr, ast.FunctionDef, ast.ClassDef)) and any(
            isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in ast.walk(node))


def _steps(suite, tree, numbers):
    asserts = grade_words.Asserts(suite.text, grade_words.dead_functions(tree) if _LAZY.search(suite.text) else ())
    flags = _future(tree)
    for node in tree.body:
        asserts.statement(node)
    return [_Step(node, compile(ast.Module([node], []), suite.path, "exec", flags, dont_inherit=True),
                  numbers.get(id(node))) for node in tree.body]


def _script(suite, steps, space):
    """Statement by statement. What a failed statement should have set is not there: tests that need it do
    not run, the others do."""
    broken, said = set(), False
    with Captured() as captured:
        for step in steps:
            node, code, number = step.node, step.code, step.number
            if number is not None and broken and broken & names(node, ast.Load):
                suite.result(number, "not_run", "needs what failed before it")
                continue
            if broken and broken & names(node, ast.Load) and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                broken |= names(node, ast.Store)
                continue
            if number is not None:
                _one(suite, number, lambda code=code: exec(code, space))
                continue
            try:
                exec(code, space)
                suite.untroubled()
                if step.imports:
                    suite.bind(space, again=True)
            except (Exception, SystemExit, grade_side.Trouble) as e:
                broken |= names(node, ast.Store)
                if not said:
                    suite.broken("line %d of the tests failed: %s" % (node.lineno, describe(e)))
                said = True
                grade_side.Trouble.seen = None
    del captured


def _future(tree):
    import __future__
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


def names(node, context):
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)
             and inner.id[0] != "@"}  # what grade_words put there
    if context is ast.Store:
        for inner in ast.walk(node):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(inner.name)
            elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                found.update((alias.asname or alias.name).split(".")[0] for alias in inner.names)
    return found


def _one(suite, number, call):
    suite.begin(number)
    with Captured() as captured:
        try:
            call()
            status, message = "passed", ""
        except grade_side.SubmissionGone as e:
            suite.result(number, "error", str(e), captured.text())
            raise
        except BaseException as e:
            if is_skip(e):
                status, message = "skipped", str(e)
            else:
                status, message = status_of(e), _message(e)
    suite.result(number, status, message, captured.text())


def _message(error):
    if isinstance(error, AssertionError):
        return str(error) or "assertion failed"
    if isinstance(error, grade_side.SubmissionGone):
        return str(error)
    return describe(error)


def _functions(suite, items, space):
    """Test functions, each between setup_function and teardown_function, all after setup_module."""
    wanted = [(number, item.name) for number, item in enumerate(items) if item.kind == "function"]
    shown = {name for _, name in wanted}
    hidden = sorted(name for name, value in space.items() if name.startswith("test") and name not in shown
                    and _is_own_function(suite, space, name, value))
    if hidden:
        suite.broken("test functions that reading the file does not show: %s" % ", ".join(hidden))
    shown = {item.name for item in items if item.kind == "class"}
    hidden = sorted(name for name, value in space.items() if name.startswith("Test") and name not in shown
                    and _is_own_class(value))
    if hidden:
        suite.broken("test classes that reading the file does not show: %s" % ", ".join(hidden))
    if not wanted or not _around(suite, space, "setup_module"):
        return
    for number, name in wanted:
        function = space.get(name)
        if function is None:
            suite.result(number, "not_run", "it was not defined")
        else:
            _one(suite, number, lambda function=function: _function(space, function))
    _around(suite, space, "teardown_module")


def _is_own_function(suite, space, name, value):
    """Wrapped, in part applied or behind a value of the submission's, but what the file means to be called."""
    if type(value) is type(find):
        return value.__globals__ is space or value.__module__ == "tests"
    return name in suite.own and callable(value) and not isinstance(value, type)


def _is_own_class(value):
    unittest = sys.modules.get("unittest")
    return isinstance(value, type) and value.__module__ == "tests" and not (
        unittest is not None and issubclass(value, unittest.TestCase)) and any(
        part.startswith("test") and callable(content) for kind in value.__mro__ for part, content in vars(kind).items())


def _around(suite, space, name):
    try:
        with Captured():
            _call(space.get(name), sys.modules.get("tests"))
    except (Exception, grade_side.Trouble) as e:
        return suite.broken("%s failed: %s" % (name, describe(e)))
    return True


def _function(space, function):
    wants = _required(function)
    if wants:
        raise TypeError("it wants fixtures (%s): those need pytest, which is not installed" % ", ".join(wants))
    _call(space.get("setup_function"), function)
    try:
        _finished(function())
    finally:
        _call(space.get("teardown_function"), function)


def _call(function, about):
    """A function of the tests' own that is there or not, and may want to know what it is called for."""
    if type(function) is type(find):
        _finished(function(about) if _required(function) else function())


def _required(function):
    code = getattr(function, "__code__", None)
    return code.co_varnames[:code.co_argcount - len(function.__defaults__ or ())] if code is not None else ()


def _finished(value):
    if type(value).__name__ == "coroutine":
        import asyncio
        value = asyncio.run(value)
    ran(value)


def never_runs(method, kind):
    """Why a test would not run when it is called; None: it would. kind: its TestCase, if it has one."""
    import inspect
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        return "it is a generator: nothing of it runs"
    if kind is not None and inspect.iscoroutinefunction(method) and not hasattr(kind, "asyncSetUp"):
        return "it is a coroutine, which unittest.TestCase does not run (IsolatedAsyncioTestCase does)"
    return None


def _called(kind, call, method):
    """TestCase._callTestMethod, for those that can tell what a method returned."""
    reason = never_runs(method, kind)
    if reason is not None:
        raise grade_side.Trouble(reason)
    if call is not None:
        return call(method)
    value = method()
    if value is not None:
        ran(value)


# ---- unittest ------------------------------------------------------------------------------------

def _cases(suite, items, space):
    if suite.tame or "unittest" not in sys.modules:
        return
    import unittest
    numbers, tests, known = {}, [], set()
    for number, item in enumerate(items):
        if item.kind != "method":
            continue
        kind = space.get(item.node.name)
        if not isinstance(kind, type) or not issubclass(kind, unittest.TestCase) or not hasattr(kind, item.owner):
            suite.result(number, "not_run", "it was not defined")
            continue
        test = kind(item.owner)
        call = test._callTestMethod if isinstance(test, unittest.IsolatedAsyncioTestCase) else None
        test._callTestMethod = functools.partial(_called, kind, call)
        numbers[id(test)] = number
        tests.append(test)
        known.add((kind, item.owner))
    for kind in {id(kind): kind for kind in space.values() if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
                 and kind.__module__ == "tests"}.values():
        hidden = [name for name in unittest.defaultTestLoader.getTestCaseNames(kind) if (kind, name) not in known]
        if hidden:
            suite.broken("test methods of %s that reading the file does not show: %s" % (kind.__name__, ", ".join(hidden)))
    unittest.TestSuite(tests).run(_result(suite, numbers))


def _result(suite, numbers):
    import unittest

    class Result(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            self.outcome = None
            self.captured = Captured().__enter__()
            suite.begin(numbers[id(test)])
            self.began = time.perf_counter()

        def stopTest(self, test):
            self.captured.__exit__()
            status, message = self.outcome or ("not_run", "")
            suite.result(numbers[id(test)], status, message, self.captured.text(), time.perf_counter() - self.began)
            super().stopTest(test)

        def note(self, test, status, message):
            if id(test) not in numbers:  # a class or the module: its tests do not run
                suite.broken("%s: %s" % (test, message))
            elif self.outcome is None or self.outcome[0] == "passed":
                self.outcome = (status, message)

        def addSuccess(self, test):
            self.note(test, "passed", "")

        def addFailure(self, test, error):
            self.note(test, "failed", _message(error[1]))

        def addError(self, test, error):
            self.note(test, "error", _message(error[1]))
            if isinstance(error[1], grade_side.SubmissionGone):
                raise error[1]

        def addSkip(self, test, reason):
            self.note(test, "skipped", str(reason))

        def addExpectedFailure(self, test, error):
            self.note(test, "passed", "")  # unless the submission is gone: Suite.result

        def addUnexpectedSuccess(self, test):
            self.note(test, "failed", "passed although a failure was expected")

        def addSubTest(self, test, subtest, error):
            if error is not None:
                self.note(test, status_of(error[1]), "%s: %s" % (subtest._subDescription(), _message(error[1])))

    return Result()
