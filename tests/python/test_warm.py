"""Prepared guests: the same results, each used once, and nothing of one run in the next."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from cordon import Sandbox, SandboxError

pytestmark = pytest.mark.full_tier("guests are prepared in tier full only")

COMMAND = str(pathlib.Path(__file__).resolve().parents[2] / "build/cordon")
READY = 15.0  # seconds a loaded machine may take to prepare a guest


def prepared(sandbox, argv=("true",), **options):
    """A run that used a prepared guest; earlier ones, which may not have, are made on the way."""
    until = time.monotonic() + READY
    while True:
        before = sandbox.stats()
        result = sandbox.run_command(list(argv), **options)
        after = sandbox.stats()
        if after.prepared > before.prepared:
            return result
        assert time.monotonic() < until, f"no guest was prepared: {after}"
        time.sleep(0.02)


@pytest.fixture
def sandbox():
    with Sandbox(timeout=10) as made:
        prepared(made)
        yield made


def children(pid):
    """Every process below pid, as (pid, name)."""
    found, todo = [], [pid]
    while todo:
        at = todo.pop()
        try:
            with open(f"/proc/{at}/task/{at}/children") as file:
                below = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in below:
            try:
                with open(f"/proc/{child}/comm") as file:
                    found.append((child, file.read().strip()))
            except OSError:
                continue
            todo.append(child)
    return found


def named(sandbox, name):
    return [pid for pid, comm in children(sandbox._lease.supervisor_pid()) if comm == name]


def end(pids):
    """Kills them and waits until they and everything below them are gone."""
    below = list(pids) + [child for pid in pids for child, _ in children(pid)]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    until = time.monotonic() + READY
    while any(alive(pid) for pid in below) and time.monotonic() < until:
        time.sleep(0.01)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


# ---- late binding -------------------------------------------------------------------------------

def test_command_environment_files_input_and_status(sandbox):
    shell = 'printf "%s|%s|%s|" "$WORD" "$(cat in.txt)" "$(pwd)"; cat; exit 7'
    for i in range(3):
        result = prepared(sandbox, ["sh", "-c", shell], env={"WORD": f"w{i}"}, files={"in.txt": f"f{i}"},
                          stdin=f"s{i}")
        assert (result.stdout, result.exit_code) == (f"w{i}|f{i}|/home/sandbox|s{i}", 7)


def test_large_files_travel(sandbox):
    data = os.urandom(3 << 20)
    result = prepared(sandbox, ["sha256sum", "big"], files={"big": data})
    import hashlib
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()


def cold(argv):
    """The result of a run that nothing was prepared for: all sandboxes of a process share their guests."""
    done = subprocess.run([COMMAND, "run", "--json", "--time-limit", "10s", "--memory-limit", "256M", "--", *argv],
                          capture_output=True, text=True, cwd="/")
    return json.loads(done.stdout)


def test_same_fields_as_a_cold_start(sandbox):
    command = ["sh", "-c", "echo out; echo err >&2; exit 3"]
    warm, other = prepared(sandbox, command), cold(command)
    for field in ("stdout", "stderr", "exit_code", "verdict", "processes_peak", "denials", "error"):
        assert getattr(warm, field) == other[field], field
    assert warm.enforcement["layers"] == other["enforcement"]["layers"]


LOOK = """
import os, json, resource
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "ids": (os.getuid(), os.getgid(), os.getgroups()), "ppid": os.getppid(), "sid": os.getsid(0) == os.getpid(),
    "caps": [status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "nnp": status["NoNewPrivs"], "seccomp": status["Seccomp"], "umask": status["Umask"],
    "fds": sorted(os.listdir("/proc/self/fd"))[:3], "nfds": len(os.listdir("/proc/self/fd")),
    "host": os.uname().nodename, "root": sorted(os.listdir("/")),
    "dev": [(n, oct(os.stat("/dev/" + n).st_mode), os.stat("/dev/" + n).st_rdev) for n in sorted(os.listdir("/dev")) if not n.startswith("std")],
    "proc1": open("/proc/1/cmdline", "rb").read().rstrip(b"\\0").decode(), "env": dict(os.environ),
    "pids": ["own" if p == str(os.getpid()) else p for p in os.listdir("/proc") if p.isdigit()], "etc": sorted(os.listdir("/etc")),
    "mounts": [line.split()[1:4] for line in open("/proc/self/mounts")],
    "uid_map": open("/proc/self/uid_map").read().split()[::2],
    "limits": [resource.getrlimit(getattr(resource, n)) for n in ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_NPROC")],
    "mode": oct(os.stat("/tmp").st_mode), "ns": open("/proc/sys/user/max_user_namespaces").read(),
}, sort_keys=True))
"""


def test_the_guest_sees_what_a_cold_one_sees(sandbox):
    command = ["python3", "-I", "-c", LOOK]
    warm = json.loads(prepared(sandbox, command).stdout)
    other = json.loads(cold(command)["stdout"])
    for view in (warm, other):
        # of one file system a ready root is another place of it, and its devices lie in it
        nodes = {"/dev/" + name for name in ("null", "zero", "full", "random", "urandom", "tty")}
        view["mounts"] = sorted({"/dev" if m[0] in nodes else m[0] for m in view["mounts"]})
        # who starts guests in a room is outside of their namespace
        assert view.pop("ppid") in (0, 1)
    assert warm == other


def test_limits_are_those_of_the_run(sandbox):
    eat = ["python3", "-c", "x = bytearray(96 << 20); print(len(x))"]
    with Sandbox(timeout=10, max_memory_mb=200) as large, Sandbox(timeout=10, max_memory_mb=64) as small:
        assert prepared(large, eat).exit_code == 0
        for _ in range(3):
            assert small.run_command(eat).verdict == "memory_limit"
        assert prepared(large, eat).exit_code == 0
        assert prepared(small).exit_code == 0


def test_time_limit_and_leftover_processes(sandbox):
    result = prepared(sandbox, ["sh", "-c", "setsid sleep 3007.5 & sleep 3007.5"], timeout=0.5)
    assert result.verdict == "time_limit"
    result = prepared(sandbox, ["sh", "-c", "setsid sleep 3008.5 & echo done"])
    assert result.stdout == "done\n"
    time.sleep(0.2)
    assert not subprocess.run(["pgrep", "-f", "^sleep 300[78][.]5$"], capture_output=True).stdout


def test_not_found_and_denials(sandbox):
    assert prepared(sandbox, ["no-such-program"]).exit_code == 127
    result = prepared(sandbox, ["unshare", "-U", "true"])
    assert result.exit_code != 0 and any(d["target"] == "unshare" for d in result.denials)


# ---- nothing of one run in the next -------------------------------------------------------------

PLANT = r"""
import ctypes, os, socket, json
secret = os.environ["SECRET"]
for place in ("/tmp/x", "/home/sandbox/x", "/dev/shm/x"):
    open(place, "w").write(secret)
