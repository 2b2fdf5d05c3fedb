"""The tests' side of grading: finds tests, runs them, reports each result. Runs in a sandbox of its own.

Jobs come on descriptor 0, results leave on 1; both are moved away first, so that nothing the tests print is
taken for a result. Jobs that can leave something behind in memory are run by a fork (grade_tame).

  to us    T job, A an answer of the submission's, X the submission is gone, U its text (in-process mode)
  from us  P byte code of the submission's side, once and first, C the tests that were found, Q a question to the submission, B a test begins, R its result,
           S what kept the suite from running, E the end of the job, D the job's process died
"""
import ast
import builtins
import importlib.util
import json
import opcode
import os
import re
import sys
import time

import grade_side as side_module
import grade_wire as wire
from grade_words import MAX_OUTPUT, Deferred, Names, clean, describe, perhaps_missing

MAX_MESSAGE = 4000
MAX_TESTS = 100_000
MAX_KEPT = 1 << 20
ALIASES = {"np": "numpy", "pd": "pandas"}
USUAL = ("solution", "user_code", "user", "main")
_BEFORE_DOT = re.compile(r"\b([A-Za-z_]\w*)\s*\.")


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
        self.tree = None
        self.own = set()  # names the tests define
        self.tame = False  # it leaves nothing behind
        self._prelude = None
        self._imports = None
        self.space = {}  # where the tests run
        self.bound = {}  # names that are the submission's by order
        side_module.Trouble.seen = None

    def send(self, kind, value):
        wire.write_frame(self.output, kind, json.dumps(value).encode("ascii"))

    # -- the order of things --------------------------------------------------------------------

    def announce(self, names):
        """The tests are fixed; only now does the submission get its text."""
        if len(names) > MAX_TESTS:
            return self.broken("more than %d tests" % MAX_TESTS)
        self.names = names
        self.send(b"C", {"tests": [clean(name)[:500] for name in names]})
        return True

    def load(self):
        """Waits for the submission; False: it does not load."""
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

    def collected(self, names):
        return self.announce(names) and self.load()

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
        gone = getattr(self.side, "gone", None)
        trouble, side_module.Trouble.seen = side_module.Trouble.seen, None
        if status == "passed" and (gone or trouble) is not None:  # the tests made light of it
            status, message = "error", gone or trouble
        if seconds is None:
            seconds = time.perf_counter() - self.began[1] if self.began and self.began[0] == number else 0.0
        self.send(b"R", {"i": number, "s": status, "m": clean(message)[:MAX_MESSAGE],
                         "t": int(seconds * 1e9), "o": clean(output)[:MAX_OUTPUT]})

    @staticmethod
    def untroubled():
        """Nothing went wrong that was swallowed then."""
        if side_module.Trouble.seen is not None:
            raise side_module.Trouble(side_module.Trouble.seen)

    # -- names ----------------------------------------------------------------------------------

    def lookup(self, name):
        """A free name of the tests: the submission's."""
        if self.defined is not None and name not in self.defined:
            raise KeyError(name)
        return Deferred(self, name) if self.side is None else self.its(name)

    def its(self, name):
        if self.side is None:
            raise side_module.Trouble("the tests use %r of the submission while they are collected" % name)
        return self.side.get(name)

    def public(self):
        """What `from submission import *` gives: nothing the tests have by themselves."""
        ours = set(vars(builtins)) | set(self.space) | bound_by(self.tree)
        return sorted(name for name in self.found if not name.startswith("_")
                      and (name not in ours or name in self.job.get("entry", ())))

    def globals(self, tree):
        """Where test code runs: its own names, then the builtins, then the submission's."""
        names = Names(self.lookup, perhaps_missing(tree) if "NameError" in self.text else ())
        space = {"__name__": "tests", "__builtins__": names, "__file__": self.path}
        self.tree = tree
        self.own = defined_by(tree)
        for name in sorted(modules_used(tree, self.text)):
            try:
                space[name] = __import__(ALIASES.get(name, name))
            except ImportError:
                pass
        self.background()
        if self._imports is not None:
            exec(self._imports, space)
        if self._prelude is not None:
            exec(self._prelude, space)
        return space

    def background(self):
        """The code that runs before the tests do. What a right answer imports the tests have by themselves; what
        it defines is the submission's, and nothing else."""
        if self.job.get("prelude") and self._prelude is None:
            self._prelude = compile(self.job["prelude"], "prelude.py", "exec", dont_inherit=True)
        if self.job.get("reference") and self._imports is None:
            tree = ast.parse(self.job["reference"], "reference.py")
            imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
            self._imports = compile(ast.Module(imports, []), "reference.py", "exec", dont_inherit=True)
            self.defined = defined_by(tree)
            if self.job.get("prelude"):
                self.defined -= defined_by(ast.parse(self.job["prelude"]))
        return [code for code in (self._prelude, self._imports) if code is not None]

    def known(self, tree):
        """Names that are the tests' own, or the submission's for sure."""
        return defined_by(tree) | set(self.job.get("entry", ())) | (self.defined or set())

    def attributes(self, tree):
        trees = [tree] + [ast.parse(self.job[name]) for name in ("prelude", "reference") if self.job.get(name)]
        return {node.attr for part in trees for node in ast.walk(part) if isinstance(node, ast.Attribute)}

    def ordered(self, space):
        """Names that are the submission's by order of the task, where something else may have them: the caller's, and
        those of a reference that are builtins or came with a star."""
        names = list(self.job.get("entry", ()))
        if self.defined:
            names += sorted(name for name in self.defined if name in space or name in space["__builtins__"])
        return names

    def bind(self, space, again=False):
        """Without a definition of the submission's every use of such a name is an error. What the tests themselves
        define is not bound again."""
        for name in self.ordered(space):
            if name not in self.bound:
                try:
                    self.bound[name] = self.side.get(name)
                except KeyError:
                    self.bound[name] = Deferred(self, name)
            elif again and name in self.own:
                continue
            space[name] = self.bound[name]


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
        for name in own_modules(request.get("module")):
            sys.modules[name] = module
        if request.get("imports") is not None:
            self._control(request, module)
        exec(compile(request["source"], "submission.py", "exec", dont_inherit=True), self._names)
        return set(self._names)

    @staticmethod
    def _control(request, module):
        """Module control for the submission; the tests import what they like."""
        guard = {"__name__": "guard"}
        exec(compile(request["guard"], "guard.py", "exec", dont_inherit=True), guard)
        rules = guard["Rules"](request["imports"])
        refused = guard["check"](rules, request["source"])
        if refused:
            raise ImportError(refused[0])
        ours, sys.modules["__main__"] = sys.modules["__main__"], module
        builtins.__import__ = guard["_Hook"](rules, builtins.__import__)
        sys.modules["__main__"] = ours

    def get(self, name):
        return self._names[name]


