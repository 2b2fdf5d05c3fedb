"""What every wall must do alike: seed 003's table and list, limits, verdicts, streams, files, network.

The first line of each docstring is a row of the table in docs/behaviour.md.
"""

import os
import signal
import socket
import subprocess
import threading
import time

import pytest


def living(word):
    """Processes of the host whose arguments hold a word."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if word.encode() in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def own(word):
    """A word that no other suite on this machine uses; also an argument of sleep."""
    return f"{word}.{os.getpid()}{time.time_ns() % 10**9:09}"


def gone(word, seconds=5.0):
    end = time.monotonic() + seconds
    while living(word) and time.monotonic() < end:
        time.sleep(0.05)
    return not living(word)


def refusing(wall, request):
    marker = request.node.get_closest_marker("refused")
    return marker is not None and any(word in wall.name for word in marker.args)


# ---- seed 003: behaviours ----

def test_echo(wall):
    """`echo hello` gives its output and 0"""
    got = wall.sh("echo hello")
    assert (got.code, got.out, got.verdict) == (0, "hello\n", "ok"), got
    assert got.result["enforcement"]["backend"] == wall.name.split()[0]
    assert got.layers["no_new_privs"] == "on" and got.layers["caps"] == "none" and got.layers["seccomp"] == "on"


def test_exit_code(wall):
    """`exit 42` gives 42"""
    got = wall.sh("exit 42")
    assert (got.code, got.verdict) == (42, "nonzero_exit"), got


def test_timeout(wall):
    """`sleep 120` ends at the time limit and leaves nothing running"""
    word = own("120")
    got = wall.run("--time-limit", "2s", "--", "sleep", word)
    assert got.verdict == "time_limit" and got.code == 124 and got.result["timed_out"], got
    assert gone(word), living(word)


def test_rm_root(wall):
    """`rm -rf /` fails"""
    assert wall.sh("rm -rf /").code != 0


def test_rm_root_for_sure(wall):
    """`rm -rf --no-preserve-root /` says Read-only (gVisor: Permission denied)"""
    word = "Permission denied" if wall.is_gvisor else "Read-only"
    got = wall.sh(f"set -o pipefail; rm -rf --no-preserve-root / 2>&1 | grep -m1 -o '{word}'", "--time-limit", "100s")
    assert got.out.startswith(word), got


def test_sudo(wall):
    """`sudo whoami` fails"""
    got = wall.sh("sudo whoami")
    assert got.code != 0 and "root" not in got.out


# ---- seed 003: verify list ----

def test_user(wall):
    """the user is `sandbox`, not root, without rights"""
    got = wall.sh("id -un; id -u; grep -E 'Cap(Inh|Prm|Eff|Bnd)' /proc/self/status | sort -u -k2")
    lines = got.out.split("\n")
    assert lines[:2] == ["sandbox", "1000"], got
    assert all(line.endswith("0000000000000000") for line in lines[2:] if line), got


def test_no_new_privileges(wall):
    """no_new_privs is set"""
    got = wall.run("--", "python3", "-c", "import ctypes; print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))")
    assert got.out == "1\n", got


def test_etc(wall):
    """/etc cannot be written"""
    assert wall.sh("echo x > /etc/x").code != 0
    assert wall.sh("echo x >> /etc/passwd").code != 0


def test_usr(wall):
    """/usr cannot be written"""
    assert wall.sh("echo x > /usr/bin/x").code != 0


def test_tmp(wall):
    """/tmp and the home folder can be written and are private"""
    got = wall.sh("echo a > /tmp/behaviour-a && echo b > ~/b && cat /tmp/behaviour-a ~/b && pwd")
    assert got.out == "a\nb\n/home/sandbox\n", got
    assert not os.path.exists("/tmp/behaviour-a")
    assert wall.sh("cat /tmp/behaviour-a").code != 0, "nothing stays for the next guest"


def test_python(wall):
    """Python 3 works"""
    got = wall.run("--", "python3", "-c", "import json, subprocess, threading; print(json.dumps([1]))")
    assert got.out == "[1]\n", got


# ---- limits ----

def test_memory(wall):
    """memory over the limit is `memory_limit`"""
    got = wall.run("--memory-limit", "128M", "--", "python3", "-c", "x = bytearray(400 << 20); print(len(x))")
    assert got.verdict == "memory_limit" and got.code == 125, got
    twin = wall.run("--memory-limit", "1G", "--", "python3", "-c", "x = bytearray(400 << 20); print(len(x))")
    assert twin.verdict == "ok", twin


def test_fork_bomb(wall):
    """a fork bomb stays inside and is `process_limit`"""
    word = own("fork")
    got = wall.run("--processes", "48", "--time-limit", "60s", "--", "python3", "-c",
                   "import os, time\nfor i in range(5000):\n"
                   " try:\n  if os.fork() == 0: time.sleep(100); os._exit(0)\n"
                   " except OSError: print('refused', i, flush=True); os._exit(7)\nprint('all')", word)
    assert "all" not in got.out, got
    assert got.verdict == "process_limit" and got.code == 122, got
    assert got.result["limit"] == {"name": "processes", "value": "48"}, got
    assert gone(word), living(word)


def looked_at(wall):
    """What a guest does before it says that it got through: a kernel of its own has no group to count its tasks, they
    are looked at every 20 ms. Linux refuses the one too many at once."""
    return "time.sleep(1)\n" if wall.is_gvisor else ""


def test_threads_count(wall):
    """threads count as processes"""
    code = ("import threading, time\nfor i in range(%d): threading.Thread(target=time.sleep, args=(2,)).start()\n"
            + looked_at(wall) + "print('all')")
    got = wall.run("--processes", "48", "--time-limit", "60s", "--", "python3", "-c", code % 80)
    assert "all" not in got.out and got.verdict == "process_limit", got
    twin = wall.run("--processes", "48", "--time-limit", "60s", "--", "python3", "-c", code % 20)
    assert twin.verdict == "ok", twin


def test_cpu_time(wall):
    """CPU time over the limit is `cpu_time_limit`"""
    got = wall.run("--cpu-time", "400ms", "--time-limit", "60s", "--", "python3", "-c", "while True: pass")
    assert got.verdict == "cpu_time_limit" and got.code == 124 and got.result["timed_out"], got
    assert got.result["cpu_user_ms"] + got.result["cpu_sys_ms"] > 200, got
    twin = wall.run("--cpu-time", "20s", "--time-limit", "60s", "--", "true")
    assert twin.verdict == "ok", twin


def test_one_process(wall):
    """`--processes 1` means no fork"""
    got = wall.run("--processes", "1", "--", "python3", "-c", "import os; os.fork(); print(1)")
    assert got.verdict in ("process_limit", "nonzero_exit") and not got.out, got
    assert wall.run("--processes", "1", "--", "/bin/true").verdict == "ok"


def test_few_processes(wall):
    """a small number of processes holds too"""
    code = ("import os, time\nfor i in range(%d):\n try:\n  if os.fork() == 0: time.sleep(3); os._exit(0)\n"
            " except OSError: os._exit(7)\n" + looked_at(wall) + "print('all')")
    got = wall.run("--processes", "4", "--time-limit", "60s", "--", "python3", "-c", code % 12)
    assert got.verdict == "process_limit" and "all" not in got.out, got
    twin = wall.run("--processes", "4", "--time-limit", "60s", "--", "python3", "-c", code % 3)
    assert twin.out == "all\n", twin


def test_output(wall):
    """output is cut at the cap, counted, and the guest lives on"""
    got = wall.sh("head -c 3000000 /dev/zero | tr '\\0' x; echo end >&2", "--max-output", "1000")
    assert got.verdict == "ok" and len(got.out) == 1000 and got.result["stdout_truncated"], got
    assert got.result["stdout_bytes"] == 3000000 and got.err == "end\n"


def test_output_kill(wall):
    """with --kill-on-output-limit the cap ends the guest: `output_limit`"""
    got = wall.sh("yes", "--max-output", "1000", "--kill-on-output-limit", "--time-limit", "60s")
    assert got.verdict == "output_limit" and got.code == 122 and len(got.out) == 1000, got


def test_disk_limit(wall):
    """`--disk-limit` is one total over /tmp and the home folder: `disk_limit`"""
    script = "head -c 3M /dev/zero > /tmp/a && head -c 3M /dev/zero > ~/b && echo both"
    got = wall.sh(script, "--disk-limit", "4M")
    assert got.verdict == "disk_limit" and got.code == 122, got
    assert wall.is_docker or "both" not in got.out, got  # an engine's folders are looked at, every 20 ms
    assert wall.sh(script, "--disk-limit", "8M").out == "both\n"


def test_disk(wall):
    """the private /tmp is bounded"""
    got = wall.sh("head -c 2000M /dev/zero > /tmp/big; ls -s /tmp/big >/dev/null; exit 3", "--memory-limit", "256M",
                  "--time-limit", "60s")
    assert got.code != 0, got


# ---- ends ----

@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_signals(wall, name):
    """death by a signal is told as such"""
    got = wall.sh(f"kill -{name} $$")
    assert got.verdict == "signaled" and got.result["signal"] == getattr(signal, "SIG" + name), got
    assert got.code == 128 + got.result["signal"]


@pytest.mark.parametrize("status", [1, 126, 127, 129, 137, 143, 192, 255])
def test_exit_codes(wall, status):
    """every exit status is the guest's own, also those that look like signals or missing commands"""
    got = wall.sh(f"exit {status}")
    assert (got.verdict, got.code, got.result["exit_code"]) == ("nonzero_exit", status, status), got
    assert got.result["signal"] is None and got.result["error"] is None, got


