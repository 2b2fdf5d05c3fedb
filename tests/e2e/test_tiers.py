"""Tiers and honesty (contract, section 7): the strongest wall the host allows, never less than asked, and
the result says which. The cases for tier landlock run in the container world (world_docker), or anywhere
with a test build that honours CORDON_TEST_FORCE_TIER=landlock."""

import json
import os
import pathlib

import pytest

from cordon_run import CORDON, GUESTS, PATIENCE, check_shape, cordon, guest, run

NAMESPACES = ("user_ns", "mount_ns", "pid_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns")


@pytest.fixture
def landlock(world):
    if world.full:
        pytest.skip("needs tier landlock: a host that refuses user namespaces (tests/run-worlds --docker)")


def test_result_states_what_was_enforced(world):
    layers = world.layers
    if world.full:
        assert all(layers[n] == "on" for n in NAMESPACES), layers
    else:
        assert layers["user_ns"] != "on" and layers["mount_ns"] != "on"
    assert layers["seccomp"].startswith("on") and layers["no_new_privs"] == "on" and layers["caps"] == "none"
    assert layers["landlock"].startswith("on"), layers


def test_every_result_states_it():
    for words in (["/bin/true"], ["/bin/false"], ["no-such-program"]):
        r = run("--", *words)
        assert r.result["enforcement"]["backend"] == "native" and r.tier


def test_doctor_agrees(world):
    import json
    text = cordon("doctor", "--json").stdout
    assert json.loads(text) and world.tier in text


def test_doctor_knows_whether_any_port_can_be_had(world):
    """What it says of the rule is what a run meets that needs it."""
    import json
    probes = {p["name"]: p["state"] for p in json.loads(cordon("doctor", "--json").stdout)["items"]}
    r = run("--network", "bridge", "--", "/bin/true", as_json=False)
    works = world.full and probes["tproxy"] == "works" and probes["veth"] == "works"
    assert r.code == (0 if works else 69), (str(r), probes)


def test_asked_for_full(world):
    r = run("--require-tier", "full", "--", "/bin/true", as_json=False)
    if world.full:
        assert r.code == 0
    else:
        assert r.code == 69 and "tier full" in r.log_text and "hint:" in r.log_text.lower(), str(r)


# ---- tier landlock ---------------------------------------------------------------------------------------

def test_landlock_runs(landlock):
    r = run("--", "/bin/sh", "-c", "echo hi; exit 4")
    assert (r.verdict, r.code, r.out) == ("nonzero_exit", 4, "hi\n"), str(r)


def test_landlock_uid(landlock, world):
    uid = int(guest("identity").get("uids").split()[0])
    assert uid != 0
    if not world.is_root:
        assert uid == os.getuid()


def test_landlock_home_and_tmp_are_one_private_folder(landlock):
    r = run("--", "/bin/sh", "-c", 'echo "$HOME"; echo "$TMPDIR"; pwd; echo x > "$TMPDIR/f"; cat "$HOME/f"')
    assert len(r.out.split()) == 4, str(r)
    home, tmp, cwd, x = r.out.split()
    assert home == tmp and x == "x" and cwd.startswith(home)
    assert not pathlib.Path(home).exists(), "the private folder was left behind"


def test_landlock_files(landlock, canary, shared):
    (shared / "f").write_text("x")
    r = guest("probe", "cat", canary / "secret.txt", "create", shared / "g", "create", "/tmp/x", "create", "/dev/shm/x", "cat", shared / "f",
              "list", "/root", "create", "/var/tmp/x")
    for key, answer in r.pairs():
        if not key.startswith(("size", "entry", "line")):
            assert answer in ("EACCES", "EPERM", "ENOENT"), (key, answer)
    r = guest("probe", "cat", shared / "f", "create", shared / "g", opts=["--allow-read", shared])
    assert r.get(f"cat {shared}/f") == "OK" and r.get(f"create {shared}/g") == "EACCES"
    r = guest("probe", "create", shared / "g", opts=["--allow-write", shared])
    assert r.get(f"create {shared}/g") == "OK"


