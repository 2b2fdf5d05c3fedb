"""The command line: exit status, messages, options, results on every channel (contract, sections 2 and 6)."""

import base64
import json
import os
import pathlib
import resource
import subprocess
import time

import pytest

from cordon_run import CORDON, GUESTS, check_shape, command, cordon, guest, guest_path, host_env, run, start

SH = "/bin/sh"


# ---- what the guest wrote goes somewhere --------------------------------------------------------------

def test_output_that_cannot_be_written_is_an_error():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command("--", SH, "-c", "echo x"), stdout=full, stderr=subprocess.PIPE, env=host_env(), check=False)
    assert done.returncode == 70 and done.stderr == b"Error: standard output could not be written: No space left on device\n", done


def test_a_result_without_a_standard_output_is_an_error(shared):
    closed = {"env": host_env(), "check": False, "capture_output": False, "stderr": subprocess.PIPE, "preexec_fn": lambda: os.close(1)}
    done = subprocess.run(command("--json", "--", "/bin/true"), **closed)
    assert done.returncode == 70 and done.stderr == b"Error: the result could not be written: Bad file descriptor\n", done
    # the twins: there is nothing to write, or it goes elsewhere
    assert subprocess.run(command("--", "/bin/true"), **closed).returncode == 0
    assert subprocess.run(command("--result", shared / "r", "--", "/bin/true"), **closed).returncode == 0 and (shared / "r").exists()


@pytest.mark.parametrize("words", [[], ["--json"], ["--result", "RESULT"]])
def test_a_file_that_may_not_grow_is_an_error_too(words, shared):
    """ulimit -f: the kernel would end us, with a result half written and a status that looks like the guest's."""
    words = [str(shared / "result") if w == "RESULT" else w for w in words]
    with open(shared / "out", "wb") as out:
        done = subprocess.run(command(*words, "--", SH, "-c", "head -c 30000 /dev/zero"), stdout=out, stderr=subprocess.PIPE,
                              env=host_env(), check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert done.returncode == 70 and b"could not be written: File too large" in done.stderr, done
    assert os.listdir(shared) == ["out"], "nothing is left behind"
    r = run("--", SH, "-c", "head -c 30000 /dev/zero >f", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert r.code == 153, "the guest has the signal as ever"


def test_too_few_descriptors_are_named():
    done = subprocess.run(command("--", "/bin/true"), capture_output=True, env=host_env(), check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)))
    assert done.returncode in (69, 70) and b"Hint: raise the limit of descriptors (ulimit -n)" in done.stderr, done


def test_a_guest_nobody_reads_finds_its_pipe_broken():
    began = time.monotonic()
    p = start("--time-limit", "30s", "--", "/usr/bin/yes")
    assert p.stdout.readline() == b"y\n"
    p.stdout.close()
    assert p.stderr.read() == b"" and p.wait(20) == 141
    assert time.monotonic() - began < 15
    r = run("--", SH, "-c", "yes | head -1")
    assert (r.code, r.out) == (0, "y\n")


def test_output_that_was_cut_is_told():
    r = run("--max-output", "10", "--", SH, "-c", "echo 123456789012; echo e >&2", as_json=False)
    assert (r.code, r.raw) == (0, b"1234567890") and r.log.endswith(b"Warning: standard output was cut at 10 (--max-output)\n"), r.log
    assert run("--max-output", "13", "--", SH, "-c", "echo 123456789012", as_json=False).log == b""


def test_a_program_of_this_folder_is_not_the_guests(shared):
    (shared / "answer").write_text("#!/bin/sh\necho ok\n")
    os.chmod(shared / "answer", 0o755)
    r = run("--", "./answer", cwd=shared, as_json=False)
    assert r.code == 127 and b"--file answer=./answer" in r.log, r.log
    assert run("--file", "answer=./answer", "--", "./answer", cwd=shared).out == "ok\n"
    assert b"Hint" not in run("--", "./nothing", cwd=shared, as_json=False).log


@pytest.mark.parametrize("words,says", [(["--stdin", "/"], "--stdin /: Is a directory"), (["--status-fd", "0"], "--status-fd 0: open for reading only")])
def test_wrong_streams_are_found_before_the_start(words, says):
    with open("/dev/null", encoding="utf-8") as null:
        done = cordon("run", *words, "--", SH, "-c", "echo ran", stdin=null)
    assert done.returncode == 64 and says in done.stderr and "ran" not in done.stdout, done


@pytest.mark.parametrize("device, length", [("/dev/null", "0"), ("/dev/zero", "70000")])
def test_input_from_a_device(device, length):
    """The null device has nothing to wait for; another one is read for as long as somebody asks."""
    with open(device, "rb") as f:
        r = run("--", "/bin/sh", "-c", "head -c 70000 | wc -c; cat < /dev/null", stdin=f)
    assert r.verdict == "ok" and r.out.split() == [length], str(r)


@pytest.mark.parametrize("n", [4194304, 2147483647])
def test_more_processes_than_the_kernel_has(n):
    assert run("--processes", n, "--", "/bin/true").verdict == "ok"


# ---- exit status ------------------------------------------------------------------------------------

