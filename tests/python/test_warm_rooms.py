"""Guests that follow each other in the same namespaces: each finds them as the first one did, or gets others."""

import json
import os
import signal
import subprocess
import time

import pytest

from cordon import Sandbox, SandboxError
from test_warm import READY, alive, children, end, named, prepared

pytestmark = pytest.mark.full_tier("guests are prepared in tier full only")

SLOW = 5 if os.environ.get("TEST_VM") else 1  # programs under emulation

HEAD = r"""
import ctypes, errno, json, os, resource, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def room():
    return [os.stat("/proc/self/ns/" + n).st_ino for n in ("pid", "mnt", "net", "ipc", "uts", "user")]
"""

# All that a guest can find out about what is not its own. The numbers of two runs must not differ in anything but
# the inode that a new file gets, which counts the runs.
VIEW = r"""
view = {"room": room(), "pid": os.getpid(), "ppid": os.getppid(), "sid": os.getsid(0), "pids": os.listdir("/proc/1/..")}
view["pids"] = [p for p in view["pids"] if p.isdigit()]
for name in ("stat", "status", "schedstat", "sched", "cmdline", "comm", "statm", "cgroup", "oom_score_adj", "limits"):
    try:
        view["1/" + name] = open("/proc/1/" + name).read()
    except OSError as e:
        view["1/" + name] = e.errno
# the age of the room by the guest's own clock, and the moment of the look
view["1/stat"] = view["1/stat"].rsplit(")", 1)[1].split()[:19] + view["1/stat"].rsplit(")", 1)[1].split()[20:]
view["1/sched"] = [line for line in str(view["1/sched"]).splitlines() if "clock-delta" not in line]
view["1/clock"] = time.clock_gettime((~1 << 3) | 2)
view["1/nice"] = os.getpriority(os.PRIO_PROCESS, 1)
view["1/cores"] = sorted(os.sched_getaffinity(1))
view["1/io"] = libc.syscall(252, 1, 1)
view["last"] = open("/proc/loadavg").read().split()[-1]
for place in ("/tmp", "/home/sandbox", "/dev/shm", "/dev/pts", "/dev/pts/ptmx", "/proc/1"):
    st = os.stat(place)
    view[place] = [st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_ino, st.st_dev, st.st_atime_ns, st.st_mtime_ns,
                   st.st_ctime_ns]
    view[place + " attributes"] = os.listxattr(place) if place != "/proc/1" else []
fs = os.statvfs("/tmp")
view["space"] = [fs.f_bfree, fs.f_ffree, fs.f_files]
for name in ("dev", "snmp", "netstat", "snmp6", "ip6_flowlabel", "ipv6_route", "rt6_stats", "tcp", "udp", "unix"):
    view["net/" + name] = open("/proc/self/net/" + name).read()
view["net/used"] = open("/proc/self/net/sockstat").readline()
for name in ("msg", "sem", "shm"):
    view["ipc/" + name] = open("/proc/sysvipc/" + name).read()
# files of /proc have the number and the time of the first look at them, links that of the first step through them
for place in ("/proc/1", "/proc/1/task/1", "/proc/sys/kernel", "/proc/sys/user", "/proc/sys/vm", "/proc/sys/net/ipv4", "/proc"):
    for name in sorted(os.listdir(place))[::3]:
        if not name.isdigit():
            try:
                st = os.lstat(f"{place}/{name}")
                view[f"{place}/{name}"] = [st.st_ino, st.st_mtime_ns, st.st_atime_ns, st.st_ctime_ns]
            except OSError as e:
                view[f"{place}/{name}"] = e.errno
view["own"] = [l for l in open("/proc/self/status") if l.split(":")[0] in (
    "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn",
    "SigQ", "ShdPnd", "Umask")]
view["mounts"] = open("/proc/self/mountinfo").read()
view["env"] = dict(os.environ)
view["fds"] = os.listdir("/proc/self/fd")
assert time.monotonic() < AGE and time.clock_gettime(time.CLOCK_BOOTTIME) < AGE, "clocks"
print(json.dumps(view, sort_keys=True))
""".replace("AGE", str(1.5 * SLOW))


def run(sandbox, code, **options):
    return prepared(sandbox, ["python3", "-I", "-S", "-c", HEAD + code], **options)


