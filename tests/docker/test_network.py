"""--network bridge: the world is there, internal addresses are not; what a container cannot honour is refused."""

import json
import os
import socket
import struct
import threading
import time

import pytest

from cordon import Sandbox

OUTSIDE, OUTSIDE6 = "203.0.113.5", "2001:db8:5::5"  # tests/with-engine puts all of these on the engine's host
INSIDE = ["10.77.0.5", "169.254.169.254", "100.64.0.5", "fd77::5"]
GATEWAYS = ["172.17.0.1", "2001:db8:77::1"]
DIAL = """
import socket, sys
for host in sys.argv[2:]:
    try:
        with socket.create_connection((host, int(sys.argv[1])), 5) as s:
            print(host, s.recv(99).decode(), flush=True)
    except OSError as e:
        print(host, "no", flush=True)
"""


@pytest.fixture(scope="module")
def world(engine):
    """Answers on every address of the engine's host."""
    subnets = {c["Subnet"] for c in engine.ask("GET", "/networks/bridge")[1]["IPAM"]["Config"]}
    assert subnets == {"172.17.0.0/16", "2001:db8:77::/64"}, f"another bridge than that of tests/with-engine: {subnets}"
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)

    def answer():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            peer.sendall(b"hello")
            peer.close()
    threading.Thread(target=answer, daemon=True).start()
    yield str(server.getsockname()[1])
    server.close()


def _dial(run, port, hosts, *options):
    result = run("--time-limit", "60s", *options, "--", "python3", "-c", DIAL, port, *hosts)
    assert result.verdict == "ok", result
    return dict(line.split() for line in result.out.splitlines()), result


@pytest.mark.both
def test_internal_addresses_are_blocked(run, world):
    hosts = [OUTSIDE, OUTSIDE6, *INSIDE, *GATEWAYS]
    found, result = _dial(run, world, hosts, "--network", "bridge")
    assert found == {host: "hello" if host in (OUTSIDE, OUTSIDE6) else "no" for host in hosts}
    assert result.layers["network"] == "bridge, internal addresses blocked"
    found, result = _dial(run, world, hosts, "--network", "bridge", "--block-internal=false")
    assert found == {host: "hello" for host in hosts}
    assert result.layers["network"] == "bridge, internal addresses not blocked"
    found, result = _dial(run, world, hosts)
    assert found == {host: "no" for host in hosts} and result.layers["network"] == "none"
    found, result = _dial(run, world, [OUTSIDE, INSIDE[0]], "--network", "bridge", "--block-internal=true")
    assert found == {OUTSIDE: "hello", INSIDE[0]: "no"}


@pytest.mark.both
def test_guest_has_no_rights_left(sh):
    """pid 1 was root with the right to make rules; nothing of it is left."""
    result = sh("id -un; id -u; id -G; grep -h Cap /proc/self/status /proc/1/status | cut -f2 | sort -u; "
                "grep -h NoNewPrivs /proc/self/status | cut -f2; stat -c %U ~ /tmp/made 2>/dev/null", "--network", "bridge")
    assert result.out == "sandbox\n1000\n1000\n0000000000000000\n1\nsandbox\n", result
    assert sh("cat in; stat -c %U in", "--network", "bridge", "--file", "in=/etc/hostname").out.split()[-1] == "sandbox"


ESCAPE = """
import os, socket, struct, sys
port, outside, inside = int(sys.argv[1]), sys.argv[2], sys.argv[3]
for family, kind, proto in ((16, 3, 0), (16, 3, 12), (17, 3, 3), (2, 3, 255), (2, 3, 1), (10, 3, 58)):
    try: socket.socket(family, kind, proto); print("socket", family, kind)
    except OSError: pass
s = socket.socket()
try:
    s.settimeout(5)
    s.setsockopt(0, 4, bytes([131, 7, 4]) + socket.inet_aton(inside) + b"\\0")  # a source route
    s.connect((outside, port))
    print("source route")
except OSError: pass
u = socket.socket(2, 2)
u.settimeout(2)
try:
    u.sendto(b"x", (inside, port))
    print("datagram", u.recv(9))
except OSError: pass
u.setsockopt(1, 6, 1)
try: u.sendto(b"x", ("255.255.255.255", port)); print("broadcast")
except OSError: pass
m = socket.socket(10, 1)
m.settimeout(5)
try: m.connect(("::ffff:" + inside, port)); print("mapped")
except OSError: pass
print("end")
"""


