"""The tests' side of grading: finds tests, runs them, reports each result. Runs in a sandbox of its own.

Jobs come on descriptor 0, results leave on 1; both are moved away first, so that nothing the tests print is
taken for a result. Each job is run by a fork: what one leaves behind in memory the next does not see.

  to us    T job, A an answer of the submission's, X the submission is gone, U its text (in-process mode)
  from us  P byte code of the submission's side, once and first, C the tests that were found, Q a question to the submission, B a test begins, R its result,
           S what kept the suite from running, E the end of the job, D the job's process died
"""
import ast
import importlib.util
import io
import json
import os
import re
import sys
import time

import grade_side as side_module
import grade_wire as wire

MAX_MESSAGE = 4000
MAX_OUTPUT = 64 * 1024
MAX_TESTS = 100_000
ALIASES = {"np": "numpy", "pd": "pandas"}
USUAL = ("solution", "user_code", "user", "main")
_BEFORE_DOT = re.compile(r"\b([A-Za-z_]\w*)\s*\.")


def clean(text):
    """Text every reader takes: no NUL, no half surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class Suite:
    """One job: its tests by number, and the way their results take."""

    def __init__(self, job, reader, output_fd):
        self.job = job
        self.text = job["tests"]
        self.path = job.get("name") or "tests.py"
        self.input, self.output = reader, output_fd
        self.names = []
        self.done = set()
        self.side = None
        self.found = set()
        self.began = None
        self.defined = None

    def send(self, kind, value):
        wire.write_frame(self.output, kind, json.dumps(value).encode("ascii"))

    # -- the order of things --------------------------------------------------------------------

    def collected(self, names):
        """The tests are fixed; only now does the submission start."""
        if len(names) > MAX_TESTS:
            return self.broken("more than %d tests" % MAX_TESTS)
        self.names = names
        self.send(b"C", {"tests": [clean(name)[:500] for name in names]})
        if self.job.get("mode") == "in-process":
            self.side = _InProcess(self)
        else:
            self.side = side_module.Side(self.input, self.output, bool(self.job.get("copy_back")))
        try:
            self.found = self.side.wait_loaded()
        except side_module.SubmissionGone as e:
            return self.broken(str(e))
        except BaseException as e:
            return self.broken("the submission does not load: %s" % describe(e))
        return True

    def broken(self, message):
        self.send(b"S", clean(str(message))[:MAX_MESSAGE])
        return False

    def begin(self, number):
        self.send(b"B", number)
        self.began = (number, time.perf_counter())

    def result(self, number, status, message="", output="", seconds=None):
        if number in self.done:
            return
        self.done.add(number)
        if seconds is None:
            seconds = time.perf_counter() - self.began[1] if self.began and self.began[0] == number else 0.0
        self.send(b"R", {"i": number, "s": status, "m": clean(message)[:MAX_MESSAGE],
                         "t": int(seconds * 1e9), "o": clean(output)[:MAX_OUTPUT]})

    # -- names ----------------------------------------------------------------------------------

    def lookup(self, name):
        """A free name of the tests: the submission's."""
        if self.defined is not None and name not in self.defined:
            raise KeyError(name)
        return self.side.get(name)

    def globals(self, tree):
        """Where test code runs: its own names, then the builtins, then the submission's."""
        space = {"__name__": "tests", "__builtins__": side_module.Names(self.lookup), "__file__": self.path}
        for name in sorted(modules_used(tree, self.text)):
            try:
                space[name] = __import__(ALIASES.get(name, name))
            except ImportError:
                pass
        if self.job.get("reference"):
            self._learn(space)
        prelude = self.job.get("prelude")
        if prelude:
            exec(compile(prelude, "prelude.py", "exec", dont_inherit=True), space)
        return space

    def _learn(self, space):
        """What a right answer imports the tests have by themselves; what it defines is the submission's, and
        nothing else."""
        tree = ast.parse(self.job["reference"])
        imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        exec(compile(ast.Module(imports, []), "reference.py", "exec", dont_inherit=True), space)
        self.defined = set()
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.defined.add(node.name)
            else:
                self.defined.update(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)
                                    and isinstance(inner.ctx, ast.Store))
        for name in self.defined & set(space["__builtins__"]):
            self.job.setdefault("entry", []).append(name)

    def bind(self, space):
        """Names that are the submission's by order of the task, also where something else has the name."""
        for name in self.job.get("entry", ()):
            try:
                space[name] = self.side.get(name)
            except KeyError:
                space.pop(name, None)