def test_success_says_nothing():
    r = run("--", "/bin/true", as_json=False)
    assert (r.code, r.raw, r.log) == (0, b"", b"")


@pytest.mark.parametrize("code", [1, 2, 42, 63, 100, 124, 125, 126, 127, 130, 255])
def test_own_status_passes_through(code):
    r = run("--", SH, "-c", f"exit {code}")
    assert (r.code, r.verdict, r.result["signal"]) == (code, "nonzero_exit", None)
    assert r.result["error"] is None, "a status of the guest's own is not an error of ours"


@pytest.mark.parametrize("how,number", [("segv", 11), ("abort", 6), ("ill", 4), ("fpe", 8), ("bus", 7), ("term", 15),
                                        ("kill", 9), ("trap", 5)])
def test_signal_is_128_plus_n(how, number):
    r = guest("crash", how)
    assert (r.code, r.verdict, r.result["signal"]) == (128 + number, "signaled", number)


def test_time_limit_124():
    r = guest("sleeper", "nanosleep", opts=["--time-limit", "300ms"])
    assert (r.code, r.verdict, r.result["timed_out"]) == (124, "time_limit", True)
    assert r.result["limit"]["name"] == "time_limit"
    assert "survived" not in r.out


@pytest.mark.parametrize("value", ["200ms", "0.3s", "0.005m"])
def test_time_limit_message_repeats_the_value(value):
    r = run(f"--time-limit={value}", "--", "/bin/sleep", "20", as_json=False)
    assert r.code == 124
    assert r.log_text == f"Error: Execution exceeded time limit ({value})\n"


def test_messages_have_lines_of_their_own():
    """However the guest left its last one; and nothing is added where there is nothing to say."""
    line = "Error: Execution exceeded time limit (400ms)\n"
    for text, shown in (("partial", "partial\n"), ("whole\\n", "whole\n"), ("", "")):
        r = run("--time-limit=400ms", "--", "/bin/sh", "-c", f"printf '{text}' >&2; exec sleep 20", as_json=False)
        assert r.log_text == shown + line, r
    assert run("--", "/bin/sh", "-c", "printf partial >&2", as_json=False).log_text == "partial"
    r = run("--max-output=3", "--", "/bin/sh", "-c", "printf partial >&2", as_json=False)
    assert r.log_text == "par\nWarning: standard error was cut at 3 (--max-output)\n"
    r = run("--log=verbose", "--", "/bin/sh", "-c", "printf partial >&2", as_json=False)
    assert "\npartial\n[SANDBOX] CPU time:" in r.log_text


@pytest.mark.parametrize("cap,passed", [(1, b"a"), (2, b"a"), (3, b"a"), (4, b"a"), (5, b"a\xf0\x9f\x98\x80"), (6, b"a\xf0\x9f\x98\x80b")])
def test_a_character_is_passed_on_whole_or_not_at_all(cap, passed):
    r = run(f"--max-output={cap}", "--", "/usr/bin/printf", r"a\xf0\x9f\x98\x80bc", as_json=False)
    assert r.raw == passed
    assert run(f"--max-output={cap}", "--", "/usr/bin/printf", r"a\xf0\x9f\x98\x80bc").stream("stdout") == passed


def test_bytes_that_are_no_text_are_passed_on_up_to_the_cap():
    r = run("--max-output=3", "--", "/usr/bin/printf", r"\xff\xf0\x80\x80\x80", as_json=False)
    assert r.raw == b"\xff\xf0\x80"


@pytest.mark.parametrize("value", ["16M", "16m", "16384K", "16777216"])
def test_memory_limit_message_repeats_the_value(value):
    r = run("--memory-limit", value, "--allow-read", GUESTS, "--", guest_path("memory"), "mmap", "64", as_json=False)
    assert r.code == 125, str(r)
    assert r.log_text == f"Error: Memory limit exceeded ({value})\n"


@pytest.mark.parametrize("target", ["/etc/hosts", "/usr", "/dev/null"])
def test_not_executable_126(target):
    r = run("--", target)
    assert (r.code, r.verdict) == (126, "nonzero_exit")
    assert r.result["error"]


def test_file_without_the_exec_bit_126(shared):
    (shared / "plain").write_text("#!/bin/sh\nexit 0\n")
    r = run("--allow-read", shared, "--", shared / "plain")
    assert (r.code, r.verdict) == (126, "nonzero_exit")
    os.chmod(shared / "plain", 0o755)
    assert run("--allow-read", shared, "--", shared / "plain").verdict == "ok"


def test_format_error_126(shared):
    (shared / "garbage").write_bytes(b"\x7fELF garbage")
    os.chmod(shared / "garbage", 0o755)
    r = run("--allow-read", shared, "--", shared / "garbage")
    assert (r.code, r.verdict) == (126, "nonzero_exit")


@pytest.mark.parametrize("target", ["no-such-program-here", "/usr/bin/no-such-program-here", "./missing", "/nonexistent/x"])
def test_not_found_127(target):
    r = run("--", target)
    assert (r.code, r.verdict) == (127, "nonzero_exit")
    assert r.result["error"]


