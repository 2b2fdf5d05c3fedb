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


def _trusted(host: str, port: int, timeout: float) -> http.client.HTTPConnection:
    """The same files and the same rules as the engine's own client: the certificate is always checked."""
    import ssl  # only who has such an engine pays for it

    folder = os.environ.get("DOCKER_CERT_PATH") or os.path.join(os.environ.get("HOME", ""), ".docker")
    cert = os.path.join(folder, "cert.pem")
    try:
        context = ssl.create_default_context(cafile=os.path.join(folder, "ca.pem"))
        if os.path.exists(cert):
            context.load_cert_chain(cert, os.path.join(folder, "key.pem"))
    except OSError as e:
        raise SandboxError(f"no trusted connection to Docker at {host}: {folder}: {e.strerror or e}", code=69, stage="docker",
                           hint="DOCKER_CERT_PATH is the folder with ca.pem, cert.pem and key.pem") from None
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _ask(path: str, timeout: float) -> Tuple[int, bytes]:
    host = urlsplit(os.environ.get("DOCKER_HOST") or _DEFAULT_HOST)
    wanted = os.environ.get("DOCKER_TLS_VERIFY") or os.environ.get("DOCKER_TLS")
    connection: http.client.HTTPConnection
    if host.scheme == "unix":
        connection = _Connection(host.path, timeout)
    elif host.hostname and host.port and (host.scheme == "https" or (host.scheme == "tcp" and wanted)):
        connection = _trusted(host.hostname, host.port, timeout)
    elif host.scheme in ("tcp", "http") and host.hostname and host.port:
        connection = http.client.HTTPConnection(host.hostname, host.port, timeout=timeout)
    else:
        raise SandboxError(f"DOCKER_HOST: {host.geturl()}", code=64, stage="docker",
                           hint="unix:///path/to/docker.sock, tcp://host:port or https://host:port")
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
        if type(e).__name__.startswith("SSL"):
            raise SandboxError(f"no trusted connection to Docker: {e.strerror or e}", code=69, stage="docker",
                               hint="DOCKER_CERT_PATH is the folder with ca.pem, cert.pem and key.pem") from None
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