def test_landlock_etc_is_readable(landlock):
    assert guest("probe", "read", "/etc/passwd").get("read /etc/passwd") == "OK"
    assert guest("probe", "create", "/etc/x").get("create /etc/x") in ("EACCES", "EPERM")


def test_landlock_no_network_sockets(landlock):
    r = guest("net", "families")
    assert {r.get(n) for n in ("inet_stream", "inet_dgram", "inet6_stream", "vsock", "netlink_netfilter")} <= {
        "EPERM", "EACCES", "EAFNOSUPPORT"}


@pytest.mark.parametrize("kind", [["fork_bomb", "setsid", "20", "60"], ["fork_bomb", "race", "20", "60"], ["stubborn", "stop-tree"],
                                  ["daemon", "30", "10"]], ids="-".join)
def test_landlock_kills_the_whole_tree(landlock, kind):
    r = guest(*kind, opts=["--time-limit", "1s"])
    assert r.verdict in ("time_limit", "ok", "process_limit"), str(r)
    assert r.seconds < 2.5 * PATIENCE


def test_landlock_signals_reach_nobody(landlock):
    r = guest("signals", os.getpid())
    assert r.get(f"kill_{os.getpid()}") in ("EPERM", "ESRCH", "ENOSYS"), str(r)


def test_landlock_private_ipc_is_refused(landlock):
    r = guest("memory", "sysv", "1")
    assert r.all("shmget") and r.get("shmget") in ("EPERM", "ENOSYS", "EACCES"), str(r)


@pytest.mark.parametrize("words", [["--mount", "/usr:/elsewhere"], ["--virtual-fs"], ["--allow-network", "example.com"]], ids=lambda w: w[0])
def test_landlock_refuses_what_it_cannot_do(landlock, words):
    done = cordon("run", *words, "--", "/bin/true")
    assert done.returncode == 69 and done.stderr.strip(), (done.returncode, done.stderr)


def test_landlock_hidden_paths_are_refused(landlock, shared):
    (shared / "deny").write_text("x")
    done = cordon("run", "--allow-read", shared, "--deny", shared / "deny", "--", "/bin/cat", shared / "deny")
    assert done.returncode == 69 and "x" not in done.stdout, (done.returncode, done.stderr)


def test_landlock_refused_policy_names_the_fix(landlock):
    done = cordon("run", "--require-tier", "full", "--", "/bin/true")
    assert done.returncode == 69 and len(done.stderr) > 20


def test_landlock_time_memory_output(landlock):
    assert run("--time-limit", "300ms", "--", "/bin/sleep", "9").verdict == "time_limit"
    r = guest("memory", "heap", "400", opts=["--memory-limit", "64M", "--time-limit", "20s"])
    assert r.verdict == "memory_limit", str(r)
    r = guest("output", "stdout", "50000", opts=["--max-output", "100"])
    assert r.result["stdout_truncated"] and r.result["stdout_bytes"] == 50000


def test_landlock_descriptors(landlock):
    assert guest("identity").all("fd") == ["0", "1", "2"]
    assert (GUESTS / "identity").exists()


def test_a_run_inside_a_run(full):
    """A filter around us that keeps listeners to itself (EPERM, not the kernel's EBUSY): what doctor promises holds."""
    folder = pathlib.Path(CORDON).parent
    script = f"{CORDON} doctor >/dev/null && {CORDON} run --json -- echo inner"
    r = run("--allow-read", folder, "--time-limit", "20s", "--", "/bin/sh", "-c", script)
    assert r.verdict == "ok", str(r)
    inner = json.loads(r.out)
    check_shape(inner)
    assert (inner["verdict"], inner["stdout"]) == ("ok", "inner\n")
    layers = inner["enforcement"]["layers"]
    assert inner["enforcement"]["tier"] == "landlock" and layers["seccomp"] == "on" and layers["denials"] == "not observed"
    # refused all the same
    r = run("--allow-read", folder, "--time-limit", "20s", "--", CORDON, "run", "--", "/usr/bin/python3", "-c", "import socket; socket.socket(socket.AF_NETLINK)")
    assert r.code == 1, str(r)
