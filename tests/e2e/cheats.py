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
