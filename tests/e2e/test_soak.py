"""Many runs, and guests that hammer the kernel: Cordon survives each with a right verdict, and the counts
of the host stay what they were (the oracle compares them after every case)."""

import concurrent.futures
import os
import resource
import shutil
import time

import pytest

from cordon_run import GUESTS, LATE_MS, PATIENCE, guest, guest_path, run, start

STRESS = ["os", "memory", "pipe", "filesystem", "scheduler"]


def _in_a_row(n):
    for i in range(n):
        r = run("--", "/bin/sh", "-c", f"exit {i % 3}")
        assert r.code == i % 3, str(r)


def _at_once(n, total):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        results = list(pool.map(lambda i: run("--time-limit", "60s", "--", "/bin/sh", "-c", f"sleep 0.3; echo {i}"), range(total)))
    assert [r.out for r in results] == [f"{i}\n" for i in range(total)]


def test_fifty_in_a_row():
    _in_a_row(50)


def _mounts():
    """Mounts of the whole kernel, in whatever namespace, as its memory for them tells; what its cores keep of it for the
    next ones is given back first."""
    try:
        with open("/sys/kernel/slab/mnt_cache/shrink", "w") as f:
            f.write("1")
        for line in open("/proc/slabinfo"):
            if line.startswith("mnt_cache "):
                return int(line.split()[1])
    except OSError:
        pass
    return None


def test_mounts_of_ended_guests_go(full, world):
    """No name leads to them any more; the kernel ends them beside us, soon after the run."""
    if not world.is_root:
        pytest.skip("needs root: /proc/slabinfo")
    before = _mounts()
    if before is None:
        pytest.skip("needs a kernel that tells of mnt_cache: /proc/slabinfo and /sys/kernel/slab")
    _in_a_row(100)  # three thousand mounts and more; beside us other tests have a few hundred
    deadline = time.time() + 10
    while _mounts() > before + 1500 and time.time() < deadline:
        time.sleep(0.05)
    assert _mounts() <= before + 1500


def test_sixteen_at_once():
    _at_once(16, 32)


@pytest.mark.slow
def test_a_thousand_in_a_row():
    before = len(os.listdir("/proc/self/fd"))
    _in_a_row(1000)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_sixty_four_at_once():
    _at_once(64, 192)


def test_limits_of_many_guests_are_their_own(full):
    """Each may have its processes: limits are not shared by what runs beside (attack D15)."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: guest("forks", "process", "30", opts=["--processes", "31"]), range(8)))
    assert {(r.get("started"), r.get("refused")) for r in results} == {("30", "no")}


def test_per_user_quotas_are_not_shared(full, world):
    """inotify, pending signals and message queues are counted per user: one guest uses up its own."""
    if not world.is_root:
        pytest.skip("needs root: an ordinary caller has one uid for all of its guests")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        greedy = pool.submit(guest, "kmem", "inotify", "5000", opts=["--time-limit", "10s"])
        time.sleep(0.1)
        modest = [guest("kmem", kind, "3") for kind in ("inotify", "timers", "sigqueue", "msgq")]
        greedy.result()
    assert [r.get("stopped") for r in modest] == ["bound"] * 4, [str(r) for r in modest]


def test_descriptors_under_way_do_not_stop_the_next_run(full, world, shared):
    """An ordinary caller's guests count as the caller: one of them leaves as many descriptors unread as it can. Runs for
    which descriptors travel between processes of ours go on."""
    if world.is_root:
        pytest.skip("root's guests have a uid of their own, and the kernel does not count for root")
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("needs a hard limit of 4096 descriptors (ulimit -Hn)")

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    greedy = start("--allow-read", GUESTS, "--", guest_path("kmem"), "unread", "1000", "20000", preexec_fn=limited)
    try:
        assert greedy.stdout.readline().startswith(b"made: ")
        assert greedy.stdout.readline() == b"stopped: ETOOMANYREFS\n"
        out = shared / "out"
        r = run("--output", f"*={out}", "--", "/bin/sh", "-c", "echo x > f; ulimit -n", preexec_fn=limited)
        assert (r.verdict, r.out, (out / "f").read_text()) == ("ok", "1024\n", "x\n"), str(r)
        r = run("--allow-network", "example.com", "--", "/bin/sh", "-c", "ulimit -n", preexec_fn=limited)
        assert (r.verdict, r.out) == ("ok", "1024\n"), str(r)
    finally:
        greedy.terminate()
        greedy.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRESS)
def test_stress_ng(kind, need, full):
    need(shutil.which("stress-ng", path="/usr/bin:/bin"), "stress-ng is missing: install the Debian package stress-ng")
    opts = ["--memory-limit", "128M", "--processes", "64", "--time-limit", "10s"]
    # One stressor of the class after the other, two seconds each, until the wall limit.
    words = ["stress-ng", "--class", kind, "--sequential", "2", "--timeout", "2s", "--temp-path", "/tmp", "--no-rand-seed"]
    r = run(*opts, "--", *words)
    assert r.verdict in ("ok", "nonzero_exit", "signaled", "time_limit", "memory_limit", "process_limit", "disk_limit"), str(r)
    assert r.result["wall_ms"] <= 10_000 + LATE_MS and r.seconds < 12 * PATIENCE
