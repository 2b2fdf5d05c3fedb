"""Module control, run by the target interpreter inside the sandbox.

As a program (`python3 -I -S guard.py SOURCE`) it parses SOURCE and runs nothing of it: exit status 77
and one line per refused import, or 0. As `sitecustomize` it puts a hook under `import`, for what a
parse cannot see. It is a convenience for honest code, not a wall: the wall is around the interpreter.

CORDON_IMPORTS holds the rules: "any;;os,socket" or "only;math,json;os".
"""
import sys

REFUSED = 77
# What no built-in module imports for its own needs on behalf of a caller; see _Hook.
DANGEROUS = {"builtins", "ctypes", "importlib", "os", "posix", "shutil", "socket", "subprocess", "sys"}


def _covers(names, module):
    return any(module == name or module.startswith(name + ".") for name in names)


class Rules:
    def __init__(self, text):
        mode, allowed, blocked = (text.split(";") + ["", ""])[:3]
        self.only = mode == "only"
        self.allowed = [name for name in allowed.split(",") if name]
        self.blocked = [name for name in blocked.split(",") if name]

    def refused(self, module, names=()):
        """What is refused of `import module`, or of `from module import names`; None: nothing."""
        if module == "__future__":
            return None
        if _covers(self.blocked, module):
            return module
        for name in names:
            if name == "*":
                inside = [item for item in self.blocked if item.startswith(module + ".")]
                if inside:
                    return inside[0]
            elif _covers(self.blocked, f"{module}.{name}"):
                return f"{module}.{name}"
        if not self.only or _covers(self.allowed, module):
            return None
        if names and all(_covers(self.allowed, f"{module}.{name}") for name in names):
            return None
        return module


def _message(module, line):
    return f"blocked import: {module} (line {line})"


def check(rules, source):
    """Messages for the refused imports of the source, in its order."""
    import ast
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the run says it better, with the interpreter's own words
    found = []
    for node in ast.walk(tree):
        module = None
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = module or rules.refused(alias.name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = rules.refused(node.module, [alias.name for alias in node.names])
        elif (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
              and isinstance(node.args[0].value, str)):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if name in ("__import__", "import_module") and not node.args[0].value.startswith("."):
                module = rules.refused(node.args[0].value)
        if module:
            found.append((node.lineno, module))
    return [_message(module, line) for line, module in sorted(set(found))]


class _Hook:
    """Asked at every import. Checked are imports whose code is the program's own: text of __main__,
    and text that was compiled at run time by such code. What a module imports is its own business."""

    def __init__(self, rules, real):
        self.rules = rules
        self.real = real
        self.modules = sys.modules
        self.main = sys.modules["__main__"].__dict__
        self.frame = sys._getframe
        self.patched = False

    def is_own(self, frame):
        while frame is not None:
            names = frame.f_globals
            if names is self.main:
                return True
            module = self.modules.get(names.get("__name__"))
            if module is not None and getattr(module, "__dict__", None) is names:
                return False
            frame = frame.f_back  # exec'd with a dictionary of its own: who did it?
        return False

    def verify(self, frame, name, names=()):
        module = self.rules.refused(name, names)
        if module and self.is_own(frame):
            raise ImportError(_message(module, frame.f_lineno), name=module)

    def __call__(self, name, globals=None, locals=None, fromlist=(), level=0):
        if type(name) is str:
            full = name
            if level and globals:
                package = globals.get("__package__") or ""
                parts = package.split(".")[: len(package.split(".")) - level + 1]
                full = ".".join([part for part in parts + [name] if part])
            # An import statement passes None or a tuple; a list is how modules written in C import
            # what they need, on the stack of whoever called them.
            internal = type(fromlist) is list and not level and full.partition(".")[0] not in DANGEROUS
            if full and not (internal and not _covers(self.rules.blocked, full)):
                self.verify(self.frame(1), full, tuple(fromlist or ()))
        module = self.real(name, globals, locals, fromlist, level)
        if not self.patched and type(name) is str and name.partition(".")[0] == "importlib":
            self.patch()
        return module

    def patch(self):
        self.patched = True
        importlib = self.modules["importlib"]
        real_module, real_import = importlib.import_module, importlib.__import__

        def import_module(name, package=None):
            if type(name) is str and not name.startswith("."):
                self.verify(self.frame(1), name)
            return real_module(name, package)

        def __import__(name, globals=None, locals=None, fromlist=(), level=0):
            if type(name) is str and not level:
                self.verify(self.frame(1), name, tuple(fromlist or ()))
            return real_import(name, globals, locals, fromlist, level)

        importlib.import_module, importlib.__import__ = import_module, __import__


def install():
    import builtins
    import os
    rules = os.environ.pop("CORDON_IMPORTS", None)
    if rules is None:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    rest = os.environ.pop("PYTHONPATH", "").split(os.pathsep)[1:]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    builtins.__import__ = _Hook(Rules(rules), builtins.__import__)


def main():
    import os
    with open(sys.argv[1], "rb") as file:
        messages = check(Rules(os.environ.get("CORDON_IMPORTS", "")), file.read())
    if not messages:
        return 0
    print("\n".join(messages), file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "sitecustomize":
    install()