def test_no_way_around(run, world):
    result = run("--network", "bridge", "--time-limit", "60s", "--", "python3", "-c", ESCAPE, world, OUTSIDE, INSIDE[0])
    assert result.out == "end\n", result


ROUTED = """
import socket, sys
inside, outside = (socket.inet_pton(10, host) for host in sys.argv[1:])
head = bytes([0, 4, 4, 1, 1, 0, 0, 0]) + inside + outside  # by way of outside to inside (RFC 8754)
u = socket.socket(10, 2)
u.setsockopt(41, 57, head)  # IPV6_RTHDR
try:
    u.sendto(b"x", (sys.argv[2], 9))
    print("sent")
except OSError as e:
    print("no", e.errno)
socket.socket(10, 2).sendto(b"x", (sys.argv[2], 9))
print("plain")
"""


def test_no_routing_header(run):
    words = ["--", "python3", "-c", ROUTED, INSIDE[3], OUTSIDE6]
    assert run("--network", "bridge", *words).out == "no 1\nplain\n"
    assert run("--network", "bridge", "--block-internal=false", *words).out == "sent\nplain\n"


def test_refusals_are_recorded(run, world):
    found, result = _dial(run, world, [OUTSIDE, INSIDE[0], INSIDE[0], INSIDE[3]], "--network", "bridge")
    assert found[OUTSIDE] == "hello"
    told = {d["target"]: d for d in result.result["denials"] if d["kind"] == "network"}
    assert set(told) == {f"{INSIDE[0]}:{world}", f"[{INSIDE[3]}]:{world}"}, told
    assert told[f"{INSIDE[0]}:{world}"]["count"] >= 2 and told[f"[{INSIDE[3]}]:{world}"]["rule"] == "block_internal"
    _, result = _dial(run, world, [OUTSIDE, INSIDE[0]], "--network", "bridge", "--block-internal=false")
    assert not [d for d in result.result["denials"] if d["kind"] == "network"]


def test_a_flood_of_refusals(run):
    """Thousands of destinations, and more packets than anybody reads: the run is as it was."""
    result = run("--network", "bridge", "--", "python3", "-c", """
import socket
u = socket.socket(2, 2)
for i in range(60000):
    try: u.sendto(b"x", (f"10.{i % 200}.{i // 200 % 200}.7", 1 + i % 60000))
    except OSError: pass
print("done")
""")
    assert result.verdict == "ok" and result.out == "done\n", result
    told = [d for d in result.result["denials"] if d["kind"] == "network"]
    assert len(told) == 33 and told[-1]["target"] == "other", told


def test_kept_containers_tell_their_own(engine, world):
    with Sandbox(timeout=20, backend="docker", reuse=True, network="bridge") as sandbox:
        end = time.monotonic() + 40
        dial = lambda host: sandbox.run_command(["python3", "-c", DIAL, world, host])
        while "reuse" not in (run := dial(INSIDE[0])).enforcement["layers"]:
            assert time.monotonic() < end, "no container was kept"
            time.sleep(0.1)
        assert [d["target"] for d in run.denials if d["kind"] == "network"] == [f"{INSIDE[0]}:{world}"]
        assert [d for d in dial(OUTSIDE).denials if d["kind"] == "network"] == []
    engine.wait_for(0)


def test_own_addresses(run):
    """Loopback and the container's own address stay the guest's."""
    result = run("--network", "bridge", "--", "python3", "-c", """
import socket
own = socket.gethostbyname(socket.gethostname())
for host in ("127.0.0.1", own):
    a = socket.create_server((host, 0))
    socket.create_connection(a.getsockname(), 5)
print(own.startswith("172.17."))
""")
    assert result.out == "True\n", result


