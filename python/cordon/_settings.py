"""What a caller may say, checked and written as the command would take it. Pure.

The names are the config keys of cordon.toml(5) and the flags of cordon-run(1) with "_" for "-"; the engine's
own field table is the truth, and a test compares this list with it.
"""

from __future__ import annotations

import math
import os
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

DURATIONS = frozenset({"time_limit", "cpu_time", "compile_time_limit"})
SIZES = frozenset({"memory_limit", "max_output", "max_file_size", "disk_limit", "compile_memory_limit",
                   "max_traffic", "scratch_size"})
COUNTS = frozenset({"cpu_limit", "processes", "file_descriptors", "max_files", "max_connections", "scratch_inodes"})
BOOLS = frozenset({"kill_on_output_limit", "virtual_fs", "keep", "block_internal", "log_network",
                   "unsafe_host_network", "reuse", "no_cache", "allow_filesystem"})
TEXTS = frozenset({"temp_dir", "workspace", "allow_ports", "dns", "http_proxy", "network", "seccomp_profile",
                   "apparmor_profile", "backend", "runtime", "image", "rootfs", "cgroup", "require_tier", "venv",
                   "log"})
LISTS = frozenset({"allow_read", "allow_write", "deny", "mount", "allow_network", "deny_network", "publish",
                   "allow_host_port", "allow_binary", "output", "allowed_binaries", "deny_patterns", "allow_domains",
                   "allow_patterns"})
NAMES = DURATIONS | SIZES | COUNTS | BOOLS | TEXTS | LISTS
PORTS = frozenset({"allow_ports", "allow_host_port"})
# What is not spelled as the key: flags that have "-" in the engine, and keys whose flag is another word.
_FLAGS = {"allow_binary": "allow-binary", "allowed_binaries": "allow-binary", "deny_network": "deny-network",
          "deny_patterns": "deny"}

MAX_SOURCE_BYTES = 16 * 1024 * 1024


def duration(name: str, value: Union[int, float, str]) -> str:
    """Seconds as a number, or text such as "1.5s"."""
    if isinstance(value, str):
        return one_text(name, value)
    seconds = _number(name, value, "a number of seconds")
    if seconds <= 0:
        raise ValueError(f"{name} must be more than 0 seconds, not {value}")
    text = f"{seconds:.6f}".rstrip("0").rstrip(".")
    if text == "0":
        raise ValueError(f"{name} of {value} seconds is shorter than a microsecond")
    return text + "s"


def size(name: str, value: Union[int, str]) -> str:
    """Bytes as a number, or text such as "100M"."""
    return one_text(name, value) if isinstance(value, str) else str(whole(name, value, 1))


def _own(value: Any) -> Any:
    """A number of numpy's is as good as one of Python's."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def whole(name: str, value: Any, least: int) -> int:
    value = _own(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value >= 2 ** 63:
        raise ValueError(f"{name} is too large: {value}")
    return value


def _number(name: str, value: Any, what: str) -> float:
    value = _own(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {what}, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value}")
    return number


def one_text(name: str, value: Any) -> str:
    """A text or a path."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{name} has a NUL character in it")
    return value


def strings(name: str, value: Any) -> List[str]:
    """A text, or several."""
    if isinstance(value, (str, os.PathLike)):
        return [one_text(name, value)]
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a list of texts, not {type(value).__name__}")
    return [one_text(name, item) for item in value]


def modules(name: str, value: Any) -> Optional[List[str]]:
    if value is None:
        return None
    found = strings(name, value)
    for module in found:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(f"{name}: {module!r} is not the name of a module")
    return found


