"""Prepared guests with paths of the host: bound ahead, and what a name means at the start counts."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from cordon import Sandbox, SandboxError

pytestmark = pytest.mark.full_tier("guests are prepared in tier full only")

READY = 15.0  # seconds a loaded machine may take to prepare a guest


def run(sandbox, *argv):
    return sandbox.run_command(list(argv))


def prepared(sandbox, *argv):
    """A run that used a prepared guest; earlier ones, which may not have, are made on the way."""
    until = time.monotonic() + READY
    while True:
        before = sandbox.stats()
        result = run(sandbox, *argv)
        if sandbox.stats().prepared > before.prepared:
            return result
        assert time.monotonic() < until, f"no guest was prepared: {sandbox.stats()}"
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o755)
    made = tmp_path / "data"
    made.mkdir()
    (made / "word").write_text("first\n")
    return made


@pytest.fixture
def sandbox(folder):
    with Sandbox(timeout=10, mounts=[(str(folder), "/data", "rw")]) as made:
        assert prepared(made, "cat", "/data/word").stdout == "first\n"
        yield made


def test_what_is_written_is_the_callers(sandbox, folder):
    assert prepared(sandbox, "sh", "-c", "echo mine > /data/new").exit_code == 0
    made = folder / "new"
    assert made.read_text() == "mine\n"
    assert (made.stat().st_uid, made.stat().st_gid) == (os.geteuid(), os.getegid())
    assert prepared(sandbox, "cat", "/data/new").stdout == "mine\n"


def test_read_only_stays_so(folder):
    with Sandbox(timeout=10, mounts=[(str(folder), "/data", "ro")]) as made:
        assert prepared(made, "cat", "/data/word").stdout == "first\n"
        assert prepared(made, "sh", "-c", "echo x > /data/word").exit_code != 0
    assert (folder / "word").read_text() == "first\n"


def test_a_folder_in_the_home_of_the_guest(folder):
    with Sandbox(timeout=10, mounts=[(str(folder), "/home/sandbox/in/here", "ro")]) as made:
        assert prepared(made, "cat", "in/here/word").stdout == "first\n"


def test_a_warm_interpreter_has_them_too(folder):
    with Sandbox(timeout=10, mounts=[(str(folder), "/data", "ro")]) as made:
        until = time.monotonic() + READY
        for i in range(1000):
            (folder / "word").write_text(str(i))
            assert made.run("print(open('/data/word').read(), end='')").stdout == str(i)
            if made.stats().prepared >= 2 or time.monotonic() > until:
                break
            time.sleep(0.05)
        assert made.stats().prepared >= 2


def test_another_folder_by_the_same_name(sandbox, folder):
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    (folder / "word").write_text("second\n")
    assert run(sandbox, "cat", "/data/word").stdout == "second\n"
    assert prepared(sandbox, "cat", "/data/word").stdout == "second\n"
    # and back, which the guests made meanwhile have not
    shutil.rmtree(folder)
    folder.with_name("old").rename(folder)
    assert run(sandbox, "cat", "/data/word").stdout == "first\n"


def test_a_guest_that_moves_what_waits_for_the_next(folder):
    """It may write the folder around a granted one."""
    mounts = [(str(folder.parent), "/around", "rw"), (str(folder), "/data", "ro")]
    with Sandbox(timeout=10, mounts=mounts) as made:
        assert prepared(made, "cat", "/data/word").stdout == "first\n"
        move = "cd /around && mv data old && mkdir data && echo second > data/word"
        assert prepared(made, "sh", "-c", move).exit_code == 0
        assert run(made, "cat", "/data/word").stdout == "second\n"
        assert prepared(made, "cat", "/data/word").stdout == "second\n"
        link = "cd /around && mv data older && ln -s old data"
        assert prepared(made, "sh", "-c", link).exit_code == 0
        with Sandbox(timeout=10, mounts=mounts) as fresh:
            assert outcome(made) == outcome(fresh)


def outcome(sandbox):
    try:
        return run(sandbox, "cat", "/data/word").stdout
    except SandboxError as error:
        return str(error)


def test_another_file_by_the_same_name(folder):
    word = folder / "word"
    with Sandbox(timeout=10, mounts=[(str(word), "/etc/word", "ro")]) as made:
        assert prepared(made, "cat", "/etc/word").stdout == "first\n"
        (folder / "next").write_text("second\n")
        os.replace(folder / "next", word)
        assert run(made, "cat", "/etc/word").stdout == "second\n"


def test_a_pattern_that_matches_now(folder):
    denied = str(folder / "secret*")
    with Sandbox(timeout=10, mounts=[(str(folder), "/data", "ro")], deny=[denied]) as made:
        assert prepared(made, "ls", "/data").stdout == "word\n"
        (folder / "secret.txt").write_text("do not show\n")
        assert run(made, "cat", "/data/secret.txt").stdout == ""
        (folder / "other.txt").write_text("show\n")
        assert run(made, "cat", "/data/other.txt").stdout == "show\n"


def test_nothing_below_a_grant_is_bound_ahead(folder):
    """Whoever may write the folder could move what is mounted in it."""
    (folder / "below").mkdir()
    mounts = [(str(folder), "/data", "rw"), (str(folder.parent), "/data/below", "ro")]
    with Sandbox(timeout=10, mounts=mounts) as made:
        for _ in range(6):
            assert run(made, "ls", "/data/below").stdout == "data\n"
            time.sleep(0.02)
        assert made.stats().prepared == 0


def in_own_mounts(text, folder):
    """What a program prints that may mount on the folder: in a mount namespace of its own."""
    package = os.path.join(os.path.dirname(__file__), "..", "..", "python")
    script = ["unshare", "--mount", sys.executable, "-B", "-c", text, str(folder), package]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


MOUNTS = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[2])
from cordon import Sandbox
with Sandbox(timeout=10, mounts=[(sys.argv[1], "/data", "ro")]) as made:
    until = time.monotonic() + 15
    while made.stats().prepared == 0 and time.monotonic() < until:
        made.run_command(["ls", "/data"])
        time.sleep(0.02)
    assert made.stats().prepared > 0
    subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1] + "/sub"], check=True)
    open(sys.argv[1] + "/sub/new", "w").close()
    print(made.run_command(["ls", "/data/sub"]).stdout, end="")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts something: needs root")
def test_mounts_of_the_host_that_change(folder):
    (folder / "sub").mkdir()
    assert in_own_mounts(MOUNTS, folder) == "new\n"


UNMAPPED = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[2])
from cordon import Sandbox
subprocess.run(["mount", "-t", "ramfs", "none", sys.argv[1]], check=True)
with open(sys.argv[1] + "/word", "w") as f:
    f.write("there")
with Sandbox(timeout=10, allow_read=[sys.argv[1]]) as made:
    until = time.monotonic() + 15
    while made.stats().prepared < 2 and time.monotonic() < until:
        assert made.run_command(["cat", sys.argv[1] + "/word"]).stdout == "there"
        time.sleep(0.02)
    print(made.stats().prepared >= 2)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts something: needs root")
def test_a_file_system_without_mapped_mounts(folder):
    """Its files are shown as they are, by a prepared guest as by any other."""
    assert in_own_mounts(UNMAPPED, folder) == "True\n"
