"""However Cordon ends, nothing of the guest stays: cancel, kill -9 of each of our processes, closed pipes."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from cordon_run import CORDON, GUESTS, PATIENCE, QUIET, check_shape, cordon, guest_path, host_env, run, start

NOISY = ["--allow-read", GUESTS, "--time-limit", "30s", "--"]

# 100 ms on a quiet machine; worlds of the suite run beside each other on few cores.
GONE_S = 0.1 if QUIET else 2.0


def _tree(pid):
    found, todo = [], [pid]
    while todo:
        for task in pathlib.Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                children = [int(c) for c in task.read_text().split()]
            except OSError:
                continue
            found += children
            todo += children
    return found


def _alive(pids):
    """Those still there, zombies aside; children of ours that ended are reaped on the way."""
    left = []
    for pid in pids:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            left.append(pid)
    return left


def _gone(pids, within):
    end = time.monotonic() + within
    while _alive(pids) and time.monotonic() < end:
        time.sleep(0.005)
    return not _alive(pids)


def _started(*words):
    p = start(*words)
    p.stdout.readline()
    time.sleep(0.1)
    return p, _tree(p.pid)


GUEST_KINDS = [["stubborn", "ignore"], ["stubborn", "stop-tree"], ["fork_bomb", "plain", "20", "40"], ["sleeper", "nanosleep"]]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", GUEST_KINDS, ids="-".join)
def test_cancel(sig, kind):
    p, pids = _started(*NOISY, guest_path(kind[0]), *kind[1:])
    p.send_signal(sig)
    began = time.monotonic()
    out, _ = p.communicate(timeout=10)
    assert p.returncode == 130
    assert time.monotonic() - began < 1 + GONE_S and _gone(pids, GONE_S), "the tree outlived the cancel"


def test_cancel_gives_a_result():
    p = start("--json", *NOISY, guest_path("sleeper"), "nanosleep")
    time.sleep(0.5)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=10)
    result = json.loads(out)
    check_shape(result)
    assert (result["verdict"], result["exit_code"], p.returncode) == ("cancelled", 130, 130)
    assert result["stdout"] == "waiting: nanosleep\n"


def test_two_cancels_are_one():
    p, pids = _started(*NOISY, guest_path("stubborn"), "ignore")
    for _ in range(5):
        p.send_signal(signal.SIGINT)
    p.communicate(timeout=10)
    assert p.returncode == 130 and _gone(pids, GONE_S)


def test_cancel_of_the_whole_group():
    """Ctrl-C goes to the whole foreground group; the guest is not in it."""
    p = start(*NOISY, guest_path("sleeper"), "nanosleep", start_new_session=True)
    p.stdout.readline()
    pids = _tree(p.pid)
    os.killpg(p.pid, signal.SIGINT)
    p.communicate(timeout=10)
    assert p.returncode == 130 and _gone(pids, 0.2)


@pytest.mark.parametrize("kind", GUEST_KINDS, ids="-".join)
def test_kill_9_of_cordon(kind):
    p, pids = _started(*NOISY, guest_path(kind[0]), *kind[1:])
    assert pids
    p.kill()
    p.wait(timeout=10)
    assert _gone(pids, 1.0), "guest processes outlived kill -9 of Cordon"
    p.communicate(timeout=10)
    # Cgroups of a killed run are reaped by the next one; the oracle looks after this.
    assert run("--", "/bin/true").verdict == "ok"


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 12, 20])
def test_kill_9_at_every_stage(delay_ms):
    for extra in (0.0, 0.0003, 0.0006):
        p = start(*NOISY, guest_path("stubborn"), "ignore", "20")
        time.sleep(delay_ms / 1000 + extra)
        pids = _tree(p.pid)
        p.kill()
        p.communicate(timeout=10)
        assert _gone(pids, 1.0)
    assert run("--", "/bin/true").verdict == "ok"


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 4, 8])
def test_sigterm_at_every_stage(delay_ms):
    p = start("--json", *NOISY, guest_path("sleeper"), "nanosleep", "20")
    time.sleep(delay_ms / 1000)
    p.terminate()
    out, err = p.communicate(timeout=10)
    assert p.returncode in (130, -signal.SIGTERM, 143), (p.returncode, err)
    if p.returncode == 130 and out:
        assert json.loads(out)["verdict"] == "cancelled"


def test_kill_9_of_each_of_our_processes_inside(full):
    """Ours below the supervisor, one at a time: the run ends, with an honest word for it."""
    for index in range(3):
        p = start("--json", *NOISY, guest_path("sleeper"), "nanosleep", "20")
        time.sleep(0.3)
        pids = _tree(p.pid)
        if index >= len(pids):
            p.terminate()
            p.communicate(timeout=10)
            break
        os.kill(pids[index], signal.SIGKILL)
        out, err = p.communicate(timeout=10)
        result = json.loads(out)
        check_shape(result)
        assert result["verdict"] in ("signaled", "sandbox_error"), (index, result["verdict"])
        assert _gone(pids, 0.5)


def test_parent_shell_that_dies():
    """The caller goes away: the guest is of no use to anybody, but it must still end at its limit."""
    shell = subprocess.Popen(["/bin/sh", "-c", " ".join(["exec 3>&1;", CORDON, "run",
                             "--time-limit", "1s", "--", "/bin/sleep", "20", "& echo $!; exit 0"])],
                             stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    pid = int(shell.stdout.readline())
    shell.wait()
    time.sleep(0.3)
    pids = _tree(pid)
    assert _gone([pid, *pids], 3.0)
    shell.stdout.close()




@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_reader_that_goes_away(stream):
    p = start(*NOISY, "/bin/sh", "-c", "while :; do echo x; echo y >&2; done")
    getattr(p, stream).readline()
    getattr(p, stream).close()
    time.sleep(0.2)
    pids = _tree(p.pid)
    p.terminate()
    p.communicate(timeout=10) if stream == "stderr" else p.stderr.read()
    p.wait(timeout=10)
    assert _gone(pids, 0.5)


def test_reader_that_stalls():
    """Nobody reads our output: the wall limit still holds."""
    p = start("--time-limit", "500ms", "--allow-read", GUESTS, "--", guest_path("output"), "stdout", "1000", "forever")
    time.sleep(1.5)
    pids = _tree(p.pid)
    assert not _alive(pids), "the guest outlived its limit because nobody read"
    p.communicate(timeout=10)


def test_stopped_and_continued():
    p, pids = _started("--time-limit", "20s", "--", "/bin/sh", "-c", "echo up; sleep 0.5; exit 3")
    p.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    p.send_signal(signal.SIGCONT)
    assert p.wait(timeout=10) == 3
    p.communicate(timeout=10)


# ---- files ---------------------------------------------------------------------------------------------

LOOP = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); mkdir -p d/$i; echo $i > d/$i/f; echo $i > x$i.csv; done; chmod 0 d/7"


def _sweep(place, gone):
    """What gc has to leave: nothing of a run, and workspaces that can be looked at and removed."""
    def ws(*words):
        done = cordon("workspace", *words, cwd=place)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout
    assert _gone(gone, 10.0)
    ws("gc")
    assert list((place / "tmp").iterdir()) == []
    for ident in ws("ls").split():
        if ident in os.listdir(place / ".sandbox"):
            ws("diff", ident)
            ws("run", ident, "--", "/bin/true")
            ws("rm", ident)
    work = place / ".sandbox"
    assert [n for n in (os.listdir(work) if work.exists() else []) if n != ".meta"] == []
    assert not (work / ".meta").exists() or os.listdir(work / ".meta") == []
    def left():
        return [str(p) for top in (place / "tree", place / "out") for p in top.rglob("*") if ".cordon" in p.name]
    if left():  # killed between the two names of a file: the next run that writes there takes it away
        done = cordon("run", "--workspace", f"{place}/tree:overlay", "--output", f"*.csv={place}/out", "--", "/bin/sh", "-c", "echo > y.csv", cwd=place)
        assert done.returncode == 0, done.stderr
    assert left() == [], left()


@pytest.fixture
def place(full, monkeypatch):
    top = pathlib.Path(tempfile.mkdtemp(prefix="e2e-", dir="/var/tmp"))
    for name in ("tmp", "out", "tree/d"):
        (top / name).mkdir(parents=True)
    (top / "tree" / "a.txt").write_text("one\n")
    monkeypatch.setenv("TMPDIR", str(top / "tmp"))
    yield top
    subprocess.run(["chmod", "-R", "u+rwx", str(top)], check=True)
    shutil.rmtree(top)


@pytest.mark.parametrize("act", ["overlay", "keep", "copy", "new", "run", "discard", "apply", "rm"])
def test_kill_9_at_every_stage_of_a_workspace(place, act):
    """With a layer, a copy, a record or a file on its way to the host in use: gc finds all of it."""
    steps, took, n = 8, 0.05, 0
    while n < steps:
        if act == "copy":
            groups = [g for g in os.getgroups() if g != os.getegid()] if os.geteuid() else [12345]
            if not groups:
                pytest.skip("needs a second group of the caller's")
            os.chown(place / "tree" / "a.txt", -1, groups[0])
        words = {"overlay": ["run", "--workspace", f"{place}/tree:overlay", "--temp-dir", "--output", f"**={place}/out", "--", "/bin/sh", "-c", LOOP],
                 "keep": ["run", "--workspace", f"{place}/tree:overlay", "--keep", "--", "/bin/sh", "-c", LOOP],
                 "new": ["workspace", "new", "--from", f"{place}/tree"]}
        words["copy"] = words["overlay"]
        if act not in words:
            ident = cordon("workspace", "new", "--from", place / "tree", cwd=place).stdout.split()[-1]
            assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", LOOP, cwd=place).returncode == 0
            words[act] = ["workspace", act, ident] + (["--", "/bin/sh", "-c", LOOP] if act == "run" else ["--force"] if act == "apply" else [])
        began = time.monotonic()
        p = subprocess.Popen([CORDON, *words[act]], cwd=place, env=host_env(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if n == 0:  # how long it takes by itself
            assert p.wait(timeout=60) == 0
            took = min(time.monotonic() - began, 0.4)  # a busy machine: the rest is like the end
        else:
            time.sleep(took * n / steps)
            pids = _tree(p.pid)
            for pid in [p.pid] + (pids if n % 2 else []):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            p.wait(timeout=10)
            _sweep(place, pids)
        n += 1
    assert run("--", "/bin/true").verdict == "ok"


def test_the_time_limit_holds_while_nobody_looks(full, tmp_path):
    """The supervisor is stopped, or busy with what another guest left: pid 1 has a clock of its own. The result tells
    how long it took, not when somebody came to look."""
    place = tmp_path / "result"
    p, pids = _started("--time-limit", "1s", "--result", place, "--", "/bin/sh", "-c", "echo up; sleep 30")
    p.send_signal(signal.SIGSTOP)
    try:
        assert _gone([pid for pid in pids if pid != p.pid], 2.0 * PATIENCE)
        time.sleep(1.0 * PATIENCE)
    finally:
        p.send_signal(signal.SIGCONT)
    assert p.wait(timeout=10) == 124
    assert 1000 <= json.loads(place.read_text())["wall_ms"] < 1000 + 500 * PATIENCE