def test_missing_interpreter_127(shared):
    (shared / "script").write_text("#!/nonexistent/interpreter\n")
    os.chmod(shared / "script", 0o755)
    assert run("--allow-read", shared, "--", shared / "script").code in (126, 127)


def test_commands_come_from_the_guests_path(shared):
    (shared / "only-outside").write_text("#!/bin/sh\nexit 0\n")
    os.chmod(shared / "only-outside", 0o755)
    r = run("--", "only-outside", env={"PATH": f"{shared}:/usr/bin:/bin"})
    assert r.code == 127
    assert run("--", "sh", "-c", "exit 5").code == 5


# ---- usage ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("words", [
    [], ["no-such-verb"], ["run"], ["run", "--"], ["run", "--no-such-option", "--", "/bin/true"],
    ["run", "--time-limit"], ["run", "--time-limit", "abc", "--", "/bin/true"],
    ["run", "--time-limit", "-5s", "--", "/bin/true"], ["run", "--time-limit=", "--", "/bin/true"],
    ["run", "--memory-limit", "12X", "--", "/bin/true"], ["run", "--memory-limit", "nan", "--", "/bin/true"],
    ["run", "--memory-limit", "99999999999999999999", "--", "/bin/true"],
    ["run", "--processes", "-1", "--", "/bin/true"], ["run", "--processes", "1.5", "--", "/bin/true"],
    ["run", "--max-output", "lots", "--", "/bin/true"], ["run", "--status-fd", "x", "--", "/bin/true"],
    ["run", "--status-fd", "77", "--", "/bin/true"], ["run", "--log", "loud", "--", "/bin/true"],
    ["run", "--env", "=x", "--", "/bin/true"], ["run", "--mount", "/usr", "--", "/bin/true"],
    ["run", "--require-tier", "best", "--", "/bin/true"], ["run", "-Z", "--", "/bin/true"],
    ["run", "--stdin", "/nonexistent/input", "--", "/bin/true"], ["doctor", "--nonsense"],
])
def test_usage_errors_64(words):
    done = cordon(*words)
    assert done.returncode == 64, (words, done.returncode, done.stdout[:500], done.stderr[:500])
    assert done.stderr.strip(), "a usage error says what is wrong"
    assert len(done.stderr) < 4000


def test_unknown_option_names_it():
    done = cordon("run", "--tiem-limit", "5s", "--", "/bin/true")
    assert done.returncode == 64 and "--tiem-limit" in done.stderr


@pytest.mark.parametrize("word,meant", [("--memory", "--memory-limit"), ("--time", "--time-limit"), ("--timelimit", "--time-limit"),
                                        ("--allow", "--allow-read")])
def test_the_beginning_of_an_option_is_a_near_miss(word, meant):
    assert f"(did you mean '{meant}'?)" in cordon("run", word, "5s", "--", "/bin/true").stderr


def test_a_command_without_dashes_is_told_where_it_goes():
    done = cordon("run", "ls", "-la")
    assert done.returncode == 64 and "Hint: a command is given after --: -- ls\n" in done.stderr, done
    assert "Hint" not in cordon("run", "nothing.py").stderr


@pytest.mark.parametrize("words", [["--profile", "no-such-profile"], ["--config", "/nonexistent/cordon.toml"]])
def test_configuration_errors_78(words):
    done = cordon("run", *words, "--", "/bin/true")
    assert done.returncode == 78, (done.returncode, done.stderr)
    assert words[1] in done.stderr


def test_missing_grant_is_an_error_when_the_run_starts():
    for option in ("--allow-read", "--allow-write"):
        done = cordon("run", option, "/nonexistent/path", "--", "/bin/true")
        assert done.returncode in (64, 69, 70, 78) and "/nonexistent/path" in done.stderr, (done.returncode, done.stderr)


def test_guest_options_after_the_dashes_are_the_guests():
    r = run("--", "/bin/echo", "--json", "--time-limit", "-x")
    assert r.out == "--json --time-limit -x\n"


def test_values_with_equals_or_as_a_word():
    for words in (["--time-limit=200ms"], ["--time-limit", "200ms"]):
        assert run(*words, "--", "/bin/sleep", "20").verdict == "time_limit"


def test_sandbox_is_a_profile_name():
    assert run("--sandbox", "--", "/bin/true").verdict == "ok"
    assert run("--sandbox=strict", "--", "/bin/true").verdict == "ok"
    assert cordon("run", "--sandbox=nonsense", "--", "/bin/true").returncode == 78


def test_development_runs_or_says_what_is_missing(shared):
    """It grants names, which needs the network broker: without one the run is refused, not weakened."""
    r = run("--profile", "development", "--", "/bin/echo", "hi", cwd=shared)
    assert r.verdict == "ok" or (r.code == 69 and "network" in str(r.result["error"])), str(r)


@pytest.mark.parametrize("level", ["permissive", "standard", "strict", "testing"])
def test_every_level_runs(level, shared):
    r = run("--profile", level, "--", "/bin/echo", level, cwd=shared)
    assert (r.verdict, r.out) == ("ok", level + "\n"), str(r)


