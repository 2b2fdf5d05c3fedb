"""cordon.workspace: actions, diffs that git takes, hostile trees, logs, configuration."""

import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from cordon import _lib
from cordon.workspace import SandboxConfig, TestResult, apply_action, cleanup, prepare_workspace, run_tests


@pytest.fixture
def home():
    """Outside /tmp, which inside is the guest's own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cordon-ws-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


workspaces = pytest.mark.full_tier("a workspace at /workspace")


@pytest.fixture
def config(home):
    return SandboxConfig(work_root=str(home / "work"), logs_dir=str(home / "logs"))


def sh(workspace, config, text, **more):
    return apply_action(workspace, {"command": ["sh", "-c", text], **more}, config=config)


@workspaces
def test_action(home, config):
    workspace = prepare_workspace("t1", {"a.txt": "1\n2\n", "b/c.py": "x = 1\n"}, config=config)
    assert workspace == home / "work" / "t1" and (workspace / "b/c.py").read_text() == "x = 1\n"
    result = sh(workspace, config, "pwd; cat; echo $NAME; echo 3 >> a.txt; rm b/c.py; echo no >&2; exit 3", stdin="in\n",
                env={"NAME": "v", "HTTP_PROXY": "x"})
    assert (result.stdout, result.stderr, result.exit_code) == ("/workspace\nin\nv\n", "no\n", 3)
    assert result.changed_files == ["a.txt", "b/c.py"] and "+3\n" in result.diff and result.error is None
    assert result.duration_sec > 0 and not result.timed_out
    text = sh(workspace, config, "env").stdout
    assert "NO_PROXY=*" in text and "HTTP_PROXY" not in text
    cleanup(workspace, config=config)
    assert not workspace.exists()
    cleanup(workspace, config=config)
    lines = [json.loads(line) for line in (home / "logs/t1.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["prepare", "action", "action", "cleanup", "cleanup"]
    assert set(lines[1]) == {"event", "timestamp", "task_id", "cmd", "exit_code", "duration_sec", "error", "changed_files",
                             "diff_len"}
    assert lines[1]["exit_code"] == 3 and lines[1]["diff_len"] == len(result.diff) and "in\\n" not in json.dumps(lines[1])


@workspaces
def test_refused_and_missing_commands(config):
    workspace = prepare_workspace("t", {}, config=config)
    result = apply_action(workspace, {"command": ["rm", "-rf", "/"]}, config=config)
    assert result.exit_code != 0 and result.error == "command not allowed: rm"
    assert apply_action(workspace, {"command": ["/bin/sh"]}, config=config).error
    result = apply_action(workspace, {"command": ["ast-grep"]}, config=config)
    assert result.exit_code == 127 and "not found" in result.error


@workspaces
def test_limits(config):
    workspace = prepare_workspace("t", {}, config=config)
    result = sh(workspace, config, "sleep 20", timeout=0.3)
    assert result.timed_out and result.exit_code == 124 and "time limit" in result.error


@workspaces
def test_output_that_is_not_utf_8(config):
    """It stays readable: nothing in the result could say that it is base64."""
    workspace = prepare_workspace("t", {}, config=config)
    result = sh(workspace, config, r"printf 'a\377\303\251'; printf '\376\n' >&2")
    assert (result.stdout, result.stderr) == ("a\\xffé", "\\xfe\n")
    result = sh(workspace, config, r"printf 'a\303\251'")
    assert (result.stdout, result.stderr) == ("aé", "")


@workspaces
def test_tests(config):
    files = {"test_a.py": "def test_a():\n    assert 1\n"}
    result = run_tests(prepare_workspace("t", files, config=config), {}, config=config)
    assert isinstance(result, TestResult) and result.passed and result.changed_files == [] and "1 passed" in result.stdout
    files["test_a.py"] = "def test_a():\n    assert 0\n"
    assert not run_tests(prepare_workspace("t", files, config=config), config=config).passed
    assert run_tests(prepare_workspace("t", {}, config=config), {"command": ["sh", "-c", "true"]}, config=config).passed


@pytest.mark.parametrize("task_id", ["", "..", "a/b", ".hidden", "a\0", "x" * 200, "-x"])
def test_unsafe_ids(config, task_id):
    with pytest.raises(ValueError):
        prepare_workspace(task_id, {}, config=config)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../x", "", "a\0"])
def test_unsafe_names(home, config, name):
    with pytest.raises(ValueError):
        prepare_workspace("t", {name: ""}, config=config)
    assert not (home / "work/t").exists()


def test_wrong_calls(home, config):
    workspace = prepare_workspace("t", {}, config=config)
    for action in ({}, {"command": "ls"}, {"command": []}, {"command": ["sh"], "cwd": "/"}, ["sh"]):
        with pytest.raises((TypeError, ValueError)):
            apply_action(workspace, action, config=config)
    for wrong in (home, "/etc", home / "work/t/..", home / "work/none"):
        with pytest.raises(ValueError):
            apply_action(wrong, {"command": ["sh"]}, config=config)
    (home / "work/link").symlink_to("/etc")
    with pytest.raises(ValueError):
        cleanup(home / "work/link", config=config)
    for wrong in ({"enable_jail": False}, {"jailer": "none"}, {"mem_limit_mb": -1}, {"default_timeout_sec": 0},
                  {"default_timeout_sec": "abc"}, {"cpu_time_sec": ""}):
        with pytest.raises(ValueError):
            SandboxConfig(**wrong)


def test_folders_of_others_stay(home):
    """Only what Cordon made is removed for a new workspace."""
    (home / "src/deep").mkdir(parents=True)
    (home / "src/deep/main.c").write_text("mine")
    (home / "notes").write_text("mine")
    (home / "empty").mkdir()
    config = SandboxConfig(work_root=str(home), logs_dir=str(home / "logs"))
    for task_id in ("src", "notes"):
        for call in (lambda: prepare_workspace(task_id, {"a": "1"}, config=config),
                     lambda: cleanup(home / task_id, config=config)):
            with pytest.raises(ValueError, match=f"{home}/{task_id} is not empty and was not made by Cordon.*rm --force"):
                call()
    assert (home / "src/deep/main.c").read_text() == (home / "notes").read_text() == "mine"
    for _ in range(2):
        assert (prepare_workspace("empty", {"a": "1"}, config=config) / "a").read_text() == "1"
    workspace = prepare_workspace("task", {"a": "1"}, config=config)
    assert os.listdir(prepare_workspace("task", {"b": "2"}, config=config)) == ["b"]
    cleanup(workspace, config=config)
    workspace.mkdir()
    (workspace / "a").write_text("mine")
    with pytest.raises(ValueError, match="not made"):
        prepare_workspace("task", {}, config=config)
    with pytest.raises(ValueError, match="not made"):
        cleanup(workspace, config=config)
    # what counts is the mark: neither the log, nor that the root has Cordon's own name
    own = SandboxConfig(work_root=str(home / ".sandbox"), logs_dir=str(home / "other"))
    workspace = prepare_workspace("t", {"a": "1"}, config=own)
    shutil.rmtree(home / "other")
    assert os.listdir(prepare_workspace("t", {"b": "1"}, config=own)) == ["b"]
    shutil.rmtree(home / ".sandbox/.meta")  # as an earlier version left it
    with pytest.raises(ValueError, match="not made"):
        cleanup(workspace, config=own)
    subprocess.run([_lib.program(), "workspace", "--work-root", own.work_root, "rm", "--force", "t"], cwd=home, check=True)
    assert os.listdir(home / ".sandbox") == []


def test_many_make_and_remove_the_same(home, config):
    """Whoever comes last has it; nobody finds a tree in use, or somebody else's, that is only being made."""
    def turn(number):
        for i in range(25):
            workspace = prepare_workspace(f"t{i % 2}", {"f": "1", "d/e": "2"}, config=config)
            if (number + i) % 3:
                cleanup(workspace, config=config)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(turn, range(6)))
    for name in ("t0", "t1"):
        cleanup(home / "work" / name, config=config)
    assert os.listdir(home / "work") == []


