"""The warm interpreters the sides are copied from. Run on the host's side of the wall, with an empty environment.

There is one for submissions and one for desks: each loads its own side of the runner and what programs commonly
import, does once what every copy would have to do, then serves in C (cordon-grade-zygote.so). Neither ever sees tests
or a submission: `_submission` and `_desk` run in the copies, behind the copy's own wall, and read what it is to run.
"""
import builtins
import gc
import sys

import grade_wire as wire

# Much used and cheap to carry along: each page of them is copied when it is written to.
COMMON = "abc bisect collections collections.abc copy functools heapq itertools math operator os re string typing".split()
DESK = ("grade_side", "grade_words", "grade_tests", "grade_tame", "grade_plain", "grade_pytest", "grade_doctest")


def _site():
    """What the site module does, without .pth files."""
    import _sitebuiltins
    version = "/lib/python%d.%d/" % sys.version_info[:2]
    sys.path += [sys.prefix + "/local" + version + "dist-packages", sys.prefix + "/lib/python3/dist-packages",
                 sys.prefix + version + "site-packages"]
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()


def _common():
    _site()
    for name in COMMON:
        __import__(name)
    # what an interpreter learns at first, it learns before it is copied
    for _ in range(20):
        wire.decode(wire.encode(["call", 1, [1, 2.5, "a", (1, {"b": None})], {}]))


def _serve(native, enter):
    """Becomes what is copied, with the environment that its copies will have."""
    import os
    variables = (variable.partition(b"=") for variable in native.plan())
    _environ({os.fsdecode(name): os.fsdecode(value) for name, _, value in variables})
    sys.modules.pop("grade_zygote", None)
    gc.collect()
    gc.freeze()
    native.serve(enter)


def _environ(environ):
    """The environment of a process of its own."""
    import os
    # as os.environ does it, with fewer steps
    known = os.environ._data
    wanted = {os.environ.encodekey(name): os.environ.encodevalue(value) for name, value in environ.items()}
    if known == wanted:
        return
    for name in list(known):
        os.unsetenv(name)
    known.clear()
    for name, value in wanted.items():
        os.putenv(name, value)
        known[name] = value


def _signals():
    import _signal
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


# ---- submissions ----------------------------------------------------------------------------------

def submissions(native, read_text):
    import grade_user as user
    _common()
    side = user.prepared()
    _serve(native, lambda: _submission(read_text, user, side))


def _submission(read_text, user, side):
    options = wire.decode(read_text())
    source = read_text()
    guard_text = read_text()
    _environ(options.pop("environ"))
    _signals()
    guard = None
    if guard_text:
        guard = {"__name__": "guard"}
        exec(compile(guard_text, "guard.py", "exec", dont_inherit=True), guard)
    user.main(options, source, guard, side)


# ---- desks ----------------------------------------------------------------------------------------

def desks(native, read_text):
    import grade_tests as runner
    _common()
    runner.get_ready()
    own = {name: sys.modules.pop(name) for name in DESK}
    _serve(native, lambda: _desk(read_text, runner, own))


def _desk(read_text, runner, own):
    _environ(wire.decode(read_text()))
    _signals()
    sys.modules.update(own)
    import site
    site.main()
    gc.collect()
    gc.freeze()
    runner.serve(*runner.lines())
