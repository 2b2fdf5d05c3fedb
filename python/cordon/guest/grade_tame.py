"""Which tests may run in the interpreter of the desk itself, without a fork of their own.

A fork costs more than most suites. Code that can only compute with values of its own leaves nothing behind that the
next suite could see: it uses no builtin and no attribute but those listed here, imports nothing but what is
listed, stores to no attribute, and makes no class. Everything else is forked. What the tests ask the submission
for is data or a handle either way.
"""
import builtins
import opcode
import sys

_BUILTINS = frozenset("""
    False None True NotImplemented Ellipsis abs all any ascii bin bool bytearray bytes callable chr complex dict divmod
    enumerate filter float format frozenset hash hex id int isinstance iter len list map max min next object oct ord pow
    print range repr reversed round set slice sorted str sum tuple zip
    ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NameError
    NotImplementedError OverflowError RecursionError RuntimeError StopIteration SyntaxError TypeError ValueError
    ZeroDivisionError""".split())
# Of these modules only functions without memory and constants; all their other attributes are out of bounds.
_MODULES = {
    "math": None,  # all of it
    "cmath": None,
    "itertools": None,
    "copy": ("copy", "deepcopy"),
    "string": ("ascii_letters", "ascii_lowercase", "ascii_uppercase", "digits", "hexdigits", "octdigits",
               "punctuation", "printable", "whitespace"),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque"),
    "typing": ("Any", "Callable", "Dict", "FrozenSet", "Generator", "Iterable", "Iterator", "List", "Optional",
               "Sequence", "Set", "Tuple", "Type", "Union"),
}
_TYPES = (str, bytes, bytearray, int, float, complex, bool, list, tuple, dict, set, frozenset, range)
_FORBIDDEN = frozenset(number for name, number in opcode.opmap.items()
                       if name.startswith(("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL",
                                           "LOAD_BUILD_CLASS", "IMPORT_STAR", "SETUP_ANNOTATIONS", "LOAD_CLASSDEREF"))
                       or "AWAIT" in name or "ASYNC" in name)


_GENERATOR = type(_ for _ in ())
_IMPORT, _EXTENDED = opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"]
_ASYNC_FLAGS = 0x80 | 0x200  # coroutines, asynchronous generators


def _public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def _listed():
    good = set(_BUILTINS) | {name for kind in _TYPES for name in _public(kind)} | set(_MODULES) | {"args"}
    bad = set(vars(builtins)) | _public(_GENERATOR) | _public(type) | _public(BaseException)
    for name, parts in _MODULES.items():
        module = __import__(name)
        good |= _public(module) if parts is None else set(parts)
        bad |= _public(module)
    return frozenset(good), frozenset(bad - good)


def _imported(code):
    """Names of the modules the code imports."""
    more = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2]):
        if operation == _IMPORT:
            yield code.co_names[more | argument]
        more = (more | argument) << 8 if operation == _EXTENDED else 0


_GOOD, _BAD = _listed()


def is_tame(codes, known, attributes):
    """codes: what would run. known: names that are the tests' own or the submission's. attributes() gives the
    attributes the code uses, for when it uses other names, too."""
    names = set()
    stack = list(codes)
    while stack:
        code = stack.pop()
        operations = code.co_code[::2]
        if code.co_flags & _ASYNC_FLAGS or not _FORBIDDEN.isdisjoint(operations):
            return False
        if _IMPORT in operations and not all(name in _MODULES for name in _imported(code)):
            return False
        names.update(code.co_names)
        stack += [part for part in code.co_consts if hasattr(part, "co_code")]
    names -= _GOOD
    names.difference_update(("@compared", "@ran"))  # grade_words put them there: no text of anyone's can
    if not names:
        return True
    if any(name.startswith("_") for name in names) or not _BAD.isdisjoint(names):
        return False
    names.difference_update(known)
    # modules that are there without an import of the tests' own, and have more than functions without memory
    if not names.isdisjoint(sys.stdlib_module_names) or not names.isdisjoint(("np", "pd", "numpy", "pandas")):
        return False
    return not names or names.isdisjoint(attributes())
