"""Grants and virtual files (contract, section 2): names, denials, what cannot be granted."""

import fcntl
import os
import shutil
import pathlib
import socket

import pytest

from cordon_run import SLOW, cordon, run, start


def cat(*paths, opts=()):
    return run(*opts, "--", "/bin/cat", *map(str, paths))


def test_virtual_files_are_there_to_open(full, shared):
    (shared / "data.bin").write_bytes(bytes(range(256)))
    (shared / "tool").write_text("#!/bin/sh\necho ran\n")
    os.chmod(shared / "tool", 0o755)
    r = run("--file", f"deep/down/data={shared}/data.bin", "--file", f"tool={shared}/tool", "--", "/bin/sh", "-c",
            "wc -c < deep/down/data; ./tool; pwd")
    assert r.out.split() == ["256", "ran", "/home/sandbox"], str(r)


@pytest.mark.parametrize("name", ["../x", "/x", "", ".", "a/../../x", "a/", "./x", "a//b"])
def test_unsafe_names_of_virtual_files(shared, name):
    (shared / "f").write_text("x")
    r = run("--file", f"{name}={shared}/f", "--", "/bin/true", as_json=False)
    assert r.code in (64, 78), str(r)


@pytest.mark.parametrize("backend", ["native", "oci"])
@pytest.mark.parametrize("where", ["workspace", "workspace:rw", "mount"])
def test_files_are_put_in_through_no_link(full, shared, world, where, backend):
    """A link in a workspace or a mount leads no file to a place of the host (of an image: test_images.py)."""
    if backend == "oci" and not (shutil.which("runc") and world.is_root):
        pytest.skip("needs runc, as root")
    outside, tree = shared / "outside", shared / "tree"
    outside.mkdir(mode=0o777)
    tree.mkdir()
    os.chmod(outside, 0o777)
    (shared / "in").write_text("text\n")
    (tree / "link").symlink_to(outside)
    (tree / "folder").mkdir()
    os.chmod(tree / "folder", 0o777)
    opts = ["--backend", backend]
    below = ""
    if where == "mount":
        opts += ["--mount", f"{tree}:/home/sandbox/sub:rw"]
        below = "sub/"
    else:
        opts += ["--workspace", str(tree) + where[len("workspace"):]]
    name = f"{below}link/file"
    r = run(*opts, "--file", f"{name}={shared}/in", "--", "/bin/true", as_json=False)
    assert not list(outside.iterdir()), str(r)
    if (where, backend) == ("mount", "oci"):  # there it is put below the mount, which covers it
        assert r.code == 0, str(r)
        return
    assert r.code == 78 and name in r.err and "Hint: " in r.err, str(r)
    # the twin: a folder in the place of the link
    name = f"{below}folder/file"
    r = run(*opts, "--file", f"{name}={shared}/in", "--", "/bin/cat", name, as_json=False)
    assert r.code == 0 and r.out == "text\n", str(r)


def test_a_fifo_is_no_file_to_put_in(shared):
    os.mkfifo(shared / "fifo")
    assert run("--file", f"x={shared}/fifo", "--", "/bin/true", as_json=False, timeout=10).code == 78


def test_denied_paths_win_inside_a_grant(full, shared):
    (shared / "open").mkdir()
    (shared / "open" / "a.txt").write_text("visible\n")
    (shared / "open" / "key.pem").write_text("hidden\n")
    (shared / "open" / "secret").mkdir()
    (shared / "open" / "secret" / "s").write_text("hidden\n")
    opts = ("--allow-read", shared, "--deny", f"{shared}/open/*.pem", "--deny", f"{shared}/open/secret/**")
    r = run(*opts, "--", "/bin/sh", "-c", f"cat {shared}/open/a.txt; cat {shared}/open/key.pem {shared}/open/secret/s; ls {shared}/open/secret")
    assert "visible" in r.out and "hidden" not in r.out
    assert "hidden" in cat(shared / "open" / "key.pem", opts=("--allow-read", shared)).out


def test_a_denied_folder_takes_grants_below_it_along(full, shared):
    (shared / "d").mkdir()
    (shared / "d" / "f").write_text("hidden\n")
    r = cat(shared / "d" / "f", opts=("--allow-read", shared / "d" / "f", "--deny", shared / "d"))
    assert "hidden" not in r.out
    assert "hidden" in cat(shared / "d" / "f", opts=("--allow-read", shared / "d" / "f")).out


