"""Runs the command under test and checks the shape of every result it gives.

CORDON         the binary (default: build/cordon of this tree)
CORDON_GUESTS  the folder of the guests (default: guests/ beside the binary)
CORDON_FAULT   the folder of the fault tools (default: fault/ beside the binary)
"""

import base64
import json
import os
import pathlib
import secrets
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORDON = os.environ.get("CORDON") or str(ROOT / "build" / "cordon")
GUESTS = pathlib.Path(os.environ.get("CORDON_GUESTS") or pathlib.Path(CORDON).parent / "guests")
FAULT = pathlib.Path(os.environ.get("CORDON_FAULT") or pathlib.Path(CORDON).parent / "fault")

# How late things may be. Other programs of a busy machine come between a deadline and its effect, so the
# bounds of the contract are asked for only where somebody promises that the machine is quiet.
QUIET = os.environ.get("CORDON_TEST_QUIET") == "1"
LATE_MS = 250 if QUIET else 3000
LATE_S = LATE_MS / 1000
PATIENCE = 1 if QUIET else 5  # times as long as on a quiet machine

# The emulated machine (tests/vm) is an order of magnitude slower than the host.
SLOW = 10 if os.environ.get("TEST_VM") == "1" else 1


def patient(words):
    """Where everything is slow, limits that are there only in case something hangs get longer."""
    words, generous = list(map(str, words)), 20
    if SLOW == 1:
        return words
    for i, word in enumerate(words[:-1]):
        if word == "--time-limit" and words[i + 1].endswith("s") and words[i + 1][:-1].isdigit() and int(words[i + 1][:-1]) >= generous:
            words[i + 1] = f"{int(words[i + 1][:-1]) * SLOW}s"
    return words


# Planted in the caller's environment and in canary files: must never come out of a guest.
SECRET = "SECRET-" + secrets.token_hex(12)

VERDICTS = {
    "ok", "nonzero_exit", "signaled", "time_limit", "cpu_time_limit", "memory_limit", "output_limit",
    "process_limit", "disk_limit", "rejected", "cancelled", "sandbox_error",
}
EXIT_OF_VERDICT = {
    "ok": 0, "time_limit": 124, "cpu_time_limit": 124, "memory_limit": 125, "output_limit": 122,
    "process_limit": 122, "disk_limit": 122, "rejected": 77, "cancelled": 130,
}
LAYERS = {
    "user_ns", "mount_ns", "pid_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns", "seccomp", "landlock",
    "cgroup", "no_new_privs", "caps",
}


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
    return isinstance(value, float) or _is_int(value)


SHAPE = {
    "version": _is_int,
    "verdict": lambda v: v in VERDICTS,
    "exit_code": _is_int,
    "signal": lambda v: v is None or (_is_int(v) and 1 <= v <= 64),
    "timed_out": lambda v: isinstance(v, bool),
    "stdout": lambda v: isinstance(v, str),
    "stderr": lambda v: isinstance(v, str),
    "stdout_encoding": lambda v: v in ("utf-8", "base64"),
    "stdout_truncated": lambda v: isinstance(v, bool),
    "stderr_truncated": lambda v: isinstance(v, bool),
    "stdout_bytes": lambda v: _is_int(v) and v >= 0,
    "stderr_bytes": lambda v: _is_int(v) and v >= 0,
    "wall_ms": lambda v: isinstance(v, float) and v >= 0,
    "cpu_user_ms": lambda v: isinstance(v, float) and v >= 0,
    "cpu_sys_ms": lambda v: isinstance(v, float) and v >= 0,
    "peak_memory_bytes": lambda v: _is_int(v) and v >= 0,
    "processes_peak": lambda v: _is_int(v) and v >= 0,
    "oom_kills": lambda v: _is_int(v) and v >= 0,
    "throttled_ms": lambda v: isinstance(v, float) and v >= 0,
    "limit": lambda v: v is None or (isinstance(v, dict) and set(v) >= {"name", "value"}),
    "error": lambda v: v is None or isinstance(v, (str, dict)),
    "denials": lambda v: isinstance(v, list) and all(_is_denial(d) for d in v),
    "enforcement": lambda v: _is_enforcement(v),
    "changed_files": lambda v: isinstance(v, list) and all(set(f) >= {"path", "kind"} for f in v),
    "diff": lambda v: v is None or isinstance(v, str),
}
# Keys that may come on top: each is named by the contract for some kinds of run.
OPTIONAL = {"stage", "stderr_encoding", "workspace_id", "outputs", "network"}


def _is_denial(d):
    return (isinstance(d, dict) and set(d) >= {"kind", "target", "rule", "count"}
            and isinstance(d["kind"], str) and isinstance(d["target"], str) and _is_int(d["count"]) and d["count"] > 0)


def _is_enforcement(e):
    return (isinstance(e, dict) and isinstance(e.get("backend"), str) and e.get("tier") in ("full", "landlock", None)
            and isinstance(e.get("layers"), dict) and LAYERS <= set(e["layers"])
            and all(isinstance(v, str) for v in e["layers"].values()))


