"""A folder per task: files in, commands in it, what they changed. A binding of libcordon's own.

>>> import tempfile
>>> from cordon.workspace import SandboxConfig, apply_action, cleanup, prepare_workspace
>>> home = tempfile.mkdtemp()
>>> config = SandboxConfig(work_root=home + "/work", logs_dir=home + "/logs")
>>> workspace = prepare_workspace("task-1", {"hello.txt": "hello\\n"}, config=config)
>>> result = apply_action(workspace, {"command": ["sh", "-c", "echo there >> hello.txt"]}, config=config)
>>> result.changed_files
['hello.txt']
>>> cleanup(workspace, config=config)
"""

from __future__ import annotations

import os
import pathlib
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _settings, _task
from .result import from_engine, shown

__all__ = ["SandboxConfig", "SandboxResult", "TestResult", "apply_action", "cleanup", "prepare_workspace", "run_tests"]

CONFIG_FILE = "configs/sandbox.yaml"
DEFAULT_BINARIES = ("ast-grep", "sg", "python3", "python", "pytest", "bash", "sh", "git", "node", "npm", "make", "gcc",
                    "go", "cargo")
DEFAULT_TESTS = ("python3", "-m", "pytest", "-q")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]{0,99}\Z")
_ACTION_KEYS = {"command", "timeout", "env", "stdin"}