@pytest.mark.parametrize("pattern", ["d/f", "d", "d/**", "link"])
def test_a_denied_file_is_not_put_in(shared, pattern):
    """Neither by its own name nor through a link; its neighbour is."""
    (shared / "d").mkdir()
    (shared / "d" / "f").write_text("hidden\n")
    (shared / "g").write_text("visible\n")
    os.symlink(shared / "d" / "f", shared / "link")
    for name in ("d/f", "link"):
        done = cordon("run", "--deny", shared / pattern, "--file", f"x={shared / name}", "--", "cat", "x")
        assert done.returncode == 78 and done.stdout == "" and "denied by" in done.stderr, done
    assert run("--deny", shared / pattern, "--file", f"x={shared / 'g'}", "--", "cat", "x").out == "visible\n"
    assert run("--file", f"x={shared / 'link'}", "--", "cat", "x").out == "hidden\n"


@pytest.mark.parametrize("path", ["/proc", "/dev", "/", "/dev/ptmx", "/proc/self", "/run", "/var/run", "/run/user"])
def test_what_exposes_the_host_is_not_granted(path):
    if not os.path.exists(path):
        pytest.skip(f"{path} does not exist here")
    assert run("--allow-read", path, "--", "/bin/true", as_json=False).code == 78


def test_sys_is_shown_by_its_own_name_and_to_look_at_only(shared):
    def look(path, *opts):
        return run(*opts, "--", "/bin/sh", "-c", f"cat {path}/uevent_seqnum; echo 1 > {path}/uevent_seqnum",
                   as_json=False)
    assert os.path.exists("/sys/kernel/uevent_seqnum")
    first = int(pathlib.Path("/sys/kernel/uevent_seqnum").read_text())
    assert look("/sys/kernel").out.strip() == "", "not without a grant"
    for grant in ("/sys", "/sys/kernel"):
        r = look("/sys/kernel", "--allow-read", grant)
        assert int(r.out) >= first and "cannot create" in r.log_text, str(r)
    (shared / "link").symlink_to("/sys/kernel")
    for opts in (["--allow-write", "/sys/kernel"], ["--allow-read", shared / "link"], ["--mount", "/sys/kernel:/tmp/k:rw"]):
        r = run(*opts, "--", "/bin/true", as_json=False)
        assert r.code == 78 and "/sys/PATH" in r.log_text, str(r)
    assert run("--backend", "oci", "--allow-read", "/sys/kernel", "--", "/bin/true", as_json=False).code == 69


def test_a_device_is_shown_by_its_own_name(full, shared):
    opens = "import os, sys; print(len(os.read(os.open(sys.argv[1], os.O_RDWR), 5)))"
    r = run("--mount", "/dev/zero:/tmp/of-the-host:rw", "--", "python3", "-c", opens, "/tmp/of-the-host")
    assert r.out == "5\n", str(r)
    assert "No such file" in run("--", "python3", "-c", opens, "/tmp/of-the-host").err
    (shared / "link").symlink_to("/dev/zero")
    for opts in (["--mount", "/dev/zero:/tmp/z:ro"], ["--mount", f"{shared}/link:/tmp/z:rw"], ["--allow-read", shared / "link"]):
        r = run(*opts, "--", "/bin/true", as_json=False)
        assert r.code == 78 and "--allow-write" in r.log_text, str(r)
    assert run("--backend", "oci", "--mount", "/dev/zero:/tmp/z:rw", "--", "/bin/true", as_json=False).code == 69


@pytest.mark.parametrize("option", ["--allow-read", "--allow-write"])
def test_devices_every_guest_has_need_no_grant(option):
    assert run(option, "/dev/null", option, "/dev/urandom", "--", "/bin/sh", "-c", "head -c 3 /dev/urandom > /dev/null").code == 0


def test_a_socket_is_granted_only_by_its_own_name(shared):
    """Not as part of a folder (test_links.py), not through a link, and not where no wall can show it."""
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(shared / "s"))
        (shared / "link").symlink_to("s")
        for opts in (["--allow-read", shared / "link"], ["--allow-write", shared / "link"], ["--mount", f"{shared}/link:/tmp/s"]):
            r = run(*opts, "--", "/bin/true", as_json=False)
            assert r.code == 78 and str(shared / "s") in r.log_text, str(r)
        assert run("--backend", "oci", "--allow-read", shared / "s", "--", "/bin/true", as_json=False).code == 69


def test_a_missing_grant_is_an_error_before_the_start(shared):
    r = run("--allow-read", shared / "nowhere", "--", "/bin/true", as_json=False)
    assert r.code == 78 and "nowhere" in r.log_text