def check_shape(result):
    """One object with every key of the contract, each of its type, and no contradiction among them."""
    missing = [k for k in SHAPE if k not in result]
    assert not missing, f"result lacks {missing}"
    extra = set(result) - set(SHAPE) - OPTIONAL
    assert not extra, f"result has unknown keys {sorted(extra)}"
    wrong = {k: result[k] for k, ok in SHAPE.items() if not ok(result[k])}
    if result["verdict"] in ("sandbox_error", "rejected") and result["enforcement"].get("layers") == {}:
        wrong.pop("enforcement", None)  # no wall was built, and it says so
    assert not wrong, f"result has values of the wrong type: {wrong}"
    verdict, code = result["verdict"], result["exit_code"]
    assert result["version"] == 1
    assert result["timed_out"] == (verdict in ("time_limit", "cpu_time_limit"))
    if verdict in EXIT_OF_VERDICT:
        assert code == EXIT_OF_VERDICT[verdict], (verdict, code)
    if verdict == "signaled":
        assert result["signal"] is not None and code == 128 + result["signal"]
    if verdict == "nonzero_exit":
        assert code != 0
    if verdict.endswith("_limit"):
        assert result["limit"] is not None, "a limit fired but is not named"
    if verdict in ("ok", "nonzero_exit", "signaled"):
        assert result["limit"] is None
    if verdict == "sandbox_error":
        assert result["error"]


class Run:
    """What one run of the command gave."""

    def __init__(self, argv, code, stdout, stderr, seconds, as_json):
        self.argv, self.code, self.raw, self.log, self.seconds = argv, code, stdout, stderr, seconds
        self.result = None
        if as_json:
            try:
                self.result = json.loads(stdout.decode("utf-8"))
            except ValueError as e:
                raise AssertionError(f"not one JSON object ({e}): exit {code}\n{stdout[:2000]!r}\n"
                                     f"{self.log_text[:2000]}") from None
            check_shape(self.result)
            assert self.result["exit_code"] == code, f"exit status {code}, result says {self.result['exit_code']}"

    @property
    def log_text(self):
        return self.log.decode("utf-8", "replace")

    def stream(self, name):
        """The guest's stream as bytes."""
        if self.result is None:
            return self.raw if name == "stdout" else self.log
        encoding = self.result.get(name + "_encoding", "utf-8")
        text = self.result[name]
        return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode("utf-8", "surrogateescape")

    @property
    def out(self):
        return self.stream("stdout").decode("utf-8", "replace")

    @property
    def err(self):
        return self.stream("stderr").decode("utf-8", "replace")

    @property
    def verdict(self):
        return self.result["verdict"]

    @property
    def tier(self):
        return self.result["enforcement"]["tier"]

    @property
    def layers(self):
        return self.result["enforcement"]["layers"]

    def pairs(self):
        return [tuple(line.split(": ", 1)) for line in self.out.splitlines() if ": " in line]

    def all(self, key):
        return [v for k, v in self.pairs() if k == key]

    def get(self, key):
        values = self.all(key)
        assert values, f"guest did not print {key!r}:\n{self}"
        return values[-1]

    def denied(self, word, kind=None):
        """Denials whose target mentions a word."""
        return [d for d in self.result["denials"] if word in d["target"] and kind in (None, d["kind"])]

    def __str__(self):
        shown = {k: v for k, v in (self.result or {}).items() if k not in ("stdout", "stderr", "enforcement")}
        return (f"$ {' '.join(map(str, self.argv))[:1500]}\nexit {self.code} after {self.seconds:.2f} s\n{shown}\n"
                f"guest stdout: {self.out[:3000]}\nguest stderr: {self.err[:2000]}\ncordon stderr: {self.log_text[:2000]}")


def host_env(extra=None, drop=()):
    """The caller's environment: a plain one, with a secret that must not reach the guest."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": os.environ.get("HOME", "/"),
           "LANG": "C.UTF-8", "E2E_SECRET": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "LD_LIBRARY_PATH": ""}
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR", "CORDON_TEST_FORCE_TIER", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    del env["LD_LIBRARY_PATH"]
    env.update(extra or {})
    for name in drop:
        env.pop(name, None)
    return env


def command(*words, verb="run", program=None):
    """program: words in the place of the command and its verb."""
    return [*(program or [CORDON, verb]), *map(str, words)]


def start(*words, verb="run", stdin=subprocess.DEVNULL, env=None, cwd=None, prefix=(), **kw):
    """Starts without waiting; for tests that send signals or look at the living guest. prefix: words that enter
    somewhere first and exec the rest."""
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([*prefix, *command(*words, verb=verb)], stdin=stdin, env=host_env(env), cwd=cwd or "/", **kw)


def run(*words, stdin=None, env=None, cwd=None, timeout=90, as_json=True, leak_ok=False, verb="run", prefix=(),
        program=None, **kw):
    """cordon run [--json] WORDS. stdin: bytes, a file object, or None for nothing."""
    argv = [*prefix, *command(*(["--json"] if as_json else []), *patient(words), verb=verb, program=program)]
    if SLOW > 1 and verb == "run" and cwd is None and "--time-limit" not in words:
        env = {"CORDON_TIME_LIMIT": f"{30 * SLOW}s", **(env or {})}
    options = {"stdin": subprocess.DEVNULL} if stdin is None else (
        {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin})
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, env=host_env(env), cwd=cwd or "/", timeout=timeout * SLOW, **options, **kw)
    r = Run(argv, done.returncode, done.stdout, done.stderr, time.monotonic() - began, as_json)
    if not leak_ok:
        for text in (r.raw, r.log, r.stream("stdout"), r.stream("stderr")):
            assert SECRET.encode() not in text, f"the planted secret came out:\n{r}"
    return r


def guest_path(name):
    return str(GUESTS / name)


def guest(name, *args, opts=(), **kw):
    """Runs one of our guests; the guests' folder is granted for reading."""
    return run("--allow-read", GUESTS, *opts, "--", guest_path(name), *args, **kw)


def cordon(*words, env=None, cwd=None, timeout=60, stdin=subprocess.DEVNULL):
    """Any other verb, as a finished process with text streams."""
    return subprocess.run([CORDON, *map(str, words)], capture_output=True, text=True, env=host_env(env), cwd=cwd or "/",
                          timeout=timeout, stdin=stdin)
