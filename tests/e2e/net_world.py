"""A small internet for tests: a network namespace with the servers of net_servers.py in it, and the command started
from there. As root the namespace alone, as an ordinary user one inside a user namespace of the user's own."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import cordon_run

DNS = "203.0.113.53"  # as net_servers.py has it
HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["ok.test", "*.ok.test", "*.wild.test", "other.test", "v4.test", "v6.test", "evil.com", "git.test", "xn--bcher-kva.test"]


def make_certificates(folder):
    """A CA of our own and one server key for every name, evil ones too: certificates must not be what stops a guest."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)
    names = ",".join("DNS:" + n for n in NAMES) + ",IP:203.0.113.10"
    (folder / "ext").write_text("subjectAltName=" + names + "\nbasicConstraints=CA:FALSE\n")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=Test CA",
            "-keyout", "ca.key", "-out", "ca.pem", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=ok.test", "-keyout", "server.key", "-out", "server.csr")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", "server.crt")
    (folder / "server.pem").write_text((folder / "server.crt").read_text() + (folder / "server.key").read_text())


class NetWorld:
    def __init__(self, folder):
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.children = []
        make_certificates(folder)
        enter = ["-n"] if os.geteuid() == 0 else ["-U", "--map-current-user", "--keep-caps", "-n"]
        self.holder = subprocess.Popen(
            ["unshare", *enter, "--", sys.executable, "-B", str(HERE / "net_servers.py"), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=cordon_run.host_env())
        assert self.holder.stdout.readline() == "ready\n", "the servers did not start"
        inside = ["-n"] if os.geteuid() == 0 else ["-U", "--preserve-credentials", "-n"]
        self.prefix = ["nsenter", "-t", str(self.holder.pid), *inside, "--"]

    def close(self):
        for child in self.children:
            child.terminate()
            child.wait(20)
        self.holder.stdin.close()
        self.holder.wait(20)
        self.holder.stdout.close()

    def spawn(self, *argv, **kw):
        """A real server beside ours, for as long as the tests run."""
        child = subprocess.Popen([*self.prefix, *map(str, argv)], **kw)
        self.children.append(child)
        return child

    def hits(self, kind=None, **facts):
        """What arrived outside so far."""
        lines = (self.folder / "hits.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [h for h in found if kind in (None, h["kind"]) and all(h.get(k) == v for k, v in facts.items())]

    def forget(self):
        (self.folder / "hits.jsonl").write_text("")

    def run(self, *words, dns=DNS, **kw):
        """cordon run from inside, with our DNS server."""
        return cordon_run.run(*(["--dns", dns] if dns else []), *words, prefix=self.prefix, **kw)

    def start(self, *words, dns=DNS, **kw):
        return cordon_run.start(*(["--dns", dns] if dns else []), *words, prefix=self.prefix, **kw)

    def python(self, code, *words, args=(), **kw):
        """A Python guest; modules of the standard library only, no start-up files."""
        return self.run(*words, "--", "/usr/bin/python3", "-I", "-S", "-c", code, *map(str, args), **kw)

    def bare(self, *argv, **kw):
        """The same place without Cordon: shows that what a guest may not reach is there."""
        return subprocess.run([*self.prefix, *map(str, argv)], capture_output=True, text=True, timeout=60, env=cordon_run.host_env(), **kw)


def missing():
    """Why no such world can be made here, or None."""
    for name, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2"), ("openssl", "openssl")):
        if not shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"):
            return f"{name} is missing: install the Debian package {package}"
    enter = ["-n"] if os.geteuid() == 0 else ["-U", "--map-current-user", "--keep-caps", "-n"]
    done = subprocess.run(["unshare", *enter, "--", "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    return f"no network namespace of our own here: {done.stderr.strip()}" if done.returncode else None


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come up"
        time.sleep(0.05)