def defined_by(tree):
    """Names a file defines at its top."""
    found = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)
                         and isinstance(inner.ctx, ast.Store))
    return found


def bound_by(tree):
    """Names a file binds at its top, by imports too, where it says which."""
    return defined_by(tree) | {(alias.asname or alias.name).split(".")[0] for node in tree.body
                               if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}


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


# ---- running one job -----------------------------------------------------------------------------

def prepared(suite):
    """What runs the suite; None: nothing can, and it was said why. Runs no code of the tests."""
    try:
        if suite.job.get("doctest"):
            import grade_doctest
            return lambda: grade_doctest.run(suite)
        try:
            tree = ast.parse(suite.text, suite.path)
        except (SyntaxError, ValueError) as e:
            suite.broken("the tests do not parse: %s" % e)
            return None
        if needs_pytest(tree, suite.text):
            import grade_pytest
            return lambda: grade_pytest.run(suite, tree)
        import grade_plain
        return grade_plain.prepared(suite, tree)
    except BaseException as e:
        suite.broken("the tests ended early: %s" % describe(e))
        return None


def execute(suite, run):
    try:
        if not suite.tame:
            import_from_submission(suite)
        run()
    except side_module.SubmissionGone as e:
        if suite.began and suite.began[0] not in suite.done:
            suite.result(suite.began[0], "error", str(e))
        elif not suite.began:
            suite.broken(str(e))
    except BaseException as e:
        suite.broken("the tests ended early: %s" % describe(e))