def test_environment_variable_and_precedence():
    assert run("--", "/bin/sleep", "20", env={"CORDON_TIME_LIMIT": "200ms"}).verdict == "time_limit"
    r = run("--time-limit", "20s", "--", "/bin/sleep", "0.4", env={"CORDON_TIME_LIMIT": "200ms"})
    assert r.verdict == "ok"


def test_every_option_has_its_variable(shared):
    """Also the synonyms, and the options that are no part of the policy."""
    (shared / "in").write_text("from a file\n")
    env = {"CORDON_JSON": "true", "CORDON_RESULT": str(shared / "r.json"), "CORDON_STDIN": str(shared / "in"),
           "CORDON_STATUS_FD": "2", "CORDON_LANGUAGE": "sh", "CORDON_SANDBOX": "strict", "CORDON_SANDBOX_LOG": "quiet"}
    r = run("--", "/bin/cat", env=env, as_json=False)
    assert r.code == 0, str(r)
    for text in (r.raw, r.log, (shared / "r.json").read_bytes()):
        assert json.loads(text)["stdout"] == "from a file\n"
    (shared / "script").write_text("cat\n")
    r = run("--stdin", "/dev/null", shared / "script", env={**env, "CORDON_JSON": "0"}, as_json=False)
    assert (r.code, r.raw) == (0, b""), "the line is the stronger"
    assert "time_limit = 10s   level strict" in cordon("explain", env={"CORDON_SANDBOX": "strict"}).stdout
    assert "profile = default" in cordon("explain", env={"CORDON_SANDBOX": "true"}).stdout


@pytest.mark.parametrize("name,value,said", [
    ("JSON", "perhaps", "is not a truth value"), ("RESULT", "/no/such/r", "No such file"), ("STDIN", "/no/such", "No such file"),
    ("STATUS_FD", "77", "not an open descriptor"), ("LANGUAGE", "", "the value is empty"), ("SANDBOX", "nope", "unknown profile"),
    ("SANDBOX_LOG", "loud", "is not one of"),
])
def test_a_wrong_variable_is_named_and_nothing_runs(name, value, said):
    r = run("--", "/bin/echo", "ran", env={"CORDON_" + name: value}, as_json=False)
    assert (r.code, r.raw) == (78, b""), str(r)
    assert said in r.log.decode() and (name == "SANDBOX" or "CORDON_" + name in r.log.decode()), str(r)


def test_an_unknown_profile_says_where_the_names_are():
    r = run("--profile", "nope", "--", "/bin/true", as_json=False)
    assert r.code == 78 and b"Error: unknown profile 'nope'\nHint: `cordon profile ls`" in r.log, str(r)


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_and_version(words):
    done = cordon(*words)
    assert done.returncode == 0 and done.stdout.strip(), (done.returncode, done.stderr)


def test_require_tier(world):
    r = run("--require-tier", "full", "--", "/bin/true", as_json=False)
    assert r.code == (0 if world.full else 69), str(r)
    if not world.full:
        assert r.log_text.strip()


# ---- doctor and explain ------------------------------------------------------------------------------

def test_doctor(world):
    done = cordon("doctor")
    assert done.returncode == 0 and world.tier in done.stdout, done.stdout + done.stderr
    data = json.loads(cordon("doctor", "--json").stdout)
    assert world.tier in json.dumps(data)


