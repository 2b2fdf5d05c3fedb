"""Workspaces (contract, section 11): what a guest changes, how it is told, how it gets to the host."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

import pytest

from cordon_run import CORDON, PATIENCE, cordon, host_env, run, start

pytestmark = pytest.mark.usefixtures("full")


@pytest.fixture
def project(shared):
    """A small tree of the caller's own, and a place beside it to call Cordon from."""
    tree = shared / "project"
    (tree / "sub").mkdir(parents=True)
    (tree / "a.txt").write_text("one\ntwo\n")
    (tree / "sub" / "b.txt").write_text("b\n")
    (tree / "gone.txt").write_text("gone\n")
    (tree / "tool").write_text("#!/bin/sh\necho tool\n")
    os.chmod(tree / "tool", 0o755)
    os.symlink("a.txt", tree / "link")
    return tree


def picture(tree):
    """Everything about a tree that a guest could have changed."""
    found = {}
    for at, dirs, files in os.walk(tree):
        for name in dirs + files:
            path = os.path.join(at, name)
            st = os.lstat(path)
            data = os.readlink(path) if stat.S_ISLNK(st.st_mode) else (
                hashlib.sha1(open(path, "rb").read()).hexdigest() if stat.S_ISREG(st.st_mode) else "")
            found[os.path.relpath(path, tree)] = (stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_mtime_ns if stat.S_ISREG(st.st_mode) else 0, data)
    return found


def sh(tree, script, *opts, **kw):
    return run("--workspace", f"{tree}:overlay", *opts, "--", "/bin/sh", "-c", script, **kw)


def kinds(r):
    return {c["path"]: c["kind"] for c in r.result["changed_files"]}


def on_terminal(*words, cwd, env):
    """What a terminal is sent: a few lines, which it holds until they are read."""
    near, far = os.openpty()
    try:
        subprocess.run([CORDON, *words], stdin=subprocess.DEVNULL, stdout=far, env=host_env(env),
                       cwd=cwd, timeout=60, check=True)
        return os.read(near, 65536).decode()
    finally:
        os.close(near)
        os.close(far)


def ws(*words, cwd, code=0):
    done = cordon("workspace", *words, cwd=str(cwd))
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def ws_run(ident, script, cwd):
    done = ws("run", ident, "--json", "--", "/bin/sh", "-c", script, cwd=cwd)
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def own_tmp(shared, monkeypatch):
    """A temporary folder of the case's own: what others leave in the common ones is not its business."""
    (shared / "tmp").mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(shared / "tmp"))


def leftovers():
    return list(pathlib.Path(os.environ["TMPDIR"]).iterdir())


def git_apply(tree, diff):
    done = subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff.encode(), cwd=tree, capture_output=True,
                          env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)})
    assert done.returncode == 0, done.stderr.decode()


# ---- one run ---------------------------------------------------------------------------------------

def test_the_hosts_tree_stays_as_it_is(project):
    before = picture(project)
    r = sh(project, "echo three >> a.txt; rm gone.txt; mv sub moved; chmod +x a.txt; ln -sf tool link; mkdir -p new/deep; echo n > new/deep/f; cat a.txt")
    assert r.verdict == "ok", str(r)
    assert r.out == "one\ntwo\nthree\n"
    assert r.layers["workspace"] in ("overlay", "copy")
    assert kinds(r) == {"a.txt": "modified", "gone.txt": "deleted", "sub/b.txt": "deleted", "moved/b.txt": "added",
                        "link": "symlink", "new/deep/f": "added"}
    assert picture(project) == before
    assert not leftovers()


def test_git_apply_takes_the_diff(project, shared):
    r = sh(project, r"echo three >> a.txt; rm gone.txt; chmod -x tool; rm link; mkdir link; echo x > link/x; printf '\000\001\377' > bin; "
                    r"printf 'crlf\r\n' > 'odd name'; printf 'no newline' > \"q\\\"uote\"; : > empty; ln -s 'a b' 'l k'")
    assert r.verdict == "ok", str(r)
    copy = shared / "copy"
    shutil.copytree(project, copy, symlinks=True)
    git_apply(copy, r.result["diff"])
    assert (copy / "a.txt").read_text() == "one\ntwo\nthree\n" and not (copy / "gone.txt").exists()
    assert (copy / "bin").read_bytes() == b"\0\1\377" and (copy / "odd name").read_bytes() == b"crlf\r\n"
    assert (copy / "empty").read_bytes() == b"" and os.readlink(copy / "l k") == "a b" and (copy / "link" / "x").exists()
    assert not os.access(copy / "tool", os.X_OK) or os.geteuid() == 0 and not (copy / "tool").stat().st_mode & 0o100