libc = ctypes.CDLL(None, use_errno=True)
made = []
if libc.shmget(0x5EC2E7, 4096, 0o1666) >= 0: made.append("shm")
if libc.semget(0x5EC2E7, 1, 0o1666) >= 0: made.append("sem")
if libc.msgget(0x5EC2E7, 0o1666) >= 0: made.append("msg")
fd = libc.mq_open(b"/secret", 0o102, 0o600, None)
if fd >= 0: made.append("mq")
s = socket.socket(socket.AF_UNIX); s.bind("\0secret"); s.listen(); made.append("abstract")
t = socket.socket(); t.bind(("127.0.0.1", 5555)); t.listen(); made.append("tcp")
c = socket.create_connection(("127.0.0.1", 5555)); c.close(); made.append("connected")
print(json.dumps(made))
"""

# without a memory group the filter refuses System V objects to every guest
PLANTED = {"abstract", "tcp", "connected"} | ({"shm", "sem", "msg"} if os.geteuid() == 0 else set())

FIND = r"""
import ctypes, os, socket, json
found = []
for folder in ("/tmp", "/home/sandbox", "/dev/shm", "/dev/mqueue", "/dev/pts"):
    try: found += [f"{folder}/{n}" for n in os.listdir(folder) if n != "ptmx"]
    except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
for name, call in (("shm", lambda: libc.shmget(0x5EC2E7, 0, 0)), ("sem", lambda: libc.semget(0x5EC2E7, 0, 0)),
                   ("msg", lambda: libc.msgget(0x5EC2E7, 0)), ("mq", lambda: libc.mq_open(b"/secret", 0))):
    if call() >= 0: found.append(name)
