"""Warm interpreters: the results of cold ones, behind the same walls, with nothing of an earlier guest."""

import collections
import concurrent.futures
import importlib.util
import json
import os
import time

import pytest

from cordon import Sandbox
from test_warm import LOOK, READY, children, end, named

pytestmark = pytest.mark.full_tier("interpreters are kept in tier full only")


def run(sandbox, code, args=(), **options):
    return sandbox.run_command(["python3", "main.py", *args], files={"main.py": code, **options.pop("files", {})},
                               **options)


def warm(sandbox, code, args=(), **options):
    """A run that found an interpreter ready."""
    until = time.monotonic() + READY
    while True:
        before = sandbox.stats()
        result = run(sandbox, code, args, **options)
        if sandbox.stats().prepared > before.prepared:
            return result
        assert time.monotonic() < until, "no interpreter was prepared"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def kept():
    with Sandbox(timeout=20) as made:
        warm(made, "pass")
        assert interpreters(made)
        yield made


def cold(code, args=(), **options):
    with Sandbox(timeout=20) as fresh:
        return run(fresh, code, args, **options)


def interpreters(sandbox):
    """Those that are forked from: Python, a child of a spawner."""
    found = []
    for pool in named(sandbox, "cordon-pool"):
        found += [pid for pid, name in children(pool) if name.startswith("python3")]
    return found


# ---- the same results ---------------------------------------------------------------------------

