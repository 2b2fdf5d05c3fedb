"""Turns an interpreter that starts into one that others are forked from (see zygote.c).

Found as `sitecustomize` through PYTHONPATH, in the pool's own namespaces; imports what was asked for and
steps back, so that nothing of it is left in the interpreters that guests get.
"""
import sys

hooked = []
kept = set()


def adopt(argv, env):
    """In a child, behind all walls: becomes what the order says. A status: the source is refused. Its code,
    or the exception that stands in its place. None: the interpreter runs it as it would any other."""
    import os
    guard = sys.modules.pop("cordon_guard")
    if not hasattr(sys.modules.get("sitecustomize"), "__file__"):
        sys.modules.pop("sitecustomize", None)
    environ = os.environb
    for name in list(environ):
        del environ[name]
    for pair in env:
        name, _, value = pair.partition(b"=")
        environ[name] = value
    sys.argv[:] = [os.fsdecode(word) for word in argv[1:]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [os.fsdecode(word) for word in argv]
    sys.path_hooks[0] = hooked.pop()
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    rules = os.environ.pop("CORDON_IMPORTS", None)
    try:
        with open(sys.argv[0], "rb") as file:
            source = file.read()
    except OSError:
        return None  # it has words of its own for that
    if rules is not None:
        os.environ.pop("PYTHONPATH", None)
        rules = guard.Rules(rules)
        refused = guard.check(rules, source)
        if refused:
            print("\n".join(refused), file=sys.stderr, flush=True)
            return guard.REFUSED
    if source[:2] == b"PK":
        return None  # a program in an archive
    code = _compiled(source, os.path.abspath(sys.argv[0]))
    if rules is not None:
        import builtins
        builtins.__import__ = guard._Hook(rules, builtins.__import__)
    return code


def _compiled(source, path):
    """As the interpreter does for a script."""
    import os
    from importlib.machinery import SourceFileLoader
    sys.path.insert(0, os.path.dirname(path))
    names = sys.modules["__main__"].__dict__
    names["__file__"] = path
    names["__cached__"] = None
    names["__loader__"] = SourceFileLoader("__main__", path)
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except BaseException as e:
        return e.with_traceback(None)


def status(e):
    """What a program that ends with this exception exits with; None: the exception is to be shown."""
    if not isinstance(e, SystemExit):
        return None
    if e.code is None or isinstance(e.code, int):
        return (e.code or 0) & 0xFF
    try:
        print(e.code, file=sys.stderr, flush=True)
    except BaseException:
        pass
    return 1


def leave(code):
    """The end of a child, in the interpreter's own order. Taking apart what was imported before the fork
    would copy all of its memory: it is left as it is, and everything the guest made goes its way."""
    import gc
    import os
    threads = sys.modules.get("threading")
    try:
        if threads is not None:
            threads._shutdown()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    import atexit
    atexit._run_exitfuncs()
    code = _flushed(code)
    modules = sys.modules
    for name in [name for name in modules if name not in kept]:
        modules[name] = None
    names = modules["__main__"].__dict__
    for name in [name for name in names if name[:1] == "_" and name[:2] != "__"]:
        names[name] = None
    for name in [name for name in names if name != "__builtins__"]:
        names[name] = None
    gc.collect()
    os._exit(_flushed(code))


def _flushed(code):
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            if stream is sys.stdout:
                code = 120
    return code


def prepare():
    import os
    place = next(path for path in sys.path if path.startswith("/proc/self/fd/"))
    import ast  # noqa: F401 - for the check of imports
    import atexit  # noqa: F401
    import gc
    import importlib.machinery  # noqa: F401
    import cordon_guard  # noqa: F401
    import cordon_zygote
    sys.path.remove(place)
    sys.path_importer_cache.pop(place, None)
    script, modules = os.fsdecode(os.read(8, 8192)).split("\n", 1)
    for name in modules.split(","):
        if name:
            __import__(name)
    if len(os.listdir("/proc/self/task")) != 1:
        os._exit(3)  # a fork would leave the other threads behind, in whatever they were doing
    hooked.append(sys.path_hooks[0])
    cordon_zygote.prepare(script, os.path.abspath(script), adopt, status, leave, hooked[0])
    sys.path_hooks[0] = cordon_zygote.hook
    del sys.modules["cordon_zygote"]
    kept.update(sys.modules)
    gc.collect()
    gc.freeze()


prepare()
# the interpreter's own module of this name, if there is one, comes to its right as in any other start
del sys.modules["sitecustomize"]
try:
    import sitecustomize  # noqa: F401
except ImportError:
    sys.modules["sitecustomize"] = type(sys)("sitecustomize")  # whoever imports us looks for it; adopt() removes it
