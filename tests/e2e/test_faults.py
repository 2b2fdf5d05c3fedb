"""What Cordon does when the host fails it: system calls that answer an error, memory that runs out,
kill -9 of each of its processes.

A run may succeed with every layer its result names really in place, succeed in a weaker tier that its
result names, or refuse cleanly. It may never run a guest with less than it says, hang, or leave
something behind (the oracle looks after every case).

CORDON_FAULT  the folder that tests/fault/build fills (default: fault/ beside the binary)
"""

import collections
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest

import cordon_run
import oracle
from cordon_run import CORDON, FAULT, QUIET, SLOW, check_shape, host_env

FULL = os.environ.get("CORDON_TEST_FULL") == "1"
HANG_S = 10 if QUIET else 40
HOST_NS = {n: os.readlink(f"/proc/self/ns/{n}") for n in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}
LAYER_OF = {"user": "user_ns", "mnt": "mount_ns", "pid": "pid_ns", "net": "net_ns", "ipc": "ipc_ns",
            "uts": "uts_ns", "cgroup": "cgroup_ns"}
NO_USER_NS = ["clone3=ENOSYS", "clone@0&0x10000000=EPERM"]  # the flags of clone3 are out of a filter's sight

# Name of the fault: what inject makes fail. Calls without which no process can be looked at are left out.
CALLS = """
    clone3 clone openat2 open_tree move_mount mount_setattr fsopen fsconfig fsmount pidfd_send_signal pidfd_open
    close_range landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp unshare setns pivot_root
    mount umount2 setresuid setresgid setgroups capset capget prctl signalfd4 timerfd_create timerfd_settime
    epoll_create1 epoll_ctl epoll_wait pipe2 socketpair sendmsg recvmsg sendto memfd_create keyctl statx sethostname chdir fchdir
    execve setsid prlimit64 rt_sigprocmask dup2 wait4 waitid poll ioctl getrandom socket mkdir mkdirat
    mknodat symlinkat umask kill uname flock access statfs splice getrusage madvise
    sched_setaffinity sched_getaffinity getcpu fstatfs lstat
""".split()
PARTS = {
    "no_new_privs": "prctl@0:38", "bounding-set": "prctl@0:24", "ambient-set": "prctl@0:47",
    "dumpable": "prctl@0:4", "parent-death": "prctl@0:1", "subreaper": "prctl@0:36", "process-name": "prctl@0:15",
    "private-mounts": "mount@3&0x40000", "remount": "mount@3&0x20", "net-namespace": "unshare@0&0x40000000",
    "cgroup-namespace": "unshare@0&0x02000000", "ipc-namespace": "unshare@0&0x08000000", "time-namespace": "unshare@0&0x80",
    "listener": "seccomp@1&0x8", "create-rule": "landlock_create_ruleset@2:0",
}
ERRORS = ["ENOSYS", "EPERM"] + (["ENOMEM", "EAGAIN", "EINVAL"] if FULL else [])

Outcome = collections.namedtuple("Outcome", "code result log")


@pytest.fixture(scope="module", autouse=True)
def tools():
    if not (FAULT / "inject").exists():
        pytest.skip(f"{FAULT}/inject is missing: tests/fault/build makes it")


def give_up(p):
    """Ends a command that hangs; whatever it leaves may hold our pipes and is the oracle's to find."""
    p.kill()
    p.wait()
    p.stdout.close()
    p.stderr.close()


def launch(faults, *options, command=None, program=CORDON, env=None, **kw):
    """One run of the witness (or a command) with faults injected; never longer than HANG_S."""
    command = command or [str(FAULT / "witness"), "/", "/usr", "/etc/passwd"]
    argv = [str(FAULT / "inject"), *faults] if faults else []
    argv += [str(program), "run", "--json", "--allow-read", str(FAULT), *map(str, options), "--", *map(str, command)]
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=host_env(env), cwd="/", **kw)
    try:
        out, err = p.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        give_up(p)
        raise AssertionError(f"hangs: {' '.join(argv)}") from None
    try:
        result = json.loads(out) if out else None
    except ValueError:
        raise AssertionError(f"not a result: exit {p.returncode} {out[:500]!r} {err[:500]!r}") from None
    return Outcome(p.returncode, result, err.decode(errors="replace"))


