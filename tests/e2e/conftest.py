"""Fixtures of the end-to-end suite: the oracle around every case, the world it runs in, prerequisites."""

import os
import pathlib
import shutil
import tempfile

import pytest

import cordon_run
import net_world
import oracle

HOSTILE = {"test_hostile.py", "test_limits.py", "test_limits_more.py", "test_kill.py", "test_forge.py", "test_soak.py",
           "test_attacks.py", "test_neighbours.py", "test_ready_root.py"}
STRICT = os.environ.get("CORDON_TEST_STRICT") == "1"
FULL = os.environ.get("CORDON_TEST_FULL") == "1"


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: runs only with CORDON_TEST_FULL=1")
    config.addinivalue_line("markers", "full_tier: needs tier full, the reason says for what")


def pytest_collection_modifyitems(config, items):
    if items and not os.access(cordon_run.CORDON, os.X_OK):
        pytest.exit(f"{cordon_run.CORDON} is not there: build first (make)", returncode=3)
    if items and not (cordon_run.GUESTS / "hello").exists():
        pytest.exit(f"{cordon_run.GUESTS} has no guests: tests/guests/build makes them", returncode=3)
    hostile = [i for i in items if i.path.name in HOSTILE]
    if hostile and os.environ.get("CORDON_E2E_GUARDED") != "1":
        pytest.exit("hostile guests run only below the outer guard: tests/guard pytest tests/e2e", returncode=3)
    for item in items:
        if item.get_closest_marker("slow") and not FULL:
            item.add_marker(pytest.mark.skip(reason="slow: set CORDON_TEST_FULL=1"))


class World:
    """What the host let Cordon build, taken from a run of its own."""

    def __init__(self):
        probe = cordon_run.guest("hello")
        # an emulated machine whose host is busy can stand still for as long as a start may take
        for _ in range(3 if cordon_run.SLOW > 1 else 0):
            if probe.verdict != "ok":
                probe = cordon_run.guest("hello")
        assert probe.verdict == "ok", f"the plainest guest does not run here:\n{probe}"
        self.tier = probe.tier
        self.layers = probe.layers
        self.is_root = os.geteuid() == 0
        self.cgroup = self.layers["cgroup"]
        self.has_memory_cgroup = "memory" in self.cgroup
        self.has_pids_cgroup = "pids" in self.cgroup
        self.has_cpu_cgroup = "cpu" in self.cgroup

    @property
    def full(self):
        return self.tier == "full"


@pytest.fixture(scope="session")
def world():
    oracle.become_subreaper()
    w = World()
    expected = os.environ.get("CORDON_TEST_EXPECT_TIER")
    if expected:
        assert w.tier == expected, f"this world should give tier {expected}, it gives {w.tier}"
    return w


@pytest.fixture
def full(world):
    """For cases that only tier full can pass."""
    if not world.full:
        pytest.skip("needs tier full (user namespaces); this host gives tier " + world.tier)


def _folder():
    """Outside /tmp, which inside is the guest's own."""
    for parent in (os.environ.get("CORDON_E2E_DIR"), "/var/tmp"):
        if parent and os.access(parent, os.W_OK):
            return pathlib.Path(tempfile.mkdtemp(prefix="e2e-", dir=parent))
    return pathlib.Path(tempfile.mkdtemp(prefix="e2e-"))


@pytest.fixture(scope="session")
def canary(world):
    """A folder no guest is ever granted, with a secret in it."""
    top = _folder()
    (top / "secret.txt").write_text(cordon_run.SECRET + "\n")
    (top / "private").mkdir(mode=0o700)
    (top / "private" / "id_rsa").write_text(cordon_run.SECRET + "\n")
    (top / "link").symlink_to("secret.txt")
    os.chmod(top, 0o755)
    yield top
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def shared():
    """A folder a case may grant to its guest. Others may write to it: in tier landlock a guest started by
    root is somebody else."""
    top = _folder()
    os.chmod(top, 0o777)
    yield top
    for folder, _, _ in os.walk(top):
        os.chmod(folder, 0o700)
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(autouse=True)
def contained(request, world, canary):
    """The oracle, around every case."""
    canaries = ([str(canary)], ["/etc/hosts", "/usr/bin/env", "/dev/null", "/dev/zero", "/dev/full",
                                 "/dev/urandom", "/dev/tty", cordon_run.CORDON, cordon_run.guest_path("hello")])
    # Fixtures that make files do so before the first look.
    for name in request.fixturenames:
        if name in ("shared", "tmp_path"):
            request.getfixturevalue(name)
    before = oracle.Snapshot(canaries)
    yield
    found = oracle.compare(before, canaries)
    assert not found, "not contained:\n" + "\n".join(found)


@pytest.fixture(scope="session")
def net(world):
    """A small internet of the tests' own, and the command started from inside it (net_world.py)."""
    why = "needs tier full (network namespaces); this host gives tier " + world.tier if not world.full else net_world.missing()
    if why:
        pytest.fail(why) if STRICT and world.full else pytest.skip(why)
    folder = _folder()
    os.chmod(folder, 0o755)
    internet = net_world.NetWorld(folder)
    yield internet
    internet.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def program():
    """program("node", "nodejs"): path of an ordinary program, or a skip that names its package."""
    def find(name, package):
        path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
        if not path:
            reason = f"{name} is missing: install the Debian package {package}"
            pytest.fail(reason) if STRICT else pytest.skip(reason)
        return path
    return find


@pytest.fixture
def need():
    """need(condition, reason): skip, or fail where everything must be there."""
    def check(condition, reason):
        if not condition:
            pytest.fail(reason) if STRICT else pytest.skip(reason)
    return check