def test_nothing_changed_is_said(project):
    r = sh(project, "cat a.txt > /dev/null; touch a.txt; echo two >> a.txt; printf 'one\\ntwo\\n' > a.txt")
    assert r.result["changed_files"] == [] and r.result["diff"] == ""


def test_overlay_is_the_default_mode(project):
    r = run("--workspace", project, "--", "/bin/sh", "-c", "pwd; echo x > x")
    assert r.out == "/workspace\n" and r.result["changed_files"] == [{"path": "x", "kind": "added"}] and not (project / "x").exists()


def test_rw_writes_through_and_ro_refuses(project):
    assert run("--workspace", f"{project}:rw", "--", "/bin/sh", "-c", "echo x > x").verdict == "ok"
    assert (project / "x").read_text() == "x\n" and (project / "x").stat().st_uid == os.getuid()
    assert run("--workspace", f"{project}:ro", "--", "/bin/sh", "-c", "echo y > y").code != 0
    assert not (project / "y").exists()


def test_a_foreign_group_means_a_copy(project):
    groups = [g for g in os.getgroups() if g != os.getegid()] if os.geteuid() else [12345]
    if not groups:
        pytest.skip("needs a second group of the caller's")
    os.chown(project / "a.txt", -1, groups[0])
    before = picture(project)
    r = sh(project, "echo three >> a.txt; rm sub/b.txt; touch -d 2001-01-01 a.txt")
    assert r.verdict == "ok" and r.layers["workspace"] == "copy", str(r)
    assert kinds(r) == {"a.txt": "modified", "sub/b.txt": "deleted"}
    assert picture(project) == before and not leftovers()


def test_folders_closed_by_the_guest(project):
    r = sh(project, "mkdir d; echo x > d/f; chmod 0 d; chmod 0 sub; echo s > s; chmod 0 s")
    assert kinds(r)["d/f"] == "added" and kinds(r)["s"] == "added" and "+x" in r.result["diff"] and not leftovers()


def test_special_files_are_reported_and_skipped(project):
    r = sh(project, "mkfifo fifo; rm a.txt; mkfifo a.txt; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'")
    assert kinds(r)["fifo"] == "special" and kinds(r)["a.txt"] == "special", str(r)
    assert "fifo" not in r.result["diff"]


def test_links_out_of_the_tree_are_not_followed(project, canary):
    r = sh(project, f"ln -s {canary}/secret.txt leak; ln -s /proc/self/environ env; rm -r sub; ln -s {canary} sub")
    assert kinds(r)["leak"] == "symlink"
    flagged = {c["path"] for c in r.result["changed_files"] if c.get("protected")}
    assert {"leak", "env", "sub"} <= flagged


def test_no_setuid_bit_in_diff_or_apply(project, shared):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    r = ws_run(ident, "cp /bin/true t; chmod 4755 t; chmod 755 t; python3 -c 'import os; os.chmod(\"t\", 0o6755)'; true", shared)
    assert "4755" not in r["diff"] and "6755" not in r["diff"]
    ws("apply", ident, cwd=shared)
    assert (project / "t").stat().st_mode & 0o7777 == 0o755
    for at, _, files in os.walk(shared):
        for f in files:
            assert not os.lstat(os.path.join(at, f)).st_mode & 0o6000, (at, f)
    ws("rm", ident, cwd=shared)


def test_overlay_attributes_do_not_travel(project, shared):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "rm -r sub; mkdir sub; echo n > sub/n; python3 -c \"import os\nfor n in ('opaque','redirect','whiteout'):\n"
                  "  try: os.setxattr('a.txt', 'user.overlay.'+n, b'y')\n  except OSError as e: print(e)\"; echo c >> a.txt", shared)
    ws("apply", ident, cwd=shared)
    for path in (project / "sub", project / "sub" / "n", project / "a.txt"):
        assert not [n for n in os.listxattr(path) if "overlay" in n], path
    assert not (project / "sub" / "b.txt").exists()
    ws("rm", ident, cwd=shared)