def test_doctor_says_what_a_run_does(full):
    """Root of a user namespace with one id, which may not make another: neither tier has an id for a guest."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; "$0" doctor; echo "doctor $?"; "$0" run -- /bin/true; echo "run $?"'
    done = subprocess.run(["/usr/bin/unshare", "--user", "--map-root-user", "/bin/sh", "-c", script, CORDON], capture_output=True, text=True,
                          env=host_env(None), cwd="/", timeout=60, stdin=subprocess.DEVNULL)
    assert "doctor 69\n" in done.stdout and "run 69\n" in done.stdout, done
    assert "an id for the guest     blocked" in done.stdout


def test_explain_runs_nothing(shared):
    done = cordon("explain", "--allow-write", shared, "--time-limit", "7s", "--", "/usr/bin/touch", shared / "made")
    assert done.returncode == 0, done.stderr
    assert "7s" in done.stdout and "--time-limit" in done.stdout
    assert not (shared / "made").exists()


def test_explain_path(full):
    for path, word in (("/etc/shadow", "refused"), ("/usr/bin/env", "allowed")):
        done = cordon("explain", "--path", path)
        assert word in done.stdout, (path, done.stdout, done.stderr)


# ---- result channels ---------------------------------------------------------------------------------

def test_output_passes_through_live():
    with start("--", SH, "-c", "echo first; sleep 5; echo second; echo third >&2; exit 3") as p:
        began = time.monotonic()
        assert p.stdout.readline() == b"first\n"
        assert time.monotonic() - began < 4.5, "output was held back"
        assert p.stdout.read() == b"second\n" and p.stderr.read() == b"third\n"
        assert p.wait() == 3


def test_result_file_and_live_output(shared):
    path = shared / "result.json"
    r = run("--result", path, "--", SH, "-c", "echo out; echo err >&2; exit 4", as_json=False)
    assert (r.code, r.raw, r.log) == (4, b"out\n", b"err\n")
    result = json.loads(path.read_text())
    check_shape(result)
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 4)


def test_keep_without_a_workspace(full, shared):
    for words in ([], ["--workspace", f"{shared}:rw"], ["--workspace", f"{shared}:ro"]):
        done = cordon("run", "--keep", *words, "--", "/bin/true")
        assert done.returncode == 64 and "no workspace to be kept" in done.stderr, done
    done = cordon("run", "--keep", "--workspace", shared, "--json", "--", "/bin/true", cwd=shared)
    assert done.returncode == 0 and json.loads(done.stdout)["workspace_id"], done
    assert cordon("workspace", "rm", json.loads(done.stdout)["workspace_id"], cwd=shared).returncode == 0


@pytest.mark.parametrize("words,code,text", [
    (["--bogus", "--", "/bin/true"], 64, "unknown option '--bogus'"), ([], 64, "nothing to run"),
    (["--time-limit", "x", "--", "/bin/true"], 64, "not a duration"), (["--stdin", "/nope/in", "--", "/bin/true"], 64, "/nope/in"),
    (["--config", "/nope/cordon.toml", "--", "/bin/true"], 78, "/nope/cordon.toml"), (["--profile", "nope", "--", "/bin/true"], 78, "nope")])
def test_a_line_that_is_wrong_has_a_result(shared, words, code, text):
    """Who reads results reads one of that, too, and not the last run's."""
    done = cordon("run", "--json", *words)
    result = json.loads(done.stdout)
    assert done.returncode == result["exit_code"] == code and result["verdict"] == "sandbox_error", done
    assert text in result["error"] and text in done.stderr and done.stderr.count("Error:") == 1
    if "--bogus" not in words:
        (shared / "r.json").write_text("of the last run")
        done = cordon("run", "--result", shared / "r.json", *words)
        assert done.returncode == code and not done.stdout
        assert json.loads((shared / "r.json").read_text()) == result
    assert not cordon("run", *words, *([] if words else ["--help-"]), *(["--json"] if "--" in words else [])).stdout


def test_json_does_not_steer_a_terminal():
    """Controls of two bytes and marks that turn text are escapes in the JSON, and come back as they were."""
    r = run("--", SH, "-c", r"printf 'a\302\23331mb\342\200\256c\330\234d\177\303\251'")
    assert r.result["stdout"] == "a\x9b31mb\u202ec\u061cd\x7f\xe9"
    assert "\xe9".encode() in r.raw and b"\\u009b" in r.raw and b"\\u202e" in r.raw
    assert not any(odd.encode() in r.raw for odd in "\x9b\u202e\u061c\x7f")


def test_result_file_that_cannot_be_written():
    done = cordon("run", "--result", "/nonexistent/dir/result.json", "--", "/bin/true")
    assert done.returncode in (64, 70, 78), (done.returncode, done.stderr)
    assert "/nonexistent/dir" in done.stderr


def test_result_file_is_no_way_out_for_a_guest(shared, canary):
    """The guest can write where the result goes: it leaves a link there, which must not be followed."""
    r = run("--allow-write", shared, "--result", shared / "result.json", "--", SH, "-c",
            f"rm -f {shared}/result.json; ln -s {canary}/secret.txt {shared}/result.json", as_json=False)
    assert r.code in (0, 70), str(r)


@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1", "/dev/stdout"])
def test_result_into_a_descriptor_that_is_a_file(name, shared):
    """The link to the descriptor stays what it is; what lies before and after in the file stays, too."""
    if name == "/dev/stdout" and os.access("/dev", os.W_OK):
        pytest.skip("a defect would take /dev/stdout from this machine: as an ordinary user only")
    with open(shared / "log", "wb", buffering=0) as log:
        log.write(b"before\n")
        done = subprocess.run(command("--log", "quiet", "--result", name, "--", SH, "-c", "echo out; exit 6"), env=host_env(),
                              stdout=log, stderr=subprocess.PIPE, timeout=30)
        log.write(b"after\n")
    lines = (shared / "log").read_text().splitlines()
    assert (done.returncode, done.stderr, lines[:2], lines[3:]) == (6, b"", ["before", "out"], ["after"]), (done, lines)
    assert json.loads(lines[2])["exit_code"] == 6


@pytest.mark.parametrize("there", [True, False], ids=["file", "dangling"])
def test_result_file_that_is_a_link_is_refused(there, shared):
    """A guest of before may have left it: it is neither followed nor replaced, and nothing runs."""
    if there:
        (shared / "kept").write_text("kept\n")
    (shared / "result.json").symlink_to("kept")
    done = cordon("run", "--result", shared / "result.json", "--", SH, "-c", "echo ran")
    assert done.returncode == 64 and done.stdout == "" and "is a link" in done.stderr, done
    assert os.readlink(shared / "result.json") == "kept" and (shared / "kept").exists() == there
    assert not there or (shared / "kept").read_text() == "kept\n"
    assert cordon("run", "--result", shared / "kept", "--", SH, "-c", "echo ran").stdout == "ran\n"