def facts(outcome):
    found = collections.defaultdict(list)
    for line in outcome.result["stdout"].splitlines():
        key, _, value = line.partition(": ")
        found[key].append(value)
    return found


def assert_wall(outcome, injected=1):
    """Everything the result claims, seen from inside."""
    enforcement = outcome.result["enforcement"]
    tier, layers, seen = enforcement["tier"], enforcement["layers"], facts(outcome)
    one = {k: v[-1] for k, v in seen.items()}
    assert layers["seccomp"] == "on" and one["Seccomp"] == "2"
    assert int(one["Seccomp_filters"]) > injected, "our filter is not on the guest"
    assert layers["no_new_privs"] == "on" and one["NoNewPrivs"] == "1"
    assert layers["caps"] == "none"
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(one[name], 16) == 0, name
    if tier == "full" or os.geteuid() == 0:
        assert int(one["CapBnd"], 16) == 0, "bounding set"
    for name, host in HOST_NS.items():
        on = layers[LAYER_OF[name]] == "on"
        if one[f"ns/{name}"]:
            assert (one[f"ns/{name}"] != host) == on, f"{name}: the result says {'on' if on else 'off'}"
        assert tier != "full" or on
    abi = re.match(r"on \(abi (\d+)\)", layers["landlock"])
    if abi and int(abi[1]) >= 6:
        assert one["signal to parent"] in ("EPERM", "ENOSYS"), "Landlock is claimed but does not scope signals"
    assert abi or tier == "full", "tier landlock without Landlock"
    assert "0" not in one["uids"].split() and "0" not in one["gids"].split()
    assert one["core"] in ("0", "1") and "fd" not in seen
    for line in seen["write"] + seen["create"]:
        assert not line.endswith(" OK"), f"the guest may write: {line}"
    if tier == "full":
        assert one["uids"] == "1000 1000 1000" and one["hostname"] == "cordon"
        assert one["pid"] != "1" and one["ppid"] == "1" and one["interfaces"] == "1"
        assert one["own tmp"] == "OK" and set(one["Groups"].split()) <= {"65534", "1000"}
    assert layers["cgroup"] != "none" or "sampled" in layers["limits"]


def assert_honest(outcome, injected=1):
    """One of the three allowed ends."""
    if outcome.result is None:
        assert outcome.code in (64, 69, 70, 78), outcome
        assert outcome.log.strip(), "refused without a word"
        return "refused"
    check_shape(outcome.result)
    assert outcome.code == outcome.result["exit_code"], outcome
    verdict = outcome.result["verdict"]
    if verdict == "sandbox_error":
        stage = re.match(r"([a-z_ ]+): \S", outcome.result["error"])
        assert outcome.code in (64, 69, 70, 78) and stage, outcome
        if outcome.result["stdout"]:  # what watches over the guest failed while it ran: its wall stood
            assert stage[1] in ("init", "keeper", "supervise"), outcome
            if stage[1] != "supervise" and len(facts(outcome)["create"]) == 3:  # nothing of it was lost
                assert_wall(outcome, injected)
        return "refused"
    if verdict == "nonzero_exit" and outcome.code in (126, 127):
        assert outcome.result["error"] and outcome.result["stdout"] == ""
        return "not executed"
    assert verdict == "ok", (verdict, outcome.result["error"], outcome.result["stdout"][-300:], outcome.log)
    assert_wall(outcome, injected)
    return outcome.result["enforcement"]["tier"]


def cases():
    for call in CALLS:
        for error in ERRORS:
            yield pytest.param([f"{call}={error}"], id=f"{call}-{error}")
    for name, part in PARTS.items():
        for error in ERRORS:
            yield pytest.param([f"{part}={error}"], id=f"{name}-{error}")


# ---- system calls --------------------------------------------------------------------------------------

def test_without_faults(world):
    """The twin: through the same launcher, nothing fails."""
    assert assert_honest(launch(["bpf=EPERM"])) == world.tier


