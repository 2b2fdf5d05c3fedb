"""The outside world of the network tests: addresses, a DNS server, web servers, plain TCP and UDP services, an
HTTP proxy. Runs as a program in a network namespace of its own (net_world.py starts it); every question and every
connection is one JSON line in the file given, so that a test can say what did and what did not arrive.

usage: net_servers.py FOLDER     FOLDER holds server.pem; hits.jsonl is written there. Prints `ready`."""

import base64
import hashlib
import http.server
import ipaddress
import json
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

DNS = "203.0.113.53"
WEB, WEB6 = "203.0.113.10", "2001:db8::10"
EVIL, EVIL6 = "203.0.113.20", "2001:db8::20"
PROXY = "203.0.113.30"
INSIDE = ["10.0.0.5", "192.168.7.7", "169.254.169.254", "100.64.0.9", "127.0.0.1", "fd00:ec2::254", "::1"]
SERVICES = {"echo": 7000, "count": 7001, "reset": 7002, "sink": 7003, "source": 7004, "banner": 7005, "refuse": 7006, "loose": 7007}

# name -> addresses; a list of lists is answered in turn
ZONE = {
    "ok.test": [WEB, WEB6], "www.ok.test": [WEB, WEB6], "a.b.wild.test": [WEB], "x.wild.test": [WEB], "wild.test": [WEB],
    "v6.test": [WEB6], "v4.test": [WEB], "evil.com": [EVIL, EVIL6], "other.test": [WEB, WEB6], "ok.test.evil.com": [EVIL],
    "internal.test": ["10.0.0.5"], "loop.test": ["127.0.0.1"], "loop6.test": ["::1"], "meta.test": ["169.254.169.254"],
    "meta6.test": ["fd00:ec2::254"], "cgnat.test": ["100.64.0.9"], "mapped.test": ["::ffff:10.0.0.5"],
    "compat.test": ["::10.0.0.5"], "nat64.test": ["64:ff9b::a00:5"], "sixtofour.test": ["2002:a00:5::1"],
    "any.test": ["0.0.0.0"], "mixed.test": ["10.0.0.5", WEB], "rebind.test": [[WEB], ["10.0.0.5"], [WEB], ["127.0.0.1"]],
    "printer.local": ["192.168.7.7"], "dead.test": ["203.0.113.99"], "time.test": [WEB], "xn--bcher-kva.test": [WEB],
    "git.test": [WEB], "db.test": [WEB], "cache.test": [WEB], "big.test": [WEB] + [f"203.0.113.{n}" for n in range(100, 115)],
}
ALIAS = {"alias.test": "ok.test", "inalias.test": "internal.test"}
log_lock = threading.Lock()
log_file = None
turn = {}


def hit(kind, **facts):
    with log_lock:
        log_file.write(json.dumps({"kind": kind, **facts}) + "\n")
        log_file.flush()


# ---- DNS -----------------------------------------------------------------------------------------------