def test_mounts_and_virtual_fs(full, shared):
    (shared / "f").write_text("x\n")
    r = run("--virtual-fs", "--mount", f"{shared}:/data", "--", "/bin/sh", "-c", f"cat /data/f; ls {shared}; echo y > /data/f")
    assert r.out == "x\n" and (shared / "f").read_text() == "x\n"
    assert run("--mount", f"{shared}:/data:rw", "--", "/bin/sh", "-c", "echo y > /data/f").verdict == "ok"
    assert (shared / "f").read_text() == "y\n"


def test_no_privilege_is_left_in_a_writable_grant(full, shared):
    r = run("--allow-write", shared, "--", "/usr/bin/python3", "-c",
            "import os, sys\nos.chdir(sys.argv[1])\nopen('f', 'w').close()\nfor mode in (0o4755, 0o2755, 0o6755):\n"
            "    try: os.chmod('f', mode); print('set')\n    except OSError: print('refused')\n"
            "for kind in (0o020000, 0o060000):\n    try: os.mknod('d%o' % kind, kind | 0o666, 0x103); print('made')\n    except OSError: print('refused')", shared)
    assert r.out.split() == ["refused"] * 5, str(r)
    assert sorted(p.name for p in shared.iterdir()) == ["f"] and (shared / "f").stat().st_mode & 0o6000 == 0
    assert (shared / "f").stat().st_uid == os.getuid()


# ---- collecting files ------------------------------------------------------------------------------

def outputs(r):
    return {o["path"]: o.get("skipped") for o in r.result["outputs"]}


@pytest.mark.parametrize("where", ["home", "overlay", "rw"])
def test_outputs_are_copied_out(full, shared, where):
    tree, out = shared / "tree", shared / "out"
    tree.mkdir()
    opts = () if where == "home" else ("--workspace", f"{tree}:{where}")
    r = run(*opts, "--output", f"*.csv={out}", "--output", f"plots/**={out}", "--output", f"a/*/c={out}", "--", "/bin/sh", "-c",
            "echo 1 > r.csv; echo 2 > no.txt; mkdir -p plots/deep a/b; echo 3 > plots/deep/p.png; echo 4 > a/b/c; echo 5 > a/c; chmod 755 r.csv")
    assert r.verdict == "ok", str(r)
    assert outputs(r) == {"r.csv": None, "plots/deep/p.png": None, "a/b/c": None}
    assert (out / "r.csv").read_text() == "1\n" and (out / "plots/deep/p.png").read_text() == "3\n" and (out / "a/b/c").read_text() == "4\n"
    assert (out / "r.csv").stat().st_uid == os.getuid() and not (out / "no.txt").exists()


def test_outputs_are_taken_also_after_a_limit(full, shared):
    r = run("--output", f"*={shared}", "--time-limit", f"{300 * SLOW}ms", "--", "/bin/sh", "-c", "echo partial > log; sleep 30")
    assert r.verdict == "time_limit" and (shared / "log").read_text() == "partial\n"


def test_only_regular_files_are_taken(full, shared, canary):
    out = shared / "out"
    r = run("--output", f"**={out}", "--", "/usr/bin/python3", "-c",
            "import os, socket, sys\nos.mkfifo('fifo')\nsocket.socket(socket.AF_UNIX).bind('sock')\nos.symlink(sys.argv[1] + '/secret.txt', 'leak')\n"
            "os.symlink('/etc', 'dir')\nos.symlink('f', 'own')\nopen('f', 'w').write('x')\nos.link('f', 'hard')\n"
            "with open('sparse', 'wb') as f: f.truncate(1 << 30); f.seek(1 << 29); f.write(b'end')", canary)
    assert r.verdict == "ok", str(r)
    assert outputs(r) == {"fifo": "fifo", "sock": "socket", "leak": "symlink", "dir": "symlink", "own": "symlink", "f": None, "hard": None, "sparse": None}
    assert sorted(p.name for p in out.iterdir()) == ["f", "hard", "sparse"]
    st = (out / "sparse").stat()
    assert st.st_size == 1 << 30 and st.st_blocks * 512 < 1 << 20
    assert (out / "f").stat().st_ino != (out / "hard").stat().st_ino


def test_outputs_do_not_follow_links_in_the_target(full, shared, canary):
    out = shared / "out"
    out.mkdir()
    os.symlink(canary, out / "d")
    os.symlink(canary / "secret.txt", out / "f")
    r = run("--output", f"**={out}", "--", "/bin/sh", "-c", "mkdir d; echo evil > d/planted; echo evil > f")
    assert outputs(r) == {"d/planted": "cannot be copied", "f": None}
    assert not (canary / "planted").exists() and (out / "f").read_text() == "evil\n" and not (out / "f").is_symlink()