def look(sandbox):
    result = run(sandbox, VIEW)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def settled(sandbox):
    """The view of a guest whose room has served before, and serves alone."""
    until = time.monotonic() + READY
    seen = []
    while time.monotonic() < until:
        view = look(sandbox)
        if view["room"] in seen:
            return view
        seen.append(view["room"])
        time.sleep(0.01)
    raise AssertionError("no room served twice")


@pytest.fixture
def sandbox():
    with Sandbox(timeout=20) as made:
        prepared(made)
        yield made


# ---- a room serves again ------------------------------------------------------------------------

def test_every_guest_sees_what_the_one_before_saw(sandbox):
    views = {}
    for _ in range(12):
        view = look(sandbox)
        views.setdefault(tuple(view["room"]), []).append(view)
        assert (view["pid"], view["sid"], view["pids"]) == (2, 2, ["1", "2"])
    same = max(views.values(), key=len)
    assert len(same) > 3, "no room served several guests"
    for view in same[1:]:
        assert view == same[0]


# None of these leaves anything.
KEEPS = {
    "looks at files and folders": "os.listdir('/home/sandbox'); os.listdir('/tmp'); open('/etc/passwd').read()",
    "nothing": "",
    "children": "for _ in range(5):\n    pid = os.fork()\n    os._exit(0) if pid == 0 else os.waitpid(pid, 0)",
    "threads": "t = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]",
    "a failed program": "sys.exit(3)",
    "a signal": "os.kill(os.getpid(), signal.SIGSEGV)",
    "killed by itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "refused calls": "[libc.unshare(0x10000000) for _ in range(5)]",
    "the limits of pid 1, which are refused": "assert libc.syscall(302, 1, 7, None, ctypes.create_string_buffer(16)) < 0",
    "sockets that were not used": "a = socket.socket(); b = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); c = socket.socketpair()",
    "memory": "x = bytearray(64 << 20)",
    "limits of its own": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.nice(5); os.sched_setaffinity(0, {0})",
    "closed streams": "os.close(1); os.close(2); time.sleep(0.05)",
    "looks at /proc": "[os.stat(os.path.join(d, f)) for d in ('/proc/sys/kernel', '/proc/sys/user') for f in os.listdir(d)]; os.readlink('/proc/mounts'); open('/proc/net/dev').read()",
    "ignored signals": "[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15, 17)]",
    "a terminal": "a, b = os.openpty(); os.close(a); os.close(b)",
    "a mapped file without a name in memory": "os.write(os.memfd_create('x'), b'x' * 4096)",
}

# Each of these would show.
SPOILS = {
    "a file": "open('/tmp/x', 'w')",
    "a file that is gone": "open('/tmp/x', 'w'); os.unlink('/tmp/x')",
    "a file that is gone, times set back": "st = os.stat('/tmp'); open('/tmp/x', 'w'); os.unlink('/tmp/x'); os.utime('/tmp', ns=(st.st_atime_ns, st.st_mtime_ns))",
    "a file without a name": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "a file without a name in the other place": "os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)",
    "a folder of its home": "os.mkdir('/home/sandbox/x'); os.rmdir('/home/sandbox/x')",
    "modes": "os.chmod('/home/sandbox', 0o700); os.chmod('/home/sandbox', 0o755)",
    "an attribute": "os.setxattr('/home/sandbox', 'user.x', b'1'); os.removexattr('/home/sandbox', 'user.x')",
    "times": "os.utime('/home/sandbox')",
    "a sibling of the first process": "pid = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0)\nif pid == 0:\n    libc.setsid(); time.sleep(60); os._exit(0)",
    "a dead sibling": "pid = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0)\nif pid == 0:\n    os._exit(0)\ntime.sleep(0.2)",
    "a thread that asked to be traced": "t = threading.Thread(target=lambda: libc.ptrace(0, 0, 0, 0)); t.start(); t.join()",
    "shared memory": "assert libc.shmget(7, 4096, 0o1600) >= 0",
    "shared memory that is gone": "assert libc.shmctl(libc.shmget(0, 4096, 0o1600), 0, 0) >= 0",
    "semaphores": "assert libc.semget(7, 1, 0o1600) >= 0",
    "messages": "assert libc.msgget(7, 0o1600) >= 0",
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "a refused connection": "socket.socket().connect_ex(('127.0.0.1', 9))",
    "no route": "socket.socket().connect_ex(('192.0.2.1', 9))",
    "no route of IPv6": "socket.socket(socket.AF_INET6).connect_ex(('2001:db8::1', 9))",
    "the priority of pid 1": "os.setpriority(os.PRIO_PROCESS, 1, 5)",
    "the priority of everybody": "os.setpriority(os.PRIO_USER, 0, 5)",
    "the cores of pid 1": "os.sched_setaffinity(1, {0})",
    "the kind of pid 1": "os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0))",
    "the disk's priority of pid 1": "assert libc.syscall(251, 1, 1, 3 << 13) == 0",
    "a process": "subprocess.Popen(['sleep', '300'], start_new_session=True)",
    "a dead orphan": "os.fork() or (os.fork() or (time.sleep(0.1), os._exit(0)), os._exit(0)); os.wait(); time.sleep(0.4)",
}


