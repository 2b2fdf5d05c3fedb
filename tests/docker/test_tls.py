"""An engine behind TLS: who is trusted, what is refused, and that everything works there."""

import os
import signal
import socket
import subprocess
import time

import pytest

import cordon_run
from conftest import TLS, environment
from cordon.executor import SandboxError
from cordon.runner import DockerRunner

HOST = "tcp://127.0.0.1:2376"


def tls(who="client", host=HOST, **more):
    return {"DOCKER_HOST": host, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(TLS / who), **more}


@pytest.mark.both
def test_run(sh, run, engine):
    data = os.urandom(1_000_000)
    result = run("--", "cat", stdin=data, env=tls())
    assert result.verdict == "ok" and result.stream("stdout") == data, result
    result = sh("echo out; echo err >&2; exit 7", env=tls())
    assert (result.out, result.err, result.code) == ("out\n", "err\n", 7)
    result = sh("head -c 20M /dev/zero; echo end >&2", "--max-output", "1000", env=tls())
    assert result.result["stdout_bytes"] == 20 << 20 and result.err == "end\n"
    assert sh("sleep 60", "--time-limit", "1s", env=tls()).verdict == "time_limit"
    assert sh("echo 1", env=tls(host="https://127.0.0.1:2376", DOCKER_TLS_VERIFY="")).out == "1\n"
    assert engine.containers() == []


def test_output_and_input_at_once(run):
    """Both ways are full at the same time."""
    script = "import sys\nwhile d := sys.stdin.buffer.read1(65536): sys.stdout.buffer.write(d)\n"
    data = bytes(range(256)) * 40000
    result = run("--max-output", "20M", "--", "python3", "-c", script, stdin=data, env=tls())
    assert result.stream("stdout") == data


def _error(result):
    assert result.verdict == "sandbox_error" and result.code == 69, result
    return result.result["error"]


def test_refused(run, folder):
    """Another authority's engine, a client the engine does not know, no keys, another name, no TLS at all."""
    assert "certificate" in _error(run("--", "true", env=tls("deceived")))
    assert "no trusted connection" in _error(run("--", "true", env=tls("stranger")))
    assert "ca.pem" in _error(run("--", "true", env=tls("nothing")))
    assert "mismatch" in _error(run("--", "true", env=tls(host="tcp://localhost:2376")))
    assert "Docker is not running" in _error(run("--", "true", env=tls(host="tcp://127.0.0.1:1")))
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.settimeout(60)
        pid = os.fork()
        if pid == 0:
            peer, _ = plain.accept()
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n" * 10)
            time.sleep(1)
            os._exit(0)
        assert "no trusted connection" in _error(run("--", "true", env=tls(host=f"tcp://127.0.0.1:{plain.getsockname()[1]}")))
        os.waitpid(pid, 0)


def test_plain_connections_stay_here(run):
    """tcp:// without TLS reaches this host only; http:// says that it is meant."""
    assert "plain connection" in _error(run("--", "true", env={"DOCKER_HOST": "tcp://203.0.113.5:1"}))
    assert "Docker is not running" in _error(run("--", "true", env={"DOCKER_HOST": "http://203.0.113.5:1"}))
    assert "Docker is not running" in _error(run("--", "true", env={"DOCKER_HOST": "tcp://127.0.0.1:1"}))


def test_image_status(cordon):
    done = cordon("image", "status", env=tls())
    assert done.returncode == 0 and "engine: Docker " in done.stdout, done


def test_what_speaks_to_the_network_holds_nothing(engine):
    """One socket as standard input, the connection, and no stream of the guest's; it ends with who started it."""
    with subprocess.Popen([cordon_run.CORDON, "run", "--backend", "docker", "--time-limit", "100s", "--", "sleep", "100"],
                          env=cordon_run.host_env(environment(tls())), stdin=subprocess.DEVNULL) as p:
        engine.wait_running(1)
        pids = _pids("cordon-tls")
        assert pids
        for pid in pids:
            fds = {int(n): os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
            assert fds[1] == fds[2] == "/dev/null" and fds[0].startswith("socket:"), fds
            assert not [to for n, to in fds.items() if n > 2 and not to.startswith("socket:")] and len(fds) <= 4, fds
        for helper in _pids("cordon-docker"):
            os.kill(helper, signal.SIGKILL)
        p.wait(timeout=60)
    end = time.monotonic() + 20
    while set(pids) & set(_pids("cordon-tls")):
        assert time.monotonic() < end
        time.sleep(0.05)
    engine.wait_for(0)


def _pids(name):
    """Of this program, of the copy under test."""
    program = os.path.join(os.path.dirname(os.path.realpath(cordon_run.CORDON)), name)
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == program:
                found.append(int(pid))
        except OSError:
            pass
    return found


def test_kill_9_of_cordon(engine):
    p = subprocess.Popen([cordon_run.CORDON, "run", "--backend", "docker", "--time-limit", "100s", "--", "sleep", "100"],
                         env=cordon_run.host_env(environment(tls())), stdin=subprocess.DEVNULL)
    engine.wait_running(1)
    p.kill()
    p.wait()
    engine.wait_for(0)


def test_python(monkeypatch):
    for key, value in tls().items():
        monkeypatch.setenv(key, value)
    with DockerRunner() as runner:
        assert runner.execute("result = 6 * 7", {}).result == 42
    monkeypatch.setenv("DOCKER_CERT_PATH", str(TLS / "deceived"))
    with pytest.raises(SandboxError, match="no trusted connection to Docker"):
        DockerRunner()