for name in ("tcp", "tcp6", "udp", "unix", "sockstat"):
    text = open("/proc/net/" + name).read()
    if name == "sockstat":
        if "tw 0" not in text: found.append("time-wait")
    elif len(text.splitlines()) > 1 and name != "unix": found.append(name + " sockets")
for line in open("/proc/net/dev").read().splitlines()[2:]:
    if any(int(n) for n in line.split(":")[1].split()): found.append("counters " + line)
snmp = [line.split() for line in open("/proc/net/snmp")]
for head, row in zip(snmp[::2], snmp[1::2]):
    for key, value in zip(head[1:], row[1:]):
        if key in ("ActiveOpens", "PassiveOpens", "InSegs", "InReceives") and int(value): found.append(head[0] + key)
if socket.socket(socket.AF_UNIX).connect_ex("\0secret") == 0: found.append("abstract")
if socket.socket().connect_ex(("127.0.0.1", 5555)) == 0: found.append("tcp")
if os.environ.get("SECRET"): found.append("env")
if any(int(p) not in (1, os.getpid()) for p in os.listdir("/proc") if p.isdigit()): found.append("processes")
print(json.dumps(found))
"""


def test_files_ipc_sockets_counters_and_environment(sandbox):
    for _ in range(4):
        planted = prepared(sandbox, ["python3", "-c", PLANT], env={"SECRET": "s3cr3t"})
        assert PLANTED <= set(json.loads(planted.stdout))
        found = prepared(sandbox, ["python3", "-c", FIND])
        assert json.loads(found.stdout) == [], found.stdout


def test_the_planted_things_can_be_found(sandbox):
    """The twin: within one run the search finds them."""
    both = PLANT.replace("print(json.dumps(made))", "") + FIND
    found = json.loads(prepared(sandbox, ["python3", "-c", both], env={"SECRET": "s"}).stdout)
    assert {"/tmp/x", "/home/sandbox/x", "/dev/shm/x", "env"} | PLANTED - {"connected"} <= set(found)
    assert any("counters" in f for f in found)


def test_clocks_begin_anew(sandbox):
    time.sleep(2.5)  # a guest waits meanwhile
    clock = "import time; print(time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))"
    for value in prepared(sandbox, ["python3", "-c", clock]).stdout.split():
        assert 0 <= float(value) < 2.4, value


def test_keys_are_refused_and_keyrings_differ(sandbox):
    add = ("import ctypes; l = ctypes.CDLL(None, use_errno=True); "
           "print(l.syscall(248, b'user', b'k', b'secret', 6, -3), ctypes.get_errno())")
    assert prepared(sandbox, ["python3", "-c", add]).stdout.split()[0] == "-1"


# ---- the pool itself ----------------------------------------------------------------------------

def test_numbers(sandbox):
    before = sandbox.stats()
    for _ in range(5):
        prepared(sandbox)
    after = sandbox.stats()
    assert after.prepared >= before.prepared + 5 and after.waiting <= 16
    assert 0 < after.start_ms_p50 <= after.start_ms_p99


def test_many_at_once(sandbox):
    results = []

    def work(i):
        for j in range(6):
            results.append(sandbox.run_command(["sh", "-c", f"echo {i}.{j}"]).stdout == f"{i}.{j}\n")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 48 and all(results)


def test_a_killed_spawner_is_replaced(sandbox):
    spawners = named(sandbox, "cordon-pool")
    assert spawners
    end(spawners)
    for _ in range(4):
        assert sandbox.run_command(["echo", "on"]).stdout == "on\n"
    prepared(sandbox)


def test_a_killed_spawner_takes_its_guests_and_says_so(sandbox):
    run = sandbox.start_command(["sleep", "30"])
    time.sleep(0.5)
    for pid in named(sandbox, "cordon-pool"):
        os.kill(pid, signal.SIGKILL)
    try:
        result = run.wait(10)
        assert result.verdict == "signaled" and result.signal == 9
    except SandboxError:
        pass
    assert sandbox.run_command(["echo", "on"]).stdout == "on\n"


def test_killed_prepared_guests_are_no_failure(sandbox):
    for _ in range(3):
        end(named(sandbox, "cordon-init"))
        assert sandbox.run_command(["echo", "on"]).stdout == "on\n"


def groups_of(pid):
    found = []
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, f) for f in folders if f.startswith(f"cordon-{pid}-")]
    return found


@pytest.mark.parametrize("how", ["close", "kill"])
def test_nothing_is_left(how):
    sandbox = Sandbox(timeout=10)
    prepared(sandbox)
    supervisor = sandbox._lease.supervisor_pid()
    below = [pid for pid, _ in children(supervisor)]
    assert below
    if how == "close":
        sandbox.close()
    else:
        os.kill(supervisor, signal.SIGKILL)
    until = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in below) and time.monotonic() < until:
        time.sleep(0.02)
    assert [pid for pid in below if os.path.exists(f"/proc/{pid}")] == []
    if how == "close":
        assert groups_of(supervisor) == []
    else:
        sandbox.close()


# ---- groups that served another guest before -----------------------------------------------------

def test_numbers_are_the_guests_own():
    """Whatever an earlier guest did, the next one's usage begins at nothing."""
    heavy = {
        "memory": "x = bytearray(90 << 20)",
        "processes": "import os\nfor _ in range(9):\n    os.fork() or (os.read(0, 1), os._exit(0))",
        "time": "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass",
        "files": "open('/tmp/f', 'wb').write(bytes(20 << 20))",
    }
    with Sandbox(timeout=20, max_memory_mb=120) as sandbox:
        for what, code in heavy.items():
            for _ in range(2):
                result = prepared(sandbox, ["python3", "-c", code])
                assert result.exit_code == 0, (what, result.stderr)
                small = prepared(sandbox, ["true"])
                assert small.peak_memory_bytes < 6 << 20, what
                assert small.processes_peak == 1, what
                assert small.cpu_user_ms + small.cpu_sys_ms < 150, what
                assert small.verdict == "ok", what