# Where no group holds memory and shares, these are refused; and so they leave nothing.
NEED_GROUPS = {"shared memory", "shared memory that is gone", "semaphores", "messages", "the cores of pid 1"}


def has_groups(result):
    return result.enforcement["layers"]["cgroup"] != "none"


def guest_after(sandbox, code):
    """The room before, the guest in it, and the view of the next guest."""
    for _ in range(20):
        before = settled(sandbox)
        result = run(sandbox, "open('/dev/stderr', 'w').write(json.dumps(room()))\nsys.stderr.flush()\n" + code)
        if json.loads(result.stderr.split("]")[0] + "]") == before["room"]:
            return before, result, look(sandbox)
    raise AssertionError("no guest came into a room that had served")


@pytest.mark.parametrize("what", KEEPS)
def test_what_leaves_nothing_keeps_the_room(sandbox, what):
    for _ in range(8):
        before, _, after = guest_after(sandbox, KEEPS[what])
        if after["room"] == before["room"]:
            assert after == before
            return
    raise AssertionError("the room was given up")


@pytest.mark.parametrize("what", SPOILS)
def test_what_would_show_ends_the_room(sandbox, what):
    for _ in range(2):
        before, result, after = guest_after(sandbox, SPOILS[what])
        if what in NEED_GROUPS and not has_groups(result):
            assert "Error" in result.stderr and result.denials
            continue
        assert "Error" not in result.stderr, result.stderr
        assert after["room"][0] != before["room"][0], what
        assert after["pids"] == ["1", "2"]


NETWORK = ["sockets that were not used", "a datagram", "a refused connection", "no route", "no route of IPv6"]


@pytest.mark.parametrize("what", NETWORK)
def test_the_network_of_guests_that_had_no_sockets_for_long(sandbox, what):
    """From then on the network is looked at only after guests that make some; and the first one of those is seen."""
    for _ in range(90):
        prepared(sandbox)
    before, _, after = guest_after(sandbox, {**KEEPS, **SPOILS}[what])
    if what in SPOILS:
        assert after["room"][0] != before["room"][0]
    else:
        assert {k: v for k, v in after.items() if k.startswith("net/")} == {k: v for k, v in before.items() if k.startswith("net/")}
    for _ in range(3):  # and later ones are looked at as well
        _, _, after = guest_after(sandbox, SPOILS["a datagram"])
        assert after["net/dev"] == before["net/dev"] and after["net/snmp"] == before["net/snmp"]


def test_killed_beside_a_child_that_lives(sandbox):
    for _ in range(3):
        settled(sandbox)
        result = prepared(sandbox, ["sh", "-c", "sleep 30 & kill -9 $$"])
        assert (result.verdict, result.exit_code, result.signal) == ("signaled", 137, 9)


def test_killed_by_a_child_that_stops_whoever_comes(sandbox):
    """Who looks whether pid 1 is there is born among them."""
    code = """
main = os.getpid()
if os.fork() == 0:
    os.setsid()
    os.kill(main, 9)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try: os.kill(-1, signal.SIGSTOP)
        except OSError: pass
    os._exit(0)
time.sleep(20)
"""
    for _ in range(3):
        settled(sandbox)
        result = run(sandbox, code, timeout=8)
        assert (result.verdict, result.signal) == ("signaled", 9) and result.wall_ms < 4000