@pytest.mark.parametrize("faults", cases())
def test_call_that_fails(faults):
    outcome = launch(faults)
    end = assert_honest(outcome)
    if end == "landlock":  # a weaker tier only where it may be one
        again = launch(faults, "--require-tier", "full")
        assert again.code in (69, 70) and again.result["verdict"] == "sandbox_error", again


@pytest.mark.parametrize("faults", cases())
def test_call_that_fails_in_tier_landlock(world, faults):
    """The same faults below a host that has no user namespaces."""
    end = assert_honest(launch([*faults, *NO_USER_NS]))
    assert end in ("landlock", "refused", "not executed"), end


@pytest.mark.parametrize("faults", [
    ["mount_setattr=ENOSYS"], ["mount_setattr=EPERM"], ["fsopen=ENOSYS"], ["fsmount=ENOSYS"], ["open_tree=ENOSYS"], ["move_mount=ENOSYS"],
    ["mount_setattr=ENOSYS", "fsopen=ENOSYS", "fsconfig=ENOSYS", "fsmount=ENOSYS", "open_tree=ENOSYS", "move_mount=ENOSYS"],
    ["mount_setattr=ENOSYS", "move_mount=ENOSYS"],
    ["clone3=ENOSYS", "mount_setattr=ENOSYS", "pidfd_open=ENOSYS"],
], ids=lambda f: "+".join(w.split("=")[0] for w in f) + "-" + f[0].split("=")[1])
def test_older_calls_serve(full, faults):
    """Where only newer calls are refused the wall is the same."""
    assert assert_honest(launch(faults)) == "full"


# ---- the root made with mount(2) -----------------------------------------------------------------------

OLD = ["mount_setattr=ENOSYS"]


def mount_table(outcome):
    """Where, from where, with which flags; identity maps exist only in the new API."""
    rows = []
    for line in outcome.result["stdout"].splitlines():
        words = line.split()
        flags = ",".join(f for f in words[5].split(",") if f != "idmapped")
        rows.append((words[4], words[3], flags, words[words.index("-") + 1]))
    return sorted(rows)


def cat_mounts(faults, *options):
    outcome = launch(faults, *options, command=["/bin/cat", "/proc/self/mountinfo"])
    assert outcome.result["verdict"] == "ok", outcome
    return mount_table(outcome)


def test_old_api_gives_the_same_mounts(full, shared):
    (shared / "rw").mkdir()
    os.chmod(shared / "rw", 0o777)  # without a map root's own is not for its guest to write to, and refused
    (shared / "file").write_text("x")
    (shared / "rw" / "secret").write_text("x")
    options = ["--allow-read", shared, "--allow-write", shared / "rw", "--mount", f"{shared / 'file'}:/opt/one:ro",
               "--deny", shared / "rw" / "secret"]
    assert cat_mounts(OLD, *options) == cat_mounts([], *options)


def test_old_api_keeps_what_is_granted_apart(full, shared):
    (shared / "ro").mkdir(mode=0o777)
    (shared / "rw").mkdir(mode=0o777)
    for d in ("ro", "rw"):
        os.chmod(shared / d, 0o777)
    (shared / "rw" / "secret").write_text("secret\n")
    os.chmod(shared / "rw" / "secret", 0o644)
    script = f"echo x > {shared}/rw/f; echo rw $?; echo x > {shared}/ro/f; echo ro $?; wc -c < {shared}/rw/secret"
    r = launch(OLD, "--allow-read", shared, "--allow-write", shared / "rw", "--deny", shared / "rw" / "secret",
               command=["/bin/sh", "-c", script + " 2>&1"])
    assert r.result["stdout"].splitlines() == ["rw 0", "ro 2", "0"], r
    assert "Read-only" in r.result["stderr"]


