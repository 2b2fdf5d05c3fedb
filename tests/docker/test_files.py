"""Files in and out of a container: outputs, overlay workspaces, limits on what is written."""

import os
import subprocess
import tarfile

import pytest


@pytest.mark.both
def test_output(sh, folder):
    """From the guest's own folder, which ends with the container."""
    out = folder / "out"
    result = sh("mkdir -p a/b; echo deep >a/b/c.txt; echo top >t.txt; echo other >o.md; head -c 3000000 /dev/urandom >r.txt; "
                "sha256sum <r.txt; exit 4", "--output", f"*.txt={out}", "--output", f"a/**={out}")
    assert result.code == 4, result
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == {"t.txt", "r.txt", "a/b/c.txt"}
    assert (out / "a/b/c.txt").read_text() == "deep\n"
    assert subprocess.run(["sha256sum"], stdin=open(out / "r.txt", "rb"), capture_output=True, text=True,
                          check=True).stdout == result.out
    assert all(os.stat(p).st_uid == os.geteuid() for p in out.rglob("*"))
    assert {(o["path"], o["size"]) for o in result.result["outputs"]} == {("t.txt", 4), ("r.txt", 3000000), ("a/b/c.txt", 5)}


def test_output_of_a_hostile_guest(sh, folder):
    """Links lead nowhere, holes cost nothing, closed files are opened, endless depth ends."""
    out = folder / "out"
    (folder / "victim").write_text("mine")
    out.mkdir()
    (out / "link").symlink_to(folder / "victim")
    result = sh("ln -s /etc/passwd s; mkfifo f; truncate -s 1T huge; truncate -s 200M hole; echo c >closed; chmod 0 closed; "
                "mkdir d; echo in >d/in; chmod 0 d; echo gone >link; ln -s .. up; echo x >$'new\\nline'; "
                "for i in $(seq 300); do mkdir n; cd n; done; echo end >end; "
                "python3 -c 'import socket; socket.socket(1).bind(\"sock\")' 2>/dev/null; exit 0",
                "--output", f"**={out}", "--time-limit", "60s")
    assert result.verdict == "ok", result
    rows = {o["path"]: o.get("skipped") for o in result.result["outputs"]}
    assert rows["s"] == "symlink" and rows["f"] == "fifo" and rows["huge"] == "too large" and rows["hole"] is None
    assert rows["closed"] is None and rows["d/in"] is None and rows["up"] == "symlink" and rows["new\nline"] is None
    assert (out / "closed").read_text() == "c\n" and os.stat(out / "hole").st_blocks < 2000
    assert (folder / "victim").read_text() == "mine" and not (out / "link").is_symlink()
    assert not any(os.path.islink(p) for p in out.rglob("*"))


def test_output_after_limits(sh, folder):
    """What was there when time was up comes out; a guest near its limit is not held against its files."""
    out = folder / "out"
    result = sh("echo early >f; sleep 60", "--time-limit", "1s", "--output", f"f={out}")
    assert result.verdict == "time_limit" and (out / "f").read_text() == "early\n", result
    result = sh("head -c 100M /dev/zero >big; echo done", "--time-limit", "20s", "--output", f"big={out}")
    assert result.verdict == "ok" and (out / "big").stat().st_size == 100 << 20


def test_output_that_is_more_than_its_files(sh, folder):
    """Holes stay holes; one file under many names is many files outside, and the guest's own limit."""
    out = folder / "out"
    result = sh("python3 -c 'import os\nf = open(\"h\", \"wb\")\n"
                "for i in range(2000): os.pwrite(f.fileno(), b\"x\", i << 20)'",
                "--output", f"h={out}", "--disk-limit", "40M", "--time-limit", "60s")
    assert result.verdict == "ok" and (out / "h").stat().st_size == (1999 << 20) + 1, result
    assert (out / "h").stat().st_blocks * 512 < 40 << 20
    result = sh("head -c 30M /dev/urandom >f; for i in $(seq 40); do ln f l$i; done; echo made",
                "--output", f"f={out}", "--disk-limit", "40M", "--time-limit", "60s")
    assert result.verdict == "disk_limit" and result.out == "made\n", result
    assert result.result["limit"] == {"name": "disk_limit", "value": "40M"}
    result = sh("head -c 30M /dev/urandom >f; ln f g", "--output", f"f={out}", "--disk-limit", "70M", "--time-limit", "60s")
    assert result.verdict == "ok" and (out / "f").stat().st_size == 30 << 20, result


def test_output_of_a_workspace(sh, folder):
    """The host's own folder, written or not."""
    ws, out = folder / "ws", folder / "out"
    ws.mkdir()
    out.mkdir()
    for mode in ("rw", "overlay"):
        result = sh("echo made >made.txt", "--workspace", f"{ws}:{mode}", "--output", f"*.txt={out}/{mode}", cwd=str(folder))
        assert result.verdict == "ok" and (out / mode / "made.txt").read_text() == "made\n", result
    assert (ws / "made.txt").exists()


