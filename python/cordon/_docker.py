"""Is there a Docker engine, and does it have an image? One question over its socket, asked before a run.

The run itself goes through the engine's executable of its own; nothing here builds a wall.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
from typing import Tuple
from urllib.parse import quote, urlsplit

from .errors import SandboxError

DEFAULT_IMAGE = "cordon-sandbox:latest"
_DEFAULT_HOST = "unix:///var/run/docker.sock"


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str, timeout: float) -> Tuple[int, bytes]:
    host = urlsplit(os.environ.get("DOCKER_HOST") or _DEFAULT_HOST)
    connection: http.client.HTTPConnection
    if host.scheme == "unix":
        connection = _Connection(host.path, timeout)
    elif host.scheme in ("tcp", "http") and host.hostname and host.port:
        connection = http.client.HTTPConnection(host.hostname, host.port, timeout=timeout)
    else:
        raise SandboxError(f"DOCKER_HOST: {host.geturl()}", code=64, stage="docker",
                           hint="unix:///path/to/docker.sock or tcp://host:port")
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20)
    finally:
        connection.close()


def check(image: str = DEFAULT_IMAGE, timeout: float = 5.0) -> None:
    """Raises the SandboxError a run would end with: no engine, no right to it, no image."""
    try:
        status, _ = _ask(f"/images/{quote(image, safe='')}/json", timeout)
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EPERM):
            raise SandboxError("no permission to talk to Docker", code=69, stage="docker",
                               hint="become a member of the group that owns its socket") from None
        raise SandboxError("Docker is not running", code=69, stage="docker",
                           hint="start it, or use the native backend") from None
    except http.client.HTTPException:
        raise SandboxError("Docker is not running", code=69, stage="docker",
                           hint="what answers at DOCKER_HOST is no Docker engine") from None
    if status == 404:
        raise SandboxError(f"Image not found: {image} (cordon image build makes it)", code=69, stage="docker",
                           hint="cordon image build")


def available(image: str = DEFAULT_IMAGE) -> bool:
    """Can a run be given to Docker?"""
    try:
        check(image)
    except SandboxError:
        return False
    return True
