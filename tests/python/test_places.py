"""Where the caller's caches, notes and temporary files lie: the library's supervisor knows it as the command does."""

import io
import os
import tarfile
import threading
import time

import pytest

from cordon import Sandbox, SandboxError

pytestmark = pytest.mark.full_tier("overlays and root file systems need tier full")


@pytest.fixture
def home(tmp_path, monkeypatch):
    made = tmp_path / "home"
    for place in (".local/state/cordon/writable", ".cache"):
        (made / place).mkdir(parents=True)
    for path in [tmp_path, made, *made.rglob("*")]:
        path.chmod(0o755)
    monkeypatch.setenv("HOME", str(made))
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    return made


WRITE = "for f in %s; do mkdir -p $(dirname $f); echo x > $f && echo wrote $f; done 2>/dev/null; true"


@pytest.mark.parametrize("variables", [{}, {"XDG_CACHE_HOME": "c", "XDG_STATE_HOME": "s"}])
def test_a_guest_cannot_write_what_later_runs_use(home, monkeypatch, variables):
    """Compiled programs, also where there are none yet, and notes about earlier runs, in a folder that is the guest's
    own otherwise."""
    places = [".cache/cordon", ".local/state/cordon/writable"]
    if variables:
        places = ["c/cordon", "s/cordon/writable"]
        for name, value in variables.items():
            monkeypatch.setenv(name, str(home / value))
            (home / value).mkdir()
        (home / "s/cordon/writable").mkdir(parents=True)
    with Sandbox(workspace=f"{home}:rw") as sandbox:
        files = " ".join(f"{place}/planted" for place in places)
        result = sandbox.run_command(["sh", "-c", WRITE % (files + " elsewhere/file")])
    assert result.stdout == "wrote elsewhere/file\n", result
    assert (home / "elsewhere/file").exists()
    for place in places:
        assert not (home / place / "planted").exists()


def test_an_archive_is_unpacked_where_the_caller_caches(home):
    archive = home / "root.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("etc/word")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"word\n"))
    with Sandbox(rootfs=str(archive)) as sandbox:
        result = sandbox.run_command(["/bin/true"])
    assert result.exit_code == 127, result  # there is no such program in it


def test_layers_lie_in_the_callers_temporary_folder(home, tmp_path, monkeypatch):
    (home / "project").mkdir()
    there = tmp_path / "temporary"
    there.mkdir()
    monkeypatch.setenv("TMPDIR", str(there))
    seen = set()
    with Sandbox(workspace=str(home / "project"), timeout=30) as sandbox:
        done = threading.Thread(target=sandbox.run_command, args=(["sleep", "1"],))
        done.start()
        while done.is_alive():
            seen.update(os.listdir(there))
            time.sleep(0.02)
        done.join()
    assert seen, "no layer was there while the guest ran"
    assert list(there.iterdir()) == []


def test_a_guest_cannot_move_the_way_to_them(home):
    """What is covered stays where it is: the folders above it cannot be put aside and made anew."""
    script = ("mv .cache c2; mv .local l2; mv -T .local/state .local/s2; mkdir a; mv a b;"
              "ls -d .cache .local/* b c2 l2 2>/dev/null; touch .cache/own && echo rw")
    with Sandbox(workspace=f"{home}:rw") as sandbox:
        result = sandbox.run_command(["sh", "-c", script])
    assert result.stdout == ".cache\n.local/state\nb\nrw\n", result


def test_a_folder_that_is_not_there_yet(home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "new" / "cache"))
    with Sandbox(workspace=f"{home}:rw") as sandbox:
        result = sandbox.run_command(["sh", "-c", WRITE % "new/cache/cordon/obj/x"])
    assert result.stdout == "", result
    monkeypatch.delenv("XDG_CACHE_HOME")
    with Sandbox(allow_write=[str(home / ".cache")]) as sandbox:
        result = sandbox.run_command(["sh", "-c", WRITE % f"{home}/.cache/cordon/x {home}/.cache/own"])
    assert result.stdout == f"wrote {home}/.cache/own\n", result


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    """A daemon's may be removed under it; what names no relative path works as with the command."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with monkeypatch.context() as here:
        here.chdir(gone)
        gone.rmdir()
        try:
            with Sandbox(discover=True) as sandbox:
                assert sandbox.run("print(1)").stdout == "1\n"
            for grant in ({"workspace": "."}, {"workspace": str(tmp_path), "keep": True}, {"output": "*=out"}):
                with Sandbox(**grant) as sandbox, pytest.raises(SandboxError, match="working directory is gone.*No such file"):
                    sandbox.run_command(["true"])
        finally:
            os.chdir("/")
    assert not os.path.exists("/(working directory is gone)")
