"""Workspaces over trees that are large, or not all the caller's: overlay or copy, and the result says which."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from cordon_run import PATIENCE, cordon, run, start

pytestmark = pytest.mark.usefixtures("full")


@pytest.fixture(autouse=True)
def own_tmp(shared, monkeypatch):
    (shared / "tmp").mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(shared / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))  # which folders were looked at


def leftovers():
    return list(pathlib.Path(os.environ["TMPDIR"]).iterdir())


def foreign_group():
    groups = [g for g in os.getgroups() if g != os.getegid()] if os.geteuid() else [12345]
    return groups[0] if groups else pytest.skip("needs a second group of the caller's")


def many(folder, number):
    folder.mkdir(parents=True)
    for i in range(number):
        os.close(os.open(folder / f"f{i}", os.O_CREAT | os.O_WRONLY, 0o644))


def sh(tree, script, *opts):
    return run("--workspace", f"{tree}:overlay", *opts, "--", "/bin/sh", "-c", script)


@pytest.fixture
def large(shared):
    """More files near the top than are looked at before every run, and below them two more."""
    tree = shared / "large"
    many(tree / "many", 4200)
    (tree / "a/b/c").mkdir(parents=True)
    for name in ("mine", "theirs"):
        (tree / "a/b/c" / name).write_text("x\n")
    return tree


def give_away(path):
    os.chown(path, -1, foreign_group())


@pytest.mark.parametrize("number, kept", [(10000, False), (10, True)])
def test_one_foreign_file_among_many_means_a_copy(shared, number, kept):
    """The last one that is met: the whole folder is looked at before the guest starts, also below a workspace that was made before."""
    foreign_group()
    tree = shared / "tree"
    many(tree / "many", number)
    (tree / "z/z/z").mkdir(parents=True)
    (tree / "z/z/z/theirs").write_text("x\n")
    give_away(tree / "z/z/z/theirs")
    script = "echo y >> z/z/z/theirs; rm many/f1"
    if kept:
        made = cordon("workspace", "new", "--from", str(tree), "--id", "w", cwd=str(shared))
        assert made.returncode == 0, made.stderr
        done = cordon("workspace", "run", "w", "--json", "--", "/bin/sh", "-c", script, cwd=str(shared))
        result = json.loads(done.stdout)
    else:
        result = sh(tree, script).result
    assert result["verdict"] == "ok" and result["enforcement"]["layers"]["workspace"] == "copy", result
    assert {c["path"]: c["kind"] for c in result["changed_files"]} == {"z/z/z/theirs": "modified", "many/f1": "deleted"}
    assert (tree / "z/z/z/theirs").read_text() == "x\n" and not leftovers()


def looks(shared):
    return [p.stat().st_mtime_ns for p in (shared / "cache/cordon/owners").iterdir()]


def test_a_large_tree_of_ones_own_is_looked_at_once_a_day(large, shared):
    assert sh(large, "echo y >> a/b/c/theirs").layers["workspace"] == "overlay"
    first = looks(shared)
    assert sh(large, "true").layers["workspace"] == "overlay" and looks(shared) == first and len(first) == 1
    note = next((shared / "cache/cordon/owners").iterdir())
    os.utime(note, (time.time() - 100000,) * 2)
    assert sh(large, "true").layers["workspace"] == "overlay" and looks(shared)[0] > first[0]
    # a clock that was set back is no reason to believe it for years
    os.utime(note, (time.time() + 100000,) * 2)
    assert sh(large, "true").layers["workspace"] == "overlay" and looks(shared)[0] < time.time_ns() + 10**9


def test_a_file_given_away_later_is_told_and_the_next_run_is_a_copy(large):
    assert sh(large, "true").layers["workspace"] == "overlay"
    give_away(large / "a/b/c/theirs")
    # other work in the tree is no attempt
    assert sh(large, "echo y >> many/f1; cat a/b/c/theirs").layers["workspace"] == "overlay"
    r = sh(large, "cd a/b/c; (echo y >> theirs) 2>&1; echo y >> mine")
    assert b"too large for defined data type" in r.stream("stdout"), str(r)
    layer = r.layers["workspace"]
    assert layer.startswith("overlay; 1 files of other owners could not be changed: a/b/c/theirs"), layer
    assert [c["path"] for c in r.result["changed_files"]] == ["a/b/c/mine"]
    r = sh(large, "echo y >> a/b/c/theirs")
    assert r.verdict == "ok" and r.layers["workspace"] == "copy", str(r)


def test_what_mode_bits_keep_from_the_guests_of_root_is_told(large):
    """Root could change it, its guest is another user: refused before the overlay comes to copy anything."""
    if os.geteuid() != 0:
        pytest.skip("needs root: anybody else could not change such a file either")
    assert sh(large, "true").layers["workspace"] == "overlay"
    os.chown(large / "a/b/c/theirs", 12345, 12345)
    assert sh(large, "cat a/b/c/theirs").layers["workspace"] == "overlay"
    r = sh(large, "echo y >> a/b/c/theirs")
    assert "Permission denied" in r.err and r.layers["workspace"] == "overlay; 1 files of other owners could not be changed: a/b/c/theirs", str(r)
    assert sh(large, "echo y >> a/b/c/theirs").layers["workspace"] == "copy"


def test_without_a_place_to_remember_every_run_looks(large, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    assert sh(large, "true").layers["workspace"] == "overlay"
    give_away(large / "a/b/c/theirs")
    assert sh(large, "echo y >> a/b/c/theirs").layers["workspace"] == "copy"


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def copying_child(p):
    """The child that copies has a name of its own."""
    deadline = time.monotonic() + 20 * PATIENCE
    while time.monotonic() < deadline and p.poll() is None:
        for child in pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split():
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text() == "cordon-copy\n":
                    return int(child)
            except OSError:
                pass
        time.sleep(0.001)
    pytest.fail("no child copies the folder")


@pytest.fixture
def to_copy(shared):
    group = foreign_group()
    tree = shared / "to-copy"
    many(tree / "many", 1500)
    (tree / "theirs").write_text("x\n")
    os.chown(tree / "theirs", -1, group)
    return tree


def test_a_copy_can_be_cancelled(to_copy):
    p = start("--workspace", f"{to_copy}:overlay", "--", "/bin/echo", "ran", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child = copying_child(p)
    os.kill(child, signal.SIGSTOP)  # however fast the disk is
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=30 * PATIENCE)
    assert p.returncode == 130 and out == b"" and b"while the folder was copied" in err, err
    assert not leftovers() and not is_alive(child)


def test_a_copy_that_is_cut_off_is_an_error(to_copy):
    p = start("--workspace", f"{to_copy}:overlay", "--", "/bin/echo", "ran", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.kill(copying_child(p), signal.SIGKILL)
    out, err = p.communicate(timeout=30 * PATIENCE)
    assert p.returncode == 70 and out == b"" and b"cut off" in err, err
    assert not leftovers()


def test_a_copy_ends_with_its_supervisor(to_copy, shared):
    p = start("--workspace", f"{to_copy}:overlay", "--", "/bin/echo", "ran", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child = copying_child(p)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    deadline = time.monotonic() + 10 * PATIENCE
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(child)
    while leftovers() and time.monotonic() < deadline:
        cordon("workspace", "gc", cwd=str(shared))
        time.sleep(0.05)
    assert not leftovers()


def test_a_copy_serves_like_an_overlay(to_copy):
    r = sh(to_copy, "echo y >> theirs; rm many/f1; ls many | wc -l")
    assert r.verdict == "ok" and r.layers["workspace"] == "copy" and r.stream("stdout") == b"1499\n", str(r)
    assert {c["path"]: c["kind"] for c in r.result["changed_files"]} == {"theirs": "modified", "many/f1": "deleted"}
    assert (to_copy / "theirs").read_text() == "x\n" and not leftovers()


def test_what_could_not_be_read_is_empty_in_a_copy_and_no_change(to_copy, shared):
    """It would be applied as such, over a file that the guest never saw."""
    if os.geteuid() == 0:
        pytest.skip("needs an ordinary user: root reads everything")
    (to_copy / "closed").write_text("c\n")
    (to_copy / "dir").mkdir()
    (to_copy / "dir/f").write_text("f\n")
    for path in ("closed", "dir"):
        os.chmod(to_copy / path, 0)
    made = cordon("workspace", "new", "--from", str(to_copy), "--id", "w", cwd=str(shared))
    assert made.returncode == 0, made.stderr
    done = cordon("workspace", "run", "w", "--json", "--", "/bin/sh", "-c", "echo y >> theirs", cwd=str(shared))
    assert [c["path"] for c in json.loads(done.stdout)["changed_files"]] == ["theirs"], done.stdout
    done = cordon("workspace", "apply", "w", cwd=str(shared))
    assert done.returncode == 0 and (to_copy / "theirs").read_text() == "x\ny\n", done.stderr
    done = cordon("workspace", "run", "w", "--json", "--", "/bin/sh", "-c", "chmod 600 closed; echo z > closed", cwd=str(shared))
    assert "closed" in {c["path"] for c in json.loads(done.stdout)["changed_files"]}
    os.chmod(to_copy / "closed", 0o600)
    os.chmod(to_copy / "dir", 0o700)
    assert (to_copy / "closed").read_text() == "c\n" and (to_copy / "dir/f").read_text() == "f\n"


def kept(tree, script, *opts):
    """A run in workspace w, whose records are in the folder itself as they are by default."""
    done = cordon("workspace", "run", "w", "--json", *opts, "--", "/bin/sh", "-c", script, cwd=str(tree))
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def base(shared):
    """A folder with a file of another owner, records of workspaces, a live socket, a FIFO and something to deny."""
    tree = shared / "base"
    (tree / "sub").mkdir(parents=True)
    (tree / "theirs").write_text("x\n")
    (tree / "sub/key").write_text("denied\n")
    os.mkfifo(tree / "fifo")
    os.chdir(tree)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("sock")
        s.listen()
        os.chdir("/")
        yield tree


def test_what_is_covered_but_not_copied_does_not_matter(base):
    give_away(base / "theirs")
    made = cordon("workspace", "new", "--from", str(base), "--id", "w", cwd=str(base))
    assert made.returncode == 0, made.stderr
    for script in ("echo y >> theirs; test ! -s sub/key", "mkdir .sandbox", "true"):
        result = kept(base, script, "--deny", f"{base}/sub/key", "--deny", f"{base}/fifo", "--deny", f"{base}/.sandbox/workspaces")
        assert result["verdict"] == "ok" and result["enforcement"]["layers"]["workspace"] == "copy", result
        assert "theirs" in {c["path"] for c in result["changed_files"]}
    done = run("--workspace", f"{base}:overlay", "--keep", "--", "/bin/sh", "-c", "ls -A", cwd=str(base))
    assert done.verdict == "ok" and done.layers["workspace"] == "copy" and not {".sandbox", "sock", "fifo"} & set(done.out.split()), str(done)


def test_what_is_no_file_is_no_change_and_stays_on_the_host(base):
    """Pipes and sockets are not in a copy: the guest took nothing away, and apply does not either."""
    give_away(base / "theirs")
    cwd = str(base.parent)
    made = cordon("workspace", "new", "--from", str(base), "--id", "w", cwd=cwd)
    assert made.returncode == 0, made.stderr
    result = kept(cwd, "echo new > new")
    assert result["verdict"] == "ok" and result["enforcement"]["layers"]["workspace"] == "copy", result
    assert [c["path"] for c in result["changed_files"]] == ["new"], result
    applied = cordon("workspace", "apply", "w", cwd=cwd)
    assert applied.returncode == 0, applied.stderr
    assert (base / "fifo").is_fifo() and (base / "sock").is_socket() and (base / "new").read_text() == "new\n"
    assert cordon("workspace", "rm", "w", cwd=cwd).returncode == 0


def test_a_denied_file_of_a_copy_does_not_come_back_under_another_name(base):
    """Its folder can be moved with it: a cover that finds no place stops the next run."""
    give_away(base / "theirs")
    made = cordon("workspace", "new", "--from", str(base), "--id", "w", cwd=str(base))
    assert made.returncode == 0, made.stderr
    result = kept(base, "mv sub elsewhere; cat elsewhere/key", "--deny", f"{base}/sub/key")
    assert result["verdict"] == "ok" and "denied" not in str(result["stdout"]), result
    result = kept(base, "cat elsewhere/key", "--deny", f"{base}/sub/key")
    assert result["verdict"] == "sandbox_error" and "denied" not in str(result["stdout"]), result


def test_a_denied_file_that_a_guest_took_away_from_its_layer(base):
    made = cordon("workspace", "new", "--from", str(base), "--id", "w", cwd=str(base))
    assert made.returncode == 0, made.stderr
    deny = ("--deny", f"{base}/sub/key")
    assert kept(base, "test ! -s sub/key", *deny)["verdict"] == "ok"
    assert kept(base, "rm -r sub sock")["verdict"] == "ok"
    result = kept(base, "ls", *deny)
    assert result["verdict"] == "ok" and result["enforcement"]["layers"]["workspace"] == "overlay", result
    # where something else is in the way, nothing is left uncovered
    assert kept(base, "touch sub")["verdict"] == "ok"
    assert kept(base, "true", *deny)["verdict"] == "sandbox_error"


@pytest.mark.parametrize("foreign", [False, True])
def test_mounts_below_the_folder_are_not_part_of_it(shared, foreign):
    """Neither of an overlay nor of a copy; whose they are does not count, and /proc is not copied."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts of the host's side")
    tree = shared / "tree"
    for name in ("mount", "proc"):
        (tree / name).mkdir(parents=True)
    (tree / "f").write_text("x\n")
    if foreign:
        give_away(tree / "f")
    script = 'mount -t tmpfs -o uid=777 t "$1/mount"; echo in > "$1/mount/in"; mount -t proc p "$1/proc"; shift; exec "$@"'
    r = run("--workspace", f"{tree}:overlay", "--", "/bin/sh", "-c", "ls mount proc; echo y > mount/new; echo y >> f",
            prefix=["/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh", str(tree)])
    assert r.verdict == "ok" and r.layers["workspace"] == ("copy" if foreign else "overlay"), str(r)
    assert r.out.split() == ["mount:", "proc:"], str(r)
    assert {c["path"]: c["kind"] for c in r.result["changed_files"]} == {"mount/new": "added", "f": "modified"}