def test_old_api_covers_mounts_below_a_grant(full, shared):
    """Mounts inside a granted tree get the flags of the grant and keep those they cannot lose."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts of the host's side")
    top = shared / "top"
    script = f"""
        mkdir -p '{top}/a b/deep' {top}/ro {top}/twice; chmod 777 {top}
        mount -t tmpfs -o mode=777,noatime one '{top}/a b'; mkdir '{top}/a b/deep'
        mount -t tmpfs -o mode=777,nosuid,noexec two '{top}/a b/deep'
        mount -t tmpfs -o mode=777,ro three {top}/ro
        mount -t tmpfs -o mode=777 four {top}/twice; mount -t tmpfs -o mode=777 five {top}/twice
        for faults in bpf=EPERM {OLD[0]}; do
            for grant in --allow-read --allow-write; do
                {FAULT}/inject $faults {CORDON} run $grant {top} -- /bin/sh -c '
                    grep {top} /proc/self/mountinfo | cut -d" " -f5,6 | sed s/,idmapped// | sort -u
                    for d in "{top}/a b" "{top}/a b/deep" {top}/ro {top}/twice; do touch "$d/x" && echo "$d"; done' 2>/dev/null
                echo end
            done
        done"""
    r = subprocess.run(["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script], capture_output=True,
                       text=True, env=host_env(), cwd="/", timeout=60)
    tables = r.stdout.split("end\n")
    assert len(tables) == 5 and all(tables[:4]), r
    new_read, new_write, old_read, old_write = tables[:4]
    # the lower one of two at one place keeps its flags: nothing leads to it
    assert old_read.replace(f"{top}/twice rw,relatime\n", "") == new_read
    flags = [l for l in old_write.splitlines() if "rw,relatime" not in l and " r" in l]
    assert all(l in new_write for l in flags) and all("nosuid,nodev" in l for l in flags), old_write


def test_old_api_does_not_follow_links_out(full, shared):
    """A link in a granted tree means what it means inside: a mask goes where the guest would come to."""
    (shared / "real").mkdir()
    (shared / "real" / "secret").write_text("secret\n")
    (shared / "far").symlink_to(shared / "real")
    (shared / "near").symlink_to("real")
    for link in ("far", "near"):
        for faults in (OLD, OLD + ["openat2=ENOSYS"]):
            r = launch(faults, "--allow-read", shared, "--deny", shared / link / "secret",
                       command=["/bin/cat", shared / "real" / "secret"])
            assert r.result["stdout"] == "", (link, faults, r)


def test_masks_through_links(full, shared):
    """The same with the new API."""
    (shared / "real").mkdir()
    (shared / "real" / "secret").write_text("secret\n")
    (shared / "far").symlink_to(shared / "real")
    r = launch([], "--allow-read", shared, "--deny", shared / "far" / "secret",
               command=["/bin/cat", shared / "real" / "secret"])
    assert r.result["stdout"] == "", r


def test_old_api_refuses_what_it_cannot_reach(full, shared):
    """Root's own folders need identity-mapped mounts; without them the run says so."""
    if os.geteuid() != 0:
        pytest.skip("needs root: only its guests have ids of their own")
    (shared / "rw").mkdir(mode=0o755)
    r = launch(OLD, "--allow-write", shared / "rw")
    assert r.code == 69 and "identity-mapped" in r.result["error"], r
    (shared / "private").mkdir(mode=0o700)
    (shared / "private" / "deep").mkdir()
    r = launch(OLD + ["move_mount=ENOSYS"], "--allow-read", shared / "private" / "deep")
    assert r.result["verdict"] == "sandbox_error" and r.result["error"].startswith("bind: "), r


# ---- memory --------------------------------------------------------------------------------------------

def alloc_run(log, at, go_on):
    env = {"FAILALLOC_LOG": str(log)}
    if at:
        env["FAILALLOC_AT"] = str(at)
    if go_on:
        env["FAILALLOC_ON"] = "1"
    outcome = launch([], "--env", "A=B", "--deny", "/nowhere/*", program=FAULT / "failalloc", env=env)
    assert log.exists(), f"allocation {at}: ended without its end: exit {outcome.code} {outcome.log}"
    count, living, failed = map(int, log.read_text().splitlines()[-1].split())
    log.unlink()
    return outcome, count, living, failed