SWAP = "cd {place}; mv {name} {name}.old; ln -s {canary} {name}; cd; echo evil > f"


@pytest.mark.parametrize("name", ["out", "above"])
def test_a_target_that_the_guest_replaces_by_a_link(full, shared, canary, name):
    """The guest may write to where outputs go: they go to the folder that was there when it began."""
    out = shared / "above" / "out" if name == "above" else shared / "out"
    out.mkdir(parents=True)
    before = sorted(os.listdir(canary))
    r = run("--allow-write", shared, "--output", f"f={out}", "--", "/bin/sh", "-c", SWAP.format(place=shared, name=name, canary=canary))
    assert r.verdict == "ok" and outputs(r) == {"f": None}, str(r)
    assert sorted(os.listdir(canary)) == before and (shared / name).is_symlink()
    moved = shared / f"{name}.old" / ("out" if name == "above" else "")
    assert (moved / "f").read_text() == "evil\n"


@pytest.mark.parametrize("plant", ["ln -s {canary} out", "touch out", "ln -s /nowhere out", "mkdir out", "true"])
def test_a_missing_target_is_made_when_the_guest_is_gone(full, shared, canary, plant):
    """The guest finds none, and what it puts there is no way to anywhere else, nor a failure of ours."""
    before = sorted(os.listdir(canary))
    r = run("--allow-write", shared, "--output", f"f={shared}/out", "--", "/bin/sh", "-c",
            f"cd {shared}; ls -A; {plant.format(canary=canary)}; cd; echo x > f")
    taken = plant in ("mkdir out", "true")
    assert (r.verdict, r.out) == ("ok", "") and outputs(r) == {"f": None if taken else "cannot be copied"}, str(r)
    assert sorted(os.listdir(canary)) == before and (not taken or (shared / "out" / "f").read_text() == "x\n")


def test_a_target_that_cannot_be_is_an_error_before_the_start(full, shared):
    r = run("--allow-write", shared, "--output", f"*={shared}/missing/out", "--", "/bin/sh", "-c", f"touch {shared}/ran")
    assert r.code == 78 and not (shared / "ran").exists()


@pytest.mark.parametrize("spoil", ["rmdir {above}", "mv {above} {above}.old", "chmod 500 {above}"])
def test_a_guest_that_spoils_the_place_of_a_missing_target_keeps_its_verdict(full, shared, spoil):
    above = shared / "above"
    above.mkdir()
    r = run("--allow-write", shared, "--output", f"f={above}/out", "--", "/bin/sh", "-c", f"{spoil.format(above=above)}; echo x > f; exit 3")
    taken = spoil.startswith("mv") or (spoil.startswith("chmod") and os.geteuid() == 0)
    assert (r.verdict, r.code) == ("nonzero_exit", 3) and outputs(r) == {"f": None if taken else "cannot be copied"}, str(r)


@pytest.mark.parametrize("path", ["out", "out/made"])
def test_a_target_that_cannot_be_written_to_is_an_error_before_the_start(full, shared, path):
    """There or to be made."""
    if os.geteuid() == 0:
        pytest.skip("needs an ordinary user: root writes everywhere")
    (shared / "out").mkdir(mode=0o500)
    r = run("--allow-write", shared, "--output", f"f={shared / path}", "--", "/bin/sh", "-c", f"echo x > f; touch {shared}/ran")
    assert r.code == 78 and b"Permission denied" in r.log and not (shared / "ran").exists(), str(r)


def test_a_huge_hole_is_too_large(full, shared):
    r = run("--output", f"*={shared}", "--", "/bin/sh", "-c", "truncate -s 1T huge; echo x > y")
    assert outputs(r) == {"huge": "too large", "y": None} and not (shared / "huge").exists()


@pytest.mark.parametrize("line, what", [
    ('allow_read = ["/etc", "/no/such"]', "2:23: /no/such"),
    ('allow_write = ["/no/such"]', "2:16: /no/such"),
    ('mounts = ["/no/such:/x"]', "2:11: /no/such"),
    ('workspace = "/no/such"', "2:13: /no/such"),
    ('workspace = "/no/such:ro"', "2:13: /no/such"),
])
def test_a_missing_grant_of_a_file_is_told_with_its_place(world, shared, line, what):
    """When the run starts, not when the file is read."""
    if line == 'workspace = "/no/such"' and not world.full:
        pytest.skip("an overlay needs tier full")
    (shared / "cordon.toml").write_text(f"[sandbox]\n{line}\n")
    os.chmod(shared, 0o755)
    assert cordon("explain", "--path", "/usr", cwd=str(shared)).returncode == 0
    done = cordon("run", "--", "/bin/true", cwd=str(shared))
    assert done.returncode == 78 and f"cordon.toml:{what}: No such file" in done.stderr, done.stderr