# ---- File systems without identity-mapped mounts: whoever is root sees to it that a guest can work all the same -----

PLANT = """mount -t ramfs ramfs "$1" && mkdir -m 755 "$1/tree" && echo a > "$1/tree/mine" && mkdir -m 700 "$1/tree/closed" &&
echo b > "$1/tree/closed/private" && chmod 600 "$1/tree/closed/private" && shift && exec "$@" """


@pytest.fixture
def unmapped(shared):
    """Runs with a ramfs at the folder it gives, in a mount namespace of their own."""
    if os.geteuid() != 0:
        pytest.skip("needs root: ordinary users' guests need no mapped mounts")
    top = shared / "ramfs"
    top.mkdir()
    return top, ["/usr/bin/unshare", "-m", "/bin/sh", "-c", PLANT, "sh", str(top)]


def test_an_overlay_that_cannot_be_mapped_is_a_copy(unmapped, shared, monkeypatch):
    top, prefix = unmapped
    script = "cat closed/private; echo y >> mine; echo y > closed/new; stat -c %U mine closed/private"
    for place in (os.environ["TMPDIR"], str(top)):  # of the copy: its own file system may have no mapped mounts either
        monkeypatch.setenv("TMPDIR", place)
        r = run("--workspace", f"{top}/tree:overlay", "--", "/bin/sh", "-c", script, prefix=prefix)
        assert r.verdict == "ok" and r.out.split() == ["b", "sandbox", "sandbox"] and r.layers["workspace"] == "copy", str(r)
        assert {c["path"]: c["kind"] for c in r.result["changed_files"]} == {"mine": "modified", "closed/new": "added"}
    # the layer alone
    tree = shared / "tree"
    tree.mkdir()
    (tree / "f").write_text("x")
    r = run("--workspace", f"{tree}:overlay", "--", "/bin/sh", "-c", "echo y >> f; echo y > g", prefix=prefix)
    assert r.verdict == "ok" and r.layers["workspace"] == "copy" and len(r.result["changed_files"]) == 2, str(r)
    monkeypatch.setenv("TMPDIR", str(shared / "tmp"))
    assert not leftovers()


