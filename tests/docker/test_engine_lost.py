"""An engine of one's own that runs out of disk, is stopped, killed and started again; images of other machines."""

import hashlib
import http.client
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time

import pytest

import cordon_run
from conftest import ROOT, Engine, environment

IMAGE = "busybox-of-ours:1"
SIZE = 96 << 20


class Own(Engine):
    """Started by tests/engine in a folder on a small disk."""

    def __init__(self, top):
        self.top, self.folder = top, top / "engine"

    @property
    def host(self):
        return f"unix://{self.folder}/docker.sock"

    def ask(self, method, path, body=None):
        before = os.environ["DOCKER_HOST"]
        os.environ["DOCKER_HOST"] = self.host
        try:
            return super().ask(method, path, body)
        finally:
            os.environ["DOCKER_HOST"] = before

    def start(self):
        # in a network of its own: it would remove the bridge of the engine beside it
        subprocess.run(["unshare", "--net", ROOT / "tests" / "engine", "start", self.folder], check=True, timeout=120)

    def pid(self):
        return int((self.folder / "engine.pid").read_text())

    def end(self, sig):
        """The daemon ends, and stays ended."""
        pid = self.pid()
        os.kill(pid, sig)
        for _ in range(600):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
        raise AssertionError("the engine does not end")

    def run(self, *words, **kw):
        return cordon_run.run("--backend", "docker", "--image", IMAGE, *words, env=environment({"DOCKER_HOST": self.host}),
                              timeout=120, **kw)

    def popen(self, *words):
        return subprocess.Popen([cordon_run.CORDON, "run", "--json", "--backend", "docker", "--image", IMAGE, *words],
                                env=cordon_run.host_env(environment({"DOCKER_HOST": self.host})), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    if not os.path.exists("/bin/busybox"):
        pytest.skip("busybox is missing: install the Debian package busybox-static")
    top = pathlib.Path(tempfile.mkdtemp(prefix="docker-own-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", top], check=True)
    engine = Own(top)
    try:
        engine.start()
        tree = top / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "etc").mkdir()
        (tree / "etc" / "passwd").write_text("sandbox:x:1000:1000::/home/sandbox:/bin/sh\n")
        shutil.copy("/bin/busybox", tree / "bin" / "busybox")
        for name in ("sh", "sleep", "true", "cat"):
            (tree / "bin" / name).symlink_to("busybox")
        done = cordon_run.cordon("image", "build", "--rootfs", str(tree), "--name", IMAGE, timeout=120,
                                 env=environment({"DOCKER_HOST": engine.host, "XDG_CACHE_HOME": str(top / "cache")}))
        assert done.returncode == 0, done
        yield engine
    finally:
        subprocess.run([ROOT / "tests" / "engine", "stop", engine.folder], check=False, timeout=120)
        subprocess.run(["umount", "-l", top], check=False)
        os.rmdir(top)


def living(word):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\0" + word.encode() + b"\0":
                found.append(int(pid))
        except OSError:
            pass
    return found


def wait_living(word, want, seconds=60):
    end = time.monotonic() + seconds
    while bool(living(word)) != want:
        assert time.monotonic() < end, (word, living(word))
        time.sleep(0.1)


def lost(child):
    out, _ = child.communicate(timeout=90)
    result = json.loads(out)
    assert result["verdict"] == "sandbox_error" and child.returncode == 70, result
    return result["error"]


def test_it_works(own):
    assert own.run("--", "sh", "-c", "exit 3").code == 3


def test_stopped_container(own):
    """Somebody's `docker stop`: our failure, not a signal of the guest's."""
    word = f"301.{os.getpid()}"
    child = own.popen("--time-limit", "100s", "--", "sleep", word)
    wait_living(word, True)
    own.ask("POST", f"/containers/{own.containers()[0]['Id']}/stop?t=20")
    assert "stopped from outside" in lost(child)
    wait_living(word, False)


def test_restarted_engine(own):
    """As `systemctl restart docker` does it: the run ends as our failure, nothing runs on, nothing is left."""
    word = f"302.{os.getpid()}"
    child = own.popen("--time-limit", "300s", "--", "sh", "-c", f"trap '' TERM; sleep {word}")
    wait_living(word, True)
    own.end(signal.SIGTERM)
    error = lost(child)
    assert "stopped from outside" in error or "lost" in error, error
    wait_living(word, False)
    own.start()
    own.wait_for(0)
    assert own.run("--", "true").code == 0


def test_killed_engine(own):
    """A crash: the run ends at once; what the engine left behind goes when it is started again."""
    word = f"303.{os.getpid()}"
    child = own.popen("--time-limit", "300s", "--", "sleep", word)
    wait_living(word, True)
    own.end(signal.SIGKILL)
    assert "lost" in lost(child)
    own.start()
    wait_living(word, False)
    own.wait_for(0)
    assert own.run("--", "true").code == 0


def test_killed_engine_and_the_time_limit(own):
    """Nobody starts it again: pid 1 keeps the time."""
    word = f"304.{os.getpid()}"
    child = own.popen("--time-limit", "8s", "--", "sleep", word)
    wait_living(word, True)
    own.end(signal.SIGKILL)
    assert "lost" in lost(child)
    wait_living(word, False)
    own.start()
    own.wait_for(0)


def test_disk_full(own):
    fill = own.folder / "data" / "fill"
    with open(fill, "wb") as f:
        try:
            while f.write(bytes(1 << 20)):
                f.flush()
        except OSError:
            pass
    try:
        result = own.run("--", "true")
        assert result.code == 69 and result.verdict == "sandbox_error", result
        assert "no space left on device" in result.result["error"], result
    finally:
        fill.unlink()
    own.wait_for(0)
    assert own.run("--", "true").code == 0


def archive(layer, architecture):
    """What `docker save` writes: one layer and what it says of itself."""
    config = json.dumps({"architecture": architecture, "os": "linux", "config": {},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["foreign:1"], "Layers": ["layer.tar"]}]).encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def load(own, data):
    connection = http.client.HTTPConnection("docker")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(own.folder / "docker.sock"))
    connection.request("POST", "/images/load", data, {"Content-Type": "application/x-tar"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


def test_another_architecture(own):
    """An image that says it is for another machine; the same one without that is run."""
    layer = subprocess.run(["tar", "-C", own.top / "tree", "-c", "."], capture_output=True, check=True).stdout
    load(own, archive(layer, "arm64"))
    assert own.ask("GET", "/images/foreign:1/json")[1]["Architecture"] == "arm64"
    result = own.run("--image", "foreign:1", "--", "true")
    assert result.code == 69 and "another architecture" in result.result["error"], result
    own.wait_for(0)
    load(own, archive(layer, "amd64"))
    assert own.run("--image", "foreign:1", "--", "true").code == 0


def test_too_large_an_image(own, folder):
    """What does not fit is said in the engine's words, and nothing of it stays."""
    before = own.ask("GET", "/images/json?all=1")[1]
    (folder / "big" / "bin").mkdir(parents=True)
    with open(folder / "big" / "bin" / "data", "wb") as f:
        f.truncate(SIZE)
    done = cordon_run.cordon("image", "build", "--rootfs", str(folder / "big"), "--name", "big:1", timeout=120,
                             env=environment({"DOCKER_HOST": own.host, "XDG_CACHE_HOME": str(folder / "cache")}))
    assert done.returncode == 69 and "no space left on device" in done.stderr, done
    assert len(own.ask("GET", "/images/json?all=1")[1]) == len(before)
