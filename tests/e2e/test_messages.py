"""Errors before there is a run: they name the place, or the option, and are a result where one is asked for (contract, sections 2 and 6)."""

import json
import subprocess

import pytest

from cordon_run import CORDON, check_shape, cordon

MISSING = {
    "filesystem": ("--file=a={}", "a={}", ["file a: ", "nosuch: No such file"]),
    "venv": ("--venv={}", "{}", ["nosuch: no virtual environment"]),
    "output": ("--output=*.x={}/d", "*.x={}/d", ["nosuch/d: No such file"]),
    "cgroup": ("--cgroup={}", "{}", ["nosuch: No such file"]),
}
LISTS = ("filesystem", "output")


def fronts(folder):
    (folder / "u.py").write_text("x = 1\n")
    (folder / "t.py").write_text("assert x == 1\n")
    return {"run": (["run"], ["--", "true"]), "source": (["run"], ["u.py"]), "test": (["test"], ["--", "true"]),
            "grade": (["grade"], ["--tests", "t.py", "u.py"])}


@pytest.mark.parametrize("front", ["run", "source", "test", "grade"])
@pytest.mark.parametrize("key", sorted(MISSING))
def test_a_missing_named_file_is_an_error_with_its_place(key, front, shared):
    option, value, says = MISSING[key]
    first, last = fronts(shared)[front]
    missing = str(shared / "nosuch")
    got = cordon(*first, option.format(missing), *last, cwd=shared)
    assert got.returncode == 78 and all(s in got.stderr for s in says) and f"{option.split('=')[0]}: " in got.stderr, got
    value = '"' + value.format(missing) + '"'
    (shared / "cordon.toml").write_text(f"[sandbox]\n{key} = {f'[ {value} ]' if key in LISTS else value}\n")
    got = cordon(*first, *last, cwd=shared)
    column = len(key) + 4 + 2 * (key in LISTS)
    assert got.returncode == 78 and all(s in got.stderr for s in says) and f"cordon.toml:2:{column}: " in got.stderr, got


def test_a_named_folder_is_no_file_to_put_in(shared):
    got = cordon("run", "--file", f"a={shared}", "--", "true", cwd=shared)
    assert got.returncode == 78 and f"--file: file a: {shared} is not a regular file" in got.stderr, got


# ---- and are a result, too ----------------------------------------------------------------------------

REFUSED = [
    (["run", "--json", "--bogus", "--", "true"], 64, "unknown option '--bogus'"),
    (["test", "--json", "--bogus"], 64, "unknown option '--bogus'"),
    (["test", "--json", "--result", "r.json"], 64, "no tests"),
    (["test", "--json", "--profile", "nosuch"], 78, "nosuch"),
    (["test", "--json", "--junit", "nosuch/x.xml", "--", "true"], 64, "--junit"),
    (["workspace", "run", "NOSUCH", "--json", "--result", "r.json", "--", "true"], 64, "no workspace NOSUCH in .sandbox"),
    (["workspace", "run", "--json", "--", "true"], 64, "'--json' is not an id of a workspace"),
    (["workspace", "run", "NOSUCH", "--json", "--bogus", "--", "true"], 64, "no workspace NOSUCH"),
]


@pytest.mark.parametrize("words,code,says", REFUSED, ids=[" ".join(w) for w, _, _ in REFUSED])
def test_an_error_before_the_run_is_a_result_too(words, code, says, shared):
    got = cordon(*words, cwd=shared)
    result = json.loads(got.stdout)
    check_shape(result)
    assert (got.returncode, result["exit_code"], result["verdict"]) == (code, code, "sandbox_error"), got
    assert says in result["error"] and "Error: " in got.stderr and says in got.stderr, got
    if "--result" in words:
        assert json.loads((shared / "r.json").read_text()) == result
    # the twin: who asks for none has the message alone; what stands behind -- is the command's
    plain = cordon(*[w for w in words if w not in ("--json", "--result", "r.json")], *(["--json"] if "--" in words else []), cwd=shared)
    assert plain.stdout == "" and plain.returncode in (64, 78), plain
    assert cordon(*[w for w in words if w != "--json"], cwd=shared, env={"CORDON_JSON": "1"}).stdout or "--bogus" in words


# ---- and steer no terminal ---------------------------------------------------------------------------

@pytest.mark.parametrize("mark", ["\u009b31m", "\u009d0;x\u009c", "\x1b[31m", "\u202e", "\x7f"])
def test_names_of_files_in_errors_are_harmless(mark, shared):
    """The twin: letters that are no ASCII stay."""
    got = cordon("run", "--allow-read", shared / f"é{mark}x", "--", "true", cwd=shared)
    assert got.returncode in (64, 78) and mark not in got.stderr and "Error: " in got.stderr, got
    assert "é" in got.stderr or "control character" in got.stderr, got
    (shared / "cordon.toml").write_text(f"[sandbox]\nallow_read = [{json.dumps(f'{shared}/é{mark}x')}]\n")
    got = cordon("run", "--", "true", cwd=shared)
    assert got.returncode == 78 and mark not in got.stderr and "cordon.toml:2:15: " in got.stderr, got