def test_not_found(wall):
    """a missing command is 127, one that cannot be executed 126, and the result says why"""
    for command, code, why in (("/usr/bin/no-such-command", 127, "not found"), ("no-such-command", 127, "not found"),
                               ("/etc/passwd", 126, "cannot be executed")):
        got = wall.run("--", command)
        assert (got.verdict, got.code) == ("nonzero_exit", code) and why in got.result["error"], got


def test_pid_1_is_out_of_reach(wall):
    """the guest can neither stop nor kill nor read the pid 1 that watches it"""
    got = wall.sh("for s in STOP TSTP TERM KILL; do kill -$s 1; done; cat /proc/1/mem; exit 5",
                  "--time-limit", "30s")
    assert (got.verdict, got.code, got.out) == ("nonzero_exit", 5, ""), got
    got = wall.run("--processes", "48", "--time-limit", "60s", "--", "python3", "-c",
                   "import os, signal, time\n"
                   "try: os.kill(1, signal.SIGSTOP)\nexcept OSError: pass\n"
                   "for i in range(200):\n try:\n  if os.fork() == 0: time.sleep(100); os._exit(0)\n"
                   " except OSError: os._exit(7)\n" + looked_at(wall) + "print('all')")
    assert got.verdict == "process_limit" and "all" not in got.out, got