def test_denied_files_stay_hidden_in_an_overlay(project):
    (project / ".env").write_text("secret\n")
    r = sh(project, "cat .env; ls -a", "--deny", f"{project}/.env")
    assert "secret" not in r.out and r.result["changed_files"] == []
    assert "secret" in sh(project, "cat .env").out


def test_disk_limit_counts_what_goes_into_the_layer(project):
    assert sh(project, "true", "--disk-limit", "8M", "--max-files", "5").verdict == "ok"
    r = sh(project, "head -c 30000000 /dev/zero > big; sleep 1; head -c 30000000 /dev/zero > big2; sleep 5", "--disk-limit", "8M")
    assert r.verdict == "disk_limit", str(r)
    assert sh(project, "head -c 1000000 /dev/zero > small", "--disk-limit", "8M").verdict == "ok"
    assert not leftovers()


def test_commits_work_inside(project, program):
    program("git", "git")
    r = sh(project, "git init -q . && git add -A && git -c user.name=n -c user.email=e commit -qm hi && git log --oneline")
    assert r.verdict == "ok", str(r)
    assert all(p.startswith(".git/") for p in kinds(r)) and not (project / ".git").exists()
    assert r.result["diff"] == "", "git refuses patches of its own folder"


@pytest.mark.parametrize("depth", [3000])
def test_deep_folders_are_cut_and_removed(project, depth):
    r = sh(project, f"python3 -c \"import os\nfor i in range({depth}):\n os.mkdir('d'); os.chdir('d')\"", "--time-limit", "60s")
    assert r.verdict == "ok", str(r)
    assert {"path": "", "kind": "truncated"} in r.result["changed_files"]
    assert not leftovers()


