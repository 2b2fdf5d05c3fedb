"""A prepared guest's network namespace may have been another guest's before: only if that one left nothing in it."""

import errno
import json
import time

import pytest

from cordon import Sandbox
from test_warm import READY, prepared

pytestmark = pytest.mark.full_tier("guests are prepared in tier full only")

# The whole host's, whoever asks: the same files of two fresh namespaces differ.
SHARED = ("softnet_stat", "sockstat", "protocols", "netlink", "unix", "packet", "tcp", "udp", "ptype", "rt_cache")

GUEST = """
import errno, json, os, socket, struct, sys, time

def cookie():
    s = socket.socket(socket.AF_UNIX)
    return struct.unpack("Q", s.getsockopt(socket.SOL_SOCKET, 71, 8))[0]

def files():
    view = {}
    for where, _, names in os.walk("/proc/self/net/"):
        for name in names:
            path = os.path.join(where, name)
            if name not in SHARED and "/stat/" not in path:
                try:
                    view[path] = open(path).read()
                except OSError as e:
                    view[path] = e.errno
    return view

def sockets():
    '''Those of others; our own are not made yet.'''
    return {name: open("/proc/self/net/" + name).read().splitlines()[1:]
            for name in ("unix", "tcp", "tcp6", "udp", "udp6", "packet")} | {
        "used": open("/proc/self/net/sockstat").readline()}
""".replace("SHARED", repr(SHARED))

VIEW = GUEST + """
view = {"sockets": sockets(), "files": files()}
s = socket.socket(); s.bind(("127.0.0.1", 4000)); s.listen(); s.close()
s = socket.socket(socket.AF_UNIX); s.bind("\\0name"); s.close()
s = socket.socket()
view["connect"] = s.connect_ex(("127.0.0.1", 4001))
view["cookie"] = cookie()
print(json.dumps(view, sort_keys=True))
"""

# What each of them leaves, or would like to leave.
TRACES = {
    "a connection in TIME_WAIT": """
a = socket.create_server(("127.0.0.1", 4001)); b = socket.create_connection(("127.0.0.1", 4001)); c, _ = a.accept()
b.send(b"x"); c.recv(1); b.close(); c.close()
""",
    "one datagram": 'socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))',
    "one datagram of IPv6": 'socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", ("::1", 9))',
    "a refused route": 'assert socket.socket().connect_ex(("198.51.100.1", 80)) == errno.ENETUNREACH',
    "a refused route of IPv6": 'assert socket.socket(socket.AF_INET6).connect_ex(("2001:db8::1", 80)) != 0',
    "a refused connection": 'assert socket.socket().connect_ex(("127.0.0.1", 4001)) == errno.ECONNREFUSED',
    "a flow label that lingers": """
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, 32, socket.inet_pton(socket.AF_INET6, "::1") + struct.pack("!I", 0x12345)
             + struct.pack("BBHHHI", 0, 1, 1, 60, 60, 0))
""",
    "a route of IPv6 looked up": 'socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect(("::1", 9))',
    "a listener in a cycle of sockets in flight": """
import array
held = socket.create_server(("127.0.0.1", 4001))
a, b = socket.socketpair()
for end in (a, b):
    end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno(), held.fileno()]))])
""",
}
QUIET = {
    "nothing": "",
    "names and listeners": """
a = socket.socket(socket.AF_UNIX); a.bind("\\0name"); a.listen()
b = socket.create_server(("127.0.0.1", 4000))
c = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); c.bind(("::1", 4000))
""",
    "routes looked up": """
for address in ("127.0.0.1", "127.9.9.9"):
    socket.socket(type=socket.SOCK_DGRAM).connect((address, 9))
""",
}


@pytest.fixture(scope="module")
def kept():
    with Sandbox(timeout=30) as made:
        for _ in range(4):
            prepared(made)
        yield made


def ask(sandbox, code):
    result = prepared(sandbox, ["python3", "-I", "-c", code])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout or "null")


def look(sandbox):
    view = ask(sandbox, VIEW)
    return view.pop("cookie"), view


@pytest.fixture(scope="module")
def fresh():
    """As a guest sees a namespace that is made for it."""
    with Sandbox(timeout=30) as other:
        result = other.run_command(["python3", "-I", "-c", VIEW])
    assert result.exit_code == 0, result.stderr
    view = json.loads(result.stdout)
    view.pop("cookie")
    return view


def test_a_namespace_that_was_left_alone_is_used_again(kept):
    seen, until = [], time.monotonic() + READY
    while time.monotonic() < until:
        seen.append(ask(kept, GUEST + "print(cookie())"))
        if seen[-1] in seen[:-1]:
            return
    pytest.fail(f"every guest had a namespace of its own: {seen}")


@pytest.mark.parametrize("trace", TRACES)
def test_a_namespace_with_traces_is_not_used_again(kept, fresh, trace):
    code = GUEST + "print(cookie())\nsys.stdout.flush()\n" + TRACES[trace]
    used = {ask(kept, code) for _ in range(3)}
    for _ in range(4):
        number, view = look(kept)
        assert number not in used
        assert view == fresh


@pytest.mark.parametrize("trace", QUIET)
def test_what_ends_with_its_process_shows_nowhere(kept, fresh, trace):
    code = GUEST + QUIET[trace] + "\nprint(cookie())"
    for _ in range(3):
        ask(kept, code)
        assert look(kept)[1] == fresh


def test_what_would_tell_or_come_late_is_refused(kept):
    """Netlink knows how old remembered routes are; groups that were joined are reported seconds later."""
    code = GUEST + """
def refused(made, *words):
    try:
        made(*words)
    except OSError as e:
        return e.errno
v4, v6 = socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
lo, group = socket.inet_aton("127.0.0.1"), socket.inet_aton("239.1.2.3")
group6 = socket.inet_pton(socket.AF_INET6, "ff02::1234") + struct.pack("I", 1)
print(json.dumps([refused(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0),
                  refused(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 1),
                  refused(v4.setsockopt, 0, socket.IP_ADD_MEMBERSHIP, group + lo),
                  refused(v6.setsockopt, 41, socket.IPV6_JOIN_GROUP, group6)]))
"""
    assert ask(kept, code) == [errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EPERM, errno.EPERM]


def test_settings_of_the_network_are_out_of_reach(kept):
    code = GUEST + """
open_, wrote = [], []
for where, _, names in os.walk("/proc/sys/net"):
    for name in names:
        path = os.path.join(where, name)
        try:
            fd = os.open(path, os.O_WRONLY)
        except OSError:
            continue
        open_.append(path)
        try:
            os.write(fd, b"1")
            wrote.append(path)
        except OSError:
            pass
print(json.dumps([open_, wrote]))
"""
    assert ask(kept, code) == [[], []]


def test_memory_in_sockets_counts():
    """Without a memory group it is asked for in the network namespace, which is not the guest's own user namespace's."""
    fill = """
import socket
kept = []
for _ in range({}):
    a, b = socket.socketpair()
    a.setblocking(False)
    try:
        while True:
            a.send(b"x" * 60000)
    except OSError:
        kept.append((a, b))
import time
time.sleep({})
"""
    with Sandbox(timeout=60, max_memory_mb=64, file_descriptors=8192) as made:
        little = ["python3", "-I", "-c", fill.format(4, 0)]
        for _ in range(2):
            assert prepared(made, little).exit_code == 0
        assert prepared(made, ["python3", "-I", "-c", fill.format(2000, 30)]).verdict == "memory_limit"
        assert prepared(made, little).exit_code == 0