def environment(value: Any) -> List[str]:
    """{"K": "V"}; None as a value, or a bare name in a list, takes the caller's own."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        pairs: List[Tuple[Any, Any]] = list(value.items())
    else:
        pairs = [(item.partition("=")[0], item.partition("=")[2] if "=" in item else None)
                 for item in strings("env", value)]
    written = []
    for key, content in pairs:
        if not isinstance(key, str) or not (content is None or isinstance(content, str)):
            raise TypeError("env must map text to text")
        if not key or "=" in key or "\0" in key or (content is not None and "\0" in content):
            raise ValueError(f"env: {key!r} cannot be a variable's name, or its value has a NUL in it")
        written.append(key if content is None else f"{key}={content}")
    return written


def mounts(value: Any) -> List[str]:
    """"SRC:DST[:ro|rw]" or (SRC, DST[, mode]) each."""
    if value is None:
        return []
    if isinstance(value, str):
        return [one_text("mounts", value)]
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise TypeError(f"mounts must be a list of mounts, not {type(value).__name__}")
    written = []
    for item in value:
        if isinstance(item, (tuple, list)):
            if not 2 <= len(item) <= 3:
                raise ValueError(f"mounts: {item!r} is not (source, destination[, mode])")
            parts = [one_text("mounts", part) for part in item]
            if any(":" in part for part in parts):
                raise ValueError(f"mounts: a colon in {item!r}")
            item = ":".join(parts)
        written.append(one_text("mounts", item))
    return written


def network(value: Any) -> Iterator[Tuple[str, str]]:
    if value is None or value is False:
        return
    if value is True:
        yield "network", "bridge"
        return
    for rule in strings("allow_network", value):
        yield "allow_network", rule


def file_name(name: Any) -> str:
    """Relative, inside, and nothing a path could be confused with."""
    if not isinstance(name, str):
        raise TypeError(f"filesystem: a name must be text, not {type(name).__name__}")
    parts = name.split("/")
    if not name or name.startswith("/") or "\0" in name:
        raise ValueError(f"filesystem: {name!r} is not a relative path")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"filesystem: {name!r} leaves the working directory or is not in its plain form")
    if any(len(os.fsencode(part)) > 255 for part in parts) or len(os.fsencode(name)) > 4000:
        raise ValueError(f"filesystem: {name[:60]!r}… is too long a name")
    return name


def files(value: Any) -> List[Tuple[str, bytes]]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        raise TypeError(f"filesystem must map names to contents, not be {type(value).__name__}")
    found = []
    for name, content in value.items():
        file_name(name)
        if isinstance(content, str):
            try:
                content = content.encode()
            except UnicodeEncodeError:
                raise ValueError(f"filesystem: {name!r} holds text that is not valid Unicode") from None
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"filesystem: {name!r} must be text or bytes, not {type(content).__name__}")
        found.append((name, bytes(content)))
    return found


def source(code: Any) -> bytes:
    if not isinstance(code, str):
        raise TypeError(f"code must be text, not {type(code).__name__}")
    if "\0" in code:
        raise ValueError("code has a NUL character in it")
    try:
        data = code.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"code is not valid Unicode: a lone surrogate at character {e.start}") from None
    if len(data) > MAX_SOURCE_BYTES:
        raise ValueError(f"code is {len(data)} bytes long; at most {MAX_SOURCE_BYTES} are run")
    return data


def command(argv: Any) -> Sequence[str]:
    if isinstance(argv, (str, bytes)):
        raise TypeError("the command must be a list of words, not one text; for a shell: ['sh', '-c', text]")
    words = strings("command", argv)
    if not words or not words[0]:
        raise ValueError("the command is empty")
    return words


def setting(name: str, value: Any) -> Iterator[Tuple[str, str]]:
    """One of NAMES as the engine takes it."""
    if name not in NAMES:
        raise TypeError(f"unknown setting {name!r}")
    if value is None:
        return
    flag = _FLAGS.get(name, name)
    if name in PORTS and not isinstance(value, str):
        ports = value if hasattr(value, "__iter__") else [value]
        text = ",".join(port if isinstance(port, str) else str(whole(name, port, 1)) for port in ports)
        if text or name == "allow_ports":
            yield flag, text
    elif name in LISTS:
        for item in strings(name, value):
            yield flag, item
    elif name in BOOLS:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
        yield flag, "true" if value else "false"
    elif name in DURATIONS:
        yield flag, duration(name, value)
    elif name in SIZES:
        yield flag, size(name, value)
    elif name in COUNTS:
        yield flag, one_text(name, value) if isinstance(value, str) else str(whole(name, value, 0))
    else:
        yield flag, one_text(name, value)
