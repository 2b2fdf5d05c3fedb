"""Prepared guests with a network: gate and broker wait with each of them, whom it may reach comes with the command."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from cordon import Sandbox, SandboxError
from test_warm import COMMAND, READY, alive, children, end, named, prepared

pytestmark = pytest.mark.full_tier("guests are prepared in tier full only")

DIAL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as s:
        print(s.recv(100).decode())
except OSError as e:
    print("refused", type(e).__name__)
"""


@pytest.fixture(scope="module")
def service():
    """A server on the host's loopback: its port, and how often it was reached."""
    listener, hits = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        while True:
            try:
                made, _ = listener.accept()
            except OSError:
                return
            hits.append(1)
            with made:
                made.sendall(b"hello")
    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], hits
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def dial(sandbox, port, name="host.cordon"):
    return prepared(sandbox, ["python3", "-I", "-S", "-c", DIAL, name, str(port)])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def brokers(sandbox):
    return named(sandbox, "cordon-broker")


def eventually(condition, what):
    until = time.monotonic() + READY
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


# ---- rules come late ----------------------------------------------------------------------------

def test_each_run_has_the_rules_of_its_own_request(service):
    """Three requests whose gates are alike share their prepared guests, and nothing of their rules."""
    port, hits = service
    rules = {"reach": [f"localhost:{port}"], "another name": [f"other.test:{port}"], "none but a pattern": [f"*.other.test:{port}"]}
    boxes = {name: Sandbox(timeout=20, allow_network=rule) for name, rule in rules.items()}
    try:
        assert dial(boxes["reach"], port).stdout == "hello\n"
        cold = boxes["reach"].stats().cold
        for _ in range(4):
            for name, box in boxes.items():
                hits.clear()
                result = dial(box, port)
                attempts = result.network["attempts"]
                if name == "reach":
                    assert (result.stdout, result.denials) == ("hello\n", []) and hits, result
                    assert [a["verdict"] for a in attempts if a["port"] == port] == ["allowed"]
                else:
                    assert (result.stdout[:7], len(hits)) == ("refused", 0), result
                    assert [d["target"] for d in result.denials], result
                    assert "allowed" not in [a["verdict"] for a in attempts]
        assert boxes["reach"].stats().cold == cold, "guests were prepared for each of them"
    finally:
        for box in boxes.values():
            box.close()


def test_other_gates_are_other_guests(service):
    """What is built into the namespaces (ports, routes) is never another request's."""
    port, hits = service
    with Sandbox(timeout=20, allow_network=[f"localhost:{port}"]) as narrow, \
            Sandbox(timeout=20, allow_network=[f"localhost:{port}", "192.0.2.0/24:7"]) as wide:
        for _ in range(2):
            assert dial(narrow, port).stdout == "hello\n" and dial(wide, port).stdout == "hello\n"
        before = narrow.stats().cold
        for rule in (f"localhost:{free_port()}", "192.0.2.0/25:7"):
            with Sandbox(timeout=20, allow_network=[f"localhost:{port}", rule]) as third:
                third.run_command(["true"])
        assert narrow.stats().cold == before + 2, "another port, another range: another gate"


def test_limits_on_connections_are_each_runs_own(service):
    port, _ = service
    code = """
import socket, sys
held = [socket.socket() for _ in range(3)]
for s in held:
    s.settimeout(10)
    try:
        s.connect((sys.argv[1], int(sys.argv[2])))
        print(s.recv(100).decode())
    except OSError:
        pass
"""
    with Sandbox(timeout=20, allow_host_port=[port], max_connections=2) as two, \
            Sandbox(timeout=20, allow_host_port=[port]) as many:
        for _ in range(3):
            for box, words in ((many, ["hello", "hello", "hello"]), (two, ["hello", "hello"])):
                result = prepared(box, ["python3", "-I", "-S", "-c", code, "host.cordon", str(port)])
                assert [w for w in result.stdout.split("\n") if w == "hello"] == words, result


# ---- what a guest finds -------------------------------------------------------------------------