def test_output_of_a_workspace_in_whose_place_is_a_link(sh, folder):
    """A folder above it is the guest's to write: what is taken out is what was granted."""
    top, secret, out = folder / "top", folder / "secret", folder / "out"
    for path in (top, top / "ws", secret):
        path.mkdir()
    for path in (top, top / "ws"):
        path.chmod(0o777)
    (secret / "s.txt").write_text("secret")
    result = sh(f"echo made >made.txt; cd {top} && mv ws old && ln -s {secret} ws && echo swapped", "--workspace", f"{top}/ws:rw",
                "--allow-write", str(top), "--output", f"*.txt={out}", cwd=str(folder))
    assert result.out == "swapped\n" and (top / "ws").is_symlink(), result
    assert [p.name for p in out.iterdir()] == ["made.txt"], result


def test_output_to_a_descriptor(folder):
    import cordon_run
    from conftest import environment
    with open(folder / "o.tar", "wb") as f:
        done = subprocess.run([cordon_run.CORDON, "run", "--backend", "docker", "--output", f"*=fd:{f.fileno()}", "--", "bash", "-c",
                               "echo 1 >one"], env=cordon_run.host_env(environment()), pass_fds=[f.fileno()], timeout=120, check=False)
    assert done.returncode == 0 and tarfile.open(folder / "o.tar").getnames() == ["one"]


@pytest.mark.both
def test_overlay_workspace(sh, folder):
    ws = folder / "ws"
    ws.mkdir()
    (ws / "a.txt").write_text("one\n")
    (ws / "b.txt").write_text("b\n")
    result = sh("pwd; cat a.txt; stat -c %U a.txt; echo two >a.txt; rm b.txt; echo new >c.txt", "--workspace", str(ws),
                cwd=str(folder))
    assert result.verdict == "ok" and result.out == "/workspace\none\nsandbox\n", result
    assert {(f["path"], f["kind"]) for f in result.result["changed_files"]} == {
        ("a.txt", "modified"), ("b.txt", "deleted"), ("c.txt", "added")}
    assert "+two" in result.result["diff"] and result.result["enforcement"]["backend"] == "docker"
    assert (ws / "a.txt").read_text() == "one\n" and (ws / "b.txt").exists() and not (ws / "c.txt").exists()


def test_kept_workspace(cordon, folder):
    ws = folder / "ws"
    ws.mkdir()
    (ws / "a.txt").write_text("one\n")

    def workspace(*words):
        done = cordon("workspace", *words, cwd=str(folder))
        assert done.returncode == 0, done
        return done.stdout
    name = workspace("new", "--from", str(ws)).split()[-1]
    workspace("run", name, "--backend", "docker", "--", "bash", "-c", "echo two >a.txt")
    workspace("run", name, "--backend", "docker", "--", "bash", "-c", "cat a.txt >b.txt")
    diff = workspace("diff", name)
    assert "+two" in diff and "b.txt" in diff and (ws / "a.txt").read_text() == "one\n"
    workspace("apply", name)
    assert (ws / "a.txt").read_text() == (ws / "b.txt").read_text() == "two\n"
    workspace("rm", name)
    name = workspace("new", "--from", str(ws)).split()[-1]
    workspace("run", name, "--", "bash", "-c", "echo three >a.txt")  # in an overlay, which no engine mounts
    done = cordon("workspace", "run", name, "--backend", "docker", "--", "true", cwd=str(folder))
    assert done.returncode in (0, 69) and (done.returncode == 0 or "overlay" in done.stderr), done
    assert "+three" in workspace("diff", name)
    workspace("rm", name)


def test_disk_limit(sh):
    """One folder by its size, all together by looking."""
    for script in ("head -c 30M /dev/zero >/tmp/f", "for d in /tmp ~ /dev/shm; do head -c 9M /dev/zero >$d/f; done; sleep 5"):
        result = sh(script, "--disk-limit", "20M", "--time-limit", "60s")
        assert result.verdict == "disk_limit" and result.code == 122, result
        assert result.result["limit"] == {"name": "disk_limit", "value": "20M"}
    result = sh("for d in /tmp ~ /dev/shm; do head -c 5M /dev/zero >$d/f; done", "--disk-limit", "20M")
    assert result.verdict == "ok", result


def test_disk_limit_of_a_workspace(sh, folder):
    """A host folder is looked at from outside."""
    result = sh("head -c 60M /dev/zero >f; sleep 20", "--workspace", f"{folder}:rw", "--disk-limit", "20M", "--time-limit", "60s")
    assert result.verdict == "disk_limit" and result.result["wall_ms"] < 19000, result


def test_max_files(sh):
    for script in ("cd /tmp; for i in $(seq 30); do : >$i || exit 1; done",
                   "for d in /tmp ~ /dev/shm; do for i in $(seq 8); do : >$d/$i; done; done; sleep 5"):
        result = sh(script, "--max-files", "20", "--time-limit", "60s")
        assert result.verdict == "disk_limit" and result.result["limit"]["name"] == "max_files", result
    assert sh("cd /tmp; for i in $(seq 15); do : >$i || exit 1; done", "--max-files", "20").verdict == "ok"


def test_shared_memory_is_bounded(sh):
    """Size and inodes, as those of /tmp."""
    result = sh("df -B1 --output=size,itotal /tmp /home/sandbox /dev/shm | tail -3 | sort -u | wc -l; "
                "grep -c '/dev/shm tmpfs rw,nosuid,nodev' /proc/mounts")
    assert result.out == "1\n1\n", result