@pytest.mark.parametrize("go_on", [False, True], ids=["once", "from-then-on"])
def test_allocation_that_fails(world, shared, need, go_on):
    need((FAULT / "failalloc").exists(), "failalloc is missing: tests/fault/build makes it")
    log = shared / "log"
    outcome, total, base, _ = alloc_run(log, 0, False)
    assert assert_honest(outcome, 0) == world.tier
    assert total > 20
    step = 1 if FULL else max(1, total // 150)
    ends = collections.Counter()
    for at in range(1, total + 1, step):
        outcome, _, living, failed = alloc_run(log, at, go_on)
        where = f"allocation {at} of {total}"
        if not failed:
            continue  # a little less was needed this time
        assert outcome.code >= 0, f"{where}: killed by signal {-outcome.code}: {outcome.log}"
        try:
            ends[assert_honest(outcome, 0)] += 1
        except AssertionError as e:
            raise AssertionError(f"{where}: {e}") from None
        # without groups it is looked at while it runs: what one look holds may be there or not when the run ends
        spare = 0 if world.full and world.has_memory_cgroup and world.has_pids_cgroup else 3
        assert living <= base + spare, f"{where}: {living - base} blocks more than after a good run are not given back"
    assert ends["refused"] > 0, ends


@pytest.mark.parametrize("kib", [512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 65536])
def test_address_space_that_ends(kib):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10))
    try:
        outcome = launch([], preexec_fn=limit)
    except subprocess.SubprocessError:
        return  # not even the executable fits
    if outcome.code == -signal.SIGSEGV or outcome.code == -signal.SIGKILL:
        assert outcome.result is None and kib < 4096, "the kernel could not load the command"
        return
    if outcome.result and outcome.result["verdict"] in ("signaled", "memory_limit"):
        return  # the guest did not fit
    assert_honest(outcome, 0)


@pytest.mark.parametrize("descriptors", [3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32])
def test_descriptors_that_end(descriptors):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, 4096))
    assert_honest(launch([], preexec_fn=limit), 0)


# ---- kill -9 -------------------------------------------------------------------------------------------

def children(pid):
    try:
        return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def tree(pid):
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop(0))
        todo += children(found[-1])
    return found


def is_alive(pid, start):
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] not in "ZX" and words[19] == start