VIEW = r"""
import fcntl, json, os, socket, struct, time
time.sleep(0.3)  # the kernel's workers are done with what is new
view = {}
# not those that count packets: the kernel's own first ones on a link of IPv6 take their time
for name in ("route", "ipv6_route", "if_inet6", "snmp", "arp", "igmp", "tcp", "tcp6", "udp", "udp6", "ip6_flowlabel"):
    try:
        view[name] = sorted(open("/proc/self/net/" + name))
        if name == "ipv6_route":  # who refers to it, and how often: the kernel itself does, sooner or later
            view[name] = [[word for i, word in enumerate(line.split()) if i not in (6, 7)] for line in view[name]]
    except OSError as e:
        view[name] = e.errno
for name in ("ip_unprivileged_port_start", "icmp_ratelimit", "ip_forward", "conf/eth0/forwarding", "conf/all/rp_filter"):
    try:
        view[name] = open("/proc/sys/net/ipv4/" + name).read()
    except OSError as e:
        view[name] = e.errno
s = socket.socket()
for name in ("lo", "eth0"):
    word = name.encode().ljust(40, b"\0")
    view[name] = [fcntl.ioctl(s, call, word)[16:32].hex() for call in (0x8913, 0x8915, 0x891b, 0x8921, 0x8927)]
view["resolv"] = open("/etc/resolv.conf").read()
low = socket.socket(); low.bind(("127.0.0.1", 80))
view["connect"] = socket.socket().connect_ex(("127.0.0.1", 81))
print(json.dumps(view, sort_keys=True))
"""


def test_it_is_the_network_of_a_cold_start(service):
    port, _ = service
    command = ["python3", "-I", "-S", "-c", VIEW]
    done = subprocess.run([COMMAND, "run", "--json", "--allow-host-port", str(port), "--", *command], capture_output=True, cwd="/")
    cold = json.loads(json.loads(done.stdout)["stdout"])
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        for _ in range(3):
            dial(box, port)  # leaves counters, sockets in TIME_WAIT, neighbours: in namespaces that nobody sees again
            warm = json.loads(prepared(box, command).stdout)
            assert warm == cold


def test_no_two_guests_have_the_same_network(service):
    port, _ = service
    cookie = ["python3", "-I", "-S", "-c", "import socket, struct\n"
              "print(struct.unpack('Q', socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, 71, 8))[0])"]
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        seen = [prepared(box, cookie).stdout for _ in range(10)]
    assert len(set(seen)) == len(seen)


def test_a_warm_interpreter_has_its_way_out(service):
    port, hits = service
    code = f"import socket\ns = socket.create_connection(('host.cordon', {port}), 10)\nprint(s.recv(100).decode(), PLACE)"
    with Sandbox(timeout=20, allow_host_port=[port], allowed_imports=["socket"]) as open_, \
            Sandbox(timeout=20, allow_network=[f"other.test:{port}"], allowed_imports=["socket"]) as closed:
        until = time.monotonic() + READY
        for i in range(100):
            before = open_.stats().prepared
            result = open_.run(code.replace("PLACE", str(i)))
            assert result.stdout == f"hello {i}\n", result
            if i > 3 and open_.stats().prepared > before:
                break
            assert time.monotonic() < until, "no interpreter was kept"
        for _ in range(4):
            hits.clear()
            result = closed.run(code)
            assert result.exit_code != 0 and not hits, result


# ---- published ports ----------------------------------------------------------------------------

SERVE = """
import socket, sys
with socket.create_server(("127.0.0.1", 9000)) as s:
    made, _ = s.accept()
    with made:
        made.sendall(b"from " + sys.argv[1].encode())
"""


def fetch(port):
    until = time.monotonic() + READY
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), READY) as made:
                text = made.recv(100)
                if text:
                    return text.decode()
        except OSError:
            pass
        assert time.monotonic() < until, "nobody answered"
        time.sleep(0.01)


def test_a_published_port_is_the_runs_that_is_going_on():
    port = free_port()
    with Sandbox(timeout=30, publish=[f"{port}:9000"]) as box:
        prepared(box)
        eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
        with pytest.raises(OSError):  # guests wait, but nobody listens for them
            socket.create_connection(("127.0.0.1", port), 5)
        for i in range(6):
            before = box.stats()
            run = box.start_command(["python3", "-I", "-S", "-c", SERVE, str(i)])
            assert fetch(port) == f"from {i}"
            assert run.wait().exit_code == 0
            assert box.stats().prepared + box.stats().spawned > before.prepared + before.spawned, "it was started from nothing"


def test_a_published_port_that_is_taken_is_told_as_ever():
    port = free_port()
    with Sandbox(timeout=30, publish=[f"{port}:9000"]) as box:
        prepared(box)
        with socket.create_server(("127.0.0.1", port)):
            with pytest.raises(SandboxError, match=f"127.0.0.1:{port}"):
                box.run_command(["true"])
        assert prepared(box).exit_code == 0


# ---- nothing is left, whatever ends -------------------------------------------------------------

