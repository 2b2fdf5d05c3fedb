"""What a guest in a container meets: seed 003's table and verify list, limits, ends, streams, files, network."""

import os

import pytest


@pytest.mark.both
def test_behaviours(sh):
    result = sh("echo hello")
    assert result.verdict == "ok" and result.out == "hello\n" and result.result["enforcement"]["backend"] == "docker"
    assert sh("exit 42").code == 42
    assert sh("rm -rf /").code != 0
    result = sh("rm -rf --no-preserve-root / 2>&1")
    assert result.code != 0 and "Read-only" in result.out
    assert sh("sudo whoami").code != 0


VERIFY = {
    "user_is_sandbox": ("id -un", 0, "sandbox\n"),
    "user_not_root": ("test $(id -u) != 0", 0, ""),
    "sudo_blocked": ("sudo -n true 2>/dev/null && echo yes; true", 0, ""),
    "su_blocked": ("su -c true 2>/dev/null && echo yes; true", 0, ""),
    "etc_readonly": ("touch /etc/x 2>/dev/null", 1, ""),
    "usr_readonly": ("touch /usr/x 2>/dev/null", 1, ""),
    "tmp_writable": ("echo 1 >/tmp/x && cat /tmp/x", 0, "1\n"),
    "home_writable": ("cd; pwd; echo 1 >x && cat x", 0, "/home/sandbox\n1\n"),
    "shm_writable": ("echo 1 >/dev/shm/x && cat /dev/shm/x", 0, "1\n"),
    "tmp_runs_programs": ("cp /bin/true /tmp/t && /tmp/t && echo ok", 0, "ok\n"),
    "python_available": ("python3 -c 'print(1)'", 0, "1\n"),
    "bash_available": ("echo ${BASH_VERSION:+bash}", 0, "bash\n"),
    "host_name": ("cat /proc/sys/kernel/hostname", 0, "cordon\n"),
    "no_capabilities": ("grep -h Cap /proc/self/status | cut -f2 | sort -u", 0, "0000000000000000\n"),
    "no_new_privileges": ("grep -h NoNewPrivs /proc/self/status | cut -f2", 0, "1\n"),
    "filter": ("grep -h Seccomp: /proc/self/status | cut -f2", 0, "2\n"),
    "no_setuid_files": ("find / -xdev -perm /6000 -type f 2>/dev/null | head -3", 0, ""),
    "kernel_files_masked": ("cat /proc/kcore /proc/keys /proc/timer_list /proc/kallsyms 2>/dev/null | wc -c", 0, "0\n"),
    "clean_environment": ("env | cut -d= -f1 | grep -vE '^(PWD|SHLVL|_)$' | sort | tr '\\n' ' '", 0,
                          "HOME LANG PATH TMPDIR USER "),
    "descriptors": ("ls /proc/self/fd | tr '\\n' ' '", 0, "0 1 2 3 "),  # 3: the folder being listed
    "not_pid_1": ("test $$ != 1", 0, ""),
}


@pytest.mark.parametrize("name", VERIFY)
def test_verify(sh, name):
    script, status, output = VERIFY[name]
    result = sh(script)
    assert (result.code, result.out) == (status, output), result


def test_time_limit_leaves_nothing(sh, engine):
    result = sh("trap '' TERM; (setsid sleep 300 &); sleep 120", "--time-limit", "1s")
    assert result.verdict == "time_limit" and result.code == 124 and result.result["timed_out"]
    assert result.result["wall_ms"] >= 990 and engine.containers() == []
    assert "Error: Execution exceeded time limit (1s)" in result.log_text


def test_cpu_time(sh):
    result = sh("while :; do :; done", "--cpu-time", "300ms", "--time-limit", "30s")
    assert result.verdict == "cpu_time_limit" and result.code == 124
    assert result.result["cpu_user_ms"] + result.result["cpu_sys_ms"] >= 250


def test_memory_limit(run):
    fill = ["--", "python3", "-c", "x = bytearray(%d << 20); print(len(x))"]
    result = run("--memory-limit", "60M", *fill[:-1], fill[-1] % 200)
    assert result.verdict == "memory_limit" and result.code == 125 and result.result["oom_kills"] >= 1
    assert result.result["limit"] == {"name": "memory_limit", "value": "60M"}
    result = run("--memory-limit", "400M", *fill[:-1], fill[-1] % 200)
    assert result.verdict == "ok" and result.result["peak_memory_bytes"] > 200 << 20


def test_memory_in_tmp_counts(sh):
    """The writable folders are memory: together they cannot pass its limit."""
    result = sh("for d in /tmp ~ /dev/shm; do head -c 40M /dev/zero >$d/f || exit 9; done; echo all", "--memory-limit", "64M")
    assert result.verdict == "memory_limit", result