def name_bytes(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"


def records(name, qtype):
    """(rcode, [record]); None: silence."""
    name = name.lower()
    if name == "slow.test":
        return None
    if name == "fail.test":
        return 2, []
    found, owner = [], name
    if name in ALIAS:
        target = name_bytes(ALIAS[name])
        found.append(name_bytes(name) + struct.pack("!HHIH", 5, 1, 0, len(target)) + target)
        owner = ALIAS[name]
    if owner not in ZONE:
        return 3, found
    addrs = ZONE[owner]
    if isinstance(addrs[0], list):
        with log_lock:
            n = turn.setdefault((owner, qtype), 0)
            turn[owner, qtype] += 1
        addrs = addrs[n % len(addrs)]
    for a in map(ipaddress.ip_address, addrs):
        if (a.version, qtype) in ((4, 1), (6, 28)):
            found.append(name_bytes(owner) + struct.pack("!HHIH", qtype, 1, 0, len(a.packed)) + a.packed)
    return 0, found


def answer(msg, tcp):
    at, labels = 12, []
    while msg[at]:
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin-1"))
        at += 1 + msg[at]
    end, qtype = at + 5, struct.unpack("!H", msg[at + 1:at + 3])[0]
    name = ".".join(labels)
    hit("dns", name=name, type=qtype, tcp=tcp)
    got = records(name, qtype)
    if got is None:
        return None
    rcode, found = got
    flags = 0x8180 | rcode
    if name.lower() == "big.test" and not tcp:
        flags, found = flags | 0x200, []
    return msg[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0) + msg[12:end] + b"".join(found)


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        msg, sock = self.request
        out = answer(msg, False)
        if out:
            sock.sendto(out, self.client_address)


class DnsTcp(socketserver.StreamRequestHandler):
    def handle(self):
        size = self.rfile.read(2)
        if len(size) == 2:
            out = answer(self.rfile.read(struct.unpack("!H", size)[0]), True)
            if out:
                self.wfile.write(struct.pack("!H", len(out)) + out)


# ---- web -----------------------------------------------------------------------------------------------

class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    place = "web"

    def log_message(self, *args):
        pass

    def reply(self, body, status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        hit("http", place=self.place, host=self.headers.get("Host"), path=self.path, to=self.connection.getsockname()[0])
        if self.headers.get("Upgrade", "").lower() == "websocket" and url.path == "/socket":
            self.socket_echo()
        elif url.path == "/redirect":
            self.reply(b"", 302, [("Location", query["to"])])
        elif url.path == "/big":
            self.reply(b"x" * int(query["n"]))
        elif url.path.startswith("/git/"):
            self.git_file(url.path)
        else:
            self.reply(f"hello from {self.place} as {self.headers.get('Host')}\n".encode())

    def socket_echo(self):
        """RFC 6455 as far as a test needs it: a greeting right behind the answer, then every short frame back, unmasked."""
        accept = hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                         + base64.b64encode(accept) + b"\r\n\r\n\x81\x05hello")
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 != 8:
            mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
            self.wfile.write(bytes([head[0], len(data)]) + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        self.close_connection = True

    def git_file(self, path):
        """git's plain ("dumb") protocol: files."""
        file = pathlib.Path(sys.argv[1]) / path.lstrip("/")
        self.reply(file.read_bytes()) if file.is_file() else self.reply(b"", 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        hit("http", place=self.place, host=self.headers.get("Host"), path=self.path, to=self.connection.getsockname()[0])
        self.reply(hashlib.sha256(body).hexdigest().encode())


def web(place):
    return type("Web_" + place, (Web,), {"place": place})


# ---- plain services ------------------------------------------------------------------------------------

def serve_tcp(port, conn):
    """Each is a way to behave: talk back, wait for the end, reset, read slowly, write without end, speak first, answer
    anything that ends with an empty line or the stream as if it were a request."""
    what = next(k for k, v in SERVICES.items() if v == port)
    hit("tcp", service=what)
    if what == "echo":
        while data := conn.recv(65536):
            conn.sendall(data)
    elif what == "count":
        digest, n = hashlib.sha256(), 0
        while data := conn.recv(65536):
            digest.update(data)
            n += len(data)
        conn.sendall(f"{n} {digest.hexdigest()}\n".encode())
    elif what == "reset":
        conn.recv(1)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif what == "sink":
        for _ in range(30):
            time.sleep(0.1)
            if not conn.recv(65536):
                break
    elif what == "source":
        left = int(conn.recv(20).split()[0])
        while left > 0:
            left -= conn.send(b"s" * min(left, 1 << 18))
    elif what == "banner":
        conn.sendall(b"220 speak\r\n")
        conn.sendall(b"you said " + conn.recv(1000))
    elif what == "loose":
        rest = b""
        while data := conn.recv(65536):
            *heads, rest = (rest + data).split(b"\r\n\r\n")
            for head in heads:
                hit("loose", text=head.decode("latin-1"))
                conn.sendall(b"\x15\x03\x03\0\2\2\x46loose" if head == b"tls" else b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nloose")
        if rest:
            hit("loose", text=rest.decode("latin-1"))
            conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nloose")


class Tcp(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            serve_tcp(self.request.getsockname()[1], self.request)
        except OSError:
            pass


class Inside(socketserver.BaseRequestHandler):
    """Nobody may ever come here unless a rule says so."""

    def handle(self):
        hit("inside", to=self.request.getsockname()[0], port=self.request.getsockname()[1])
        try:
            self.request.recv(4096)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")
        except OSError:
            pass


class UdpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        hit("udp", to=sock.getsockname()[0], port=sock.getsockname()[1], data=data.decode("latin-1"))
        sock.sendto(b"echo " + data, self.client_address)


class Proxy(socketserver.BaseRequestHandler):
    """CONNECT only; every name leads to the web server."""

    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.request.recv(4096)
            if not data:
                return
            head += data
        line, _, rest = head.decode("latin-1").partition("\r\n")
        hit("proxy", line=line, auth="Proxy-Authorization: Basic" in rest)
        port = int(line.split()[1].rpartition(":")[2])
        try:
            up = socket.create_connection((WEB, port), timeout=5)
        except OSError:
            self.request.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=copy, args=(up, self.request), daemon=True).start()
        copy(self.request, up)


def copy(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


# ---- start ---------------------------------------------------------------------------------------------

class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address, handler):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request, client_address):
        pass


class TlsServer(TcpServer):
    def __init__(self, address, handler, context):
        super().__init__(address, handler)
        self.context = context

    def finish_request(self, request, client_address):
        with self.context.wrap_socket(request, server_side=True) as tls:
            self.RequestHandlerClass(tls, client_address, self)


class UdpServer(socketserver.ThreadingUDPServer):
    daemon_threads = True


def note_name(sock, name, context):
    hit("tls", name=name)


def main():
    global log_file
    folder = pathlib.Path(sys.argv[1])
    log_file = open(folder / "hits.jsonl", "a")
    for words in (["link", "set", "lo", "up"], *(["addr", "add", a + ("/128" if ":" in a else "/32"), "dev", "lo"]
                  for a in [DNS, WEB, WEB6, EVIL, EVIL6, PROXY, *INSIDE] if a not in ("127.0.0.1", "::1"))):
        subprocess.run(["ip", *words], check=True)
    subprocess.run(["ip", "-6", "route", "add", "2001:db8::/64", "dev", "lo"], check=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.sni_callback = note_name
    servers = [UdpServer((DNS, 53), DnsUdp), TcpServer((DNS, 53), DnsTcp), TcpServer((PROXY, 3128), Proxy)]
    for address in (WEB, WEB6):
        servers += [TcpServer((address, 80), web("web")), TlsServer((address, 443), web("web"), context),
                    TcpServer((address, 8080), web("web"))]
    for address in (EVIL, EVIL6):
        servers += [TcpServer((address, 80), web("evil")), TlsServer((address, 443), web("evil"), context)]
    servers += [TcpServer((a, p), Inside) for a in INSIDE for p in (80, 443, 8080)]
    servers += [TcpServer((WEB, p), Tcp) for n, p in SERVICES.items() if n != "refuse"]
    servers += [UdpServer((WEB, 7010), UdpEcho), UdpServer((EVIL, 7010), UdpEcho), UdpServer((EVIL, 53), UdpEcho)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.5,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()  # ends with whoever started it
    os._exit(0)


main()