def test_a_killed_run_leaves_only_what_gc_removes(project, shared):
    p = start("--workspace", f"{project}:overlay", "--", "/bin/sh", "-c", "echo x > x; echo up; sleep 60", stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"
    assert leftovers()
    p.send_signal(signal.SIGKILL)
    p.wait()
    deadline = time.monotonic() + 5
    while leftovers() and time.monotonic() < deadline:
        ws("gc", cwd=shared)
        time.sleep(0.05)
    assert not leftovers()
    run("--", "/bin/true")  # every start clears groups without a living maker away


def test_gc_leaves_living_runs_alone(project, shared):
    p = start("--workspace", f"{project}:overlay", "--", "/bin/sh", "-c", "echo up; sleep 1; echo x > x; cat x", stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"
    ws("gc", cwd=shared)
    out, _ = p.communicate()
    assert out == b"x\n" and p.returncode == 0


# ---- kept ones -------------------------------------------------------------------------------------

def test_keep_names_the_workspace(project, shared):
    r = run("--workspace", f"{project}:overlay", "--keep", "--", "/bin/sh", "-c", "echo k > kept", cwd=str(shared))
    ident = r.result["workspace_id"]
    assert "+k" in ws("diff", ident, cwd=shared).stdout and not (project / "kept").exists()
    ws("apply", ident, cwd=shared)
    assert (project / "kept").read_text() == "k\n" and (project / "kept").stat().st_uid == os.getuid()
    assert ws("diff", ident, cwd=shared).stdout == ""
    ws("rm", ident, cwd=shared)
    assert ws("ls", cwd=shared).stdout == ""


def test_runs_see_each_others_changes_and_each_has_its_own_diff(project, shared):
    ident = ws("new", "--from", str(project), "--id", "task-1", cwd=shared).stdout.split()[-1]
    assert ident == "task-1"
    one = ws_run(ident, "echo 1 > one; echo three >> a.txt", shared)
    two = ws_run(ident, "cat one; echo 2 > two; echo four >> a.txt; rm one", shared)
    assert two["stdout"] == "1\n"
    assert {c["path"] for c in one["changed_files"]} == {"one", "a.txt"}
    assert {c["path"]: c["kind"] for c in two["changed_files"]} == {"one": "deleted", "two": "added", "a.txt": "modified"}
    assert "+four" in two["diff"] and "+three" not in two["diff"]
    whole = json.loads(ws("diff", ident, "--json", cwd=shared).stdout)
    assert {c["path"] for c in whole["changed_files"]} == {"two", "a.txt"} and "+three" in whole["diff"]
    assert "2 files changed" in ws("diff", ident, "--stat", cwd=shared).stdout
    assert "\033[32m" in ws("diff", ident, "--color=always", cwd=shared).stdout
    ws_run(ident, r"printf 'a\033[31mb\302\23331mc\342\200\256d\177\n' > steers", shared)
    assert "+a?[31mb?31mc?d?\033[m" in ws("diff", ident, "--color=always", cwd=shared).stdout
    assert "+a\033[31mb\x9b31mc\u202ed\x7f\n" in ws("diff", ident, "--color=never", cwd=shared).stdout
    for more, env, coloured in (([], {}, True), (["--color=never"], {}, False), ([], {"NO_COLOR": "1"}, False)):
        shown = on_terminal("workspace", "diff", ident, *more, cwd=shared, env=env)
        assert ("\033[32m" in shown, "\033[" in shown) == (coloured, coloured), (more, env, shown)
        assert "+a?[31mb?31mc?d?" in shown, "whatever the colours, a guest does not steer a terminal"
    ws("discard", ident, cwd=shared)
    assert ws("diff", ident, cwd=shared).stdout == ""
    assert ws_run(ident, "ls", shared)["stdout"] == "a.txt\ngone.txt\nlink\nsub\ntool\n"
    ws("rm", ident, cwd=shared)
    events = [json.loads(line) for line in (shared / "logs" / "sandbox" / "task-1.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events] == ["prepare", "action", "action", "action", "action", "cleanup"]
    assert events[1]["changed_files"] == ["a.txt", "one"] and events[1]["exit_code"] == 0 and events[1]["diff_len"] > 0
    assert all("stdout" not in e and e["task_id"] == "task-1" for e in events)


def test_links_in_the_place_of_our_own_folders_are_not_followed(project, shared, canary):
    """A guest that may write to the folder people work in leaves links where state and logs would go."""
    before = sorted(os.listdir(canary))
    elsewhere = shared / "elsewhere"
    elsewhere.mkdir()
    run("--workspace", f"{shared}:rw", "--", "/bin/sh", "-c", f"ln -s {canary} .sandbox; ln -s {canary} logs")
    assert (shared / ".sandbox").is_symlink() and (shared / "logs").is_symlink()
    for words in (("new", "--from", str(project)), ("new",), ("ls",), ("run", "x", "--", "true"), ("rm", "x")):
        done = cordon("workspace", *words, cwd=shared)
        assert done.returncode != 0 and ("link" in done.stderr or words == ("ls",)), done
    cordon("workspace", "gc", cwd=shared)
    kept = run("--workspace", f"{project}:overlay", "--keep", "--", "true", cwd=shared, as_json=False)
    assert kept.code == 64 and b"link" in kept.log, kept
    named = cordon("workspace", "--work-root", elsewhere, "new", "--from", str(project), "--id", "x", cwd=shared)
    assert named.returncode == 0 and named.stdout.split()[-1] == "x", named
    assert "logs/sandbox" in named.stderr, "the log that was not written is told"
    assert sorted(os.listdir(canary)) == before and (elsewhere / "x").is_dir()
    assert cordon("workspace", "--work-root", elsewhere, "rm", "x", cwd=shared).returncode == 0


def test_a_tasks_own_tree(shared):
    ws("new", "--id", "t", cwd=shared)
    tree = shared / ".sandbox" / "t"
    (tree / "m.py").write_text("x = 1\n")
    r = ws_run("t", "echo 'y = 2' >> m.py; mkdir d; echo 1 > d/f", shared)
    assert "+y = 2" in r["diff"] and (tree / "m.py").read_text() == "x = 1\ny = 2\n"
    r = ws_run("t", "rm -r d; cat m.py", shared)
    assert [c["path"] for c in r["changed_files"]] == ["d/f"] and not (tree / "d").exists()
    whole = json.loads(ws("diff", "t", "--json", cwd=shared).stdout)
    assert (whole["mode"], whole["base"]) == ("tree", None), "it began empty: the diff is all it holds"
    assert [(c["path"], c["kind"]) for c in whole["changed_files"]] == [("m.py", "added")]
    assert ws("diff", "t", cwd=shared).stdout == whole["diff"] and "+x = 1\n+y = 2\n" in whole["diff"]
    assert "no folder to apply it to" in ws("apply", "t", cwd=shared, code=64).stderr
    ws("rm", "t", cwd=shared)
    assert not tree.exists()


def test_rm_leaves_what_cordon_did_not_make(shared, project):
    words = ["workspace", "--work-root", str(shared), "rm"]
    r = cordon(*words, "project", cwd=shared)
    assert r.returncode == 64 and f"{shared}/project is not empty and was not made by Cordon" in r.stderr and "--force" in r.stderr
    assert (project / "a.txt").exists() and not (shared / ".meta").exists()
    assert cordon(*words, "--force", "project", cwd=shared).returncode == 0 and not project.exists()
    assert cordon(*words[:3], "new", "--id", "own", cwd=shared).returncode == 0
    (shared / "own/a").write_text("1")
    assert cordon(*words, "own", cwd=shared).returncode == 0
    assert not (shared / "own").exists() and not (shared / ".meta").exists()


def test_empty_folders_of_a_tasks_own_tree_stay(shared):
    ident = ws("new", cwd=shared).stdout.split()[-1]
    ws_run(ident, "mkdir -p empty/inner other; echo x > other/f", shared)
    assert ws_run(ident, "ls -d empty/inner other; rmdir empty/inner; rm -r other", shared)["stdout"] == "empty/inner\nother\n"
    assert ws_run(ident, "find . | sort", shared)["stdout"] == ".\n./empty\n"
    ws("rm", ident, cwd=shared)


def test_apply_refuses_what_moved_underneath(project, shared):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "echo guest >> a.txt; echo guest > new; rm gone.txt", shared)
    time.sleep(0.02)
    (project / "a.txt").write_text("host\n")
    (project / "new").write_text("host\n")
    done = ws("apply", ident, cwd=shared, code=77)
    assert "conflict: a.txt" in done.stderr and "conflict: new" in done.stderr and "gone" not in done.stderr
    assert (project / "gone.txt").exists(), "nothing was applied"
    ws("apply", ident, "gone.txt", cwd=shared)
    assert not (project / "gone.txt").exists() and (project / "a.txt").read_text() == "host\n"
    ws("apply", ident, "--force", cwd=shared)
    assert (project / "a.txt").read_text() == "one\ntwo\nguest\n"
    ws("rm", ident, cwd=shared)


@pytest.mark.parametrize("what", ["link", "file"])
def test_apply_follows_nothing_that_the_host_put_in_the_way(project, shared, what):
    (shared / "away").mkdir()
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "mkdir way; echo guest > way/new; echo guest > sub/new; echo guest > first", shared)
    shutil.rmtree(project / "sub")
    for name in ("way", "sub"):
        os.symlink(shared / "away", project / name) if what == "link" else (project / name).write_text("host\n")
    done = ws("apply", ident, cwd=shared, code=77)
    assert "conflict: sub\nconflict: way\n" in done.stderr and "--force" in done.stderr, done.stderr
    for words in (["way/new", "first"], ["sub/new", "way/new", "first", "--force"]):  # force is for what is named
        done = ws("apply", ident, *words, cwd=shared, code=77)
        assert "conflict: way/new\n" in done.stderr and ("conflict: sub/new\n" in done.stderr) == ("sub/new" in words), done.stderr
        assert "Hint: a link or a file stands where a folder was" in done.stderr and "conflict: first" not in done.stderr
    assert not (project / "first").exists() and os.listdir(shared / "away") == []
    ws("apply", ident, "first", cwd=shared)
    (project / "way").unlink()
    ws("apply", ident, "way/new", cwd=shared)
    ws("apply", ident, "--force", cwd=shared)
    assert (project / "way/new").read_text() == (project / "sub/new").read_text() == "guest\n" and os.listdir(shared / "away") == []
    ws("rm", ident, cwd=shared)


def test_a_folder_takes_the_place_of_a_file_or_a_link(project, shared):
    """What stands in the way goes with the same apply: no conflict."""
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "rm link gone.txt; mkdir -p link/deep gone.txt; echo guest > link/deep/f; echo guest > gone.txt/f", shared)
    assert "conflict: link/deep/f" in ws("apply", ident, "link/deep", cwd=shared, code=77).stderr, "its part alone"
    ws("apply", ident, cwd=shared)
    assert (project / "link/deep/f").read_text() == (project / "gone.txt/f").read_text() == "guest\n"
    ws("rm", ident, cwd=shared)


def test_apply_notices_a_deletion_on_the_host(project, shared):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "echo guest >> a.txt", shared)
    (project / "a.txt").unlink()
    assert "conflict: a.txt" in ws("apply", ident, cwd=shared, code=77).stderr
    ws("rm", ident, cwd=shared)


