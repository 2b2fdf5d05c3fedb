"""What goes wrong around a container: refusals, errors of the engine, deaths of every part, forgery."""

import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

import cordon_run
from conftest import environment

REFUSED = {
    "allow_network": ["--allow-network", "example.com"],
    "deny_patterns": ["--network", "bridge", "--deny-network", "example.com"],
    "block_internal": ["--network", "bridge", "--runtime", "runsc"],
    "log_network": ["--log-network"],
    "publish": ["--publish", "8080:80"],
    "network": ["--network", "host", "--unsafe-host-network"],
    "rootfs": ["--rootfs", "/var/tmp"],
    "require_tier": ["--require-tier", "full"],
    "temp_dir": ["--temp-dir=/elsewhere"],
    "cgroup": ["--cgroup", "/sys/fs/cgroup"],
}


@pytest.mark.parametrize("key", REFUSED)
def test_refused_before_anything_starts(run, key):
    """The engine is not even asked: there is none at this address."""
    result = run(*REFUSED[key], "--", "true", env={"DOCKER_HOST": "unix:///nonexistent.sock"}, as_json=False)
    assert result.code in (69, 78), result
    assert key in result.log_text and "Docker is not running" not in result.log_text, result


def _error(result):
    assert result.verdict == "sandbox_error", result
    return result.result["error"], result.code


def test_no_engine(run):
    error, code = _error(run("--", "true", env={"DOCKER_HOST": "unix:///nonexistent.sock"}))
    assert code == 69 and error.endswith("Docker is not running")
    error, code = _error(run("--", "true", env={"DOCKER_HOST": "tcp://127.0.0.1:1"}))
    assert code == 69 and error.endswith("Docker is not running")
    error, code = _error(run("--", "true", env={"DOCKER_HOST": "nonsense"}))
    assert code == 64 and "DOCKER_HOST" in error


@pytest.mark.user
def test_no_permission(run, folder):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "docker.sock"))
        s.listen()
        os.chmod(folder / "docker.sock", 0)
        error, code = _error(run("--", "true", env={"DOCKER_HOST": f"unix://{folder}/docker.sock"}))
    assert code == 69 and "no permission" in error


def test_no_image(run):
    error, code = _error(run("--image", "no-such-image:1", "--", "true"))
    assert code == 69 and error.endswith("Image not found: no-such-image:1 (cordon image build makes it)")


def test_unknown_runtime(run, engine, need):
    need("crun" not in engine.runtimes, "this engine has crun")
    error, code = _error(run("--runtime", "crun", "--", "true"))
    assert code == 69 and "untime" in error


class FakeEngine:
    """An engine that answers what a test wants. {"POST /containers/create": (status, headers, body)}"""

    def __init__(self, folder, answers):
        self.path = str(folder / "fake.sock")
        self.answers, self.asked = answers, []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                peer, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer):
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = peer.recv(65536)
            if not chunk:
                return
            data += chunk
        head, _, rest = data.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(rest) < length and (chunk := peer.recv(65536)):
            rest += chunk
        method, path = data.split()[:2]
        key = f"{method.decode()} {path.decode().split('?')[0]}"
        self.asked.append(key)
        raw = next((v for k, v in self.answers.items() if key.startswith(k)), b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}")
        peer.sendall(raw)
        peer.close()


def _answer(status, body, **headers):
    text = json.dumps(body).encode() if not isinstance(body, bytes) else body
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(text)}\r\n\r\n".encode() + text


