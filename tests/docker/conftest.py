"""The container backend against the engine DOCKER_HOST names: tests/docker/run starts one."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "python")]
import cordon_run  # noqa: E402

STRICT = os.environ.get("CORDON_TEST_STRICT") == "1"
PASSED_ON = ("DOCKER_HOST", "XDG_CACHE_HOME", "HOME")
TLS = pathlib.Path(os.environ.get("CORDON_TEST_TLS", "/nonexistent"))  # keys for the engine's port, made by tests/with-engine


def pytest_configure(config):
    config.addinivalue_line("markers", "both: as an ordinary user too")
    config.addinivalue_line("markers", "user: only as an ordinary user")
    if not os.environ.get("DOCKER_HOST"):
        pytest.exit("no engine: tests/docker/run starts one", returncode=3)


class Engine:
    """Questions to the engine that do not go through the code under test."""

    def ask(self, method, path, body=None):
        host = os.environ["DOCKER_HOST"]
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(host[len("unix://"):])
            data = b"" if body is None else json.dumps(body).encode()
            s.sendall(f"{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            answer = b""
            while chunk := s.recv(65536):
                answer += chunk
        head, _, text = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def containers(self):
        found = self.ask("GET", "/containers/json?all=1")[1]
        return [c for c in found if c["Labels"].get("cordon") == "run"]

    def inspect(self, container):
        return self.ask("GET", f"/containers/{container['Id']}/json")[1]

    def wait_for(self, n, seconds=20):
        """Until there are n containers of ours."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.containers()
            if len(found) == n:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{n} containers expected, there are {self.containers()}")

    def wait_running(self, n, program="sleep", seconds=40):
        """Until n containers of ours run this program."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.containers()
            seen = [self.ask("GET", f"/containers/{c['Id']}/top") for c in found]
            if len([1 for status, top in seen if status == 200 and program in json.dumps(top)]) == n:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{n} running containers expected, there are {self.containers()}")

    @property
    def runtimes(self):
        return self.ask("GET", "/info")[1]["Runtimes"]


@pytest.fixture(scope="session")
def engine():
    return Engine()


@pytest.fixture(autouse=True)
def clean(engine):
    """No container outlives its test."""
    yield
    for _ in range(100):
        if not (left := engine.containers()):
            return
        time.sleep(0.1)
    for c in left:
        engine.ask("DELETE", f"/containers/{c['Id']}?force=1")
    raise AssertionError(f"containers were left: {left}")


def environment(extra=None):
    return {**{k: os.environ[k] for k in PASSED_ON if k in os.environ}, **(extra or {})}


@pytest.fixture
def run():
    """run("--time-limit", "1s", "--", "sleep", "9"): cordon run --json --backend docker ..."""
    def call(*words, env=None, **kw):
        return cordon_run.run("--backend", "docker", *words, env=environment(env), timeout=120, **kw)
    return call


@pytest.fixture
def sh(run):
    def call(script, *options, **kw):
        return run(*options, "--", "bash", "-c", script, **kw)
    return call


@pytest.fixture
def cordon():
    """Any verb."""
    def call(*words, env=None, **kw):
        return cordon_run.cordon(*words, env=environment(env), timeout=200, **kw)
    return call


@pytest.fixture
def folder():
    """Of the caller's own, where the engine sees it too."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="docker-test-", dir="/var/tmp"))
    yield top
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def need():
    def check(condition, reason):
        if not condition:
            pytest.fail(reason) if STRICT else pytest.skip(reason)
    return check