class _InProcess:
    """In-process mode: the submission in the interpreter of the tests. Weaker, and the result says so."""

    def __init__(self, suite):
        self._suite = suite
        self._names = {}

    def wait_loaded(self):
        kind, data = self._suite.input.frame()
        if kind != b"U":
            os._exit(70)
        request = json.loads(data)
        module = type(sys)("submission")
        module.__file__ = "submission.py"
        self._names = module.__dict__
        for name in ("submission", request.get("module") or "submission"):
            sys.modules[name] = module
        exec(compile(request["source"], "submission.py", "exec", dont_inherit=True), self._names)
        return set(self._names)

    def get(self, name):
        return self._names[name]


def modules_used(tree, text):
    """Standard modules the tests use by attribute without importing them: not the submission's to define."""
    stored, used = set(), set()
    if not any(name in ALIASES or name in sys.stdlib_module_names for name in _BEFORE_DOT.findall(text)):
        return used
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.add(node.value.id)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            stored.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.arg):
            stored.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stored.add(node.name)
    return {name for name in used - stored if name in sys.stdlib_module_names or name in ALIASES}


# ---- what went wrong, in words -------------------------------------------------------------------

def shown(value):
    """A value for a message: bounded, and never by asking the submission."""
    if isinstance(value, side_module.Handle):
        return "<%s of the submission>" % value._name
    try:
        text = repr(value)
    except Exception as e:
        text = "<a value whose repr raises %s>" % type(e).__name__
    return text if len(text) <= 500 else text[:240] + " ... " + text[-240:]


def describe(error):
    kind = getattr(error, "__cordon_kind__", type(error).__name__)
    try:
        text = getattr(error, "__cordon_text__", None)
        text = str(error) if text is None else text
    except Exception:
        text = ""
    line = getattr(error, "__cordon_line__", 0)
    if isinstance(error, SyntaxError) and error.lineno:
        line, text = error.lineno, error.msg
    return kind + (": " + text if text else "") + (" (submission, line %d)" % line if line else "")


def status_of(error):
    return "failed" if isinstance(error, AssertionError) else "error"


def compared(source, left, right, message):
    """The message of a failed comparison: the source, both sides, and the test's own words."""
    text = "%s\n  left:  %s\n  right: %s" % (source, shown(left), shown(right))
    return text + ("\n  %s" % (message,) if message is not None else "")


class _Asserts(ast.NodeTransformer):
    """assert L op R  →  the same, with a message that has both values."""

    def __init__(self, text):
        self._text = Source(text)

    def visit_Assert(self, node):
        test = node.test
        source = self._text.of(node, 300) or "assert"
        place = {"lineno": node.lineno, "col_offset": node.col_offset, "end_lineno": node.end_lineno,
                 "end_col_offset": node.end_col_offset}

        def name(text, context):
            return ast.Name(text, context, **place)
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            return ast.Assert(test, node.msg or ast.Constant(source, **place), **place)
        left = ast.NamedExpr(name("@left", ast.Store()), test.left, **place)
        right = ast.NamedExpr(name("@right", ast.Store()), test.comparators[0], **place)
        words = [ast.Constant(source, **place), name("@left", ast.Load()), name("@right", ast.Load()),
                 node.msg or ast.Constant(None, **place)]
        return ast.Assert(ast.Compare(left, test.ops, [right], **place),
                          ast.Call(name("@compared", ast.Load()), words, [], **place), **place)


class Source:
    """The text of a node, without going through the whole file for each."""

    def __init__(self, text):
        self._lines = text.split("\n")

    def of(self, node, limit):
        first, last = node.lineno - 1, min(node.end_lineno, node.lineno + 20)
        lines = [line.encode() for line in self._lines[first:last]]
        if not lines:
            return ""
        if last == node.end_lineno:
            lines[-1] = lines[-1][:node.end_col_offset]
        lines[0] = lines[0][node.col_offset:]
        text = b"\n".join(lines).decode("utf-8", "replace")
        return text if len(text) <= limit else text[:limit] + " ..."


class Captured:
    """Output of one test, up to a bound."""

    class _Text(io.StringIO):
        def write(self, text):
            room = MAX_OUTPUT - self.tell()
            if room > 0:
                super().write(text[:room])
            return len(text)

    def __enter__(self):
        self._text = self._Text()
        self._before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self._text
        return self

    def __exit__(self, *exc):
        sys.stdout, sys.stderr = self._before

    def text(self):
        return self._text.getvalue()


# ---- running one job -----------------------------------------------------------------------------

def run_job(job, reader, output_fd):
    suite = Suite(job, reader, output_fd)
    try:
        import_from_submission(suite)
        if job.get("doctest"):
            import grade_doctest as runner
            runner.run(suite)
            return
        try:
            tree = ast.parse(suite.text, suite.path)
        except (SyntaxError, ValueError) as e:
            suite.broken("the tests do not parse: %s" % e)
            return
        if needs_pytest(tree, suite.text):
            import grade_pytest as runner
        else:
            import grade_plain as runner
        runner.run(suite, tree)
    except side_module.SubmissionGone as e:
        if suite.began and suite.began[0] not in suite.done:
            suite.result(suite.began[0], "error", str(e))
        elif not suite.began:
            suite.broken(str(e))
    except BaseException as e:
        suite.broken("the tests ended early: %s" % describe(e))