CREATE = "POST /containers/create"
BAD_ENGINES = {
    "too old": ({CREATE: _answer(201, {"Id": "x"}, Api_Version="1.24")}, "too old"),
    "another architecture": ({CREATE: _answer(201, {"Id": "abc", "Warnings": [
        "The requested image's platform (linux/arm64) does not match the detected host platform"]})}, "another architecture"),
    "no swap accounting": ({CREATE: _answer(201, {"Id": "abc", "Warnings": [
        "Your kernel does not support swap limit capabilities, memory limited without swap."]})}, "cannot hold a limit"),
    "disk full": ({CREATE: _answer(500, {"message": "mkdir: no space left on device"})}, "no space left on device"),
    "no HTTP": ({CREATE: b"SSH-2.0-OpenSSH\r\n" * 20}, "not HTTP"),
    "hangs up": ({CREATE: b""}, "connection to the Docker engine was lost"),
    "half an answer": ({CREATE: b"HTTP/1.1 201 X\r\nContent-Length: 500\r\n\r\n{"}, "connection to the Docker engine was lost"),
    "no JSON": ({CREATE: _answer(201, b"<html>")}, "answer"),
    "no id": ({CREATE: _answer(201, {})}, "no Id"),
    "endless chunk": ({CREATE: b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"}, "not HTTP"),
    "does not attach": ({CREATE: _answer(201, {"Id": "abc"}), "POST /containers/abc/attach": _answer(500, {"message": "no"})},
                        "attached"),
}


@pytest.mark.parametrize("name", BAD_ENGINES)
def test_bad_engines(run, folder, name):
    answers, words = BAD_ENGINES[name]
    fake = FakeEngine(folder, answers)
    error, code = _error(run("--", "true", env={"DOCKER_HOST": f"unix://{fake.path}"}))
    assert words in error and code in (69, 70), error
    if "abc" in str(answers):  # what was made is removed
        assert "DELETE /containers/abc" in fake.asked
    fake.server.close()


def test_engine_lost_in_mid_run(run, folder):
    """Everything answers, then the connections end: our failure, never the guest's."""
    answers = {CREATE: _answer(201, {"Id": "abc"}),
               "POST /containers/abc/attach": b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
               "POST /containers/abc/wait": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
               "POST /containers/abc/start": _answer(204, b"")}
    fake = FakeEngine(folder, answers)
    error, code = _error(run("--", "true", env={"DOCKER_HOST": f"unix://{fake.path}"}))
    assert code == 70 and "lost" in error
    fake.server.close()


def test_guest_can_not_forge_the_report(run):
    """It fills standard error with what a report looks like, makes it non-blocking, signals pid 1, reads the pipe."""
    script = """
import fcntl, os, signal, struct, sys
for s in (1, 2, 9, 15, 19, 64):
    try: os.kill(1, s)
    except OSError as e: print(s, e)
for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/fd/2", "/proc/1/exe"):
    try: os.open(path, os.O_RDONLY); print("open", path)
    except OSError: pass
fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_NONBLOCK)
try:
    fd = os.open("/proc/self/fd/2", os.O_RDONLY | os.O_NONBLOCK)
    try: os.read(fd, 100000)
    except OSError: pass
except OSError: pass
for i in range(200):
    try: os.write(2, os.urandom(16) + struct.pack("<Iii", 2, 0, 0) + bytes(700))
    except OSError: pass
if os.fork():
    os._exit(33)
while True:
    try: os.write(2, bytes(4096))
    except OSError: pass
"""
    result = run("--", "python3", "-c", script)
    assert result.verdict == "nonzero_exit" and result.code == 33, result
    assert result.out == "", result.out


@pytest.mark.parametrize("script", ["exec 2>&-; exit 5", "exec 0<&- 1>&- 2>&-; exit 5", "kill -STOP 1; exit 5"])
def test_closed_streams(run, script):
    assert run("--", "bash", "-c", script).code == 5


def _start(*words):
    return subprocess.Popen([cordon_run.CORDON, "run", "--backend", "docker", *words],
                            env=cordon_run.host_env(environment()), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _helper(pid):
    for _ in range(100):
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            if found := f.read().split():
                return int(found[0])
        time.sleep(0.05)
    raise AssertionError("no helper")


def test_cancel(engine):
    p = _start("--time-limit", "100s", "--", "sleep", "100")
    engine.wait_running(1)
    p.terminate()
    assert p.wait(30) == 130 and engine.containers() == []


def test_kill_9_of_cordon(engine):
    p = _start("--time-limit", "100s", "--", "sleep", "100")
    engine.wait_running(1)
    p.kill()
    p.wait()
    engine.wait_for(0)


def test_kill_9_of_the_helper(engine):
    p = _start("--time-limit", "100s", "--", "sleep", "100")
    engine.wait_running(1)
    os.kill(_helper(p.pid), signal.SIGKILL)
    assert p.wait(60) == 70 and engine.containers() == []


def test_kill_9_of_both(engine, cordon):
    """pid 1 keeps the time limit; until then `clean` knows that nobody answers for the container."""
    ps = [_start("--time-limit", limit, "--", "sleep", "100") for limit in ("8s", "300s")]
    engine.wait_running(2)
    for p in ps:
        helper = _helper(p.pid)
        os.kill(p.pid, signal.SIGSTOP)
        os.kill(helper, signal.SIGKILL)
        p.kill()
        p.wait()
    engine.wait_for(1)
    assert "left behind" in cordon("image", "status").stdout
    assert cordon("image", "clean").stdout.startswith("removed 1 containers")
    engine.wait_for(0)


def test_clean_keeps_what_is_in_use_and_foreign(engine, cordon):
    p = _start("--time-limit", "100s", "--", "sleep", "5")
    engine.wait_running(1)
    status, made = engine.ask("POST", "/containers/create?name=somebody-elses", {"Image": "cordon-sandbox:latest", "Cmd": ["true"]})
    assert status == 201
    done = cordon("image", "clean")
    assert "removed 0 containers" in done.stdout and "kept 1 containers in use" in done.stdout
    assert p.wait(60) == 0
    assert engine.ask("GET", f"/containers/{made['Id']}/json")[0] == 200
    engine.ask("DELETE", f"/containers/{made['Id']}")


def test_what_the_engine_is_asked_for(engine):
    p = _start("--memory-limit", "100M", "--processes", "7", "--cpu-limit", "50", "--env", "KEY=very-secret-value", "--",
               "sleep", "3")
    found = engine.inspect(engine.wait_running(1)[0])
    host, config = found["HostConfig"], found["Config"]
    assert host["ReadonlyRootfs"] and host["AutoRemove"] and not host["Privileged"] and not host["Init"] and host["CapDrop"] == ["ALL"]
    assert host["Memory"] == host["MemorySwap"] == 100 << 20 and host["PidsLimit"] == 8 and host["NanoCpus"] == 500_000_000
    assert host["NetworkMode"] == "none" and host["LogConfig"]["Type"] == "none" and host["IpcMode"] == "private"
    assert set(host["Tmpfs"]) == {"/tmp", "/home/sandbox", "/dev/shm"} and all("nosuid" in v for v in host["Tmpfs"].values())
    assert "no-new-privileges" in host["SecurityOpt"] and any(o.startswith("seccomp={") for o in host["SecurityOpt"])
    assert config["User"] == "1000:1000" and config["Labels"]["cordon"] == "run"
    text = json.dumps(found)
    assert "very-secret-value" not in text and '"sleep"' not in text
    assert p.wait(60) == 0