def test_what_cannot_be_mapped_is_read_and_never_half_writable(unmapped):
    top, prefix = unmapped
    r = run("--workspace", f"{top}/tree:ro", "--", "/bin/cat", "mine", prefix=prefix)
    assert r.out == "a\n", str(r)
    for words in (["--workspace", f"{top}/tree:rw"], ["--allow-write", f"{top}/tree"], ["--mount", f"{top}/tree/mine:/m:rw"]):
        r = run(*words, "--", "/bin/true", prefix=prefix, as_json=False)
        assert r.code == 69 and "identity-mapped" in r.err, str(r)


def test_a_mount_below_that_cannot_be_mapped_spoils_nothing_else(unmapped, shared):
    top, prefix = unmapped
    (shared / "mine").write_text("x\n")
    os.chmod(shared / "mine", 0o600)
    r = run("--workspace", f"{shared}:rw", "--", "/bin/sh", "-c", "cat mine ramfs/tree/mine; echo y > mine", prefix=prefix)
    assert r.verdict == "ok" and r.out == "x\na\n" and (shared / "mine").read_text() == "y\n", str(r)


@pytest.mark.parametrize("script, changed", [
    ("mv d d2", {"d/x": "deleted", "d/e/y": "deleted", "d2/x": "added", "d2/e/y": "added"}),
    ("mv good t; mv evil good; mv t evil", {"good/run": "modified", "evil/run": "modified"}),
    ("mv good t; mv evil good; mv t evil; touch good/a; rm good/a", {"good/run": "modified", "evil/run": "modified"}),
    ("touch good/new", {"good/new": "added"}), ("mv d d2; mv d2 d", {})])
def test_a_folder_that_moves_in_a_copy(shared, script, changed):
    """What lies below it keeps its times, which is all that an untouched file shows."""
    tree = shared / "tree"
    for name in ("good/run", "evil/run", "d/x", "d/e/y"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f"{name}\n")
    (tree / "theirs").write_text("x\n")
    give_away(tree / "theirs")
    r = sh(tree, script)
    assert r.verdict == "ok" and r.result["enforcement"]["layers"]["workspace"] == "copy", str(r)
    assert {c["path"]: c["kind"] for c in r.result["changed_files"]} == changed, str(r)