def test_caught_signal(wall):
    """a guest may catch a signal and end as it likes"""
    got = wall.sh("trap 'echo caught; exit 9' TERM; kill -TERM $$; sleep 20")
    assert (got.code, got.out) == (9, "caught\n"), got


def test_left_behind(wall):
    """what the main process leaves behind ends with it"""
    word = own("77")
    began = time.monotonic()
    got = wall.sh(f"setsid sleep {word} & disown; echo done")
    assert got.out == "done\n" and time.monotonic() - began < 30, got
    assert gone(word), living(word)


def test_killed_cordon(wall):
    """kill -9 of Cordon ends the guest"""
    word = own("99")
    child = wall.popen("--time-limit", "60s", "--", "bash", "-c", f"echo up; exec sleep {word}")
    try:
        assert child.stdout.readline() == b"up\n", child.stderr.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    assert gone(word, 10), living(word)


def test_cancelled(wall):
    """SIGTERM to Cordon is `cancelled`, 130"""
    word = own("98")
    child = wall.popen("--time-limit", "60s", "--", "bash", "-c", f"echo up; exec sleep {word}")
    assert child.stdout.readline() == b"up\n"
    child.terminate()
    child.communicate(timeout=30)
    assert child.returncode == 130 and gone(word, 10)


# ---- streams ----