PROTECTED = ["cordon.toml", ".git/hooks/pre-commit", ".git/config", ".bashrc", ".vscode/tasks.json", ".idea/x.xml", ".github/workflows/ci.yml",
             ".gitlab-ci.yml", ".claude/settings.json", ".cursor/rules", ".mcp.json", "sub/.envrc", ".GIT/config", ".husky/pre-push"]


@pytest.mark.parametrize("path", PROTECTED)
def test_protected_paths_are_not_applied_unasked(project, shared, path):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    r = ws_run(ident, f"mkdir -p \"$(dirname '{path}')\"; echo x > '{path}'; echo ok > fine", shared)
    assert [c.get("protected") for c in r["changed_files"] if c["path"] == path] == [True]
    assert "protected: " + path in ws("apply", ident, cwd=shared, code=77).stderr
    assert not (project / path).exists() and not (project / "fine").exists()
    ws("apply", ident, "fine", cwd=shared)
    assert (project / "fine").exists() and not (project / path).exists()
    ws("apply", ident, path, cwd=shared)
    assert (project / path).exists(), "named outright"
    ws("rm", ident, cwd=shared)


def test_apply_does_not_write_through_the_hosts_links(project, shared, canary):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "echo evil > sub/planted.txt; echo evil > sub/b.txt", shared)
    shutil.rmtree(project / "sub")
    os.symlink(canary, project / "sub")
    assert "conflict: sub" in ws("apply", ident, cwd=shared, code=77).stderr
    ws("apply", ident, "--force", cwd=shared)
    assert not (canary / "planted.txt").exists() and (project / "sub" / "planted.txt").exists()
    assert not (project / "sub").is_symlink()
    ws("rm", ident, cwd=shared)


