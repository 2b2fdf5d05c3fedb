"""The warm interpreter both sides are copied from. Runs on the host's side of the wall, with an empty environment.

It loads the runner and what programs commonly import, then serves in C (cordon-grade-zygote.so). It never sees tests
or a submission: `submission` and `tests` run in the copies, behind the copy's own wall, and read what it is to run.
"""
import builtins
import gc
import sys

# Much used and cheap to carry along: each page of them is copied when it is written to.
COMMON = "abc bisect collections collections.abc copy functools heapq itertools math operator os re string typing".split()
OWN = ("grade_side", "grade_words", "grade_tests", "grade_tame", "grade_plain", "grade_pytest", "grade_doctest")


def _site():
    """What the site module does, without .pth files."""
    import _sitebuiltins
    version = "/lib/python%d.%d/" % sys.version_info[:2]
    sys.path += [sys.prefix + "/local" + version + "dist-packages", sys.prefix + "/lib/python3/dist-packages",
                 sys.prefix + version + "site-packages"]
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


_modules = {}
_files = []


def prepare(library, wire, user, runner):
    """Gives the function that serves."""
    _site()
    for name in COMMON:
        __import__(name)
    before = set(sys.modules)
    import ctypes
    serve = ctypes.PyDLL(library).zygote_main
    for name in set(sys.modules) - before:
        del sys.modules[name]
    # what an interpreter learns at first, it learns before it is copied
    runner.get_ready()
    for _ in range(20):
        wire.decode(wire.encode(["call", 1, [1, 2.5, "a", (1, {"b": None})], {}]))
    _files.extend(user.streams())
    _modules.update({name: sys.modules.pop(name) for name in OWN})
    sys.modules.pop("grade_zygote", None)
    gc.collect()
    gc.freeze()
    return serve


def _become(environ):
    """In a copy: the environment and the signals of a process of its own."""
    import _signal
    import os
    # as os.environ does it, with fewer steps
    known = os.environ._data
    for name in list(known):
        os.unsetenv(name)
    known.clear()
    for name, value in environ.items():
        name, value = os.environ.encodekey(name), os.environ.encodevalue(value)
        os.putenv(name, value)
        known[name] = value
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def submission(read_text, wire, user):
    options = wire.decode(read_text())
    source = read_text()
    guard_text = read_text()
    _become(options.pop("environ"))
    guard = None
    if guard_text:
        guard = {"__name__": "guard"}
        exec(compile(guard_text, "guard.py", "exec", dont_inherit=True), guard)
    user.main(options, source, guard, _files)


def tests(read_text, wire, runner):
    _become(wire.decode(read_text()))
    sys.modules.update(_modules)
    import site
    site.main()
    gc.collect()
    gc.freeze()
    runner.serve(*runner.lines())
