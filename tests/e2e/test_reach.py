"""A cordon.toml that a guest could have written is nobody's word: not at the top of a grant, not below it, not
after Cordon was killed; what the caller writes before, between and after runs counts."""

import os
import shutil
import signal
import time

import pytest

from cordon_run import cordon, run, start

POLICY = '[sandbox]\ntime_limit = "%ds"\n'


@pytest.fixture
def home(shared, tmp_path_factory):
    """A home of its own outside the grant: notes of other tests do not matter."""
    top = shared.parent / (shared.name + "-home")
    top.mkdir(mode=0o700)
    yield {"HOME": str(top)}
    shutil.rmtree(top, ignore_errors=True)


def effective(folder, env):
    """(exit status, time limit that counts there, what was said)"""
    done = cordon("explain", "--", "/bin/true", cwd=folder, env=env)
    rows = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("time_limit =")]
    return done.returncode, rows[0] if rows else None, done.stderr


def in_guest(shared, env, script):
    r = run("--allow-write", shared, "--", "/bin/sh", "-c", f"umask 022; cd {shared}; {script}", env=env)
    # tier landlock as root: the guest's files belong to somebody else, and are refused for that already
    return r


def test_a_guests_policy_is_refused_below_the_grant(shared, home):
    os.makedirs(shared / "sub", mode=0o777)
    os.chmod(shared / "sub", 0o777)
    in_guest(shared, home, "printf '[sandbox]\\ntime_limit = \"999s\"\\n' > sub/cordon.toml")
    assert (shared / "sub" / "cordon.toml").exists()
    status, limit, said = effective(shared / "sub", home)
    assert status == 78 and limit is None, said
    assert "cordon.toml" in said and "refused" in said and "--config" in said
    assert cordon("run", "--", "/bin/true", cwd=shared / "sub", env=home).returncode == 78
    # the twin: the same file, named, counts
    assert cordon("explain", "--config", "cordon.toml", "--", "/bin/true", cwd=shared / "sub",
                  env=home).returncode == 0


def test_a_new_policy_at_the_top_is_refused_until_it_is_the_callers(shared, home):
    in_guest(shared, home, "printf '[sandbox]\\ntime_limit = \"999s\"\\n' > cordon.toml")
    os.chmod(shared, 0o755)
    assert effective(shared, home)[0] == 78
    if os.stat(shared / "cordon.toml").st_uid == os.geteuid():
        os.utime(shared / "cordon.toml")
        assert effective(shared, home)[:2] == (0, "999s")
    (shared / "cordon.toml").unlink()
    (shared / "cordon.toml").write_text(POLICY % 7)
    assert effective(shared, home)[:2] == (0, "7s")


def test_a_policy_moved_by_a_guest_is_refused(full, shared, home):
    (shared / "lenient").mkdir()
    (shared / "lenient" / "cordon.toml").write_text(POLICY % 77)
    os.chmod(shared / "lenient", 0o755)
    assert effective(shared / "lenient", home)[:2] == (0, "77s")
    in_guest(shared, home, "mv lenient/cordon.toml cordon.toml")
    os.chmod(shared, 0o755)
    assert effective(shared, home)[0] == 78


def two_policies(shared):
    for name, seconds in (("lenient", 77), ("kept", 55)):
        (shared / name / "in").mkdir(parents=True)
        (shared / name / "in" / "cordon.toml").write_text(POLICY % seconds)
        for folder in (shared / name, shared / name / "in"):
            os.chmod(folder, 0o755)
    time.sleep(0.05)


@pytest.mark.parametrize("evade", ["", "touch moved/x; rm moved/x"])
def test_a_folder_moved_by_a_guest_does_not_take_its_policy_along(full, shared, home, evade):
    """The file itself is unchanged; where it is now nobody put it."""
    two_policies(shared)
    r = in_guest(shared, home, f"touch kept/in/x lenient/y; mv lenient moved; {evade}")
    told = [c["path"] for c in r.result["changed_files"]]
    assert told == [f"{shared}/moved/in/cordon.toml"], str(r)
    os.chmod(shared, 0o755)
    status, limit, said = effective(shared / "moved/in", home)
    assert status == 78 and limit is None and "cordon.toml" in said
    # the twin: a folder the guest worked in and left in its place
    assert effective(shared / "kept/in", home)[:2] == (0, "55s")
    # the caller's own word
    os.utime(shared / "moved/in/cordon.toml")
    assert effective(shared / "moved/in", home)[:2] == (0, "77s")


def test_a_policy_carried_behind_more_folders_than_are_looked_at_is_refused(full, shared, home):
    two_policies(shared)
    r = in_guest(shared, home, "mv lenient moved; mkdir many; cd many; mkdir $(seq 5000)")
    assert f"{shared}/lenient/in/cordon.toml" in [c["path"] for c in r.result["changed_files"]], str(r)
    os.chmod(shared, 0o755)
    assert effective(shared / "moved/in", home)[0] == 78
    assert effective(shared / "kept/in", home)[:2] == (0, "55s")