def test_stdin(wall):
    """standard input arrives to its end"""
    data = os.urandom(300000).hex().encode()
    got = wall.run("--", "wc", "-c", stdin=data)
    assert got.out.strip() == str(len(data)), got


def test_bytes(wall):
    """bytes come out as they are, the two streams apart"""
    got = wall.sh(r"printf '\xff\x00\xfe'; printf err >&2")
    assert got.stream("stdout") == b"\xff\x00\xfe" and got.err == "err", got


# ---- what is passed in and out ----

def test_environment(wall):
    """variables that were asked for arrive, the caller's do not"""
    got = wall.sh("echo $KEY; env | sort | cut -d= -f1 | tr '\\n' ' '", "--env", "KEY=v a l")
    assert got.out.startswith("v a l\n"), got
    names = set(got.out.split("\n")[1].split())
    assert {"PATH", "HOME", "USER", "LANG", "TMPDIR", "KEY"} <= names and "E2E_SECRET" not in names, got


def test_files_in(wall, folder):
    """`--file` puts files into the working directory"""
    (folder / "in").write_text("in\n")
    got = wall.sh("cat a/b; echo more >> a/b && ls", "--file", f"a/b={folder}/in")
    assert (got.out, got.code) == ("in\na\n", 0), got


def test_files_out(wall, folder):
    """`--output` brings files out of the guest's private folders"""
    got = wall.sh("echo result > x.out; echo no > y", "--output", f"*.out={folder}/got")
    assert got.verdict == "ok" and sorted(os.listdir(folder / "got")) == ["x.out"], got
    assert (folder / "got" / "x.out").read_text() == "result\n"


def test_workspace_read_only(wall, folder):
    """a workspace can be read and, with ro, not written"""
    (folder / "a.txt").write_text("text\n")
    got = wall.sh("cat a.txt; pwd; echo x > a.txt", "--workspace", f"{folder}:ro")
    assert got.out == "text\n/workspace\n" and got.code != 0, got
    assert (folder / "a.txt").read_text() == "text\n"


@pytest.mark.refused("docker runsc")
def test_workspace_writable(wall, folder, request):
    """a workspace with rw is written, and its files belong to the caller"""
    if wall.is_gvisor and not wall.is_docker and os.geteuid() != 0 and wall.run(
            "--workspace", f"{folder}:rw", "--", "true").code == 69:
        pytest.skip("rootless gVisor without a second id refuses writable host files")
    got = wall.sh("echo made > b.txt && cat b.txt", "--workspace", f"{folder}:rw")
    if refusing(wall, request):
        assert got.code == 69, got
        return
    assert got.out == "made\n", got
    assert (folder / "b.txt").read_text() == "made\n"
    assert (folder / "b.txt").stat().st_uid == os.geteuid()


@pytest.mark.refused("docker runsc")
def test_workspace_overlay(wall, folder, request):
    """an overlay workspace leaves the host's tree as it is and gives the diff"""
    (folder / "a.txt").write_text("one\n")
    got = wall.sh("echo two > a.txt; echo new > b.txt", "--workspace", f"{folder}:overlay")
    if refusing(wall, request):
        assert got.code == 69, got
        return
    if got.code == 69 and wall.is_gvisor and os.geteuid() != 0:
        pytest.skip("rootless gVisor without a second id refuses writable host files")
    assert got.verdict == "ok", got
    assert {(f["path"], f["kind"]) for f in got.result["changed_files"]} == {("a.txt", "modified"), ("b.txt", "added")}
    assert (folder / "a.txt").read_text() == "one\n" and not (folder / "b.txt").exists()