def test_root_that_is_empty(monkeypatch):
    for wrong in ({"work_root": ""}, {"logs_dir": ""}, {"work_root": "a\0"}):
        with pytest.raises(ValueError):
            SandboxConfig(**wrong)
    monkeypatch.setenv("CORDON_WORKSPACE_WORK_ROOT", "")
    with pytest.raises(ValueError, match="work_root is empty"):
        SandboxConfig.load()
    assert SandboxConfig(work_root=pathlib.Path("x")).work_root == "x"


@workspaces
def test_hostile_trees(home, config):
    """Links, FIFOs, modes, depth: nothing is followed, opened or left."""
    (home / "secret").write_text("secret")
    workspace = prepare_workspace("t", {"f": "x"}, config=config)
    result = sh(workspace, config, f"ln -s {home}/secret link; ln -s {home} dir; mkfifo fifo; mkdir shut; touch shut/x; "
                                   "chmod 000 shut; rm f; ln -s /etc/passwd f; chmod +s . 2>/dev/null; mkdir -p .git/hooks; "
                                   "echo x > .git/hooks/pre-commit")
    assert "secret\n" not in result.diff.replace(f"{home}/secret", "") and "root:" not in result.diff
    assert {"link", "dir", "fifo", "f"} <= set(result.changed_files) and ".git" not in result.diff
    deep = "import os\nfor i in range(2100):\n    os.mkdir('d')\n    os.chdir('d')\n"
    result = apply_action(workspace, {"command": ["python3", "-c", deep]}, config=config)
    assert "not every change" in result.error
    started = time.monotonic()
    cleanup(workspace, config=config)
    assert os.listdir(home / "work") == [] and time.monotonic() - started < 20
    assert (home / "secret").read_text() == "secret"


