"""How bytes flow through the broker: half-close, reset, back-pressure, slow peers, many connections; and what is left
when any part of it is killed."""

import os
import re
import signal
import subprocess
import time

import pytest

import net_world
from cordon_run import GUESTS, guest_path

OK = ["--allow-network", "ok.test"]
SERVICE = {"echo": 7000, "count": 7001, "reset": 7002, "sink": 7003, "source": 7004, "banner": 7005, "refuse": 7006}
ANY = [w for port in SERVICE.values() for w in ("--allow-network", f"ok.test:{port}")]
PRE = "import socket, hashlib, time, sys\nc = lambda p: socket.create_connection(('ok.test', p), 20)\n"


@pytest.fixture(autouse=True)
def fresh(net):
    net.forget()


def talk(net, code, *words, **kw):
    return net.python(PRE + code, *ANY, *words, **kw)


def test_half_close(net):
    """The guest ends its side; the answer still comes."""
    r = talk(net, """s = c(7001); data = b"ab" * 500000
s.sendall(data); s.shutdown(socket.SHUT_WR)
print(b"".join(iter(lambda: s.recv(4096), b"")).decode().strip() == "%d %s" % (len(data), hashlib.sha256(data).hexdigest()))
""")
    assert r.out == "True\n", str(r)


def test_server_ends_first(net):
    r = talk(net, """s = c(7004); s.sendall(b"300000 \\n"); n = 0
while d := s.recv(65536): n += len(d)
print(n); s.close()
""")
    assert r.out == "300000\n", str(r)


def test_echo_is_exact(net):
    r = talk(net, """import threading, os
s = c(7000); data = os.urandom(8 << 20); got = []
t = threading.Thread(target=lambda: [got.append(d) for d in iter(lambda: s.recv(65536), b"")])
t.start(); s.sendall(data); s.shutdown(socket.SHUT_WR); t.join()
print(b"".join(got) == data)
""")
    assert r.out == "True\n", str(r)


def test_server_first(net):
    """SMTP and the like: the server speaks before the guest does."""
    r = talk(net, "s = c(7005); print(s.recv(100)); s.sendall(b'EHLO me\\r\\n'); print(s.recv(100))")
    assert r.out.splitlines() == ["b'220 speak\\r\\n'", "b'you said EHLO me\\r\\n'"], str(r)


@pytest.mark.parametrize("text", ["x", "GET key\\r\\n", "get key\\r\\n", "PING\\r\\n", "a b c", "\\0\\1\\2", "POST", "q" * 40000, "hello world",
                                  "PING\\nPING\\n", "0033git-upload-pack /project.git\\0host=ok.test\\0", "\\0\\0\\0\\x08\\x04\\xd2\\x16/",
                                  '{\\"a\\": \\"http://x/ HTTP/1.1\\"}\\n'])
def test_other_protocols_pass(net, text):
    """Words that look a little like HTTP are no reason to wait or to refuse."""
    r = talk(net, f"""s = c(7000); t = "{text}".encode("latin-1"); s.sendall(t); n = 0
while n < len(t): n += len(s.recv(65536))
print(n)
""")
    assert int(r.out) == len(text.encode().decode("unicode_escape")), str(r)


def test_reset_arrives(net):
    r = talk(net, """s = c(7002); s.sendall(b"x"); time.sleep(0.3)
try: print(s.recv(10))
except ConnectionResetError: print("reset")
""")
    assert r.out in ("reset\n", "b''\n"), str(r)


def test_refused_outside(net):
    """Nobody listens there: connect() may succeed, then the connection ends at once."""
    r = talk(net, """t = time.time()
try:
    s = c(7006); s.sendall(b"x"); print("end", s.recv(10))
except OSError as e: print("refused", e)
print(time.time() - t < 8)
""")
    assert r.out.splitlines()[1] == "True" and "end b''" in r.out or "refused" in r.out, str(r)