def test_status_fd():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe:
        done = subprocess.run(command("--status-fd", write, "--", SH, "-c", "echo out; exit 6"), env=host_env(),
                              pass_fds=[write], capture_output=True, timeout=30)
        os.close(write)
        result = json.loads(pipe.read())
    check_shape(result)
    assert done.returncode == result["exit_code"] == 6
    assert done.stdout == b"out\n" and result["stdout"] == "out\n"


@pytest.mark.parametrize("fd", [1, 2])
@pytest.mark.parametrize("text", ["out\\n", '{"verdict":"ok"}', ""], ids=["line", "forged", "nothing"])
def test_status_on_the_guests_own_stream_is_its_last_line(fd, text):
    done = subprocess.run(command("--log", "quiet", "--status-fd", fd, "--", SH, "-c", f"printf '{text}' >&{fd}; exit 3"),
                          env=host_env(), capture_output=True, timeout=60)
    stream = done.stdout if fd == 1 else done.stderr
    result = json.loads(stream.splitlines()[-1])
    check_shape(result)
    assert result["verdict"] == "nonzero_exit" and result["exit_code"] == 3 == done.returncode
    assert len(stream.splitlines()) == (2 if text else 1)


def test_status_fd_does_not_reach_the_guest():
    read, write = os.pipe()
    try:
        done = subprocess.run(command("--status-fd", write, "--allow-read", GUESTS, "--", guest_path("identity")),
                              env=host_env(), pass_fds=[write], capture_output=True, timeout=30, text=True)
        fds = [line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("fd: ")]
        assert fds == ["0", "1", "2"], done.stdout
    finally:
        os.close(read)
        os.close(write)