def test_brokers_end_with_their_guests(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        for _ in range(20):
            dial(box, port)
        # one for each guest that waits and no other, dead or alive
        eventually(lambda: len(brokers(box)) == box.stats().waiting, f"{brokers(box)} {box.stats()}")
        supervisor, held = box._lease.supervisor_pid(), brokers(box)
        assert held
    eventually(lambda: not any(alive(pid) for pid in [supervisor, *held]), "a broker outlived its handle")


def test_a_broker_that_dies_while_it_waits_is_replaced(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        assert dial(box, port).stdout == "hello\n"
        for _ in range(3):
            end(brokers(box))
            result = box.run_command(["python3", "-I", "-S", "-c", DIAL, "host.cordon", str(port)])
            assert (result.stdout, result.verdict) == ("hello\n", "ok")
            dial(box, port)  # others are prepared in their place, however often that happens
        # and one that is just about to die, whose sockets take the kernel a while
        for delay in (0, 0, 0.002, 0.005, 0.01):
            time.sleep(0.1)
            for pid in brokers(box):
                os.kill(pid, signal.SIGKILL)
            time.sleep(delay)
            try:
                result = box.run_command(["python3", "-I", "-S", "-c", DIAL, "host.cordon", str(port)])
                assert (result.stdout, result.verdict) == ("hello\n", "ok")
            except SandboxError as error:
                assert "broker" in str(error), "it lived when the run began, and was needed"
        dial(box, port)


def test_a_broker_that_does_not_read_holds_nobody_up_for_long(service):
    """Somebody stopped it: the run that gets it, and its neighbours, go on after a while."""
    port, _ = service
    rules = [f"localhost:{port}"] + [f"{'x' * 60}.{'y' * 60}.{'z' * 60}.n{i}.test:{port}" for i in range(3000)]
    with Sandbox(timeout=20, allow_network=rules) as box, Sandbox(timeout=20) as plain:
        dial(box, port)
        prepared(plain)
        eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
        for pid in brokers(box):
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        run = box.start_command(["python3", "-I", "-S", "-c", DIAL, "host.cordon", str(port)])
        assert plain.run_command(["true"]).verdict == "ok"
        assert run.wait().stdout == "hello\n"
        assert time.monotonic() - began < READY


def test_a_guest_that_dies_while_it_waits_takes_its_broker_along(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        dial(box, port)
        eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
        held = brokers(box)
        end(named(box, "cordon-init"))
        assert box.run_command(["true"]).verdict == "ok"
        eventually(lambda: not any(alive(pid) for pid in held), "a broker without its guest")


def test_a_killed_supervisor_leaves_no_broker(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        dial(box, port)
        eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
        supervisor = box._lease.supervisor_pid()
        below = [pid for pid, _ in children(supervisor)]
        os.kill(supervisor, signal.SIGKILL)
        eventually(lambda: not any(alive(pid) for pid in below), f"left: {[pid for pid in below if alive(pid)]}")


def test_a_guest_that_died_while_it_waited_leaves_its_port_to_the_next():
    port = free_port()
    with Sandbox(timeout=30, publish=[f"{port}:9000"]) as box:
        prepared(box)
        eventually(lambda: len(named(box, "cordon-init")) >= 2, "nobody waits")
        end(named(box, "cordon-init"))
        for _ in range(3):
            assert box.run_command(["true"]).verdict == "ok"


# ---- a broker that fails is not the guest's business --------------------------------------------

LOOKUPS = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[1])):
    name = b"".join(bytes([len(p)]) + p for p in (b"n%d" % i, b"evil", b"test")) + b"\\0"
    s.sendto(b"%c%c" % (i >> 8, i & 255) + b"\\1\\0\\0\\1" + b"\\0" * 6 + name + b"\\0\\1\\0\\1", ("198.18.0.1", 53))
"""


def stopped(box):
    """Brokers that wait and will not be heard of."""
    eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
    held = brokers(box)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    return held


def test_a_broker_that_says_nothing_is_not_taken_for_one_that_saw_nothing(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        result = prepared(box)
        assert (result.verdict, result.network["all_observed"]) == ("ok", True), "the twin"
        stopped(box)
        result = box.run_command(["true"])
        assert (result.verdict, result.network["all_observed"]) == ("ok", False), result


def test_a_broker_that_dies_after_its_guest_is_our_failure(service):
    """The guest was faster than its broker began: nobody knows what it would have done with one."""
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        prepared(box)
        held = stopped(box)
        run = box.start_command(["true"])
        time.sleep(0.2)
        end(held)
        with pytest.raises(SandboxError, match="broker"):
            run.wait()
        assert box.run_command(["true"]).verdict == "ok"


def test_a_broker_that_dies_leaves_its_ports():
    port = free_port()
    with Sandbox(timeout=30, publish=[f"{port}:9000"]) as box:
        for _ in range(6):
            prepared(box)
            run = box.start_command(["sleep", "20"])
            eventually(lambda: is_listening(port) and len(serving(box)) == 1, "nobody listens")
            os.kill(serving(box)[0], signal.SIGKILL)
            with pytest.raises(SandboxError, match="broker"):
                run.wait()
            assert box.run_command(["true"]).verdict == "ok"


def is_listening(port):
    """At the host's loopback."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        return f"0100007F:{port:04X} 00000000:0000 0A" in f.read()


def serving(box):
    """Brokers that have locked themselves in with a run's rules. Nobody but root sees what they hold."""
    found = []
    for pid in brokers(box):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii") as f:
            found += [pid] if "\nSeccomp:\t2\n" in f.read() else []
    return found


@pytest.mark.parametrize("number", [20, 250, 1000])
def test_what_a_guest_tries_in_its_last_moment_is_told_or_counted(service, number):
    port, _ = service
    rules = [f"localhost:{port}"] + [f"n{i}.allowed.test:{port}" for i in range(1500)]  # which take it a while
    with Sandbox(timeout=20, allow_network=rules) as box:
        prepared(box)
        for _ in range(5):
            result = prepared(box, ["python3", "-I", "-S", "-c", LOOKUPS, str(number)])
            told = len({d["target"] for d in result.denials})
            told = max(told, len({a["name"] for a in result.network["attempts"] if a["verdict"] == "refused"}))
            dropped = result.network["attempts_dropped"]
            assert told + dropped >= number, (told, dropped)
            assert (dropped == 0) == result.network["all_observed"]
            assert number > 250 or dropped == 0


def test_a_guest_that_gives_up_dialling_is_not_waited_for():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        held = [socket.socket() for _ in range(3)]  # its queue is full: nobody answers the next one
        for s in held:
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
        code = f"import socket\ns = socket.create_connection(('host.cordon', {port}))\nDATA\ns.close()"
        with Sandbox(timeout=20, allow_host_port=[port]) as box:
            took = {}
            for word in ("pass", "s.sendall(b'x')"):
                command = ["python3", "-I", "-S", "-c", code.replace("DATA", word)]
                prepared(box, command)
                times = []
                for _ in range(6):
                    began = time.monotonic()
                    box.run_command(command)
                    times.append(time.monotonic() - began)
                took[word] = min(times)
            assert took["pass"] + 0.1 < took["s.sendall(b'x')"], f"only who has sent something is: {took}"
        for s in held:
            s.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's brokers have something to give up")
def test_a_broker_that_waits_has_given_up_roots_rights(service):
    port, _ = service
    with Sandbox(timeout=20, allow_host_port=[port]) as box:
        prepared(box)
        eventually(lambda: len(brokers(box)) >= 2, "nobody waits")
        for pid in brokers(box):
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
            assert int(status["CapPrm"], 16) & ~(1 << 6 | 1 << 7) == 0, status["CapPrm"]
            assert (status["NoNewPrivs"], status["CapInh"]) == ("1", "0" * 16)


# ---- the last bytes of a guest ------------------------------------------------------------------

def test_what_a_guest_answers_before_it_ends_arrives():
    """Whoever reads late reads all: the guest is gone by then, and so is its broker."""
    answer = ("import socket\nwith socket.create_server(('127.0.0.1', 9000)) as s:\n"
              "    made, _ = s.accept()\n    made.sendall(b'x' * 100000)\n    made.close()")
    port = free_port()
    with Sandbox(timeout=30, publish=[f"{port}:9000"]) as box:
        for _ in range(10):
            run = box.start_command(["python3", "-I", "-S", "-c", answer])
            until = time.monotonic() + READY
            while True:
                try:
                    made = socket.create_connection(("127.0.0.1", port), READY)
                    first = made.recv(1)
                    if first:
                        break
                    made.close()
                except OSError:
                    pass
                assert time.monotonic() < until, "nobody answered"
                time.sleep(0.002)
            assert run.wait().exit_code == 0
            time.sleep(0.05)
            with made:
                rest = b""
                while True:
                    part = made.recv(65536)
                    if not part:
                        break
                    rest += part
            assert len(first + rest) == 100000


def test_what_a_guest_sends_before_it_ends_arrives():
    got, listener = [], socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # most of it is under way when the guest ends

    def serve():
        made, _ = listener.accept()
        with made:
            time.sleep(1)
            data = b""
            while True:
                part = made.recv(65536)
                if not part:
                    break
                data += part
        got.append(len(data))
    port = listener.getsockname()[1]
    send = f"import socket\ns = socket.create_connection(('host.cordon', {port}))\ns.sendall(b'x' * 100000)\ns.close()"
    with listener, Sandbox(timeout=30, allow_host_port=[port]) as box:
        for _ in range(3):
            thread = threading.Thread(target=serve)
            thread.start()
            assert box.run_command(["python3", "-I", "-S", "-c", send]).exit_code == 0
            thread.join(READY)
    assert got == [100000] * 3