def test_process_limit(run, sh):
    # not bash, which tries again and again
    result = run("--processes", "5", "--", "dash", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait")
    assert result.verdict == "process_limit" and result.code == 122
    result = sh("for i in 1 2 3; do sleep 0.3 & done; wait", "--processes", "5")
    assert result.verdict == "ok" and 2 <= result.result["processes_peak"] <= 5


def test_cpu_share(sh):
    result = sh("while :; do :; done", "--cpu-limit", "20", "--time-limit", "2s")
    used = result.result["cpu_user_ms"] + result.result["cpu_sys_ms"]
    assert result.verdict == "time_limit" and 100 < used < 900


@pytest.mark.parametrize("signal", [9, 15, 11, 6])
def test_signals(sh, signal):
    result = sh(f"kill -{signal} $$")
    assert result.verdict == "signaled" and result.result["signal"] == signal and result.code == 128 + signal


def test_status_beyond_128_is_no_signal(sh):
    result = sh("exit 137")
    assert result.verdict == "nonzero_exit" and result.code == 137 and result.result["signal"] is None


def test_not_found_and_not_executable(run):
    result = run("--", "no-such-program")
    assert result.code == 127 and result.verdict == "nonzero_exit" and "not found" in result.result["error"]
    result = run("--", "/etc/passwd")
    assert result.code == 126 and result.verdict == "nonzero_exit" and result.result["error"]


def test_streams(sh, run):
    result = sh("echo out; echo err >&2; exit 3")
    assert (result.out, result.err, result.code) == ("out\n", "err\n", 3)
    data = os.urandom(3_000_000)
    result = run("--", "cat", stdin=data)
    assert result.stream("stdout") == data and result.result["stdout_encoding"] == "base64"
    assert run("--", "cat").out == ""
    result = sh("head -c 40M /dev/zero; echo end >&2", "--max-output", "1000")
    assert result.result["stdout_bytes"] == 40 << 20 and result.result["stdout_truncated"] and result.err == "end\n"
    assert len(result.stream("stdout")) == 1000
    result = sh("yes", "--max-output", "1000", "--kill-on-output-limit", "--time-limit", "60s")
    assert result.verdict == "output_limit" and result.code == 122


def test_live_output(cordon):
    done = cordon("run", "--backend", "docker", "--", "bash", "-c", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "out\n", "err\n")


def test_environment(run):
    result = run("--env", "KEY=värde", "--env", "TAKEN", "--", "bash", "-c", "echo $KEY $TAKEN $E2E_SECRET",
                 env={"TAKEN": "from-host"})
    assert result.out == "värde from-host\n"


def test_files_in(run, folder):
    (folder / "data.txt").write_text("data\n")
    result = run("--file", f"sub/in.txt={folder}/data.txt", "--", "cat", "sub/in.txt")
    assert result.out == "data\n", result
    result = run("--file", f"../in.txt={folder}/data.txt", "--", "true", as_json=False)
    assert result.code in (64, 78)


@pytest.mark.both
def test_workspace(sh, folder):
    (folder / "private").write_text("mine\n")
    (folder / "private").chmod(0o600)
    result = sh("pwd; id -un; cat private; echo new >made; stat -c %U made private", "--workspace", f"{folder}:rw")
    assert result.out == "/workspace\nsandbox\nmine\nsandbox\nsandbox\n", result
    made = os.stat(folder / "made")
    assert (made.st_uid, made.st_gid) == (os.geteuid(), os.getegid())
    result = sh("cat made; touch more", "--workspace", f"{folder}:ro")
    assert result.out == "new\n" and "Read-only" in result.err and result.code != 0
    assert sh("ls /workspace", "--workspace", f"{folder}:none").out == ""


@pytest.mark.both
def test_grants(sh, folder):
    for name in ("a", "b", "c.secret"):
        (folder / name).write_text(name)
    result = sh(f"cat {folder}/a; touch {folder}/x", "--allow-read", str(folder))
    assert result.out == "a" and "Read-only" in result.err
    result = sh(f"cat {folder}/a {folder}/c.secret", "--allow-read", str(folder), "--deny", f"{folder}/*.secret")
    assert result.out == "a"
    result = sh("cat /data/b", "--mount", f"{folder}:/data")
    assert result.out == "b"
    assert sh(f"cat {folder}/a").code != 0


def test_setuid_files_cannot_be_left(sh, folder):
    result = sh("touch f && chmod 4755 f; stat -c %a f", "--workspace", f"{folder}:rw")
    assert result.out == "644\n" and os.stat(folder / "f").st_mode & 0o6000 == 0


def test_refused_calls_are_counted(sh):
    result = sh("unshare -U true")
    assert result.code != 0 and result.denied("unshare", "syscall") and result.layers["denials"] == "observed"


def test_seccomp_profile(sh, folder):
    (folder / "p.json").write_text('{"defaultAction":"SCMP_ACT_ALLOW","syscalls":'
                                   '[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}')
    result = sh("mkdir /tmp/d", "--seccomp", str(folder / "p.json"))
    assert result.code != 0 and "not permitted" in result.err
    assert sh("mkdir /tmp/d").code == 0


def test_source_text(run, folder):
    (folder / "prog.py").write_text("import sys\nprint(sys.argv[1:], 6 * 7)\n")
    result = run(str(folder / "prog.py"), "a")
    assert result.out == "['a'] 42\n" and result.result["stage"] == "run"


def test_gvisor(engine, need, run):
    need("runsc" in engine.runtimes, "runsc is missing: install the Debian package runsc")

    def guest(script, *options):
        return run("--runtime", "runsc", "--time-limit", "60s", *options, "--", "bash", "-c", script)
    result = guest("id -un; cat /proc/version; exit 7")
    assert result.code == 7 and result.out.startswith("sandbox\nLinux version 4.4.0"), result
    assert result.layers["runtime"] == "runsc" and "sampled" in result.layers["limits"]
    result = guest("rm -rf --no-preserve-root / 2>&1")
    assert result.code != 0 and ("Permission denied" in result.out or "Read-only" in result.out)
    result = guest("sleep 300", "--time-limit", "2s")
    assert result.verdict == "time_limit"
    result = guest("python3 -c 'x = bytearray(600 << 20)'", "--memory-limit", "150M")
    assert result.verdict == "memory_limit", result
    result = guest("while :; do :; done", "--cpu-time", "500ms")
    assert result.verdict == "cpu_time_limit", result
