"""The warm interpreter submissions are copied from. Runs on the host's side of the wall, with an empty environment.

It loads the runner and what programs commonly import, then serves in C (cordon-grade-zygote.so). It never sees a
submission: `_enter` runs in each copy, behind the copy's own wall, and reads what it is to run.
"""
import builtins
import gc
import sys

# Much used and cheap to carry along: each page of them is copied when it is written to.
COMMON = "abc bisect collections collections.abc copy functools heapq itertools math operator os re string typing".split()


def _site():
    """What the site module does, without .pth files."""
    import _sitebuiltins
    version = "/lib/python%d.%d/" % sys.version_info[:2]
    sys.path += [sys.prefix + "/local" + version + "dist-packages", sys.prefix + "/lib/python3/dist-packages",
                 sys.prefix + version + "site-packages"]
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def prepare(library, wire):
    """Gives the function that serves."""
    _site()
    for name in COMMON:
        __import__(name)
    before = set(sys.modules)
    import ctypes
    serve = ctypes.PyDLL(library).zygote_main
    for name in set(sys.modules) - before:
        del sys.modules[name]
    for _ in range(20):  # what an interpreter learns at first, it learns before it is copied
        wire.decode(wire.encode(["call", 1, [1, 2.5, "a", (1, {"b": None})], {}]))
    sys.modules.pop("grade_zygote", None)
    gc.collect()
    gc.freeze()
    return serve


def enter(read_text, wire, user):
    """In a copy: the environment and the signals of a process of its own, then the submission."""
    import _signal
    import os
    options = wire.decode(read_text())
    source = read_text()
    guard_text = read_text()
    for name in list(os.environ):
        del os.environ[name]
    os.environ.update(options.pop("environ"))
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    guard = None
    if guard_text:
        guard = {"__name__": "guard"}
        exec(compile(guard_text, "guard.py", "exec", dont_inherit=True), guard)
    user.main(options, source, guard)
