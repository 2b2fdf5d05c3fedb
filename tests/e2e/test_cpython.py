"""CPython's own tests give inside what they give outside, as the same user, minus a reviewed list.

The list is cpython_differences.txt: one test identifier per line (a trailing * stands for the rest) with
its reason. Some differ only without a memory group, so an entry that does not differ here is no failure."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import oracle
from cordon_run import host_env, run

MODULES = ["test_os", "test_posix", "test_subprocess", "test_signal", "test_threading", "test_asyncio", "test_socket", "test_mmap",
           "test_tempfile", "test_shutil", "test_select", "test_fcntl", "test_multiprocessing_fork",
           "test_multiprocessing_spawn", "test_multiprocessing_forkserver"]
PYTHON = "/usr/bin/python3"
LIST = pathlib.Path(__file__).with_name("cpython_differences.txt")


def outcomes(text):
    """test identifier -> outcome, from unittest's verbose log; output of the tests themselves lies between."""
    found = {}
    pending = None
    for line in text.splitlines():
        m = re.match(r"^(\w+) \(([\w.<>]+)\)", line)
        if m:
            pending = f"{m.group(2)}.{m.group(1)}" if not m.group(2).endswith("." + m.group(1)) else m.group(2)
        m = re.search(r"(?:\.\.\. |^)(ok|skipped|FAIL|ERROR|expected failure)(?: ['\"].*)?$", line)
        if m and pending:
            found[pending] = m.group(1)
            pending = None
    return found


def reviewed():
    """Identifier (or its beginning, before a *) -> reason."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            found[name] = reason.strip()
    return found


def is_reviewed(name, entries):
    return any(name == e or (e.endswith("*") and name.startswith(e[:-1])) for e in entries)


def _default_signals():
    """A guest starts with default signals; so must its twin, also where we were started in the background."""
    for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGHUP):
        signal.signal(s, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_same_inside_and_outside(module, full, need):
    have = subprocess.run([PYTHON, "-c", "import test.test_os, test.support"], capture_output=True, cwd="/tmp").returncode == 0
    need(have, "CPython's test suite is missing: install the Debian package libpython3.11-testsuite")
    words = [PYTHON, "-B", "-m", "unittest", "-v", f"test.{module}"]
    inside = run("--time-limit", "20m", "--memory-limit", "3G", "--processes", "1000", "--file-descriptors", "4096", "--max-output", "64M",
                 "--disk-limit", "2G", "--cpu-limit", "0", "--", *words, timeout=1500)
    work = pathlib.Path(os.environ.get("CORDON_E2E_DIR", "/var/tmp")) / f"cpython-{os.getpid()}"
    work.mkdir()
    try:
        env = {k: v for k, v in host_env().items() if "SECRET" not in k}
        # The same user as inside where root runs this: nobody in particular.
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
                "--no-new-privs"] if os.geteuid() == 0 else []
        os.chmod(work, 0o777)
        outside = subprocess.run([*user, *words], capture_output=True, text=True, errors="replace", timeout=1500, cwd=work,
                                 env={**env, "TMPDIR": str(work), "HOME": str(work)}, stdin=subprocess.DEVNULL,
                                 preexec_fn=_default_signals)
    finally:
        for pid in oracle.children():  # what the tests left outside is no leak of ours
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(work, ignore_errors=True)
    assert inside.verdict in ("ok", "nonzero_exit"), str(inside)
    a, b = outcomes(inside.err), outcomes(outside.stderr)
    assert len(b) > 3, outside.stderr[-2000:]
    listed = reviewed()
    new = {k: (a.get(k, "missing"), v) for k, v in b.items() if a.get(k) != v and not is_reviewed(k, listed)}
    assert not new, f"{len(new)} of {len(b)} differ (inside, outside): " + "\n".join(f"{k}: {v}" for k, v in sorted(new.items()))