@workspaces
@pytest.mark.parametrize("mode", ["000", "400", "300", "600"])
def test_closed_folders_spoil_no_diff(config, mode):
    """What a guest closed is opened up for the look, and is closed again when the next command starts."""
    workspace = prepare_workspace("t", {"f": "1\n", "shut/x": "1\n", "file": "1\n"}, config=config)
    result = sh(workspace, config, f"chmod 0 file; chmod {mode} shut; echo 2 > f")
    assert result.changed_files == ["f", "file"] and result.error is None
    result = sh(workspace, config, "stat -c %a shut; echo 3 > f")
    assert (result.stdout.strip().zfill(3), result.changed_files, result.error) == (mode, ["f"], None)
    assert result.diff.endswith("-2\n+3\n")
    result = sh(workspace, config, f"chmod 700 shut; echo 4 > shut/x; echo 4 > shut/new; chmod {mode} shut")
    assert result.changed_files == ["shut/new", "shut/x"] and "-1\n+4\n" in result.diff and result.error is None
    result = sh(workspace, config, "chmod 700 shut; rm -r shut")
    assert result.changed_files == ["shut/new", "shut/x"] and result.diff.count("deleted file mode") == 2
    for _ in range(2):  # the top of it as well, as far as a command can still be started there
        result = sh(workspace, config, "date +%N > f; chmod 300 .")
        assert result.changed_files == ["f"] and result.error is None
    cleanup(workspace, config=config)


AS_NOBODY = """
import sys
from cordon.workspace import *
config = SandboxConfig(work_root=sys.argv[1] + "/work", logs_dir=sys.argv[1] + "/logs")
if sys.argv[2] == "prepare":
    prepare_workspace("t", {"f": "1\\n"}, config=config)
else:
    for script in ("echo 2 > f", "echo 3 > f; exec sleep 20"):
        result = apply_action(sys.argv[1] + "/work/t", {"command": ["sh", "-c", script], "timeout": 2}, config=config)
        print(result.changed_files, result.error, result.diff.count("\\n+"), sep="|")
"""


@workspaces
@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_folders_of_others_are_left_out_and_named(home, config):
    def run(what):
        return subprocess.run([sys.executable, "-c", AS_NOBODY, home, what], user=65534, group=65534, extra_groups=[], cwd="/",
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True, capture_output=True, text=True).stdout
    os.chown(home, 65534, 65534)
    run("prepare")
    (home / "work/t/shut/in").mkdir(parents=True, mode=0o700)
    (home / "work/t/shut").chmod(0o700)
    (home / "work/t/shut/x").write_text("1")
    (home / "work/t/odd\nname").mkdir(mode=0o700)
    plain, late = run("act").splitlines()
    words = '"odd\\nname" and 1 more cannot be read: what changed there is not in the diff'
    assert plain == f"['f']|{words}|2", plain
    assert late.startswith("['f']|") and "time limit" in late and late.endswith(f"; {words}|2"), late
    assert sh(home / "work/t", config, "echo 4 > f").error is None  # root reads everything


@workspaces
def test_prepare_replaces_what_a_guest_left(home, config):
    (home / "target").write_text("safe")
    workspace = prepare_workspace("t", {"f": "x"}, config=config)
    sh(workspace, config, f"rm f; ln -s {home}/target f; ln -s {home} sub")
    workspace = prepare_workspace("t", {"f": "new", "sub/x": "y"}, config=config)
    assert (home / "target").read_text() == "safe" and not (home / "x").exists()
    assert (workspace / "f").read_text() == "new" and not (workspace / "f").is_symlink()


def test_configuration(home, monkeypatch):
    monkeypatch.chdir(home)
    assert SandboxConfig.load() == SandboxConfig()
    monkeypatch.setenv("CORDON_WORKSPACE_MEM_LIMIT_MB", "64")
    monkeypatch.setenv("CORDON_WORKSPACE_ALLOWED_BINARIES", "sh, make")
    assert SandboxConfig.load().mem_limit_mb == 64 and SandboxConfig.load().allowed_binaries == ("sh", "make")
    pytest.importorskip("yaml", reason="needs the Debian package python3-yaml")
    (home / "configs").mkdir()
    (home / "configs/sandbox.yaml").write_text("work_root: elsewhere\nmem_limit_mb: 32\nallowed_binaries: [sh]\n")
    assert SandboxConfig.load().work_root == "elsewhere" and SandboxConfig.load().mem_limit_mb == 64
    (home / "configs/sandbox.yaml").write_text("surprise: 1\n")
    with pytest.raises(ValueError, match="surprise"):
        SandboxConfig.load()
    with pytest.raises(FileNotFoundError):
        SandboxConfig.load(home / "none.yaml")


