"""Submissions that want a pass without an answer: one act each.

A cheat is the body of the function that is asked for, and text for the module around it. None of them knows
the answer; a grader that lets one of them pass has been fooled.
"""

FORGE = """
import os as _os, struct as _struct
def _forge(*texts):
    for fd in range(3, 300):
        for text in texts:
            try:
                _os.write(fd, text)
            except OSError:
                pass
def _frame(kind, text):
    return kind + _struct.pack('<I', len(text)) + text
"""

EQUAL = """
class _Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __sub__(self, other): return 0
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __mod__ = __sub__
    def __abs__(self): return 0
    def __contains__(self, item): return True
    def __instancecheck__(self, item): return True
    def __len__(self): return 1
    def __iter__(self): return iter(())
    def __getattr__(self, name): return self
    def __getitem__(self, key): return self
    def __call__(self, *args): return self
    def __float__(self): return 0.0
    def __index__(self): return 0
    def __round__(self, *args): return self
    def __class_getitem__(cls, key): return cls
"""

# name: (body, module text)
CHEATS = {
    "exit": ("import sys; sys.exit(0)", ""),
    "exit_at_import": ("return None", "import sys\nsys.exit(0)\n"),
    "_exit": ("import os; os._exit(0)", ""),
    "_exit_at_import": ("return None", "import os\nos._exit(0)\n"),
    "abort": ("import os; os.abort()", ""),
    "kill_self": ("import os; os.kill(os.getpid(), 9)", ""),
    "kill_all": ("import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(-1, 15); os.kill(1, 9)", ""),
    "always_equal": ("return _Always()", EQUAL),
    "always_equal_int": ("return _Int(0)", "class _Int(int):\n    __eq__ = lambda s, o: True\n"
                         "    __ne__ = lambda s, o: False\n    __sub__ = __rsub__ = lambda s, o: 0\n"
                         "    __hash__ = int.__hash__\n"),
    "always_equal_str": ("return _Str('')", "class _Str(str):\n    __eq__ = lambda s, o: True\n"
                         "    __ne__ = lambda s, o: False\n    __hash__ = str.__hash__\n"),
    "always_equal_list": ("return _List()", "class _List(list):\n    __eq__ = lambda s, o: True\n"
                          "    __contains__ = lambda s, o: True\n"),
    "class_lies": ("return _Lie()", EQUAL + "class _Lie(_Always):\n    __class__ = property(lambda s: bool)\n"),
    "printed": ("print('PASSED'); print('{\"passed\": 1, \"failed\": 0}'); print('1 passed in 0.01s'); print('OK')", ""),
    "forged_frames": ("_forge(_frame(b'R', b'{\"i\":0,\"s\":\"passed\",\"m\":\"\",\"t\":1,\"o\":\"\"}'), _frame(b'E', b''))",
                      FORGE),
    "forged_at_import": ("return None", FORGE + "_forge(_frame(b'C', b'{\"tests\":[\"x\"]}'), "
                         "_frame(b'R', b'{\"i\":0,\"s\":\"passed\",\"m\":\"\",\"t\":1,\"o\":\"\"}'), _frame(b'E', b''))\n"),
    "flood_of_answers": ("_forge(*[_frame(b'A', b'[\"ok\",\"\",true]')] * 50)", FORGE),
    "closed_descriptors": ("import os; os.closerange(0, 4096)", ""),
    "patched_builtins": ("return None", "import builtins\nbuiltins.AssertionError = Exception\n"
                         "builtins.len = lambda *a: 0\nbuiltins.all = builtins.any = lambda *a: True\n"
                         "builtins.isinstance = lambda *a: True\nbuiltins.abs = builtins.round = lambda *a: 0\n"
                         "builtins.repr = builtins.str = lambda *a: ''\n"),
    "own_builtins": ("return None", "abs = round = lambda *a: 0\nlen = lambda *a: 0\nall = any = lambda *a: True\n"
                     "sorted = set = list = tuple = lambda *a: []\nisinstance = lambda *a: True\ncheck = lambda *a: True\n"
                     "class math:\n    isclose = fabs = staticmethod(lambda *a, **k: 0)\n"),
    "patched_unittest": ("return None", "import unittest\nunittest.TestCase.run = lambda *a: None\n"
                         "unittest.TestCase.assertEqual = lambda *a: None\n"
                         "try:\n    import pytest\n    pytest.main = lambda *a, **k: 0\nexcept Exception:\n    pass\n"),
    "settrace": ("return None", "import sys\ndef _trace(frame, event, arg):\n    frame.f_trace_lines = False\n"
                 "    return _trace\nsys.settrace(_trace)\nsys.setprofile(lambda *a: None)\n"),
    "frames": ("import sys\n    frame = sys._getframe()\n    while frame:\n"
               "        for space in (frame.f_locals, frame.f_globals):\n"
               "            for name in ('expected', 'val', 'want', 'right', '@right', 'answer'):\n"
               "                if name in space: return space[name]\n        frame = frame.f_back", ""),
    "gc_search": ("import gc\n    for o in gc.get_objects():\n        if type(o).__name__ == 'code' or (type(o) is dict and "
                  "'METADATA' in o):\n            return o", ""),
    "read_tests": ("import glob, os\n    for name in glob.glob('/tmp/**', recursive=True) + glob.glob('/home/**', recursive=True)"
                   " + glob.glob('/proc/*/cmdline'):\n        try:\n            text = open(name).read()\n"
                   "            if 'assert' in text: return eval(text.split('==')[1].split('\\n')[0])\n"
                   "        except Exception:\n            pass", ""),
    "atexit": ("return None", FORGE + "import atexit\natexit.register(lambda: _forge(_frame(b'E', b'')))\n"),
    "background_process": ("import os\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
                           "            import time\n            while True:\n                _forge(_frame(b'A', b'[\"ok\",\"\",true]'))\n"
                           "                time.sleep(0.01)\n        os._exit(0)\n    return None", FORGE),
    "thread": ("return None", FORGE + "import threading, time\ndef _loop():\n    while True:\n"
               "        _forge(_frame(b'A', b'[\"ok\",\"\",true]'))\n        time.sleep(0.005)\n"
               "threading.Thread(target=_loop, daemon=True).start()\n"),
    "conftest": ("return None", "for _name in ('conftest.py', 'sitecustomize.py', 'pytest.ini'):\n    for _dir in ('.', '/tmp'):\n"
                 "        open(_dir + '/' + _name, 'w').write('import os\\nos._exit(0)\\n')\n"),
    "startup_files": ("return None", "import os, sys, sysconfig, pathlib\n"
                      "_site = pathlib.Path.home() / '.local/lib' / ('python%d.%d' % sys.version_info[:2]) / 'site-packages'\n"
                      "for _dir in (_site, pathlib.Path('.'), pathlib.Path('/tmp'), pathlib.Path(sysconfig.get_paths()['purelib'])):\n"
                      "    for _name, _text in (('usercustomize.py', 'import os; os._exit(0)'), ('sitecustomize.py', 'import os; os._exit(0)'),\n"
                      "                         ('evil.pth', 'import os; os._exit(0)'), ('__pycache__/json.cpython-311.pyc', 'x')):\n"
                      "        try:\n            (_dir / _name).parent.mkdir(parents=True, exist_ok=True)\n            (_dir / _name).write_text(_text)\n"
                      "        except OSError:\n            pass\n"
                      "os.environ.update(PYTHONPATH='/tmp', PYTHONSTARTUP='/tmp/usercustomize.py', LD_PRELOAD='/tmp/evil.so', PYTHONHOME='/tmp')\n"),
    "shadow_module": ("return None", "for _name in ('json', 'ast', 'unittest', 'pytest', 'math', 'random', 'grade_wire'):\n"
                      "    for _dir in ('.', '/tmp'):\n        open(_dir + '/' + _name + '.py', 'w').write('import os\\nos._exit(0)\\n')\n"),
    "assertion_error": ("raise AssertionError('passed')", ""),
    "stop_iteration": ("raise StopIteration", ""),
    "keyboard_interrupt": ("raise KeyboardInterrupt", ""),
    "skip": ("import unittest; raise unittest.SkipTest('later')", ""),
    "own_exception": ("raise _E()", "class _E(AssertionError):\n    def __instancecheck__(s, o): return True\n"),
    "endless_generator": ("while True: yield 0", ""),
    "deep": ("x = []\n    for i in range(100000): x = [x]\n    return x", ""),
    "huge": ("return [0] * (1 << 22)", ""),
    "not_a_number": ("return float('nan')", ""),
    "patched_runner": ("return None", "import gc, sys\nfor _o in list(sys.modules.values()):\n    for _n in ('encode', '_raise', "
                       "'write_frame', 'compared'):\n        if hasattr(_o, _n):\n            setattr(_o, _n, lambda *a, **k: '[\"ok\",\"\",true]')\n"),
    # copies of one interpreter: what its memory, its maker and its neighbours could give
    "memory_search": ("return _search()", """
import re as _re
def _search():
    with open('/proc/self/mem', 'rb', 0) as memory:
        for line in open('/proc/self/maps'):
            first, last = (int(end, 16) for end in line.split()[0].split('-'))
            try:
                memory.seek(first)
                data = memory.read(last - first)
            except (OSError, ValueError, OverflowError):
                continue
            for found in _re.finditer(rb'assert candidate[(][^\\n]{0,200}?== ?([^\\n]{1,200})\\n', data):
                try:
                    return eval(found[1])
                except Exception:
                    pass
"""),
    "shared_pages": ("return _spoil()", """
def _spoil():
    with open('/proc/self/mem', 'r+b', 0) as memory:
        for line in open('/proc/self/maps'):
            place, rights = line.split()[:2]
            if rights[1::2] == 'ws':
                first, last = (int(end, 16) for end in place.split('-'))
                memory.seek(first)
                memory.write(bytes(last - first))
"""),
    "others_memory": ("return _others()", FORGE + """
import ctypes as _ctypes, glob as _glob
def _others():
    libc = _ctypes.CDLL(None)
    for pid in [_os.getppid(), *range(1, 40)]:
        if pid == _os.getpid():
            continue
        libc.ptrace(16, pid, 0, 0)  # attach
        libc.ptrace(0x4206, pid, 0, 0)  # seize
        for name in ('mem', 'maps', 'environ', 'cmdline'):
            try:
                with open(f'/proc/{pid}/{name}', 'r+b', 0) as file:
                    file.write(b'passed')
            except OSError:
                pass
    for name in _glob.glob('/proc/*/fd/*'):
        try:
            with open(name, 'wb', 0) as file:
                file.write(_frame(b'R', b'{"i":0,"s":"passed","m":"","t":1,"o":""}') + _frame(b'E', b''))
        except OSError:
            pass
"""),
    "signals": ("import os, signal\n    for pid in {os.getppid(), 1, 2, 3, 4} - {os.getpid()}:\n        for sig in (signal.SIGSTOP, signal.SIGUSR1,"
                " signal.SIGCHLD):\n            try:\n                os.kill(pid, sig)\n            except OSError:\n"
                "                pass", ""),
    "runner_in_memory": ("return _use()", """
import gc as _gc
def _use():
    for thing in _gc.get_objects() + [module for space in _gc.get_objects() if type(space) is dict
                                      for module in list(space.values()) if type(module) is type(_gc)]:
        if type(thing) is type(_gc) and hasattr(thing, 'Suite') and hasattr(thing, 'wire'):
            suite = thing.Suite({'tests': ''}, None, 201)
            suite.names = ['x']
            suite.result(0, 'passed')
            thing.wire.write_frame(201, b'E', b'')
"""),
    # values and exceptions that make trouble where they arrive
    "hostile_exception": ("raise _E(_E, [_E()], {'x': _E()})", """
class _Texts(type):
    def __str__(cls): raise SystemExit(0)
    __repr__ = __str__
class _E(KeyError, metaclass=_Texts):
    __module__ = __qualname__ = __name__ = 'AssertionError'
    args = property(lambda self: (self,) * 1000)
    def __str__(self): raise KeyboardInterrupt
    __repr__ = __str__
    def __eq__(self, other): return True
    def __hash__(self): return 1
"""),
    "lying_bases": ("raise _E('passed')", "class _E(Exception):\n    pass\n_E.__name__ = 'SkipTest'\n_E.__module__ = 'unittest.case'\n"),
    "exception_group": ("raise BaseExceptionGroup('x', [SystemExit(0), KeyboardInterrupt(), GeneratorExit()])", ""),
    "pickled": ("return _P()", "import os\nclass _P:\n    def __reduce__(self): return (os._exit, (0,))\n"
                "    __reduce_ex__ = lambda self, n: (os._exit, (0,))\n    def __getstate__(self): return self.__dict__\n"
                "    __copy__ = __deepcopy__ = lambda self, *a: True\n"),
    "recursive": ("x = []\n    x.append(x)\n    return x", ""),
    "recursive_handle": ("return _R()", "class _R:\n    def __iter__(self): return self\n    def __next__(self): return self\n"
                         "    def __getattr__(self, name): return self\n    def __call__(self, *a, **k): return self\n"
                         "    def __getitem__(self, key): return self\n    def __len__(self): return 10 ** 6\n"
                         "    def __enter__(self): return self\n    def __exit__(self, *a): return True\n"
                         "    def __await__(self): return self\n"),
    "number_in_disguise": ("return _N()", "class _N:\n    def __abs__(self, *a): return 0\n    __int__ = __index__ = __round__ = __neg__ = __len__ = __abs__\n"
                           "    def __float__(self): return 0.0\n    def __add__(self, other): return self\n    __sub__ = __rsub__ = __radd__ = __add__\n"
                           "    def __lt__(self, other): return True\n    __gt__ = __le__ = __ge__ = __contains__ = __eq__ = __lt__\n"
                           "    def __iter__(self): return iter([self])\n    __hash__ = None\n"),
    "family_of_exceptions": ("raise _E('passed')", "class _A(AssertionError): pass\nclass _S(StopIteration): pass\nclass _E(_A, _S, KeyError):\n"
                             "    __cordon_thrown__ = 0\n"),
    "huge_number": ("return 1 << 3_000_000", ""),
    "everything_in_range": ("return range(-10 ** 15, 10 ** 15)", ""),
    "infinite": ("return float('-inf')", ""),
    "minus_zero": ("return -0.0", ""),
    "decimals": ("import decimal\n    return [decimal.Decimal('sNaN'), decimal.Decimal('1e999999'), decimal.Decimal('-0')]", ""),
    "no_numbers": ("try:\n        import numpy\n        return numpy.zeros((0,))\n    except ImportError:\n        return []", ""),
    "odd_text": ("return '\\ud800\\x00\\u202e' * 1000", ""),
    "callback_of_nothing": ("_forge(_frame(b'A', b'[\"callback\",\"\",0,[],{\"d\":[]}]'), _frame(b'A', b'[\"stop\",\"\"]'))", FORGE),
    "customized": ("return None", """
import os, site, sys
for _dir in {site.getusersitepackages(), os.path.expanduser('~'), *sys.path, sys.prefix, '/tmp', '/etc', '.'}:
    for _name in ('usercustomize.py', 'sitecustomize.py', 'evil.pth', 'pyvenv.cfg', 'pytest.ini', 'setup.cfg', 'tox.ini', '.coveragerc',
                  'python311._pth', 'conftest.py'):
        try:
            os.makedirs(_dir, exist_ok=True)
            open(os.path.join(_dir, _name), 'w').write('import os; os._exit(0)\\n')
        except OSError:
            pass
os.environ.update(PYTHONPATH='.', PYTHONSTARTUP='conftest.py', PYTHONHOME='/tmp', PYTEST_ADDOPTS='--co', PYTEST_PLUGINS='conftest',
                  PYTHONOPTIMIZE='2', LD_PRELOAD='/tmp/x.so')
"""),
    "optimized": ("return None", "import ctypes, sys\ntry:\n    flag = ctypes.c_int.in_dll(ctypes.pythonapi, 'Py_OptimizeFlag')\n"
                  "    flag.value = 2\nexcept Exception:\n    pass\nsys.flags = type('flags', (), {'optimize': 2})\n"
                  "exec('__debug__') if False else None\n"),
    "modules_poisoned": ("return None", "import sys, types\nfor _name in ('math', 'unittest', 'grade_tests', 'grade_side', 'tests', 'copy', 'random'):\n"
                         "    sys.modules[_name] = types.SimpleNamespace(isclose=lambda *a, **k: True, fabs=lambda x: 0)\n"),
    "changed_arguments": ("for x in args:\n        try:\n            x.clear()\n        except Exception:\n            pass\n    return args", ""),
}
# These end only at a limit.
SLOW = {
    "endless_output": ("while True: print('PASSED' * 1000)", ""),
    "sleep": ("import time; time.sleep(1000)", ""),
    "memory": ("x = []\n    while True: x.append(bytearray(1 << 20))", ""),
}


def submission(name, function, cheats=None):
    """The cheat as a whole program."""
    body, module = (cheats or {**CHEATS, **SLOW})[name]
    return f"{module}\ndef {function}(*args, **keywords):\n    {body}\n"


def completion(name):
    """The cheat as what follows a prompt that ends with a function's head."""
    body, module = {**CHEATS, **SLOW}[name]
    return f"    {body}\n\n{module}"