def started(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def groups_of(pid):
    name = re.compile(rf"/cordon-{pid}-\d+-{os.stat('/proc/self/ns/pid').st_ino}-\d+$")
    return [d for d, _, _ in os.walk("/sys/fs/cgroup") if name.search(d)]


def kill_round(depth, delay, tier_faults):
    """Starts a guest that sleeps, kills the process at that depth of the tree (0: the supervisor) after a delay.
    Gives the supervisor's pid and whether a victim was found."""
    argv = [str(FAULT / "inject"), *tier_faults] if tier_faults else []
    p = subprocess.Popen([*argv, CORDON, "run", "--json", "--time-limit", "20s", "--allow-read", str(FAULT), "--", str(FAULT / "witness"), "sleep"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=host_env(), cwd="/")
    end = time.perf_counter() + delay
    while time.perf_counter() < end:
        pass
    victims = [p.pid]
    for _ in range(depth):
        victims = [c for v in victims for c in children(v)]
    seen = {pid: started(pid) for pid in tree(p.pid)}
    hit = None
    for victim in victims[-1:]:
        try:
            fd = os.pidfd_open(victim)
            if seen.get(victim) and started(victim) == seen[victim]:  # it is still the one we looked at
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                hit = victim
            os.close(fd)
        except ProcessLookupError:
            pass
    if hit is None:
        p.terminate()
    try:
        out, err = p.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        p.terminate()  # a helper that had done its work already: the guest sleeps on, and can be cancelled
    try:
        out, err = p.communicate(timeout=HANG_S)
    except subprocess.TimeoutExpired:
        give_up(p)
        raise AssertionError(f"hangs after kill -9 at depth {depth}, {delay * 1000:.2f} ms") from None
    where = f"depth {depth}, {delay * 1000:.2f} ms"
    if hit and hit != p.pid:
        assert p.returncode >= 0 and out, (where, p.returncode, err)
        result = json.loads(out)
        check_shape(result)
        assert result["verdict"] in ("signaled", "sandbox_error", "nonzero_exit", "cancelled"), (where, result["verdict"])
        if result["verdict"] == "nonzero_exit":
            assert result["exit_code"] == 137 or result["error"], where
    limit = time.monotonic() + (1 if QUIET else 5)
    while any(is_alive(pid, s) for pid, s in seen.items()) and time.monotonic() < limit:
        time.sleep(0.002)
    left = [pid for pid, s in seen.items() if is_alive(pid, s)]
    assert not left, f"{where}: processes {left} outlive kill -9"
    return p.pid, hit is not None


@pytest.mark.parametrize("tier", ["own", "landlock"])
@pytest.mark.parametrize("depth", [0, 1, 2], ids=["supervisor", "first-inner", "second-inner"])
def test_kill_9_at_random_moments(world, depth, tier, need):
    need(SLOW == 1 or not depth, "needs the host: on an emulated processor nothing is there in these moments")
    faults = [] if tier == "own" else NO_USER_NS
    rng = random.Random(depth)
    hits, pids = 0, []
    for _ in range(300 if FULL else 60):
        pid, hit = kill_round(depth, rng.uniform(0, 0.008 if tier == "own" else 0.020), faults)
        hits += hit
        pids.append(pid)
    assert hits > 3, "hardly anything was hit"
    # what a killed supervisor could not remove, the next run does
    assert assert_honest(launch(faults), 1 if faults else 0)
    limit = time.monotonic() + (2 if QUIET else 10)
    while (left := [d for pid in pids for d in groups_of(pid)]) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not left, f"groups of killed supervisors are left after the next run: {left[:4]}"
    for folder in (os.environ.get("TMPDIR", "/tmp"), "/var/tmp", "/dev/shm"):
        left = [n for n in os.listdir(folder) if n.startswith("cordon-guest-") and any(f"-{pid}" in n for pid in pids)]
        assert not left, f"{folder}: {left}"


def test_kill_9_before_the_groups_have_their_limits(full, need, tmp_path):
    """The guest has its groups by then and waits for their limits. That the kernel ends pid 1 with the supervisor is not
    to be relied on: the supervisor may be gone before pid 1 has asked for it, which looks like a host that refuses it."""
    if os.geteuid() != 0 or not os.path.isdir("/sys/fs/cgroup/memory"):
        pytest.skip("needs root and v1 groups")
    need(shutil.which("strace"), "strace is missing: install the Debian package strace")
    log = tmp_path / "calls"
    line = [str(FAULT / "inject"), "prctl@0:1=ENOSYS", "--", shutil.which("strace"), "-qq", "-o", str(log), "-e", "trace=openat,open,sendmsg"]
    command = [CORDON, "run", "--", "/bin/sleep", "5"]
    quick = subprocess.run([*line, CORDON, "run", "--", "/bin/true"], env=host_env(), cwd="/", timeout=HANG_S, check=False)
    need(quick.returncode == 0, "needs strace that may trace")
    before = log.read_text().partition("SCM_RIGHTS")[0]
    opened = len(re.findall(r"^open(?:at)?\(", before, re.M))
    assert opened and "cordon-" in before, "the groups are handed over"
    kill = ["-e", f"inject=openat,open:signal=KILL:when={opened + 1}"]
    done = subprocess.run([*line, *kill, *command], env=host_env(), cwd="/", timeout=HANG_S, check=False)
    last = log.read_text().splitlines()[-2:]
    assert done.returncode in (-9, 137) and re.search(r'openat\([^"]+"/[^"]+/cordon-[^"/]+/(?:memory|pids|cpu)\.', last[0]), last
    limit = time.monotonic() + (1 if QUIET else 5)
    while oracle.children() and time.monotonic() < limit:
        time.sleep(0.02)
    assert not oracle.children(), "the guest waits for ever"
    assert_honest(launch([]), 0)  # which removes the groups


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_namespace_that_cannot_be_joined_is_the_tiers(full, need, tmp_path, when):
    """Without v1 groups the guest's process is there before the ipc namespace and the mounts: it joins both, or does not run."""
    if tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2]) < (6, 3):
        pytest.skip("needs Linux 6.3: before, the guest's process is made last")
    need(shutil.which("strace"), "strace is missing: install the Debian package strace")
    log = tmp_path / "calls"
    refuse = ["-e", f"inject=setns:error=EPERM:when={when}"] if when else []
    done = subprocess.run([shutil.which("strace"), "-f", "-qq", "-o", log, "-e", "trace=setns", *refuse, CORDON, "run", "--json", "--",
                           "/bin/readlink", "/proc/self/ns/mnt", "/proc/self/ns/ipc"],
                          env=host_env(), cwd="/", timeout=HANG_S, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    calls = log.read_text()
    result = json.loads(done.stdout)
    need("ptrace" not in result["error"] if result["error"] else True, "needs strace that may trace")
    joins = re.findall(r"CLONE_NEW(?:IPC|NS)\).*", calls)
    enforced = result["enforcement"]
    tier, is_born_there = enforced["tier"], enforced["layers"].get("cgroup", "").startswith("v1")
    assert len(joins) == (0 if is_born_there else 2) or when, f"not what it joins: {calls}"
    if any("INJECTED" in join for join in joins):
        assert done.returncode in (0, 1) and tier == "landlock", result
        return
    # else it was pid 1, which brings the loopback up and knows another way to it
    assert (when != 1 or is_born_there) and done.returncode == 0 and tier == "full", result
    seen = result["stdout"].split()
    assert len(seen) == 2 and not {os.readlink("/proc/self/ns/mnt"), os.readlink("/proc/self/ns/ipc")} & set(seen), seen


@pytest.mark.parametrize("delay", [0, 100000])
def test_a_pid_1_that_comes_late_leaves_the_guest_its_cores(full, need, delay):
    """It sends the guest's process to another core for the time of its start; when it is kept from that the guest waits, and begins as ever."""
    need(shutil.which("strace"), "strace is missing: install the Debian package strace")
    late = ["-e", f"inject=getcpu:delay_exit={delay}"] if delay else []
    done = subprocess.run([shutil.which("strace"), "-f", "-qq", "-o", "/dev/null", *late, CORDON, "run", "--cpu-limit", "0", "--json", "--", "/usr/bin/python3",
                           "-c", "import os; print(sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0))"],
                          env=host_env(), cwd="/", timeout=HANG_S, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    result = json.loads(done.stdout)
    need("ptrace" not in result["error"] if result["error"] else True, "needs strace that may trace")
    assert result["stdout"] == f"{sorted(os.sched_getaffinity(0))} {os.SCHED_OTHER}\n", result


@pytest.mark.parametrize("space", ["net", "mnt", "ipc", "uts", "none"])
def test_a_namespace_that_is_used_up_is_the_tiers(full, need, space):
    """The same for each kind, whichever of our processes notices first; with none used up the full wall stands."""
    if os.geteuid() == 0:
        pytest.skip("needs an ordinary user, whose counts are its own")
    need(shutil.which("unshare"), "unshare is missing: install the Debian package util-linux")
    spoil = f"echo 0 > /proc/sys/user/max_{space}_namespaces; " if space != "none" else ""
    script = spoil + 'exec unshare -U --map-user=1000 --map-group=1000 "$0" run --json -- /bin/echo hi'
    done = subprocess.run(["unshare", "-Ur", "/bin/sh", "-c", script, CORDON], env=host_env(), cwd="/", stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=HANG_S, check=False)
    need(done.stdout, f"needs user namespaces in user namespaces: {done.stderr[:200]}")
    result = json.loads(done.stdout)
    assert (done.returncode, result["stdout"]) == (0, "hi\n"), result
    assert result["enforcement"]["tier"] == ("full" if space == "none" else "landlock"), result


def test_rights_that_are_refused_inside_are_the_tiers(full):
    """As where a security module lets anybody make user namespaces and grants nothing in them: the other tier, no failure."""
    # root gives its bounding set up in the other tier as well
    r = launch(["sethostname=EPERM", *([] if os.geteuid() == 0 else ["prctl@0:24=EPERM"])])
    assert r.code == 0 and r.result["enforcement"]["tier"] == "landlock", r