def test_grants(wall, folder):
    """a host folder granted for reading is there, and only that"""
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("x\n")
    (folder / "secret").write_text("secret\n")
    got = wall.sh(f"cat {folder}/data/x; cat {folder}/secret", "--allow-read", folder / "data")
    assert got.out == "x\n" and got.code != 0, got


# ---- network ----

def test_network_none(wall):
    """no network: nothing of the host answers"""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    got = wall.run("--", "python3", "-c",
                   "import socket, sys\nfor host in ('127.0.0.1', '10.0.0.1', '192.0.2.1'):\n"
                   f" s = socket.socket(); s.settimeout(1)\n try:\n  s.connect((host, {port})); print('open', host)\n"
                   " except OSError: pass\nprint('closed')")
    server.close()
    assert got.out == "closed\n", got


def test_own_loopback(wall):
    """the guest's own loopback works"""
    got = wall.run("--", "python3", "-c",
                   "import socket\ns = socket.create_server(('127.0.0.1', 0))\n"
                   "c = socket.create_connection(s.getsockname())\ns.accept()[0].sendall(b'hi')\nprint(c.recv(2).decode())")
    assert got.out == "hi\n", got


@pytest.mark.refused("docker")
def test_allowlist(wall, request):
    """a network allowlist: an allowed name has an address, another one has none and is in `denials`"""
    got = wall.run("--allow-network", "example.com", "--", "python3", "-c",
                   "import socket\nfor name in ('example.com', 'other.example'):\n"
                   " try: socket.getaddrinfo(name, 80); print('yes')\n except OSError: print('no')")
    if refusing(wall, request):
        assert got.code == 69 and got.verdict == "sandbox_error" and not got.out, got
    else:
        assert got.verdict == "ok" and got.out == "yes\nno\n" and got.denied("other.example", "network"), got


# ---- kernel ----

@pytest.mark.parametrize("command", ["mount -t tmpfs none /tmp", "unshare -U true", "chroot / true"])
def test_privileged_calls(wall, command):
    """mounting, user namespaces and chroot are refused"""
    assert wall.sh(command).code != 0


def test_own_processes_only(wall):
    """the guest sees only its own processes"""
    got = wall.sh("ls /proc | grep -c '^[0-9]'")
    assert int(got.out) < 12, got


def test_groups_have_no_name(wall):
    """the guest's control groups do not show the host's names"""
    got = wall.sh("cat /proc/self/cgroup")
    assert got.code == 0 and not [line for line in got.out.splitlines() if not line.endswith(":/")], got


def test_many_at_once(wall):
    """guests beside each other do not mix"""
    out = {}

    def one(i):
        out[i] = wall.sh(f"echo {i} > /tmp/x; sleep 0.2; cat /tmp/x").out

    threads = [threading.Thread(target=one, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == {i: f"{i}\n" for i in range(3)}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the mounts of the host")
def test_nothing_stays(wall):
    """no mount, group or file of a run stays on the host"""
    def look():
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            # where ours would be; engines and other walls beside us have theirs elsewhere
            mounts = [line for line in f if line.split()[4].startswith(("/dev/shm", "/tmp", "/home", "/sys"))]
        files = [name for name in os.listdir("/tmp") if not name.startswith("second-try-")]  # other walls' driver
        return mounts, sorted(os.listdir("/dev/shm")), sorted(files)
    before, pids = look(), []
    for words in (("bash", "-c", "echo x > /tmp/x; echo y > /dev/shm/y; exit 1"), ("sleep", "20")):
        child = wall.popen("--time-limit", "1s", "--", *words)
        child.communicate(timeout=60)
        pids.append(child.pid)
    assert look() == before
    for pid in pids:  # groups carry the number of the Cordon they belong to
        left = subprocess.run(["find", "/sys/fs/cgroup", "-maxdepth", "3", "-name", f"cordon-{pid}-*"],
                              capture_output=True, text=True, check=False).stdout.split()
        here = f"-{os.stat('/proc/self/ns/pid').st_ino}-"
        assert not [path for path in left if here in path]