def needs_pytest(tree, text):
    """Does the file use pytest, or fixtures only pytest has? (And is there one?)"""
    wants = False
    for node in ast.walk(tree) if "pytest" in text else ():
        if isinstance(node, ast.Import):
            wants = wants or any(alias.name.split(".")[0] == "pytest" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            wants = wants or (node.module or "").split(".")[0] == "pytest"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            args = node.args
            required = len(args.posonlyargs) + len(args.args) - len(args.defaults)
            wants = wants or required > 0
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases:
            wants = True
    return wants and importlib.util.find_spec("pytest") is not None


class _Finder:
    """`import solution` in the tests: the submission, under its file's name or a usual one."""

    def __init__(self, suite, names):
        self._suite, self._names = suite, names

    def find_spec(self, name, path=None, target=None):
        return type(sys.__spec__)(name, self) if name in self._names else None

    def create_module(self, spec):
        return _Module(spec.name, self._suite)

    def exec_module(self, module):
        pass


class _Module(type(sys)):
    def __init__(self, name, suite):
        super().__init__(name)
        self.__dict__["__cordon_suite__"] = suite

    def __getattr__(self, name):
        suite = self.__dict__["__cordon_suite__"]
        if name == "__all__" and suite.side is not None:
            return sorted(n for n in suite.found if not n.startswith("_"))
        if name.startswith("__"):
            raise AttributeError(name)
        if suite.side is None:
            return side_module.Deferred(name)
        try:
            return suite.side.get(name)
        except KeyError:
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name)) from None


def free_names():
    """Names a submission usually has that no module here has."""
    return [name for name in USUAL if importlib.util.find_spec(name) is None]


_free = []


def import_from_submission(suite):
    own = [name for name in (suite.job.get("module"), "submission") if name]
    sys.meta_path.insert(0, _Finder(suite, frozenset(own + _free)))


def compiled(modules):
    """The submission's side as byte code, for those that are started later: the same interpreter reads it."""
    import marshal
    parts = []
    for name, text in modules:
        code = marshal.dumps(compile(text, name + ".py", "exec", dont_inherit=True))
        parts += [len(code).to_bytes(4, "little"), code]
    return b"".join(parts)


class _Nobody:
    """A submission that is none, for warming up."""

    def __init__(self):
        read, write = os.pipe()
        self.reader = wire.Reader(read)
        self._fds = (read, write)
        self._answers = [b'["ok","",["f"]]', b'["ok","",{"h":[1,"c","f"]}]', b'["ok","",[1,2.5,"a",{"t":[1]}]]'] + [
            b'["ok","",%d]' % n for n in range(3, 11)]
        for answer in self._answers:
            wire.write_frame(write, b"A", answer)

    def close(self):
        for fd in self._fds:
            os.close(fd)


def warm_up():
    """A few suites of no consequence: what an interpreter learns at first, it learns before the forks."""
    null = os.open("/dev/null", os.O_WRONLY)
    tests = "def check(f):\n    assert f([1, 2.5], 'a') == [1, 2.5, 'a', (1,)]\n" + "".join(
        "    assert f(%d) == %d, 'x'\n" % (n, n) for n in range(3, 11)) + "check(f)\n"
    finders = list(sys.meta_path)
    for _ in range(10):
        nobody = _Nobody()
        job = {"tests": tests, "entry": ["f"], "prelude": "from typing import List\ndef f(x):\n    pass\n"}
        run_job(json.loads(json.dumps(job)), nobody.reader, null)
        nobody.close()
        sys.meta_path[:] = finders
        sys.modules.pop("tests", None)
    os.close(null)


def main(modules, preload):
    """Serves jobs until the line is closed."""
    reader = wire.Reader(os.dup2(0, 200, inheritable=False))
    output_fd = os.dup2(1, 201, inheritable=False)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(2, 1)
    _free.extend(free_names())
    if preload:  # most of many suites use these; each would import them anew
        import collections, copy, functools, itertools, math, random, re, string, typing  # noqa: F401, E401
        wire.write_frame(output_fd, b"P", compiled(modules))
        warm_up()
        import gc
        gc.freeze()  # collections in the forks leave these pages alone
    while True:
        try:
            kind, data = reader.frame()
        except (EOFError, OSError):
            os._exit(0)
        if kind != b"T":  # something for a job that is over
            continue
        child = os.fork()
        if child == 0:
            job = json.loads(data)
            run_job(job, reader, output_fd)
            wire.write_frame(output_fd, b"E", b"")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            wire.write_frame(output_fd, b"D", str(status).encode())