def test_signals_from_the_first_moment_on(sandbox):
    """None is lost, and none ends what is not the guest's program yet."""
    for i in range(60):
        job = sandbox.start_command(["sleep", "5"])
        time.sleep(0.0001 * (i % 8))
        job.signal(signal.SIGTERM)
        result = job.wait(10)
        assert (result.verdict, result.signal) == ("signaled", 15)


def test_waiting_for_a_share_is_told_of_who_waited():
    with Sandbox(timeout=20, cpu_limit=4) as sandbox:
        for _ in range(12):
            many = prepared(sandbox, ["sh", "-c", ":|:|:"])
            assert many.wall_ms - many.throttled_ms < 60 + many.cpu_user_ms + many.cpu_sys_ms
            one = prepared(sandbox, ["sh", "-c", "i=0; while [ $i -lt 600 ]; do i=$((i+1)); done"])
            assert one.throttled_ms <= one.wall_ms + 1


TRACED = """
def f():
    libc.ptrace(0, 0, 0, 0)
t = threading.Thread(target=f); t.start(); t.join()
print("on", flush=True)
os.kill(os.getpid(), signal.SIGUSR1) if len(sys.argv) > 1 else time.sleep(60)
"""


def test_who_asks_to_be_traced_can_be_ended(sandbox):
    settled(sandbox)
    job = sandbox.start_command(["python3", "-I", "-S", "-c", HEAD + TRACED])
    time.sleep(0.5)
    begun = time.monotonic()
    job.cancel()
    assert job.wait(10).verdict == "cancelled" and time.monotonic() - begun < 1
    result = run(sandbox, "libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGUSR1)", timeout=0.5)
    assert result.verdict == "time_limit"
    assert look(sandbox)["pids"] == ["1", "2"]


def test_guests_that_spoil_each_room_run_without(sandbox):
    """Where no room serves twice none are made, but for a try now and then."""
    for _ in range(12):
        run(sandbox, SPOILS["a file"])
    porters = len(named(sandbox, "cordon-porter"))
    for _ in range(4):
        assert run(sandbox, SPOILS["a file"]).exit_code == 0
    assert porters <= 3 and len(named(sandbox, "cordon-porter")) <= 3


def test_orders_do_not_stay(sandbox):
    """Arguments, environment and input of one guest, also large ones; the next one's result is its own."""
    big = "b" * 100_000
    for i in range(6):
        code = f"print(os.environ.get('WORD'), len(sys.argv), sys.stdin.read())"
        first = prepared(sandbox, ["python3", "-I", "-S", "-c", HEAD + code, big], env={"WORD": f"w{i}"}, stdin=f"s{i}")
        assert first.stdout == f"w{i} 2 s{i}\n"
        second = prepared(sandbox, ["python3", "-I", "-S", "-c", HEAD + code])
        assert (second.stdout, second.exit_code, second.denials) == ("None 1 \n", 0, [])


def test_numbers_and_denials_are_each_guests_own(sandbox):
    for _ in range(5):
        result = run(sandbox, KEEPS["refused calls"])
        assert [(d["target"], d["count"]) for d in result.denials] == [("unshare", 5)]
        assert run(sandbox, KEEPS["memory"]).peak_memory_bytes > 64 << 20
        result = prepared(sandbox, ["true"])
        assert result.denials == [] and result.peak_memory_bytes < 8 << 20 and result.processes_peak == 1


def test_a_limit_that_was_hit_is_not_the_next_ones():
    with Sandbox(timeout=20, max_memory_mb=64, processes=8) as sandbox:
        for _ in range(4):
            assert run(sandbox, "x = bytearray(200 << 20)").verdict == "memory_limit"
            assert run(sandbox, "x = bytearray(20 << 20)").verdict == "ok"
            forks = run(sandbox, "try:\n    [os.fork() or time.sleep(9) for _ in range(20)]\nexcept OSError: sys.exit(7)")
            assert forks.exit_code == 7 or forks.verdict == "process_limit"
            assert run(sandbox, "[os.waitpid(os.fork() or os._exit(0), 0) for _ in range(30)]").exit_code == 0