def test_slow_reader_holds_the_writer(net):
    """Back-pressure: a peer that reads slowly stops the guest's writes; the broker does not swallow the flood."""
    r = talk(net, """s = c(7003); s.settimeout(1.0); n = 0
try:
    while n < 200 << 20: n += s.send(b"z" * 65536)
except TimeoutError: pass
print(n)
""")
    assert int(r.out) < 40 << 20, f"{int(r.out)} bytes were taken"


def test_slow_guest_holds_the_server(net):
    r = talk(net, """s = c(7004); s.sendall(b"100000000 \\n"); time.sleep(2); s.settimeout(5)
n = 0
while n < 5 << 20: n += len(s.recv(65536))
print("read", n >= 5 << 20)
""")
    assert r.out == "read True\n", str(r)
    assert r.result["network"]["bytes_down"] < 60 << 20, str(r)


def test_a_guest_that_does_not_read_holds_little_of_the_host(net):
    """What servers send waits in the broker's sockets; only a few of them may have large queues."""
    child = net.start(*ANY, "--time-limit", "60s", "--", "/usr/bin/python3", "-I", "-S", "-c", PRE + """a = []
for i in range(12):
    s = c(7004); s.sendall(b"900000000 \\n"); n = 0; a.append(s)
    while n < 12000000: n += len(s.recv(1 << 20))
print("stop", flush=True); time.sleep(50)
""")
    try:
        assert child.stdout.readline() == b"stop\n"
        time.sleep(1)
        rows = [line.split() for line in net.bare("cat", "/proc/net/tcp").stdout.splitlines()[1:]]
    finally:
        child.terminate()
        child.communicate()
    queues = sorted(int(row[4].split(":")[1], 16) for row in rows if row[2].endswith(":%04X" % 7004))
    assert len(queues) == 12 and sum(q > 1 << 20 for q in queues) <= 4, queues


@pytest.mark.parametrize("count", [1000])
def test_many_connections(net, count):
    r = net.run("--allow-network", "ok.test:7000", "--allow-read", GUESTS, "--file-descriptors", "2048", "--time-limit", "60s", "--",
                guest_path("netclient"), "many", "ok.test", "7000", str(count))
    assert r.get("good") == str(count), str(r)
    assert r.result["network"]["bytes_up"] == count, str(r)


def test_many_short_ones(net):
    r = talk(net, """for _ in range(300):
    s = c(7000); s.sendall(b"x"); assert s.recv(1) == b"x"; s.close()
print("done")
""")
    assert r.out == "done\n", str(r)


def test_large_web_bodies(net):
    code = """import urllib.request, hashlib
d = b"q" * 3000000
print(len(urllib.request.urlopen("http://ok.test/big?n=5000000", timeout=20).read()))
print(urllib.request.urlopen("http://ok.test/up", data=d, timeout=20).read().decode() == hashlib.sha256(d).hexdigest())
"""
    r = net.python(code, *OK)
    assert r.out == "5000000\nTrue\n", str(r)


SOCKET = PRE + """import base64, os
def talk(host, path, early=b""):
    s = c(80); s.settimeout(10); f = s.makefile("rb")
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n"
              f"Sec-WebSocket-Key: {key}\\r\\n\\r\\n".encode() + early)
    return s, f
def frame(data, mask):
    return bytes([0x81, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))
def head(f):
    line = f.readline()
    while f.readline().strip(): pass
    return line.decode().strip()
"""


def test_websocket(net):
    """Plain HTTP that becomes something else: once the server has agreed, bytes are nobody's business any more. Frames
    that look like requests for other hosts are frames."""
    r = net.python(SOCKET + """
s, f = talk("ok.test", "/socket")
print(head(f)); print(f.read(7))
for text in (b"ping", b"GET / HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n", bytes(range(100)), b""):
    for mask in (b"abcd", bytes(4)):
        s.sendall(frame(text, mask)); assert f.read(2 + len(text))[2:] == text, text
s.sendall(b"\\x88\\x80abcd"); print(f.read())
s, f = talk("ok.test", "/socket", early=frame(b"early", bytes(4)))
print(head(f)); f.read(7); print(f.read(7))
""", *OK)
    assert r.out.splitlines() == ["HTTP/1.1 101 Switching Protocols", "b'\\x81\\x05hello'", "b''", "HTTP/1.1 101 Switching Protocols", "b'\\x81\\x05early'"], str(r)
    assert not r.result["denials"] and len(net.hits("http", path="/socket", host="ok.test")) == 2, str(r)