@dataclass(frozen=True)
class SandboxConfig:
    """Where workspaces and logs are, and what commands in them may use."""

    work_root: str = ".sandbox"
    logs_dir: str = "logs/sandbox"
    default_timeout_sec: float = 30
    cpu_time_sec: float = 30
    mem_limit_mb: int = 512
    allowed_binaries: Tuple[str, ...] = DEFAULT_BINARIES
    enable_jail: bool = True
    jailer: str = "native"

    def __post_init__(self) -> None:
        for name in ("work_root", "logs_dir"):
            object.__setattr__(self, name, _settings.one_text(name, getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; '.' is the working directory")
        object.__setattr__(self, "allowed_binaries", tuple(_settings.strings("allowed_binaries",
                                                                             self.allowed_binaries)))
        if self.enable_jail is not True:
            raise ValueError("enable_jail must be True: nothing runs without a wall")
        if self.jailer not in ("native", "docker", "gvisor", "oci"):
            raise ValueError(f"jailer: unknown backend {self.jailer!r}")
        for name in ("default_timeout_sec", "cpu_time_sec"):
            text = _settings.duration(name, getattr(self, name))
            if not text[:1].isdigit():
                raise ValueError(f"{name}: {text!r} is no time")
        _settings.whole("mem_limit_mb", self.mem_limit_mb, 1)

    @classmethod
    def load(cls, path: Union[None, str, "os.PathLike[str]"] = None) -> "SandboxConfig":
        """From a YAML file (configs/sandbox.yaml where it exists and PyYAML is installed), changed by
        CORDON_WORKSPACE_WORK_ROOT and the like."""
        values = _from_yaml(path)
        for one in fields(cls):
            text = os.environ.get("CORDON_WORKSPACE_" + one.name.upper())
            if text is not None:
                values[one.name] = _from_text(one.name, text)
        unknown = sorted(set(values) - {one.name for one in fields(cls)})
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r} in the configuration of workspaces")
        return cls(**values)


def _from_text(name: str, text: str) -> Any:
    try:
        if name in ("default_timeout_sec", "cpu_time_sec"):
            return float(text)
        if name == "mem_limit_mb":
            return int(text)
    except ValueError:
        raise ValueError(f"CORDON_WORKSPACE_{name.upper()}: {text!r} is not a number") from None
    if name == "allowed_binaries":
        return tuple(word.strip() for word in text.split(",") if word.strip())
    return text.lower() in ("1", "true", "yes") if name == "enable_jail" else text


def _from_yaml(path: Union[None, str, "os.PathLike[str]"]) -> Dict[str, Any]:
    named = path is not None
    try:
        import yaml  # type: ignore[import]
        with open(CONFIG_FILE if path is None else path, encoding="utf-8") as file:
            values = yaml.safe_load(file)
    except (ImportError, FileNotFoundError):
        if named:
            raise
        return {}
    except yaml.YAMLError as e:
        raise ValueError(f"{path or CONFIG_FILE}: {e}") from None
    if isinstance(values, dict) and isinstance(values.get("sandbox"), dict):
        values = values["sandbox"]
    if values is not None and not isinstance(values, dict):
        raise ValueError(f"{path or CONFIG_FILE}: no keys and values")
    return dict(values or {})


@dataclass
class SandboxResult:
    """What a command did. ``diff`` is for `git apply`; ``changed_files`` are paths. Output that is not UTF-8 has
    its other bytes as ``\\xff``."""

    stdout: str
    stderr: str
    exit_code: int
    duration_sec: float
    diff: str = ""
    changed_files: List[str] = field(default_factory=list)
    error: Optional[str] = None
    timed_out: bool = False


@dataclass
class TestResult(SandboxResult):
    """The same of a test command."""

    __test__ = False  # for pytest: this is no test
    passed: bool = False


def prepare_workspace(task_id: str, files: Mapping[str, Union[str, bytes]],
                      config: Optional[SandboxConfig] = None) -> pathlib.Path:
    """A new folder for the task with these files in it; an earlier one of the same id is removed. A folder that
    somebody else made and that is not empty is not: ValueError."""
    config = SandboxConfig.load() if config is None else config
    _check_id(task_id)
    contents = sorted(_settings.files(files))
    return pathlib.Path(_task.Task(_options(config), task_id, contents).path)


def apply_action(workspace: Union[str, "os.PathLike[str]"], action: Mapping[str, Any],
                 config: Optional[SandboxConfig] = None) -> SandboxResult:
    """Runs ``{"command": […], "timeout": s, "env": {}, "stdin": ""}`` in the workspace.

    A command that is not allowed or not found is a result with ``error``, not an exception.
    """
    config = SandboxConfig.load() if config is None else config
    return _act(workspace, action, config, _task.ACTION)


def run_tests(workspace: Union[str, "os.PathLike[str]"], test_spec: Optional[Mapping[str, Any]] = None,
              config: Optional[SandboxConfig] = None) -> TestResult:
    """As ``apply_action``; the command is pytest unless the specification names another."""
    config = SandboxConfig.load() if config is None else config
    spec = {"command": list(DEFAULT_TESTS), **(test_spec or {})}
    result = _act(workspace, spec, config, _task.TESTS)
    return TestResult(**asdict(result), passed=result.exit_code == 0)


def cleanup(workspace: Union[str, "os.PathLike[str]"], config: Optional[SandboxConfig] = None) -> None:
    """Removes the workspace, whatever a guest left in it. One that is gone already is no error; a folder that is not
    empty and that ``prepare_workspace`` did not make stays: ValueError."""
    config = SandboxConfig.load() if config is None else config
    _task.Task(_options(config), _located(workspace, config)).cleanup()


# ---- one action ---------------------------------------------------------------------------------

def _check_id(task_id: Any) -> None:
    if not isinstance(task_id, str):
        raise TypeError(f"task_id must be text, not {type(task_id).__name__}")
    if not _ID.match(task_id):
        raise ValueError(f"task_id: {task_id!r} is not a plain name of letters, digits, dot, dash and underscore")


def _located(workspace: Union[str, "os.PathLike[str]"], config: SandboxConfig) -> str:
    """The id of a workspace given by its path."""
    root = os.path.abspath(config.work_root)
    path = os.path.abspath(os.fspath(workspace))
    task_id = os.path.basename(path)
    if os.path.dirname(path) != root:
        raise ValueError(f"{path} is not a workspace below {root}")
    _check_id(task_id)
    if os.path.islink(path):
        raise ValueError(f"{path} is a link, not a workspace")
    return task_id


def _options(config: SandboxConfig) -> _task.Options:
    return _task.Options(os.path.abspath(config.work_root), os.path.abspath(config.logs_dir), config.allowed_binaries,
                         _settings.duration("default_timeout_sec", config.default_timeout_sec),
                         _settings.duration("cpu_time_sec", config.cpu_time_sec), f"{config.mem_limit_mb}M",
                         config.jailer)


def _act(workspace: Union[str, "os.PathLike[str]"], action: Mapping[str, Any], config: SandboxConfig,
         event: int) -> SandboxResult:
    task_id = _located(workspace, config)
    if not isinstance(action, Mapping):
        raise TypeError(f"an action must be a mapping, not {type(action).__name__}")
    unknown = sorted(set(map(str, action)) - _ACTION_KEYS)
    if unknown:
        raise ValueError(f"an action has no {unknown[0]!r}; it has command, timeout, env and stdin")
    if "command" not in action:
        raise ValueError("an action needs a command")
    command = list(_settings.command(action["command"]))
    timeout, stdin = action.get("timeout"), action.get("stdin")
    if stdin is not None and not isinstance(stdin, (str, bytes)):
        raise TypeError(f"stdin must be text or bytes, not {type(stdin).__name__}")
    env = _settings.environment(dict(action.get("env") or {}))
    done = _task.Task(_options(config), task_id).run(
        event, command, None if timeout is None else _settings.duration("timeout", timeout), env,
        stdin.encode() if isinstance(stdin, str) else stdin)
    if done.run is None:
        return SandboxResult("", "", done.exit_code, done.duration_sec, error=done.error)
    ended = from_engine(*done.run)
    return SandboxResult(*shown(ended), done.exit_code, done.duration_sec, done.diff, done.changed, done.error,
                         ended.timed_out)