# ---- and say what is meant ----------------------------------------------------------------------------

@pytest.mark.parametrize("verb", ["run", "diff", "apply", "discard", "rm"])
def test_a_workspace_before_the_first_is_none_of_that_id(verb, shared):
    got = cordon("workspace", verb, "early", cwd=shared)
    assert got.returncode == 64 and got.stderr.startswith("Error: no workspace early in .sandbox\n"), got
    got = cordon("workspace", verb, "../x", cwd=shared)
    assert got.returncode == 64 and "'../x' is not an id of a workspace" in got.stderr, got


def test_options_of_workspace_stand_before_run(shared):
    got = cordon("workspace", "run", "--work-root", "D", "z", "--", "true", cwd=shared)
    assert got.returncode == 64 and "'--work-root' is not an id" in got.stderr, got
    assert "Hint: cordon workspace [--work-root DIR] run ID [options] -- CMD" in got.stderr, got


@pytest.mark.parametrize("name", ["CORDON_PROFILE", "CORDON_SANDBOX"])
def test_a_profile_of_a_variable_is_blamed_on_it(name, shared):
    got = cordon("run", "--", "true", cwd=shared, env={name: "nosuch"})
    assert got.returncode == 78 and got.stderr.startswith(f"Error: {name}: unknown profile 'nosuch'\n"), got
    got = cordon("run", "--profile", "nosuch", "--", "true", cwd=shared, env={name: "strict"})
    assert got.returncode == 78 and got.stderr.startswith("Error: unknown profile 'nosuch'\n"), got


# ---- and what does not fit ----------------------------------------------------------------------------

@pytest.mark.parametrize("options,says", [(["--disk-limit", "4k"], "disk_limit (4k)"), (["--memory-limit", "8k"], "(8k)")])
def test_files_that_do_not_fit_name_the_limit(full, options, says, shared):
    (shared / "big").write_bytes(b"x" * 100_000)
    got = cordon("run", "--json", *options, "--file", f"a={shared}/big", "--", "true", cwd=shared)
    result = json.loads(got.stdout)
    if result["verdict"] == "memory_limit":  # where a group counts, the whole wall does not fit
        assert got.returncode == 125 and options[0] == "--memory-limit", got
    else:
        assert (got.returncode, result["verdict"]) == (78, "sandbox_error") and "a: No space left" in got.stderr and says in got.stderr, got
    got = cordon("run", "--disk-limit", "1M", "--file", f"a={shared}/big", "--", "/bin/sh", "-c", "wc -c <a", cwd=shared)
    assert got.stdout == "100000\n", got


@pytest.mark.parametrize("limit", [["--disk-limit", "1M"], ["--max-files", "100"]])
def test_a_folder_too_large_to_be_counted_is_refused(limit, shared):
    """It was looked at a last time when no guest was there. The twin: a small one."""
    assert cordon("run", *limit, "--allow-write", shared, "--", "true").returncode == 0
    for words in (["run", "--json"], ["run"]):
        got = cordon(*words, *limit, "--allow-write", "/usr", "--", "true")
        assert got.returncode == 69 and "/usr: too large for disk_limit and max_files" in got.stderr, got


@pytest.mark.parametrize("place", ["/home", "/dev"])
def test_nothing_is_mounted_over_what_every_guest_has(full, place, shared):
    got = cordon("run", "--mount", f"{shared}:{place}", "--", "true")
    assert got.returncode == 78 and f"nothing can be mounted at {place}: the guest's own" in got.stderr and "Hint: " in got.stderr, got
    assert cordon("run", "--mount", f"{shared}:{place}/x", "--", "ls", f"{place}/x").returncode == 0


# ---- small things -------------------------------------------------------------------------------------

@pytest.mark.parametrize("words,says", [
    (["workspace"], "Error: workspace: which sub-command?\nHint: cordon workspace new"), (["run", "--", ""], "Error: '': command not found\n"),
    (["run", "--result=", "--", "true"], "Error: --result needs the name of a file\n")])
def test_nothing_is_said_as_nothing(words, says, shared):
    got = cordon(*words, cwd=shared)
    assert got.returncode in (64, 127) and got.stderr.startswith(says), got


def test_a_result_is_for_no_more_readers_than_what_it_replaces(shared):
    path = shared / "r.json"
    for mode, after in ((0o600, 0o600), (0o400, 0o600), (0o777, 0o644), (None, 0o644)):
        path.unlink(missing_ok=True)
        if mode is not None:
            path.write_text("old")
            path.chmod(mode)
        assert cordon("run", "--result", path, "--", "true", cwd=shared).returncode == 0
        assert path.stat().st_mode & 0o777 == after and json.loads(path.read_text())["verdict"] == "ok", oct(mode or 0)


def test_help_that_is_not_read_to_its_end(shared):
    done = subprocess.run(["/bin/sh", "-c", f"{CORDON} run --help | head -1"], capture_output=True, text=True, cwd=shared)
    assert done.stdout.startswith("usage: cordon run") and done.stderr == "", done