def test_a_limit_that_was_hit_is_not_the_next_ones():
    with Sandbox(timeout=20, max_memory_mb=64) as sandbox:
        for _ in range(2):
            assert prepared(sandbox, ["python3", "-c", "x = bytearray(200 << 20)"]).verdict == "memory_limit"
            after = prepared(sandbox, ["python3", "-c", "x = bytearray(40 << 20)"])
            assert (after.verdict, after.exit_code) == ("ok", 0)


def test_a_share_that_was_used_up_is_not_the_next_ones():
    spin = "import time\nend = time.process_time() + 0.03\nwhile time.process_time() < end: pass"
    with Sandbox(timeout=20, cpu_limit=50) as sandbox:
        for _ in range(10):
            prepared(sandbox, ["python3", "-c", spin])
        assert min(prepared(sandbox, ["true"]).wall_ms for _ in range(5)) < 400


def test_the_same_request_again_and_another_one(sandbox):
    """What was made of a request serves the next one only if that one is the same in every byte."""
    for i in range(3):
        for word in ("a", "b"):
            result = prepared(sandbox, ["sh", "-c", 'echo "$0 $W"; cat; exit $1', word, str(i)], env={"W": word * 2},
                              stdin=word * 3)
            assert (result.stdout, result.exit_code) == (f"{word} {word * 2}\n{word * 3}", i)


def test_many_kinds_of_requests_in_turn(sandbox):
    for i in range(30):
        result = sandbox.run_command(["sh", "-c", f"exit {i % 7}"])
        assert result.exit_code == i % 7


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user has one id for all of its guests")
def test_no_two_share_a_user():
    """Cold and prepared guests, running and waiting ones, and the processes they come from."""
    with Sandbox(timeout=60) as one, Sandbox(timeout=60) as other:
        runs = [one.start_command(["sleep", "30"])]
        for sandbox in (one, other):
            prepared(sandbox)
            prepared(sandbox, ["python3", "main.py"], files={"main.py": "pass"})
            runs += [sandbox.start_command(["sleep", "30"]) for _ in range(4)]
        time.sleep(0.5)
        users = {}
        found = set(children(one._lease.supervisor_pid()) + children(other._lease.supervisor_pid()))
        names = dict(found)
        for pid, name in found:
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
            if name == "cordon-pool" or (name == "cordon-init" and names.get(int(status["PPid"])) != "cordon-init"):
                users.setdefault(status["Uid"].split()[0], []).append((pid, name))
        for run in runs:
            run.cancel()
    assert len(users) > 8 and "0" not in users
    assert [shared for shared in users.values() if len(shared) > 1] == []