@pytest.mark.parametrize("chain", [False, True])
def test_a_guests_link_to_an_older_policy_is_refused(full, shared, home, chain):
    """What it leads to was the caller's before any guest: that it counts here is the guest's word."""
    os.chmod(shared, 0o755)
    (shared / "lenient").mkdir()
    (shared / "lenient" / "other.toml").write_text(POLICY % 77)
    if chain:
        # the caller's own link, to a place that the guest then makes a link of
        (shared / "cordon.toml").symlink_to("mine.toml")
        (shared / "mine.toml").write_text(POLICY % 5)
        assert effective(shared, home)[:2] == (0, "5s")
    in_guest(shared, home, f"ln -sf lenient/other.toml {'mine.toml' if chain else 'cordon.toml'}")
    assert effective(shared, home)[0] == 78
    # the twin: links of the caller's, made between runs
    (shared / "cordon.toml").unlink()
    (shared / "cordon.toml").symlink_to("own.toml")
    (shared / "own.toml").symlink_to("lenient/other.toml")
    assert effective(shared, home)[:2] == (0, "77s")


def test_the_callers_own_edits_count_at_once(full, shared, home):
    """Written before, between and right after runs that could write: never mistaken for the guest's."""
    os.chmod(shared, 0o755)
    for second in range(3, 9):
        (shared / "cordon.toml").write_text(POLICY % second)
        assert run("--allow-write", shared, "--", "/bin/true", env=home, cwd=shared).verdict == "ok"
        assert effective(shared, home)[:2] == (0, f"{second}s")


def test_a_policy_that_is_there_cannot_be_changed(full, shared, home):
    (shared / "cordon.toml").write_text(POLICY % 5)
    os.chmod(shared, 0o755)
    in_guest(shared, home, "echo x > cordon.toml; rm -f cordon.toml; mv cordon.toml y; ln -f cordon.toml z")
    assert effective(shared, home)[:2] == (0, "5s")


def test_killed_command_leaves_the_window_open_and_gc_closes_it(full, shared, home):
    os.chmod(shared, 0o755)
    process = start("--allow-write", shared, "--", "/bin/sh", "-c",
                    f"echo '[sandbox]' > {shared}/cordon.toml; echo up; sleep 60", env=home)
    assert process.stdout.read(2) == b"up"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    time.sleep(0.3)
    assert effective(shared, home)[0] == 78
    assert cordon("workspace", "gc", cwd=shared, env=home).returncode == 0
    assert effective(shared, home)[0] == 78, "the guest's file stays refused"
    time.sleep(0.02)
    (shared / "cordon.toml").write_text(POLICY % 4)
    assert effective(shared, home)[:2] == (0, "4s")


def test_the_notes_are_out_of_the_guests_reach(full, shared, world):
    """Also when the caller grants the folder they lie in."""
    state = shared / "state"
    state.mkdir()
    env = {"XDG_STATE_HOME": str(state)}
    notes = "/var/lib/cordon/writable" if os.geteuid() == 0 else str(state / "cordon" / "writable")
    r = run("--allow-write", shared, "--", "/bin/sh", "-c", f"ls -A {notes}; touch {notes}/x", env=env)
    assert r.out.strip() == "" and r.code != 0
    assert any(os.scandir(notes)), "the run itself is noted"
    if os.geteuid() != 0:
        done = cordon("run", "--allow-write", notes, "--", "/bin/true", env=env)
        assert done.returncode == 78 and "notes" in done.stderr
    # the twin: the folder itself is the guest's to write
    assert run("--allow-write", shared, "--", "/bin/touch", shared / "y", env=env).verdict == "ok"


@pytest.mark.parametrize("what", ["XDG_STATE_HOME", "XDG_CACHE_HOME"])
@pytest.mark.parametrize("chain", ["direct", "chain"])
def test_a_link_to_the_notes_is_not_left_to_a_guest(full, shared, what, chain):
    """Whatever covers the notes is where the link leads; a guest could put a folder of its own in its place."""
    (shared / "far").mkdir()
    (shared / "grant").mkdir()
    (shared / "grant" / "link").symlink_to(shared / "far")
    (shared / "outer").symlink_to("grant/../grant/link")
    env = {what: str(shared / "outer" if chain == "chain" else shared / "grant" / "link")}
    done = cordon("run", "--allow-write", shared / "grant", "--", "/bin/true", env=env)
    assert done.returncode == 78 and f"{shared}/grant/link in it is a link" in done.stderr and what in done.stderr, done
    assert run("--allow-write", shared / "grant", "--", "/bin/touch", shared / "grant" / "x", env={what: str(shared / "far")}).verdict == "ok"
    # the twin: a link that is not the guest's to replace, into the grant or not
    (shared / "outer").unlink()
    (shared / "outer").symlink_to(shared / "grant")
    assert run("--allow-write", shared / "grant", "--", "/bin/touch", shared / "grant" / "y", env={what: str(shared / "outer")}).verdict == "ok"
