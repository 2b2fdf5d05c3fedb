"""Folders a guest has written to: looked at, compared, removed. On the host, when the guest is gone.

Everything in such a folder is hostile: links are never followed, nothing but folders and regular files is
opened, and depth, number and size of what is read have limits.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

MAX_ENTRIES = 100_000
MAX_DEPTH = 64
MAX_FILE = 1024 * 1024
MAX_TOTAL = 128 * 1024 * 1024
_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Entry:
    kind: str  # "file", "link", "other"
    executable: bool = False
    stamp: Tuple[int, ...] = ()  # tells that a file without its content has changed
    content: Optional[bytes] = None  # of a file that is not too large, or where a link leads


@dataclass
class Snapshot:
    entries: Dict[str, Entry]
    complete: bool = True
    size: int = 0


def snapshot(top: str) -> Snapshot:
    found = Snapshot({})
    fd = os.open(top, _DIR)
    try:
        _walk(fd, "", 0, found)
    finally:
        os.close(fd)
    return found


def _walk(fd: int, prefix: str, depth: int, found: Snapshot) -> None:
    with os.scandir(fd) as listing:
        names = sorted(entry.name for entry in listing)
    for name in names:
        if len(found.entries) >= MAX_ENTRIES:
            found.complete = False
            return
        try:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                found.entries[prefix + name] = _entry(fd, name, info, found)
                continue
            if depth >= MAX_DEPTH:
                found.complete = False
                continue
            inner = os.open(name, _DIR, dir_fd=fd)
        except OSError:
            found.complete = False
            continue
        try:
            _walk(inner, f"{prefix}{name}/", depth + 1, found)
        finally:
            os.close(inner)


def _entry(fd: int, name: str, info: os.stat_result, found: Snapshot) -> Entry:
    stamp = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    if stat.S_ISLNK(info.st_mode):
        return Entry("link", content=os.fsencode(os.readlink(name, dir_fd=fd)))
    if not stat.S_ISREG(info.st_mode):
        return Entry("other", stamp=(stat.S_IFMT(info.st_mode),))
    executable = bool(info.st_mode & 0o100)
    if info.st_size > MAX_FILE or found.size + info.st_size > MAX_TOTAL:
        return Entry("file", executable, stamp)
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
    except PermissionError:  # its mode is the guest's business
        return Entry("file", executable, stamp)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return Entry("other")
        data = b"".join(iter(lambda: os.read(file, MAX_FILE), b""))
    finally:
        os.close(file)
    found.size += len(data)
    return Entry("file", executable, (), data)


# ---- writing in ---------------------------------------------------------------------------------

def write_files(top: str, files: List[Tuple[str, bytes]]) -> None:
    """Into a folder that is ours and new."""
    for name, data in files:
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with open(fd, "wb") as file:
            file.write(data)


# ---- removing -----------------------------------------------------------------------------------

def remove(parent: str, name: str) -> bool:
    """Takes a tree away, however deep it is and whatever its modes. False: there was none."""
    fd = os.open(parent, _DIR)
    try:
        try:
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(info.st_mode):
            os.unlink(name, dir_fd=fd)
            return True
        # Folders inside are moved up before they are emptied: no depth is too much then.
        doomed = [_doom(fd, name, fd)]
        while doomed:
            name = doomed.pop()
            doomed += _empty(fd, name)
            os.rmdir(name, dir_fd=fd)
        return True
    finally:
        os.close(fd)


def _doom(fd: int, name: str, top: int) -> str:
    try:
        os.chmod(name, 0o700, dir_fd=fd)
    except OSError:
        pass  # then opening it says why
    gone = f".removed-{secrets.token_hex(8)}"
    os.rename(name, gone, src_dir_fd=fd, dst_dir_fd=top)
    return gone


def _empty(top: int, name: str) -> Iterator[str]:
    moved = []
    fd = os.open(name, _DIR, dir_fd=top)
    try:
        with os.scandir(fd) as listing:
            names = [entry.name for entry in listing]
        for inner in names:
            if stat.S_ISDIR(os.stat(inner, dir_fd=fd, follow_symlinks=False).st_mode):
                moved.append(_doom(fd, inner, top))
            else:
                os.unlink(inner, dir_fd=fd)
    finally:
        os.close(fd)
    return iter(moved)