def needs_pytest(tree, text):
    """Has the file tests only pytest runs: fixtures, plain Test classes, or whatever where it uses pytest?"""
    uses, wants, tests = False, False, False
    for node in ast.walk(tree) if "pytest" in text else ():
        if isinstance(node, ast.Import):
            uses = uses or any(alias.name.split(".")[0] == "pytest" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            uses = uses or (node.module or "").split(".")[0] == "pytest"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            args = node.args
            required = len(args.posonlyargs) + len(args.args) - len(args.defaults) + args.kw_defaults.count(None)
            tests, wants = True, wants or required > 0
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            import grade_plain
            tests, wants = True, wants or node.name in grade_plain.plain_classes(tree)
    return (wants or uses and tests) and importlib.util.find_spec("pytest") is not None


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
            return suite.public()
        if name.startswith("__"):
            raise AttributeError(name)
        if suite.side is None:
            return Deferred(suite, name)
        try:
            return suite.side.get(name)
        except KeyError:
            if _reads(sys._getframe(1)):
                raise side_module.Missing(name) from None
            raise AttributeError("module %r has no attribute %r" % (self.__name__, name)) from None


def free_names():
    """Names a submission usually has that no module here has."""
    return [name for name in USUAL if importlib.util.find_spec(name) is None]


_free = []


def own_modules(name):
    """Names of the submission's module: that of its file, too, unless a module of the tests' has it (numpy.py)."""
    try:
        is_free = name and (name in _free or importlib.util.find_spec(name) is None)
    except (ImportError, ValueError):
        is_free = False
    return ["submission", name] if is_free else ["submission"]


_READS = frozenset(opcode.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in opcode.opmap)


def _reads(frame):
    """Is the frame at `module.name`, and not at hasattr() or an import, which tell what is missing in their own way?"""
    return frame.f_code.co_code[frame.f_lasti] in _READS


def import_from_submission(suite):
    sys.meta_path.insert(0, _Finder(suite, frozenset(own_modules(suite.job.get("module")) + _free)))


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
        self._answers = [b'["ok","",["f"],{"d":["f",{"h":[1,"c","f"]}]}]', b'["ok","",[1,2.5,"a",{"t":[1]}]]'] + [
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
    for _ in range(4):
        nobody = _Nobody()
        job = {"tests": tests, "entry": ["f"], "prelude": "from typing import List\ndef f(x):\n    pass\n"}
        suite = Suite(json.loads(json.dumps(job)), nobody.reader, null)
        execute(suite, prepared(suite))
        nobody.close()
        sys.meta_path[:] = finders
        sys.modules.pop("tests", None)
    os.close(null)


def get_ready():
    """What costs time and is the same for all jobs, before the first one."""
    # most of many suites use these; each would import them anew
    import collections, copy, functools, itertools, math, re, string, typing  # noqa: F401, E401
    _free.extend(free_names())
    warm_up()


def main(modules, preload):
    """Serves jobs until the line is closed."""
    reader, output_fd = lines()
    if preload:
        wire.write_frame(output_fd, b"P", compiled(modules))
        get_ready()
        import gc
        gc.freeze()  # collections in the forks leave these pages alone
    else:
        _free.extend(free_names())
    serve(reader, output_fd)


def lines():
    """Our two lines under numbers nobody expects; what tests print goes elsewhere."""
    reader = wire.Reader(os.dup2(0, 200, inheritable=False))
    output_fd = os.dup2(1, 201, inheritable=False)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(2, 1)
    return reader, output_fd


def forget(suite):
    """A job's values go with it: many large ones must not add up to the limit of a later one."""
    suite.space.clear()
    if suite.side is not None and suite.side.received > MAX_KEPT:
        import gc
        gc.collect()


def serve(reader, output_fd):
    while True:
        try:
            kind, data = reader.frame()
        except (EOFError, OSError):
            os._exit(0)
        if kind != b"T":  # something for a job that is over
            continue
        one(Suite(json.loads(data), reader, output_fd))


UNREAD = 93


def _unread(suite):
    """Did the job give up on an answer? Then the rest of it is on the line, and no place for another job."""
    return getattr(suite.side, "asking", False)


def _alone():
    """After a job that may have left processes behind, which have the line, too: ends them, or says that it cannot.
    One that was killed while it waits for the line may still take from it: they are gone when nobody is there to kill."""
    try:
        with open("/proc/1/comm") as file:
            own = os.getppid() == 1 and file.read() == "cordon-init\n"
    except OSError:
        own = False
    if not own:  # not a pid namespace of our own: who else is here is not ours to end
        return False
    for _ in range(2000):
        try:
            os.kill(-1, 9)
        except ProcessLookupError:
            return True
        time.sleep(0.0005)
    return False


def one(suite):
    """What leaves nothing behind runs here, and what has a sandbox of its own; all else in a fork. One word per job,
    whatever ended it: what was not reported by then did not pass. With a text it asks for a new desk."""
    run = prepared(suite)
    if run is None or suite.tame or suite.job.get("mode") == "in-process":
        if run is not None:
            execute(suite, run)
        wire.write_frame(suite.output, b"E", b"unread" if _unread(suite) else b"")
        forget(suite)
        return
    child = os.fork()
    if child == 0:
        execute(suite, run)
        os._exit(UNREAD if _unread(suite) else 0)
    _, status = os.waitpid(child, 0)
    status = os.waitstatus_to_exitcode(status)
    clean = _alone() and status == 0
    wire.write_frame(suite.output, b"E" if status in (0, UNREAD) else b"D", b"" if clean else b"unread")