# Whose child it becomes: of the guest itself, of pid 1, of the porter.
KINDS = {
    "a child": "pid = os.fork()",
    "an orphan": "pid = os.fork()\nif pid == 0:\n    os.fork() and os._exit(0)",
    "a sibling": "pid = libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0)",
}
BESIDE = """
KIND
if pid == 0:
    WORK
    os._exit(0)
time.sleep(5)
"""
BURN = "while True: pass"


def beside(kind, work):
    return BESIDE.replace("KIND", KINDS[kind]).replace("WORK", work)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_whoever_belongs_to_the_guest_counts(kind):
    with Sandbox(timeout=20, max_memory_mb=64) as sandbox:
        settled(sandbox)
        result = run(sandbox, beside(kind, "x = bytearray(150 << 20); time.sleep(5)"))
        assert result.verdict == "memory_limit"
        small = run(sandbox, beside(kind, "x = bytearray(20 << 20)").replace("sleep(5)", "sleep(0.3)"))
        assert small.verdict == "ok" and small.processes_peak in (2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_cpu_time_of_whoever_belongs_to_the_guest_counts(kind):
    with Sandbox(timeout=20, cpu_time=0.4 * SLOW) as sandbox:
        settled(sandbox)
        result = run(sandbox, beside(kind, BURN))
        assert result.verdict == "cpu_time_limit" and result.wall_ms < 4900
        assert 380 * SLOW < result.cpu_user_ms + result.cpu_sys_ms < 1500 * SLOW
        # that of an earlier guest does not
        for _ in range(4):
            assert run(sandbox, "t = time.process_time()\nwhile time.process_time() - t < 0.15: pass").verdict == "ok"
            assert prepared(sandbox, ["sleep", "0.1"]).cpu_user_ms < 50 * SLOW


@pytest.mark.parametrize("kind", KINDS)
def test_cpu_time_of_whom_a_limit_ended_is_known(sandbox, kind):
    settled(sandbox)
    result = run(sandbox, beside(kind, BURN), timeout=0.6)
    assert result.verdict == "time_limit" and 350 < result.cpu_user_ms + result.cpu_sys_ms < 1500 * SLOW
    after = prepared(sandbox)
    assert after.cpu_user_ms + after.cpu_sys_ms < 50 * SLOW


@pytest.mark.parametrize("kind", KINDS)
def test_cpu_time_of_who_was_left_is_known(sandbox, kind):
    settled(sandbox)
    result = run(sandbox, beside(kind, BURN).replace("sleep(5)", "sleep(0.5)"))
    assert result.verdict == "ok" and 150 < result.cpu_user_ms + result.cpu_sys_ms < 1500 * SLOW


def test_threads_that_asked_to_be_traced_do_not_multiply_the_time(sandbox):
    """Each one's end is told to the porter, with what the whole process used."""
    settled(sandbox)
    code = """
t = time.process_time()
while time.process_time() - t < 0.3: pass
for _ in range(20):
    t = threading.Thread(target=lambda: libc.ptrace(0, 0, 0, 0)); t.start(); t.join()
"""
    result = run(sandbox, code)
    assert result.verdict == "ok" and 250 < result.cpu_user_ms + result.cpu_sys_ms < 900 * SLOW


def test_time_of_siblings_before_the_first_look_counts():
    """They end while the supervisor is kept from looking; what they used is this guest's, not an earlier one's."""
    code = """
end = time.monotonic() + 1
while time.monotonic() < end:
    if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
        t = time.monotonic()
        while time.monotonic() - t < 0.02: pass
        os._exit(0)
    time.sleep(0.021)
time.sleep(2)
"""
    with Sandbox(timeout=20, cpu_time=0.5 * SLOW, processes=64) as sandbox:
        settled(sandbox)
        supervisor = sandbox._lease.supervisor_pid()
        job = sandbox.start_command(["python3", "-I", "-S", "-c", HEAD + code])
        time.sleep(0.001)
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(1.3)
        os.kill(supervisor, signal.SIGCONT)
        assert job.wait(20).verdict == ("cpu_time_limit" if SLOW == 1 else "ok")


def test_a_share_is_held_in_every_guest():
    """Whole cores by affinity, the rest by standing still, where no group does either."""
    with Sandbox(timeout=20, cpu_limit=50) as sandbox:
        settled(sandbox)
        for _ in range(2):
            result = run(sandbox, "print(len(os.sched_getaffinity(0)))\nend = time.monotonic() + 1.2\nwhile time.monotonic() < end: pass")
            used = result.cpu_user_ms + result.cpu_sys_ms
            assert used < 0.75 * result.wall_ms and result.throttled_ms > 200
            assert has_groups(result) or result.stdout == "1\n"
            assert prepared(sandbox).throttled_ms < (1 if SLOW == 1 else 200)


def test_a_time_limit_ends_the_guest_and_its_room_alone(sandbox):
    for _ in range(3):
        result = run(sandbox, "signal.signal(15, signal.SIG_IGN); time.sleep(60)", timeout=0.3)
        assert result.verdict == "time_limit"
        assert look(sandbox)["pids"] == ["1", "2"]


def test_signals_reach_the_guest(sandbox):
    for _ in range(3):
        settled(sandbox)
        job = sandbox.start_command(["python3", "-I", "-S", "-c", HEAD +
                                     "signal.signal(10, lambda *_: sys.exit(9)); print('on', flush=True); time.sleep(20)"])
        time.sleep(0.5)
        job.signal(signal.SIGUSR1)
        assert job.wait(10).exit_code == 9


# ---- nobody of ours can be reached ---------------------------------------------------------------

def test_the_porter_cannot_be_named(sandbox):
    code = """
found = []
for pid in list(range(1, 4096)):
    if pid in (1, os.getpid()): continue
    try: os.kill(pid, 0); found.append(pid)
    except OSError: pass
for what, call in (("memory", lambda: open("/proc/1/mem", "rb")), ("files", lambda: os.listdir("/proc/1/fd")),
                   ("program", lambda: os.readlink("/proc/1/exe")), ("root", lambda: os.listdir("/proc/1/root/"))):
    try: call(); found.append(what)
    except OSError: pass
fd = os.pidfd_open(1)
found += [n for n in range(64) if libc.syscall(438, fd, n, 0) >= 0]
if libc.ptrace(16, 1, 0, 0) == 0: found.append("ptrace")
print(json.dumps(found))
"""
    for _ in range(3):
        settled(sandbox)
        assert json.loads(run(sandbox, code).stdout) == []


def test_what_opens_the_filter_for_the_porter_is_a_key(sandbox):
    """clone3, unshare, setns, prctl and sched_setaffinity with all kinds of fifth and sixth arguments."""
    code = """
import random
words = [0, 1, 2**64 - 1, 2**63] + [random.getrandbits(64) for _ in range(2000)]
found = set()
for _ in range(3000):
    a, b = ctypes.c_ulong(random.choice(words)), ctypes.c_ulong(random.choice(words))
    z = ctypes.c_long(0)
    for nr, first, second in ((272, 0x10000000, 0), (308, 0, 0x10000000), (157, 24, 0), (203, 1, 0)):
        if libc.syscall(nr, ctypes.c_long(first), ctypes.c_long(second), z, z, a, b) == 0: found.add(nr)
    if libc.syscall(435, z, ctypes.c_long(88), z, z, a, b) >= 0 or ctypes.get_errno() != errno.ENOSYS: found.add(435)
print(sorted(found))
"""
    settled(sandbox)
    assert run(sandbox, code.replace("3000", "60")).stdout == "[]\n"


# ---- ends ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["cordon-porter", "cordon-init", "cordon-pool"])
def test_killed_between_guests(sandbox, name):
    settled(sandbox)
    assert named(sandbox, name)
    end(named(sandbox, name))
    for _ in range(4):
        assert sandbox.run_command(["echo", "on"]).stdout == "on\n"


@pytest.mark.parametrize("name", ["cordon-porter", "cordon-init"])
def test_killed_with_a_guest(sandbox, name):
    """Who started it, or its pid 1: the guest ends, nobody says that it ended by itself, and others go on."""
    settled(sandbox)
    job = sandbox.start_command(["python3", "-I", "-S", "-c", "import time; time.sleep(47.5)"])
    time.sleep(0.4)
    for pid in named(sandbox, name):
        os.kill(pid, signal.SIGKILL)
    try:
        result = job.wait(10)
        assert result.verdict in ("signaled", "sandbox_error") and result.exit_code == 128 + 9
    except SandboxError:
        pass
    until = time.monotonic() + READY
    while subprocess.run(["pgrep", "-f", "time.sleep.47.5"], capture_output=True).stdout and time.monotonic() < until:
        time.sleep(0.02)
    assert not subprocess.run(["pgrep", "-f", "time.sleep.47.5"], capture_output=True).stdout
    for _ in range(4):
        assert sandbox.run_command(["echo", "on"]).stdout == "on\n"


CROWDED = r"""
import os, sys, time
sys.path[:0] = sys.argv[1:]
from cordon import Sandbox, SandboxError
from test_warm import named
from test_warm_rooms import settled
def ask(what):
    print(what, flush=True)
    sys.stdin.readline()
with Sandbox(timeout=30) as sandbox:
    settled(sandbox)
    sleepers = [sandbox.start_command(["sleep", "4"]) for _ in range(2)]
    time.sleep(0.5)
    pool = named(sandbox, "cordon-pool")
    ask("tight")
    others = []
    for _ in range(4):
        try: others.append(sandbox.start_command(["sleep", "0.5"]))
        except SandboxError: pass
        time.sleep(0.2)
    same = named(sandbox, "cordon-pool") == pool
    ask("loose")
    for job in others:
        try: job.wait(20)
        except SandboxError: pass
    print([job.wait(20).verdict for job in sleepers], same, flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.isdir("/sys/fs/cgroup/pids"), reason="needs a group that counts processes: root's, of version 1")
@pytest.mark.parametrize("left", [1, 2, 3])
def test_who_cannot_be_made_for_want_of_processes_ends_nobody_else(left):
    """A clone may be refused after the kernel has told the number of a descriptor, and taken it back."""
    group = f"/sys/fs/cgroup/pids/cordon-crowd-{os.getpid()}-{left}"
    os.mkdir(group)
    try:
        def enter():
            with open(group + "/cgroup.procs", "w") as file:
                file.write("0")
        here = os.path.dirname(os.path.abspath(__file__))
        asker = subprocess.Popen(["/usr/bin/python3", "-c", CROWDED, here, os.path.join(here, "../../python")], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True, preexec_fn=enter)
        for line in asker.stdout:
            if line not in ("tight\n", "loose\n"):
                break
            with open(group + "/pids.current") as file:
                most = int(file.read()) + left
            with open(group + "/pids.max", "w") as file:
                file.write(str(most) if line == "tight\n" else "max")
            asker.stdin.write("\n")
            asker.stdin.flush()
        asker.communicate(timeout=60)
        assert line == "['ok', 'ok'] True\n"
    finally:
        until = time.monotonic() + 5
        while os.path.isdir(group) and time.monotonic() < until:
            try:
                os.rmdir(group)
            except OSError:
                time.sleep(0.05)


def descriptors(pid):
    """Those of processes that hide are root's to count."""
    return len(os.listdir(f"/proc/{pid}/fd")) if os.geteuid() == 0 else 0


def test_nothing_grows_with_the_runs(sandbox):
    """Groups that rest are kept open, some more or less of them; what grew with each run would be a thousand."""
    settled(sandbox)
    supervisor = sandbox._lease.supervisor_pid()
    porters = {pid: descriptors(pid) for pid in named(sandbox, "cordon-porter")}
    for _ in range(1000):
        assert sandbox.run_command(["true"]).verdict == "ok"
    assert descriptors(supervisor) < 400
    later = {pid: descriptors(pid) for pid in named(sandbox, "cordon-porter")}
    assert later and max(later.values()) <= max(porters.values())


def test_nothing_is_left_of_rooms():
    sandbox = Sandbox(timeout=10)
    settled(sandbox)
    below = [pid for pid, _ in children(sandbox._lease.supervisor_pid())]
    assert named(sandbox, "cordon-porter")
    sandbox.close()
    until = time.monotonic() + 5
    while any(alive(pid) for pid in below) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [pid for pid in below if alive(pid)]