# ---- patches ------------------------------------------------------------------------------------

def random_tree(rng):
    """name: (is a link, executable, bytes)"""
    found = {}
    for _ in range(rng.randrange(8)):
        name, kind = rng.choice(["a", "b c", "d/e", "ü", 'q"', "t\tb", "z\nn", "-x"]), rng.random()
        if kind < 0.7:
            lines = [rng.choice(["x\n", "y\n", "zz\n", "\r\n", "é", "\x0c\n"]) for _ in range(rng.randrange(40))]
            found[name] = (False, rng.random() < 0.3, "".join(lines).encode())
        elif kind < 0.85:
            found[name] = (False, False, rng.randbytes(rng.randrange(300)))
        else:
            found[name] = (True, False, b"to-" + bytes([97 + rng.randrange(9)]))
    return found


PUT = """
import os, shutil, sys
for name in os.listdir("."):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
for name, (link, executable, data) in eval(sys.stdin.read()).items():
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    if link:
        os.symlink(data, name)
        continue
    with open(name, "wb") as file:
        file.write(data)
    os.chmod(name, 0o755 if executable else 0o644)
"""


def look(top):
    found = {}
    for folder, folders, names in os.walk(top):
        for name in names + [one for one in folders if os.path.islink(os.path.join(folder, one))]:
            path = pathlib.Path(folder, name)
            link = path.is_symlink()
            found[str(path.relative_to(top))] = (link, not link and bool(path.stat().st_mode & 0o100),
                                                 os.fsencode(os.readlink(path)) if link else path.read_bytes())
    return found


@workspaces
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_takes_every_patch(home, config):
    rng = random.Random(11)
    workspace = prepare_workspace("t", {}, config=config)
    original = home / "original"
    for _ in range(12):
        shutil.rmtree(original, ignore_errors=True)
        shutil.copytree(workspace, original, symlinks=True)
        new = random_tree(rng)
        result = apply_action(workspace, {"command": ["python3", "-c", PUT], "stdin": repr(new)}, config=config)
        assert result.exit_code == 0 and result.error is None, result
        assert look(workspace) == new and bool(result.diff) == bool(result.changed_files)
        if result.diff:
            run = subprocess.run(["git", "apply", "-"], input=result.diff.encode(), cwd=original, capture_output=True)
            assert run.returncode == 0, run.stderr
        assert look(original) == new


@workspaces
def test_many_threads_one_workspace(config):
    """Commands in one workspace take turns; each has its own change in its diff and no other's."""
    workspace = prepare_workspace("t", {}, config=config)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: sh(workspace, config, f"echo {i} > f{i}"), range(8)))
    assert [result.changed_files for result in results] == [[f"f{i}"] for i in range(8)]


@workspaces
def test_allowed_names_are_looked_up_once(config):
    """A file of the workspace never stands for an allowed name, whatever PATH says."""
    workspace = prepare_workspace("t", {"sh": "#!/bin/bash\necho mine\n"}, config=config)
    sh(workspace, config, "chmod +x sh")
    result = sh(workspace, config, "echo system", env={"PATH": "/workspace:/usr/bin:/bin"})
    assert result.stdout == "system\n"
    inner = sh(workspace, config, "exec env sh", env={"PATH": "/workspace:/usr/bin:/bin"})
    assert inner.stdout == "mine\n"  # the same file runs where the guest itself asks for it


@workspaces
def test_interrupt_ends_the_guest(home, config):
    """Ctrl-C comes through while a command runs, and the workspace is free again."""
    prepare_workspace("t", {}, config=config)
    code = ("import sys\nfrom cordon.workspace import *\n"
            f"config = SandboxConfig(work_root={config.work_root!r}, logs_dir={config.logs_dir!r})\n"
            f"apply_action({config.work_root!r} + '/t', {{'command': ['sh', '-c', 'touch begun; sleep 60']}}, config=config)\n")
    # who runs this in the background may ignore the signal, and that is handed down
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    deadline = time.monotonic() + 30
    while not (home / "work/t/begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=30)[1]
    assert sh(home / "work/t", config, "echo free").stdout == "free\n"
    assert sorted(os.listdir(home / "work")) == [".meta", "t"]