def _name_server(address):
    """Answers every question for an IPv4 address with that of the world outside."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))

    def answer():
        while True:
            try:
                data, peer = server.recvfrom(2000)
            except OSError:
                return
            end = data.index(0, 12) + 5
            kind = data[end - 4:end - 2]
            answers = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04" + socket.inet_aton(OUTSIDE) if kind == b"\0\x01" else b""
            server.sendto(data[:2] + b"\x81\x80\0\x01" + struct.pack(">H", bool(answers)) + bytes(4) + data[12:end] + answers, peer)
    threading.Thread(target=answer, daemon=True).start()
    return server


def test_resolver(run, world):
    """The resolver may be internal: its port 53, nothing else of it."""
    with _name_server(INSIDE[0]):
        found, _ = _dial(run, world, ["name.example", INSIDE[0]], "--network", "bridge", "--dns", INSIDE[0])
        assert found == {"name.example": "hello", INSIDE[0]: "no"}


def test_proxy(run, world, sh):
    """A proxy the caller names by its address may be internal: that port."""
    options = ["--network", "bridge", "--http-proxy", f"http://{INSIDE[0]}:{world}"]
    found, _ = _dial(run, world, [INSIDE[0], INSIDE[1]], *options)
    assert found == {INSIDE[0]: "hello", INSIDE[1]: "no"}
    found, _ = _dial(run, world, [INSIDE[0]], "--network", "bridge", "--http-proxy", f"http://{INSIDE[0]}:1")
    assert found == {INSIDE[0]: "no"}
    assert sh("echo $http_proxy $HTTPS_PROXY", *options).out == f"http://{INSIDE[0]}:{world} " * 1 + f"http://{INSIDE[0]}:{world}\n"
    assert sh("cat /etc/resolv.conf", "--network", "bridge", "--dns", "192.0.2.53").out.split()[-1] == "192.0.2.53"


def test_another_container(run, engine, world):
    """Neighbours on the bridge are internal, too."""
    status, made = engine.ask("POST", "/containers/create", {"Image": "cordon-sandbox:latest", "User": "1000:1000", "Cmd": [
        "python3", "-c", "import socket; s = socket.create_server(('', 7777))\nwhile True: s.accept()[0].sendall(b'hello')"]})
    assert status == 201, made
    try:
        assert engine.ask("POST", f"/containers/{made['Id']}/start")[0] == 204
        address = engine.ask("GET", f"/containers/{made['Id']}/json")[1]["NetworkSettings"]["IPAddress"]
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((address, 7777), 5).close()
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.1)
        assert _dial(run, "7777", [address], "--network", "bridge")[0] == {address: "no"}
        assert _dial(run, "7777", [address], "--network", "bridge", "--block-internal=false")[0] == {address: "hello"}
    finally:
        engine.ask("DELETE", f"/containers/{made['Id']}?force=1")


def test_kept_container(engine, world):
    with Sandbox(timeout=60, backend="docker", reuse=True, network="bridge") as sandbox:
        end = time.monotonic() + 40
        while "reuse" not in (done := sandbox.run_command(["true"])).enforcement["layers"]:
            assert time.monotonic() < end, "no container was kept"
            time.sleep(0.1)
        done = sandbox.run_command(["python3", "-c", DIAL, world, OUTSIDE, INSIDE[0]])
        assert done.stdout == f"{OUTSIDE} hello\n{INSIDE[0]} no\n" and "reuse" in done.enforcement["layers"], done
        assert done.enforcement["layers"]["network"] == "bridge, internal addresses blocked"
        done = sandbox.run_command(["bash", "-c", "id -u; grep -h Cap /proc/self/status | cut -f2 | sort -u"])
        assert done.stdout == "1000\n0000000000000000\n"
    engine.wait_for(0)


def test_gvisor(run):
    """Its network knows no packet rules: refused, not weakened."""
    result = run("--runtime", "runsc", "--network", "bridge", "--", "true")
    assert result.code == 69 and "block_internal" in result.result["error"], result
    result = run("--runtime", "runsc", "--network", "bridge", "--block-internal=false", "--time-limit", "60s", "--", "true",
                 env={"DOCKER_HOST": "unix:///nonexistent.sock"})
    assert "Docker is not running" in result.result["error"], "not refused by the plan"
