"""What a configuration says before a run: one question to `cordon explain`, remembered while its files stay.

The library hands a configuration's settings to the engine unseen, and the default block of imports must give way
to a list of allowed ones that is written there.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Optional, Tuple

from . import _lib
from .errors import SandboxError

_MOST = 64
_known: Dict[Tuple[Any, ...], Tuple[Tuple[Any, ...], bool]] = {}


def environment(discover: bool) -> Dict[str, str]:
    """For the program: without the user's own settings unless they are asked for."""
    environ = dict(os.environ)
    if not discover:
        for name in [name for name in environ if name.startswith("CORDON_")]:
            del environ[name]
        environ["XDG_CONFIG_HOME"] = "/nonexistent"
    return environ


def allows_imports(config: Optional[str], profile: Optional[str], discover: bool) -> bool:
    """Is there a list of allowed imports in it? A configuration that cannot be read has none: the run says so."""
    environ = environment(discover)
    settings = tuple(sorted(item for item in environ.items() if item[0].startswith(("CORDON_", "XDG_", "HOME"))))
    try:
        here = os.getcwd()
    except OSError:  # gone: there is no project's file
        here = None
    question = (config, profile, settings, here)
    if question in _known:
        files, answer = _known[question]
        if files == tuple((path, _look(path)) for path, _ in files):
            return answer
    words = [_lib.program(), "explain", "--json", *(["--config", config] if config else []),
             *(["--profile", profile] if profile else []), "--", "true"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env=environ, check=False, timeout=30)
        found = json.loads(done.stdout)
        answer = bool(found["settings"].get("allowed_imports", {}).get("items"))
        names = {found.get("config_file"), found.get("user_file"), config, here and os.path.join(here, "cordon.toml")} - {None, ""}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SandboxError, subprocess.TimeoutExpired):
        return False
    if len(_known) >= _MOST:
        _known.clear()
    _known[question] = (tuple((path, _look(path)) for path in sorted(names)), answer)
    return answer


def _look(path: str) -> Optional[Tuple[int, ...]]:
    try:
        st = os.stat(path)
    except OSError:
        return None
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns
