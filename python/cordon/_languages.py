"""How source text becomes a command, for libraries that do not take source text themselves.

One row per language; the engine has the full registry (languages(7) of the command: `cordon languages`).
"""

from __future__ import annotations

import pathlib
import shutil
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .errors import SandboxError

GUEST_PATH = "/usr/local/bin:/usr/bin:/bin"
GUARD_FILE = ".cordon/sitecustomize.py"
REFUSED = 77
BLOCKED_BY_DEFAULT = ("os", "subprocess", "shutil", "sys", "socket")


class Language(NamedTuple):
    file: str
    tool: str
    package: str
    build: str = ""  # shell text before the run; empty: interpreted
    run: Tuple[str, ...] = ()  # empty: tool and file


_TABLE: Dict[str, Language] = {
    "python": Language("main.py", "python3", "python3"),
    "javascript": Language("main.js", "node", "nodejs"),
    "bash": Language("main.bash", "bash", "bash"),
    "sh": Language("main.sh", "sh", "dash"),
    "ruby": Language("main.rb", "ruby", "ruby"),
    "perl": Language("main.pl", "perl", "perl"),
    "lua": Language("main.lua", "lua", "lua5.4"),
    "php": Language("main.php", "php", "php-cli"),
    "r": Language("main.R", "Rscript", "r-base-core"),
    "c": Language("main.c", "gcc", "gcc libc6-dev", "gcc -O2 -o /tmp/main main.c -lm", ("/tmp/main",)),
    "c++": Language("main.cpp", "g++", "g++", "g++ -O2 -o /tmp/main main.cpp", ("/tmp/main",)),
    "go": Language("main.go", "go", "golang-go", "GOFLAGS=-buildvcs=false go build -o /tmp/main main.go",
                   ("/tmp/main",)),
    "rust": Language("main.rs", "rustc", "rustc", "rustc -O -o /tmp/main main.rs", ("/tmp/main",)),
    "java": Language("Main.java", "java", "default-jdk-headless", "", ("java", "-XX:+UseSerialGC", "Main.java")),
}
_ALIASES = {"python3": "python", "py": "python", "js": "javascript", "node": "javascript", "nodejs": "javascript",
            "shell": "sh", "dash": "sh", "rb": "ruby", "pl": "perl", "cpp": "c++", "cxx": "c++", "golang": "go",
            "rs": "rust", "rscript": "r"}


def canonical(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"language must be text, not {type(name).__name__}")
    found = name.lower()
    found = _ALIASES.get(found, found)
    if found not in _TABLE:
        raise ValueError(f"unknown language {name!r}; known are {', '.join(sorted(_TABLE))}")
    return found


def command(language: str, taken: Sequence[str], args: Sequence[str],
            rules: Optional[str]) -> Tuple[List[str], str, List[Tuple[str, bytes]], List[str]]:
    """(argv, name of the source file, files of ours, variables of ours)."""
    row = _TABLE[language]
    if not shutil.which(row.tool, path=GUEST_PATH):
        raise SandboxError(f"{language}: {row.tool} is not installed", code=69, stage="language",
                           hint=f"install the package {row.package}")
    if row.file in taken:
        raise ValueError(f"filesystem: {row.file!r} is the name of the code itself")
    run = [word for word in row.run] or [row.tool, row.file]
    if language == "python" and rules is not None:
        guard = (pathlib.Path(__file__).parent / "guest" / "guard.py").read_bytes()
        check = f'{row.tool} -I -S {GUARD_FILE} {row.file} </dev/null || exit; exec "$0" "$@"'
        return (["sh", "-c", check, *run, *args], row.file, [(GUARD_FILE, guard)],
                [f"CORDON_IMPORTS={rules}", "PYTHONPATH=/home/sandbox/.cordon"])
    if row.build:
        return ["sh", "-c", f'{row.build} </dev/null || exit; exec "$0" "$@"', *run, *args], row.file, [], []
    return [*run, *args], row.file, [], []