def test_the_state_is_not_the_guests_to_see(shared):
    (shared / "f").write_text("x\n")
    ident = ws("new", "--from", ".", cwd=shared).stdout.split()[-1]
    r = ws_run(ident, "ls -A .sandbox; echo x > .sandbox/.meta/forged; echo y > f", shared)
    assert ident not in r["stdout"]
    assert {c["path"] for c in r["changed_files"]} == {"f"}
    for mode in ("ro", "rw"):
        assert ident not in run("--workspace", f"{shared}:{mode}", "--", "/bin/ls", "-A", "/workspace/.sandbox").out
    ws("rm", ident, cwd=shared)


@pytest.mark.parametrize("ident", ["../x", "a/b", "", ".", "..", ".hidden", "-rf", "x" * 101, "a b", "a\nb"])
def test_unsafe_ids_are_refused(shared, ident):
    assert cordon("workspace", "new", "--id", ident, cwd=str(shared)).returncode == 64
    assert cordon("workspace", "diff", "--", ident, cwd=str(shared)).returncode == 64


def test_a_workspace_in_use_is_nobody_elses(project, shared):
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    p = subprocess.Popen([CORDON, "workspace", "run", ident, "--", "/bin/sh", "-c", "echo up; sleep 2"], cwd=shared, env=host_env(),
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.readline() == b"up\n"
    assert "in use" in ws("apply", ident, cwd=shared, code=64).stderr
    p.communicate()
    ws("rm", ident, cwd=shared)


def test_a_large_tree_costs_what_changed(project, shared):
    big = shared / "big"
    for d in range(20):
        (big / f"d{d}").mkdir(parents=True)
        for f in range(250):
            (big / f"d{d}" / f"f{f}").write_text(f"{d} {f}\n")
    ident = ws("new", "--from", str(big), cwd=shared).stdout.split()[-1]
    ws_run(ident, "for i in 0 1 2 3 4 5 6 7 8 9; do echo x >> d$i/f$i; done", shared)
    began = time.monotonic()
    assert ws("diff", ident, cwd=shared).stdout.count("diff --git") == 10
    assert time.monotonic() - began < 2 * PATIENCE
    ws("rm", ident, cwd=shared)


@pytest.mark.parametrize("path", ["cordon.toml", ".git/hooks/pre-commit", ".vscode/tasks.json", ".github/workflows/x.yml"])
def test_protected_paths_in_a_writable_tree_are_flagged(project, path):
    script = f"mkdir -p \"$(dirname '{path}')\"; echo x > '{path}'; echo y > plain"
    r = run("--workspace", f"{project}:rw", "--", "/bin/sh", "-c", script)
    flagged = [c["path"] for c in r.result["changed_files"] if c["protected"]]
    assert len(flagged) == 1 and path.startswith(flagged[0]) and r.result["diff"] is None
    assert run("--workspace", f"{project}:rw", "--", "/bin/sh", "-c", "echo y >> plain").result["changed_files"] == []
    r = run("--allow-write", project, "--", "/bin/sh", "-c", f"cd {project}; echo more >> '{path}'")
    if path == "cordon.toml":  # one that is there cannot be written at all
        assert r.code != 0 and (project / path).read_text() == "x\n"
    else:
        assert [c["path"] for c in r.result["changed_files"]] == [str(project / flagged[0])]


@pytest.mark.parametrize("path", ["sub/.git/hooks/pre-commit", "a/b/.vscode/tasks.json", "a/cordon.toml", "a/b/c/.GitHub/workflows/x.yml",
                                  "sub/deep/.envrc"])
def test_protected_paths_further_down_are_flagged(project, path):
    for folder in ("a/b/c", "sub/.git/hooks", "sub/deep"):
        os.makedirs(project / folder)
    (project / "sub/.git/hooks/old").write_text("x")
    (project / "a/b/.envrc").write_text("x")
    time.sleep(0.05)
    r = run("--workspace", f"{project}:rw", "--", "/bin/sh", "-c", "echo y > plain; mkdir -p a/new; echo z > sub/.git/index; cat a/b/.envrc")
    assert r.verdict == "ok" and r.result["changed_files"] == [], str(r)
    for grant, script in ((("--workspace", f"{project}:rw"), "cd /workspace"), (("--allow-write", project), f"cd {project}")):
        r = run(*grant, "--", "/bin/sh", "-c", f"{script}; mkdir -p \"$(dirname '{path}')\"; echo x >> '{path}'")
        flagged = [c["path"].removeprefix(f"{project}/") for c in r.result["changed_files"] if c["protected"]]
        assert len(flagged) == 1 and path.startswith(flagged[0]) and "/" in flagged[0], str(r)


def test_a_folder_that_is_renamed_flags_what_is_new_in_it(project):
    """The way a hook gets there does not matter."""
    r = run("--workspace", f"{project}:rw", "--", "/bin/sh", "-c", "mkdir -p x/hooks x/y; echo h > x/hooks/post-checkout; mv x sub/.git")
    assert [(c["path"], c["kind"]) for c in r.result["changed_files"]] in (
        [("sub/.git/hooks", "added")], [("sub/.git/hooks", "modified")]), str(r)


def test_gc_removes_what_a_killed_apply_left(full, tmp_path):
    """Only where a kept workspace would write: a file of that name elsewhere is somebody's own."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "other").mkdir()
    (tree / "sub" / "f").write_text("a\n")
    made = cordon("workspace", "new", "--from", tree, cwd=tmp_path)
    ws = made.stdout.split()[-1]
    assert cordon("workspace", "run", ws, "--", "/bin/sh", "-c", "echo b > sub/f", cwd=tmp_path).returncode == 0
    for folder in ("sub", "other"):
        (tree / folder / ".cordon-apply~").write_text("half of a file")
    assert cordon("workspace", "gc", cwd=tmp_path).returncode == 0
    assert not (tree / "sub" / ".cordon-apply~").exists() and (tree / "other" / ".cordon-apply~").exists()
    assert cordon("workspace", "apply", ws, cwd=tmp_path).returncode == 0
    assert (tree / "sub" / "f").read_text() == "b\n"


# ---- words too many, git's own traps, files somebody holds --------------------------------------------

@pytest.mark.parametrize("words", [["new", "--from"], ["new", "--id"], ["ls", "--work-root"], ["diff", "x", "--logs-dir"], ["rm", "--work-root"]])
def test_an_option_without_its_value(shared, words):
    done = cordon("workspace", *words, cwd=shared)
    assert done.returncode == 64 and f"option '{words[-1]}' needs a value" in done.stderr, done
    assert not (shared / ".sandbox").exists()


def test_words_too_many_change_nothing(project, shared):
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", "echo x > new", cwd=shared).returncode == 0
    for words in (["discard", ident, "new"], ["rm", ident, "other"], ["diff", ident, "new"], ["ls", "x"], ["gc", "x"], ["new", "x"]):
        done = cordon("workspace", *words, cwd=shared)
        assert done.returncode == 64 and "one word too many" in done.stderr, (words, done)
    done = cordon("workspace", "run", ident, "--workspace", shared, "--", "/bin/true", cwd=shared)
    assert done.returncode == 64 and "--workspace does not go with workspace run" in done.stderr, done
    assert cordon("workspace", "run", ident, "--", "/bin/echo", "--workspace", "x", cwd=shared).stdout == "--workspace x\n"
    assert "+x" in cordon("workspace", "diff", ident, cwd=shared).stdout
    assert cordon("workspace", "apply", ident, "new", cwd=shared).returncode == 0 and (project / "new").exists()
    assert cordon("workspace", "rm", ident, cwd=shared).returncode == 0


TRAPS = {
    "file": "echo 'gitdir: ../evil' > sub/.git",
    "link": "ln -s evil sub/.GIT",
    "bare": "mkdir -p evil/objects evil/refs; echo 'ref: refs/heads/m' > evil/HEAD; echo x > evil/config",
    "hg": "mkdir .hg; echo '[hooks]' > .hg/hgrc",
    "cache": "mkdir -p .cache/cordon/obj; echo x > .cache/cordon/obj/planted",
}


@pytest.mark.parametrize("trap", TRAPS)
def test_repositories_of_a_guests_making_are_protected(project, shared, trap):
    """Git runs what a repository's configuration names, wherever a file leads it to."""
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", TRAPS[trap], cwd=shared).returncode == 0
    before = picture(project)
    done = cordon("workspace", "apply", ident, cwd=shared)
    assert done.returncode == 77 and "protected: " in done.stderr, done
    assert picture(project) == before
    assert cordon("workspace", "apply", ident, "--force", cwd=shared).returncode == 0
    assert picture(project) != before
    cordon("workspace", "rm", ident, cwd=shared)


def test_a_repositorys_own_head_is_not(project, shared):
    subprocess.run(["git", "init", "-q", str(project)], check=True, env=host_env())
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", "echo 'ref: refs/heads/other' > .git/HEAD", cwd=shared).returncode == 0
    done = cordon("workspace", "apply", ident, cwd=shared)
    assert done.returncode == 0 and (project / ".git/HEAD").read_text() == "ref: refs/heads/other\n", done
    cordon("workspace", "rm", ident, cwd=shared)


HOLDER = """
import fcntl, os, signal, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
signal.signal(signal.SIGIO, lambda *a: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK))
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file of another owner, so that the workspace is a copy")
def test_a_file_under_lease_is_copied_whole(project, shared):
    """Once it came out empty, and `apply` then emptied the host's."""
    os.chown(project / "gone.txt", 12345, 12345)
    holder = subprocess.Popen(["/usr/bin/python3", "-c", HOLDER, str(project / "a.txt")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        r = run("--workspace", f"{project}:overlay", "--", "/bin/cat", "a.txt")
    finally:
        holder.kill()
        holder.communicate()
    assert r.out == "one\ntwo\n" and r.result["changed_files"] == [], str(r)


def test_a_patch_that_is_not_all_of_it_says_so(project, shared):
    """Whoever reads it before an apply would not know of the rest."""
    ident = ws("new", "--from", str(project), cwd=shared).stdout.split()[-1]
    ws_run(ident, "echo ok > fine", shared)
    assert ws("diff", ident, cwd=shared).stderr == ""
    ws_run(ident, "mkdir -p .git/hooks; echo x > .git/hooks/pre-push; truncate -s 17M big", shared)
    done = ws("diff", ident, cwd=shared)
    assert "fine" in done.stdout and "pre-push" not in done.stdout
    assert done.stderr == "Warning: 2 of 3 changes cannot be shown in a patch; --stat lists all\n"
    done = ws("diff", ident, "--stat", cwd=shared)
    assert ".git/hooks/pre-push | added (protected) (not in the patch)\n" in done.stdout and done.stderr == ""
    assert " big | added (not in the patch)\n" in done.stdout
    assert ws("diff", ident, "--json", cwd=shared).stderr == ""