def temps(folder):
    return {p.name for p in folder.rglob(".cordon-output~*")}


def test_a_kill_between_two_names_leaves_nothing_for_long(full, shared, program):
    """Killed when the new file is whole and not yet in the old one's place."""
    out = shared / "out"
    (out / "d").mkdir(parents=True)
    (out / "d/f").write_text("old")
    words = ["--output", f"**={out}", "--", "/bin/sh", "-c", "mkdir d; echo new > d/f"]
    p = start(*words, prefix=[program("strace", "strace"), "-qqf", "-o", "/dev/null", "-e", "trace=renameat,renameat2",
                              "-e", "inject=renameat,renameat2:signal=KILL"])
    p.wait(timeout=60)
    assert p.returncode != 0 and (out / "d/f").read_text() == "old" and len(temps(out)) == 1
    assert outputs(run(*words)) == {"d/f": None}
    assert (out / "d/f").read_text() == "new\n" and not temps(out)


def test_only_what_nobody_writes_any_more_is_swept_away(full, shared):
    name = ".cordon-output~" + "abcdefghijk"
    for letter in "abc":
        (shared / (name + letter)).write_text("x")
    (shared / (name + "d")).mkdir()
    os.symlink("nowhere", shared / (name + "e"))
    (shared / ".cordon-output~notes").write_text("mine")
    os.chmod(shared / (name + "c"), 0)
    os.utime(shared / (name + "c"), (1, 1))
    with open(shared / (name + "b")) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert outputs(run("--output", f"*={shared}", "--", "/bin/sh", "-c", "echo x > f")) == {"f": None}
    assert temps(shared) == {name + "b", name + "d", name + "e", ".cordon-output~notes"} and (shared / "f").exists()


def test_outputs_as_one_archive_on_a_descriptor(full, tmp_path):
    """Regular files only, long and odd names, one archive for several patterns; nothing of it in a folder."""
    import io
    import tarfile
    script = ("import os; os.makedirs('deep/' + 'd' * 120); open('deep/' + 'd' * 120 + '/f', 'w').write('long');"
              "open('a\\nb', 'w').write('x'); open('run.sh', 'w').write('#!'); os.chmod('run.sh', 0o755);"
              "os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe'); open('empty', 'w');"
              "open('block', 'wb').write(b'z' * 512); open('big', 'wb').write(os.urandom(200000))")
    target = tmp_path / "out.tar"
    with open(target, "wb") as out:
        fd = out.fileno()
        r = run("--output", f"deep/**=fd:{fd}", "--output", f"*=fd:{fd}", "--", "/usr/bin/python3", "-c", script,
                pass_fds=[fd])
    assert r.verdict == "ok", str(r)
    with tarfile.open(fileobj=io.BytesIO(target.read_bytes())) as archive:
        names = {m.name: m for m in archive.getmembers()}
        assert set(names) == {"deep/" + "d" * 120 + "/f", "a\nb", "run.sh", "empty", "block", "big"}
        assert all(m.isreg() for m in names.values())
        assert names["run.sh"].mode == 0o755 and names["big"].size == 200000
        assert archive.extractfile("block").read() == b"z" * 512
    skipped = {row["path"] for row in r.result["outputs"] if row.get("skipped")}
    assert {"link", "pipe"} <= skipped


def test_outputs_to_descriptors_are_checked_first(full, tmp_path):
    for words in (["--output", "*=fd:77"], ["--output", "*=fd:"], ["--output", "*=fd:x"]):
        done = cordon("run", *words, "--", "/bin/true")
        assert done.returncode in (64, 78) and "fd:" in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["{}", "{}/x", "x/{}"])
def test_a_name_that_no_file_system_takes_is_the_callers(shared, name):
    """255 bytes are one part's most."""
    (shared / "f").write_text("text")
    fits = name.format("n" * 255)
    assert run("--file", f"{fits}={shared / 'f'}", "--", "/bin/cat", fits).out == "text"
    r = run("--file", f"{name.format('n' * 256)}={shared / 'f'}", "--", "/bin/true")
    assert r.code == 78 and r.result["error"].startswith("files: ") and r.result["verdict"] == "sandbox_error", r
