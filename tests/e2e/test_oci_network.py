"""The way out behind OCI runtimes: the same broker and the same rules as behind the native wall."""

import shutil

import pytest

from cordon_run import run

pytestmark = pytest.mark.usefixtures("full")
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FETCH = """import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(url, urllib.request.urlopen(url, timeout=20).read().decode().strip()[:40])
    except Exception as e:
        print(url, "failed", type(e).__name__)
"""


@pytest.fixture(params=["runc", "crun", "runsc"])
def wall(request, need, net, world):
    net.forget()
    if not world.is_root:
        pytest.skip("needs root: an ordinary user's network of the tests is a user namespace with one id, and a runtime needs two")
    need(shutil.which(request.param, path=FOLDERS), f"{request.param} is missing: install the package {request.param}")
    words = ["--backend", "oci", "--runtime", request.param, "--time-limit", "60s"]
    probe = net.run(*words, "--", "/bin/true")
    assert probe.verdict == "ok", probe
    return words


def fetch(net, wall, options, *urls, **kw):
    return net.run(*wall, *options, "--", "/usr/bin/python3", "-I", "-c", FETCH, *urls, **kw)


def test_allowlist(wall, net):
    got = fetch(net, wall, ["--allow-network", "ok.test"], "http://ok.test/", "http://other.test/", "http://203.0.113.20/")
    lines = got.out.split("\n")
    assert "hello from web" in lines[0] and "failed" in lines[1] and "failed" in lines[2], got
    assert got.denied("other.test", "network") and got.layers["network"] == "broker", got
    assert not net.hits("http", place="evil") and not net.hits("dns", name="other.test")
    twin = fetch(net, wall, ["--allow-network", "other.test"], "http://ok.test/", "http://other.test/")
    assert "failed" in twin.out.split("\n")[0] and "hello" in twin.out.split("\n")[1], twin


def test_ports_and_deny(wall, net):
    got = fetch(net, wall, ["--allow-network", "ok.test:8080"], "http://ok.test:8080/", "http://ok.test/")
    assert "hello" in got.out.split("\n")[0] and "failed" in got.out.split("\n")[1], got
    got = fetch(net, wall, ["--allow-network", "ok.test", "--deny-network", "203.0.113.0/24", "--deny-network", "2001:db8::/32"],
                "http://ok.test/")
    assert "failed" in got.out and not net.hits("http", place="web", port=80), got


def test_without_a_rule_nothing_leaves(wall, net):
    got = fetch(net, wall, [], "http://203.0.113.10/", "http://ok.test/")
    assert got.out.count("failed") == 2 and not net.hits("dns"), got
    got = fetch(net, wall, ["--log-network"], "http://ok.test/")
    assert "failed" in got.out and got.denied("ok.test", "network"), got


def test_bridge(wall, net):
    got = fetch(net, wall, ["--network", "bridge"], "http://ok.test/", "http://10.1.2.3/")
    if got.code == 69 and "kernel" in str(got.result["error"]):
        pytest.skip("the kernel lacks what a bridge needs: " + got.result["error"])
    assert "hello from web" in got.out.split("\n")[0] and "failed" in got.out.split("\n")[1], got


def test_publish(wall, net):
    child = net.start(*wall, "--allow-network", "ok.test", "--publish", "18090:9000", "--", "/usr/bin/python3", "-I", "-c",
                      "import socket\ns = socket.create_server(('0.0.0.0', 9000))\nprint('up', flush=True)\n"
                      "c, _ = s.accept(); c.sendall(b'served ' + c.recv(100)); c.close()")
    try:
        assert child.stdout.readline() == b"up\n"
        got = net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18090 && printf hi >&3 && cat <&3")
        assert got.stdout == "served hi", got
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.communicate()


def test_own_loopback_and_servers(wall, net):
    """Nothing of ours listens beside the guest."""
    got = net.run(*wall, "--allow-network", "ok.test", "--", "/usr/bin/python3", "-I", "-c",
                  "import socket\nfor port in (1053, 8080, 9443):\n s = socket.create_server(('127.0.0.1', port))\n"
                  " c = socket.create_connection(s.getsockname()); s.accept()[0].sendall(b'ok'); print(c.recv(2).decode())")
    assert got.out == "ok\n" * 3, got


def test_host_network_asks_twice(wall):
    assert run(*wall, "--network", "host", "--", "/bin/true", as_json=False).code == 64


def test_host_network(wall, net):
    """The host's own sockets, for two runs at once; without the word for it nothing of them."""
    words = ["--network", "host", "--unsafe-host-network"]
    first = net.start(*wall, *words, "--", "sh", "-c", "echo up; exec sleep 60", dns=None)
    try:
        assert first.stdout.readline() == b"up\n"
        got = fetch(net, wall, words, "http://203.0.113.10/", dns=None)
        assert "hello from web" in got.out and got.layers["net_ns"] == "off", got
    finally:
        first.kill()
        first.communicate()
    got = fetch(net, wall, [], "http://203.0.113.10/")
    assert "failed" in got.out and got.layers["net_ns"] == "on", got