def test_status_fd_that_nobody_reads():
    """A full or closed pipe must not hang or kill the command."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("--status-fd", write, "--", "/bin/true"), env=host_env(), pass_fds=[write],
                          capture_output=True, timeout=30)
    os.close(write)
    assert done.returncode in (0, 70)


def test_closed_stdout_does_not_lose_the_guest():
    with start("--", SH, "-c", "yes | head -c 3000000; exit 0") as p:
        p.stdout.close()
        assert p.wait(timeout=20) in (0, 70, 128 + 13, 141)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00binary", b"\x80" * 1000, bytes(range(256)) * 10, b"ok \xc3"])
def test_bytes_that_are_not_utf8(data, shared):
    (shared / "data").write_bytes(data)
    r = run("--allow-read", shared, "--", "/bin/cat", shared / "data")
    assert r.result["stdout_encoding"] == "base64"
    assert r.stream("stdout") == data
    assert run("--allow-read", shared, "--", "/bin/cat", shared / "data", as_json=False).raw == data


def test_output_of_controls_costs_no_more_than_text():
    """Each is six letters in the result; whoever waits for other guests waits for the one who writes them."""
    def seconds(*words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command("--json", "--", *words), stdout=subprocess.DEVNULL, env=host_env(), check=False)
        assert done.returncode == 0
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    text = seconds(SH, "-c", "yes | head -c 12000000")
    assert seconds(SH, "-c", "head -c 12000000 /dev/zero") < 5 * max(text, 0.2)


@pytest.mark.parametrize("text", ["naïve ✓ 🚀\n", "\u0000\u0001\u001b[31m\"\\\r\n", "\u2028\u2029", ""])
def test_utf8_is_kept(text, shared):
    (shared / "data").write_text(text, newline="")
    r = run("--allow-read", shared, "--", "/bin/cat", shared / "data")
    assert (r.result["stdout_encoding"], r.result["stdout"]) == ("utf-8", text)


def test_cut_inside_a_character_keeps_utf8(shared):
    (shared / "data").write_text("é" * 100)
    r = run("--allow-read", shared, "--max-output", "51", "--", "/bin/cat", shared / "data")
    assert r.result["stdout_truncated"] and r.result["stdout_bytes"] == 200
    assert r.result["stdout_encoding"] == "utf-8" and r.result["stdout"] == "é" * 25


def test_cut_bytes_stay_what_they_are():
    """Only the beginning of a character is left out, and only where the rest is text."""
    def cut(bytes_, at):
        r = run("--max-output", at, "--", "/usr/bin/printf", bytes_).result
        return r["stdout_encoding"], r["stdout"]
    picture = r"\377\330\377\340\000\020JFIF"
    assert cut(picture, 3) == ("base64", "/9j/") and cut(picture, 4) == ("base64", "/9j/4A==")
    assert cut(r"abc\377xyz", 4) == ("base64", base64.b64encode(b"abc\xff").decode())
    assert cut(r"abc\360\237\230\200", 6) == ("utf-8", "abc")
    assert cut(r"abc\360\377\230\200", 5)[0] == "base64"


# ---- standard input ----------------------------------------------------------------------------------

def test_stdin_nothing():
    assert run("--", "/bin/cat").out == ""


def test_stdin_pipe():
    assert run("--", "/bin/cat", stdin=b"from a pipe\n").out == "from a pipe\n"


@pytest.mark.parametrize("size", [0, 1, 65536, 3_000_000])
def test_stdin_sizes(size):
    data = b"0123456789abcdef" * (size // 16 + 1)
    r = run("--", "/usr/bin/wc", "-c", stdin=data[:size])
    assert int(r.out) == size


def test_stdin_option(shared):
    (shared / "in").write_text("from a file\n")
    assert run("--stdin", shared / "in", "--", "/bin/cat").out == "from a file\n"


def test_stdin_file_as_descriptor(shared):
    (shared / "in").write_text("from a file\n")
    with open(shared / "in", "rb") as f:
        assert run("--", "/bin/cat", stdin=f).out == "from a file\n"


def test_stdin_never_read():
    """A guest that ends without reading is no error, however much was meant for it."""
    r = run("--", "/bin/true", stdin=b"x" * 5_000_000)
    assert r.verdict == "ok"


def test_stdin_that_never_ends():
    read, write = os.pipe()
    try:
        with os.fdopen(read, "rb") as f:
            r = run("--", SH, "-c", "read x; echo got $x", stdin=f, timeout=20) if os.write(write, b"line\n") else None
        assert r.out == "got line\n"
    finally:
        os.close(write)


# ---- environment -------------------------------------------------------------------------------------

def test_env_given_and_taken():
    r = run("--env", "A=1", "--env", "B=two words=x", "--env", "TAKEN", "--env", "EMPTY=", "--", "/usr/bin/env",
            env={"TAKEN": "from the host", "LEFT": "behind"})
    env = dict(line.split("=", 1) for line in r.out.splitlines())
    assert (env["A"], env["B"], env["TAKEN"], env["EMPTY"]) == ("1", "two words=x", "from the host", "")
    assert "LEFT" not in env and "E2E_SECRET" not in env


def test_env_name_the_host_does_not_have():
    r = run("--env", "NOT_SET_ANYWHERE", "--", "/usr/bin/env")
    assert r.code == 0 and "NOT_SET_ANYWHERE" not in r.out


def test_env_may_replace_the_defaults():
    r = run("--env", "LANG=C", "--env", "HOME=/tmp", "--", "/usr/bin/env")
    assert "LANG=C\n" in r.out and "HOME=/tmp\n" in r.out
    assert r.out.count("HOME=") == 1


# ---- files -------------------------------------------------------------------------------------------

def test_file_option(shared):
    (shared / "input.txt").write_text("put into the working directory\n")
    r = run("--file", f"data.txt={shared}/input.txt", "--", "/bin/cat", "data.txt")
    assert r.out == "put into the working directory\n"
    r = run("--file", f"data.txt={shared}/input.txt", "--", SH, "-c", "echo changed > data.txt && cat data.txt")
    assert r.out == "changed\n"
    assert (shared / "input.txt").read_text() == "put into the working directory\n"


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", ".."])
def test_file_option_stays_inside(name, shared):
    (shared / "x").write_text("x")
    assert cordon("run", "--file", f"{name}={shared}/x", "--", "/bin/true").returncode in (64, 78)


def test_mount(full, shared):
    (shared / "x").write_text("mounted\n")
    r = run("--mount", f"{shared}:/data", "--", SH, "-c", "cat /data/x; echo no > /data/y; echo $?")
    assert r.out.startswith("mounted\n") and not (shared / "y").exists()
    r = run("--mount", f"{shared}:/data:rw", "--", SH, "-c", "echo yes > /data/y")
    assert r.verdict == "ok", str(r)
    assert (shared / "y").read_text() == "yes\n"
    assert (shared / "y").stat().st_uid == os.getuid()


@pytest.mark.parametrize("source,place", [("", "/usr/share/no-such"), ("f", "/usr/share/no-such"), ("f", "/usr/share"), ("", "/etc/passwd"),
                                          ("", "/usr/bin/env/x")])
def test_a_mount_that_has_no_place_is_the_callers_mistake(full, shared, source, place):
    (shared / "f").write_text("f\n")
    r = run("--mount", f"{shared / source}:{place}", "--", SH, "-c", "echo ran", as_json=False)
    assert (r.code, r.raw) == (78, b"") and f"Error: mount: {place}: " in r.log_text and "\nHint: " in r.log_text, str(r)


@pytest.mark.parametrize("source,place", [("", "/mnt"), ("", "/data/deep"), ("", "/usr/share"), ("f", "/etc/passwd"), ("f", "/data/f")])
def test_a_mount_that_has_one(full, shared, source, place):
    (shared / "f").write_text("f\n")
    r = run("--mount", f"{shared / source}:{place}", "--", "/bin/cat", place if source else place + "/f")
    assert (r.verdict, r.out) == ("ok", "f\n"), str(r)


def test_no_file_is_put_into_a_workspace_that_is_read_only(full, shared):
    (shared / "w").mkdir()
    (shared / "f").write_text("f\n")
    words = ["--file", f"put={shared}/f", "--", "/bin/cat", "put"]
    r = run("--workspace", f"{shared}/w:ro", *words, as_json=False)
    assert (r.code, r.raw) == (78, b"") and "put: Read-only file system\nHint: " in r.log_text, str(r)
    assert run("--workspace", f"{shared}/w:overlay", *words).out == "f\n"


def test_relative_grant_is_relative_to_the_caller(shared):
    (shared / "sub").mkdir()
    (shared / "sub" / "x").write_text("here\n")
    assert run("--allow-read", "sub", "--", "/bin/cat", shared / "sub" / "x", cwd=shared).out == "here\n"


# ---- log ---------------------------------------------------------------------------------------------

def test_verbose_log():
    r = run("--log", "verbose", "--time-limit", "9s", "--", SH, "-c", "exit 3", as_json=False)
    assert r.code == 3
    lines = r.log_text.splitlines()
    assert all(line.startswith("[SANDBOX] ") for line in lines), r.log_text
    text = r.log_text
    for part in ("Starting with profile: default", "Time limit: 9s", "Memory limit:", "Network: denied",
                 "Filesystem: read-only", "Running:", "CPU time:", "Memory:", "Exit: 3"):
        assert part in text, (part, text)


def test_quiet_log():
    r = run("--log", "quiet", "--time-limit", "200ms", "--", "/bin/sleep", "9", as_json=False)
    assert (r.code, r.log) == (124, b"")


def test_a_home_of_somebody_else_holds_no_file_of_ours(shared):
    """As after su or setpriv without a new HOME. What is our own and closed is an error: there may be denials in it."""
    home = shared / "home"
    (home / "way").mkdir(parents=True)
    drop = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def code(says="", **variables):
        env = {k: v for k, v in host_env().items() if k not in ("HOME", "XDG_CONFIG_HOME")}
        done = subprocess.run([*drop, CORDON, "run", "--", "/bin/echo", "hi"], capture_output=True, text=True, env={**env, **variables},
                              cwd="/", timeout=30, check=False)
        assert says in done.stderr and (done.stdout == "hi\n") == (done.returncode == 0), done
        return done.returncode

    told = "config.toml: Permission denied\nHint: HOME "
    foreign = shared / "foreign" if drop else pathlib.Path("/root")
    if drop:
        foreign.mkdir(mode=0o700)
    elif foreign.stat().st_mode & 0o077:
        pytest.skip("needs a folder of another user's that is closed")
    assert code(HOME=str(foreign)) == 0
    assert code(told, HOME="/home/nobody", XDG_CONFIG_HOME=str(foreign)) == 78, "it was named for this"
    os.symlink(foreign / "home", shared / "link")
    assert code(told, HOME=str(shared / "link")) == 78, "whose folder refuses is not known"
    for folder in (home, home / "way"):
        if drop:
            os.chown(folder, 65534, 65534)
        os.chmod(folder, 0)
        assert code(told, HOME=str(home / "way")) == 78, "our own"
        os.chmod(folder, 0o755)
    assert code(HOME=str(home / "way")) == 0
    if drop:
        (home / "way" / ".config").mkdir(mode=0o700)
        assert code("Permission denied", HOME=str(home / "way")) == 78, "the home is ours, whoever closed a folder in it"


def test_works_from_a_folder_that_is_gone(shared):
    gone = shared / "gone"
    gone.mkdir()
    done = subprocess.run(["/bin/sh", "-c", f"cd {gone} && rmdir {gone} && exec {CORDON} run -- /bin/echo hi"],
                          capture_output=True, text=True, env=host_env(), timeout=30)
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


def test_works_with_closed_streams():
    for close in ("<&-", "<&- >&-", "<&- >&- 2>&-"):
        done = subprocess.run(["/bin/sh", "-c", f"exec {CORDON} run -- /bin/sh -c 'exit 8' {close}"],
                              capture_output=True, env=host_env(), timeout=30)
        assert done.returncode in (8, 70, 64), (close, done.returncode, done.stderr)


def test_works_below_a_hard_core_limit_of_zero():
    done = subprocess.run(["/bin/bash", "-c", f"ulimit -c 0; exec {CORDON} run -- /bin/echo hi"], capture_output=True,
                          text=True, env=host_env(), timeout=30)
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


@pytest.mark.parametrize("limit", ["-n 64", "-u 200", "-s 1024", "-f 2048", "-l 0"])
def test_works_below_tight_limits_of_the_caller(limit):
    done = subprocess.run(["/bin/bash", "-c", f"ulimit {limit} && exec {CORDON} run -- /bin/echo hi"],
                          capture_output=True, text=True, env=host_env(), timeout=30)
    assert (done.returncode, done.stdout) == (0, "hi\n"), (limit, done.returncode, done.stderr)


def test_root_may_have_one_process_of_a_user_only(world):
    """Root's own processes are not counted: in tier full the guest has that one. Below landlock it has to share it with our keeper, which is said."""
    if os.geteuid() != 0:
        pytest.skip("needs root: an ordinary user's own processes count")
    done = subprocess.run(["/bin/bash", "-c", f"ulimit -u 1 && exec {CORDON} run -- /bin/echo hi"],
                          capture_output=True, text=True, env=host_env(), timeout=30)
    if world.full:
        assert (done.returncode, done.stdout) == (0, "hi\n"), (done.returncode, done.stderr)
    else:
        assert (done.returncode, done.stdout) == (70, "") and "ulimit -u" in done.stderr, done