def test_websocket_refused(net):
    """Another host's; and a wish that the server did not grant changes nothing: the next request is judged."""
    r = net.python(SOCKET + """
s, f = talk("evil.com", "/socket")
try: print("answer", f.readline())
except OSError as e: print("refused")
s, f = talk("ok.test", "/plain")
print(head(f)); f.read(len("hello from web as ok.test\\n"))
s.sendall(b"GET /next HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n"); print(head(f)); f.read(len("hello from web as ok.test\\n"))
s.sendall(b"GET /next HTTP/1.1\\r\\nHost: evil.com\\r\\n\\r\\n")
try: print("answer", f.readline())
except OSError as e: print("refused")
""", *OK)
    lines = r.out.splitlines()
    assert lines == ["refused", "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "refused"], str(r)
    assert not net.hits("http", host="evil.com") and sum(d["count"] for d in r.denied("ok.test:80")) == 2, str(r)


CHAOS = """import os, random, struct
random.seed(int(sys.argv[1])); end = time.time() + float(sys.argv[2]); live = []
bits = [b"GET / HTTP/1.1\\r\\nHost: ok.test\\r\\n\\r\\n", b"POST / HTTP/1.1\\r\\nHost: ok.test\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n5\\r\\nhel", b"\\x16\\3\\1\\2\\0\\1", b"GE", b"\\r\\n",
        b"GET / HTTP/1.1\\r\\nHost: ok.test\\r\\nUpgrade: websocket\\r\\n\\r\\nxyz", b"100000 \\n", os.urandom(3000), b"x" * 70000]
while time.time() < end:
    s = socket.socket(random.choice([socket.AF_INET, socket.AF_INET6])); s.setblocking(False)
    try: s.connect((random.choice(["ok.test", "v4.test"]), random.choice([80, 443, 7000, 7001, 7002, 7003, 7004, 7005, 7006])))
    except OSError: pass
    live.append(s)
    for s in random.sample(live, min(3, len(live))):
        try:
            what = random.randrange(6)
            if what < 3: s.send(random.choice(bits))
            elif what == 3: s.shutdown(random.randrange(3))
            elif what == 4: s.recv(random.choice([1, 100, 100000]))
            else:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", random.randrange(2), 0)); s.close(); live.remove(s)
        except OSError: pass
    while len(live) > 200: live.pop(random.randrange(200)).close()
for s in live: s.close()
time.sleep(0.7); s = c(7000); s.sendall(b"fine"); print(s.recv(4).decode(), flush=True); time.sleep(float(sys.argv[3]))
"""


def test_chaos(net):
    """Everything at once and in any order: the broker serves on, and nothing stays open in it."""
    words = [*ANY, *OK, "--allow-network", "v4.test", "--time-limit", "30s"]
    child = net.start(*words, "--", "/usr/bin/python3", "-I", "-S", "-c", PRE + CHAOS, "1", "3", "5")
    try:
        line = child.stdout.readline()
        assert line == b"fine\n", (line, child.poll() is not None and child.communicate()[1][-2000:])
        broker = [p for p, words in below(child.pid).items() if "broker" in words]
        if os.geteuid() == 0 and broker:
            # what the peers hold (a slow reader reads for three seconds) may still be there
            net_world.wait_for(lambda: len(os.listdir(f"/proc/{broker[0]}/fd")) < 70, 5)
    finally:
        child.kill()
        child.communicate()
    assert net.run("--", "/bin/true").verdict == "ok"


def test_time_limit_ends_connections(net):
    r = talk(net, "s = c(7000); s.sendall(b'x'); s.recv(1); time.sleep(60)", "--time-limit", "2s")
    assert r.verdict == "time_limit" and r.seconds < 10, str(r)
    assert r.result["network"]["attempts"], str(r)


# ---- what is left ------------------------------------------------------------------------------------------

def below(pid):
    """Every process below one, with its command line."""
    found, todo = {}, [pid]
    while todo:
        parent = todo.pop()
        for task in os.listdir(f"/proc/{parent}/task") if os.path.exists(f"/proc/{parent}/task") else []:
            try:
                kids = [int(k) for k in open(f"/proc/{parent}/task/{task}/children").read().split()]
            except OSError:
                continue
            for kid in kids:
                try:
                    found[kid] = open(f"/proc/{kid}/cmdline", "rb").read().replace(b"\0", b" ").decode("utf-8", "replace")
                except OSError:
                    continue
                todo.append(kid)
    return found


HOLD = PRE + """s = c(7000); s.sendall(b"x"); s.recv(1); print("up", flush=True)
try: print("got", s.recv(1))
except OSError as e: print("lost", e)
try: c(7000).sendall(b"x"); print("again")
except OSError as e: print("refused", e)
time.sleep(30)
"""


def start_hold(net, *words):
    child = net.start(*ANY, *words, "--time-limit", "40s", "--", "/usr/bin/python3", "-I", "-S", "-u", "-c", HOLD)
    assert child.stdout.readline() == b"up\n", child.communicate()[1]
    return child


def gone(pids):
    def ended(pid):
        try:
            return re.search(r"^State:\s+[ZX]", open(f"/proc/{pid}/status").read(), re.M) is not None
        except OSError:
            return True
    net_world.wait_for(lambda: all(ended(p) for p in pids), 5)


def test_kill_of_the_command_takes_all(net):
    child = start_hold(net)
    pids = below(child.pid)
    assert len(pids) >= 3, pids
    child.kill()
    child.communicate()
    gone(pids)
    assert net.run("--", "/bin/true").verdict == "ok"  # the next run removes what a killed one left


@pytest.mark.parametrize("delay_ms", [1, 3, 6, 10, 20])
def test_kill_of_the_command_at_every_stage(net, delay_ms):
    child = net.start(*ANY, "--publish", "18081:9000", "--", "/bin/sleep", "20")
    time.sleep(delay_ms / 1000)
    pids = below(child.pid)
    child.kill()
    child.communicate()
    gone(pids)
    assert net.run(*OK, "--publish", "18081:9000", "--", "/bin/true").verdict == "ok"


def test_kill_of_the_broker_fails_closed(net):
    """Without its broker the guest has no network, not an open one; the command stays whole and says so."""
    child = start_hold(net)
    broker = [p for p, line in below(child.pid).items() if "broker" in line]
    if not broker:
        child.kill()
        child.communicate()
        pytest.skip("the broker is no process of its own here")
    pids = below(child.pid)
    os.kill(broker[0], signal.SIGKILL)
    try:
        out, err = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    assert b"again" not in out, out
    assert child.returncode in (70, 124), (child.returncode, out, err)
    gone(pids)
    assert not net.hits("inside")


def test_signal_to_the_command(net):
    child = start_hold(net)
    pids = below(child.pid)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    gone(pids)


def test_nothing_is_left_in_the_namespace(net):
    """No interface, listener or route of ours where the command was started."""
    before = net.bare("sh", "-c", "ip -o link; ip -o addr; ip route show table all; ip rule; cat /proc/net/tcp | wc -l")
    for _ in range(3):
        assert net.run(*OK, "--", "/usr/bin/curl", "-sS", "http://ok.test/").verdict == "ok"
    time.sleep(0.2)
    after = net.bare("sh", "-c", "ip -o link; ip -o addr; ip route show table all; ip rule; cat /proc/net/tcp | wc -l")
    cut = lambda text: re.sub(r"valid_lft.*|^\d+$", "", text, flags=re.M)
    assert cut(before.stdout) == cut(after.stdout)


def test_parallel_runs(net):
    children = [net.start(*OK, "--", "/usr/bin/curl", "-sS", "http://ok.test/") for _ in range(8)]
    for child in children:
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0 and b"hello from web" in out, err
