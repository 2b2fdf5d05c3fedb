"""One suite for every wall: fixtures, what each wall is called by, and the table of results.

CORDON_BEHAVIOUR_WALLS   comma-separated names of WALLS; default: all
CORDON_BEHAVIOUR_OUT     file that gets the results as JSON, for tools/behaviour-table
DOCKER_HOST              an engine with the image cordon-sandbox:latest; without it the docker walls are skipped
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import cordon_run  # noqa: E402

STRICT = os.environ.get("CORDON_TEST_STRICT") == "1"
WALLS = {
    "native": [],
    "docker runc": ["--backend", "docker", "--runtime", "runc"],
    "docker runsc": ["--backend", "docker", "--runtime", "runsc"],
    "oci runc": ["--backend", "oci", "--runtime", "runc"],
    "oci crun": ["--backend", "oci", "--runtime", "crun"],
    "oci runsc": ["--backend", "oci", "--runtime", "runsc"],
    "gvisor": ["--backend", "gvisor"],
}
HOST = "this host cannot: "  # a skip also where everything that can be installed must be there
RESULTS = {}


def pytest_configure(config):
    config.addinivalue_line("markers", "refused(*walls): these walls cannot do it and refuse before the start")


def chosen():
    names = os.environ.get("CORDON_BEHAVIOUR_WALLS")
    return [n.strip() for n in names.split(",")] if names else list(WALLS)


def missing(name):
    """Why this wall cannot be tried here, or None."""
    words = name.split()
    runtime = words[1] if len(words) > 1 else "runsc" if name == "gvisor" else None
    if words[0] == "docker":
        if not os.environ.get("DOCKER_HOST"):
            return "no engine: tests/behaviour/run starts one, as root"
        names = subprocess.run(["docker", "info", "-f", "{{range $k, $v := .Runtimes}}{{$k}} {{end}}"],
                               capture_output=True, text=True, timeout=30, check=False).stdout.split()
        return None if runtime in names else f"the engine has no runtime {runtime}"
    if runtime and not shutil.which(runtime, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"):
        return f"{runtime} is missing: install the Debian package {runtime}"
    if words[0] == "oci" and runtime != "runsc" and os.geteuid() != 0:
        import pwd
        user = pwd.getpwuid(os.geteuid()).pw_name
        try:
            ranges = pathlib.Path("/etc/subuid").read_text().splitlines()
        except OSError:
            ranges = []
        if not any(r.split(":")[0] in (user, str(os.geteuid())) for r in ranges) or not shutil.which("newuidmap"):
            return "no range of ids for this user in /etc/subuid, or no newuidmap (Debian package uidmap)"
    return None


class Wall:
    """One way to run a guest."""

    def __init__(self, name):
        self.name, self.words = name, WALLS[name]
        self.is_gvisor = name == "gvisor" or name.endswith("runsc")
        self.is_docker = name.startswith("docker")

    def run(self, *words, **kw):
        env = {k: os.environ[k] for k in ("DOCKER_HOST",) if k in os.environ}
        env.update(kw.pop("env", {}))
        kw.setdefault("timeout", 120)
        return cordon_run.run(*self.words, *words, env=env, **kw)

    def sh(self, script, *options, **kw):
        return self.run(*options, "--", "bash", "-c", script, **kw)

    def popen(self, *words, **kw):
        env = {k: os.environ[k] for k in ("DOCKER_HOST",) if k in os.environ}
        return cordon_run.start(*self.words, *words, env=env, **kw)


@pytest.fixture(scope="session")
def walls():
    return {name: missing(name) for name in chosen()}


@pytest.fixture(params=chosen())
def wall(request, walls):
    name = request.param
    if walls[name]:
        must = STRICT and not walls[name].startswith(HOST)
        pytest.fail(walls[name]) if must else pytest.skip(f"{name}: {walls[name]}")
    return Wall(name)


@pytest.fixture
def folder():
    """Outside /tmp, which inside is the guest's own; within reach of every engine."""
    base = os.environ.get("CORDON_BEHAVIOUR_DIR") or os.environ.get("CORDON_E2E_DIR") or "/var/tmp"
    top = pathlib.Path(tempfile.mkdtemp(prefix="behaviour-", dir=base))
    os.chmod(top, 0o777)
    yield top
    shutil.rmtree(top, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    params = getattr(item, "callspec", None)
    if not params or "wall" not in params.params:
        return
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        name = params.params["wall"]
        marker = item.get_closest_marker("refused")
        word = {"passed": "yes", "failed": "NO", "skipped": "not tried"}[report.outcome]
        if word == "yes" and marker and any(w in name for w in marker.args):
            word = "refused"
        title = (item.function.__doc__ or item.function.__name__).strip().split("\n")[0]
        row = RESULTS.setdefault(title, {})
        if row.get(name) != "NO":  # of one title with several cases the worst counts
            row[name] = word


def pytest_sessionfinish(session):
    out = os.environ.get("CORDON_BEHAVIOUR_OUT")
    if out and RESULTS:
        rows = {}
        if os.path.exists(out):  # what failed is tried again alone: all else stays as it was found
            rows = json.loads(pathlib.Path(out).read_text())["rows"]
        rows.update(RESULTS)
        pathlib.Path(out).write_text(json.dumps({"walls": chosen(), "rows": rows}, indent=1) + "\n")