CASES = {
    "arguments": "import sys; print(sys.argv, sys.orig_argv, sys.executable, sys.flags)",
    "main": "import __main__; print(__name__, __file__, __cached__, __spec__, type(__loader__), __package__, "
            "sorted(vars(__main__)))",
    "path": "import sys; print(sys.path, [type(h) for h in sys.path_hooks], sys.path_hooks)",
    "frames": "import inspect, sys; print(len(inspect.stack()), sys._getframe().f_back)",
    "traceback": "def f():\n    return 1 / 0\n\nf()\n",
    "chained": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('x') from e\n",
    "syntax": "x = (\n",
    "encoding": "# -*- coding: latin-1 -*-\nprint(len('\xe9'))\n",
    "nothing": "",
    "status": "import sys; sys.exit(3)",
    "large status": "import sys; sys.exit(259)",
    "message": "import sys; sys.exit('words')",
    "bare exit": "import sys; sys.exit()",
    "hard exit": "import os; print('lost', end=''); os._exit(4)",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "abort": "import os; os.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "atexit": "import atexit; atexit.register(print, 'first'); atexit.register(print, 'second'); print('body')",
    "atexit and status": "import atexit, sys; atexit.register(print, 'bye'); sys.exit(5)",
    "thread": "import threading, time\ndef f():\n    time.sleep(0.2); print('thread')\n"
              "threading.Thread(target=f).start(); print('main')",
    "thread error": "import threading\nt = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); print('on')",
    "finalizers": "class A:\n    def __del__(self):\n        print('gone')\na = A()\nb = A(); b.me = b\nprint('end')",
    "open file": "f = open('out', 'w'); f.write('kept'); del f; print(open('out').read())",
    "pipe closed": "import sys; sys.stdout.close()",
    "processes": "import multiprocessing\n"
                 "def f(x): return x * x\n"
                 "if __name__ == '__main__':\n"
                 "    with multiprocessing.Pool(2) as p: print(p.map(f, range(5)))",
    "spawned": "import multiprocessing as m\n"
               "def f(q): q.put(6)\n"
               "if __name__ == '__main__':\n"
               "    c = m.get_context('spawn'); q = c.Queue(); p = c.Process(target=f, args=(q,)); p.start()\n"
               "    print(q.get()); p.join(); print(p.exitcode)",
    "program": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(7)'], "
               "capture_output=True, text=True).stdout)",
    "input": "import sys; print(sys.stdin.read(), sys.stdin.encoding, sys.stdout.line_buffering, sys.stdin.isatty())",
    "signals": "import signal; print({s: signal.getsignal(s) for s in signal.valid_signals()}, "
               "signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "async": "import asyncio\nasync def f():\n    await asyncio.sleep(0.01); return 8\nprint(asyncio.run(f()))",
    "environment": "import os; print(sorted(os.environ.items())); os.system('env | sort')",
    "no module": "import no_such_module",
    "recursion": "def f(): f()\ntry: f()\nexcept RecursionError: print('deep')",
    "memory": "x = bytearray(10 ** 10)",
    "hooks": "import sys; sys.excepthook = lambda *e: print('mine', e[0].__name__); 1 / 0",
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_cold(kept, name):
    code = CASES[name].encode("latin-1") if name == "encoding" else CASES[name]
    options = dict(stdin="line\n", env={"WORD": "x y"})
    a, b = warm(kept, code, ("one", "two"), **options), cold(code, ("one", "two"), **options)
    for field in ("stdout", "stderr", "exit_code", "signal", "verdict", "error"):
        assert getattr(a, field) == getattr(b, field), field


def test_same_walls(kept):
    a, b = json.loads(warm(kept, LOOK).stdout), json.loads(cold(LOOK).stdout)
    for view in (a, b):
        view["mounts"] = sorted(set(tuple(m[:2]) for m in view["mounts"]))
        view["pids"] = len(view["pids"])
    assert a == b


def test_same_denials_and_limits(kept):
    code = "import os\ntry:\n    os.unshare\nexcept AttributeError:\n    pass\n" \
           "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.unshare(0x10000000), ctypes.get_errno())"
    a = warm(kept, code)
    assert a.stdout == "-1 1\n" and any(d["target"] == "unshare" for d in a.denials)
    assert warm(kept, "while True: pass", timeout=0.5).verdict == "time_limit"
    assert warm(kept, "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])").stdout == "1024\n"
    with Sandbox(timeout=20, max_memory_mb=64) as small:
        assert warm(small, "pass").exit_code == 0
        assert warm(small, "x = [0] * (40 << 20)").verdict == "memory_limit"
    with Sandbox(timeout=20, processes=1) as single:
        assert warm(single, "pass").exit_code == 0
        assert warm(single, "import os; os.fork()").exit_code != 0


def test_seeds_differ(kept):
    code = "import random, uuid, secrets; print(random.random(), uuid.uuid4(), secrets.token_hex(8))"
    seen = [word for _ in range(4) for word in warm(kept, code).stdout.split()]
    assert len(set(seen)) == 12


def test_ppid_and_session(kept):
    assert warm(kept, "import os; print(os.getppid(), os.getsid(0) == os.getpid())").stdout == "1 True\n"


# ---- module control -----------------------------------------------------------------------------

def guarded(sandbox, code):
    until = time.monotonic() + READY
    while True:
        before = sandbox.stats()
        result = sandbox.run(code)
        after = sandbox.stats()
        if after.prepared == before.prepared + 1 and after.cold == before.cold:
            return result
        assert time.monotonic() < until
        time.sleep(0.02)


def test_blocked_imports():
    with Sandbox(timeout=20) as sandbox:
        guarded(sandbox, "print(1)")
        time.sleep(0.3)
        refused = guarded(sandbox, "print('ran')\nimport socket\n")
        assert (refused.verdict, refused.exit_code, refused.stdout) == ("rejected", 77, "")
        assert "blocked" in refused.stderr and "socket" in refused.error
        hidden = guarded(sandbox, "print('ran')\n__import__('so' + 'cket')\n")
        assert hidden.verdict == "nonzero_exit" and hidden.stdout == "ran\n" and "blocked" in hidden.stderr
        # a guest that ends with the checker's status was not refused
        assert guarded(sandbox, "raise SystemExit(77)").verdict == "nonzero_exit"
        assert guarded(sandbox, "import math; print(math.pi)").stdout.startswith("3.14")


# ---- nothing of an earlier guest ----------------------------------------------------------------

SEARCH = r"""
import re
needle = bytes(b ^ 0x55 for b in bytes.fromhex(open("needle").read()))
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as mem:
    for line in maps.read().splitlines():
        start, end = (int(x, 16) for x in line.split()[0].split("-"))
        if line.split()[1][0] != "r" or line.endswith("[vvar]") or line.endswith("[vsyscall]"): continue
        try:
            mem.seek(start); data = mem.read(end - start)
        except (OSError, OverflowError): continue
        at = data.find(needle)
        while at >= 0:
            found += 1; at = data.find(needle, at + 1)
        del data
print(found)
"""


def needle(secret):
    """The search must not bring along what it looks for."""
    return bytes(b ^ 0x55 for b in secret.encode()).hex()


def test_memory_holds_nothing_of_an_earlier_guest(kept):
    secret = "S3CR3T-" + os.urandom(12).hex()
    code = f"import os, sys\nx = {secret!r}\nsys.stdin.read(); open('data').read(); os.environ['V']; sys.argv\n"
    for _ in range(3):
        warm(kept, code, (secret,), stdin=secret, env={"V": secret}, files={"data": secret})
        found = warm(kept, SEARCH, files={"needle": needle(secret)})
        # one: the needle itself, as the search has made it
        assert found.exit_code == 0 and int(found.stdout) <= 2, found.stdout + found.stderr


def test_the_search_finds_what_is_there(kept):
    """The twin."""
    secret = "S3CR3T-" + os.urandom(12).hex()
    held = "import os, sys\nkeep = [open('data').read() * 3, os.environ['V']]\n" + SEARCH
    found = warm(kept, held, env={"V": secret}, files={"needle": needle(secret), "data": secret})
    assert int(found.stdout) > 3


def test_context_values_and_source_of_source_runs():
    secret = "S3CR3T-" + os.urandom(12).hex()
    with Sandbox(timeout=20, allowed_imports=("re",)) as sandbox:
        guarded(sandbox, "pass")
        time.sleep(0.3)
        guarded(sandbox, f"x = {secret!r} * 2")
        search = SEARCH.replace('open("needle").read()', repr(needle(secret)))
        found = guarded(sandbox, search)
        assert found.exit_code == 0 and int(found.stdout) <= 2, found.stderr


def test_the_forking_interpreter_holds_nobodys_descriptors(kept):
    run(kept, "pass")
    time.sleep(0.5)
    for pid in interpreters(kept):
        try:
            ppid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
            comm = open(f"/proc/{ppid}/comm").read().strip()
            fds = sorted(int(n) for n in os.listdir(f"/proc/{pid}/fd"))
        except (OSError, PermissionError):
            continue
        if comm == "cordon-pool":
            assert fds == [0, 1, 2, 8, 9], fds


# ---- the pool -----------------------------------------------------------------------------------

def test_killed_interpreters_are_no_failure(kept):
    end(interpreters(kept))
    for _ in range(4):
        assert run(kept, "print(9)").stdout == "9\n"
    assert warm(kept, "print(9)").stdout == "9\n"


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs python3-numpy")
def test_preload_numpy():
    with Sandbox(timeout=20, preload=("numpy",)) as sandbox:
        warm(sandbox, "import numpy")
        code = "import sys; a = 'numpy' in sys.modules; import numpy; print(a, numpy.arange(5).sum(), numpy.random.rand())"
        seen = [warm(sandbox, code).stdout.split() for _ in range(3)]
        assert all(row[:2] == ["True", "10"] for row in seen) and len({row[2] for row in seen}) == 3


def test_modules_with_threads_and_missing_ones_fall_back():
    with Sandbox(timeout=20, preload=("no_such_module",)) as sandbox:
        for i in range(6):
            assert run(sandbox, f"print({i})").stdout == f"{i}\n"
            time.sleep(0.05)


def test_environ_is_the_guests_own(kept):
    """What /proc shows of the environment is the run's, not the interpreter's from before the fork."""
    code = "print([word for word in open('/proc/self/environ').read().split('\\0') if word])"
    shown = warm(kept, code, env={"WORD": "own"}).stdout
    assert "WORD=own" in shown and "PATH=/usr/local/bin:/usr/bin:/bin" in shown
    for foreign in ("ZYGOTE", "PYTHONPATH", "NUM_THREADS"):
        assert foreign not in shown


@pytest.mark.skipif(os.environ.get("CORDON_TEST_FULL") != "1", reason="a thousand runs: make test-full")
def test_an_interpreter_is_replaced_after_a_thousand_guests():
    """All guests of one share its address layout: after a thousand there is another one, and nobody notices."""
    where = "print(next(line for line in open('/proc/self/maps') if '/libc' in line).split('-')[0], %d * 7)"
    with Sandbox(timeout=60) as sandbox:
        warm(sandbox, "pass")
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            results = list(threads.map(lambda n: run(sandbox, where % n), range(1100)))
        words = [result.stdout.split() for result in results]
        assert [int(number) for _, number in words] == [n * 7 for n in range(1100)]
    layouts = collections.Counter(layout for layout, _ in words)
    assert 500 < layouts.most_common(1)[0][1] <= 1000, layouts.most_common(3)
