"""What "contained" means: the host before a case and after it, compared.

Nothing may be left of a run one second after its result: no process, mount, cgroup, shared memory,
temporary file, socket or interface; the canaries must not have changed in a byte or an attribute.

Where the suite runs in namespaces of its own (tests/guard makes them when it is root) the comparison is
exact. Elsewhere the machine may be busy with other things, so only what bears our name counts.
"""

import ctypes
import hashlib
import os
import pathlib
import re
import signal
import time

EXACT = os.environ.get("CORDON_E2E_PRIVATE") == "1"
GRACE_S = 1.0 if os.environ.get("CORDON_TEST_QUIET") == "1" else 5.0
LASTING = {"/", "/proc", "/sys", "/dev", "/dev/shm", "/dev/pts", "/tmp", "/var/tmp", "/sys/fs/cgroup"}
PR_SET_CHILD_SUBREAPER = 36


def become_subreaper():
    """Orphans of the command under test come to us, so that none can hide."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def children():
    """Living children of this process: pid -> what it is. Zombies that nobody waits for are reaped."""
    me, found = os.getpid(), {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat = _read(f"/proc/{name}/stat")
        rest = stat.rpartition(")")[2].split()
        if len(rest) < 2 or int(rest[1]) != me:
            continue
        if rest[0] == "Z":
            try:
                os.waitpid(int(name), os.WNOHANG)
            except ChildProcessError:
                pass
            continue
        found[int(name)] = stat.partition("(")[2].rpartition(")")[0] + " " + _read(f"/proc/{name}/cmdline").replace("\0", " ")
    return found


def _mounts():
    lines = set()
    for line in _read("/proc/self/mountinfo").splitlines():
        # Names of namespaces come and go with container engines, whatever our own namespace says.
        if (EXACT or "cordon" in line) and " - nsfs " not in line:
            lines.add(line.split(" ", 2)[2])
    return lines


def _is_ours(path):
    """Groups of Cordons in other pid namespaces (the name's second last part) are somebody else's."""
    own = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    parts = os.path.basename(path).split("-")
    return "cordon" in path and not (EXACT and len(parts) == 5 and parts[3] != own)


def _cgroups():
    found = set()
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        dirs[:] = [d for d in dirs if not os.path.islink(os.path.join(top, d))]
        found.update(os.path.join(top, d) for d in dirs if _is_ours(os.path.join(top, d)))
    return found


def _listing(path, exact=EXACT):
    try:
        # cordon-UID: the documented place for notes of callers without a home; it stays
        return {n for n in os.listdir(path) if (exact or "cordon" in n) and not re.fullmatch(r"cordon-\d+", n)}
    except OSError:
        return set()


def _sysv():
    found = set()
    for kind in ("shm", "sem", "msg"):
        for line in _read(f"/proc/sysvipc/{kind}").splitlines()[1:]:
            found.add(kind + " " + " ".join(line.split()[:2]))
    return found if EXACT else set()


def _unix_sockets():
    names = []
    for line in _read("/proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)
        name = words[7] if len(words) > 7 else ""
        if EXACT or "cordon" in name:
            names.append(name)
    return {f"{n} x{names.count(n)}" for n in names}


def _interfaces():
    return {line.split(":")[0].strip() for line in _read("/proc/net/dev").splitlines()[2:]}


def file_facts(path):
    st = os.lstat(path)
    facts = [st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_ctime_ns]
    if os.path.islink(path):
        facts.append(os.readlink(path))
    elif os.path.isfile(path) and os.access(path, os.R_OK) and st.st_size < 4 << 20:
        facts.append(hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest())
    return tuple(facts)


def tree_facts(top):
    found = {str(top): file_facts(top)}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(folder, name)
            found[path] = file_facts(path)
    return found


def system_facts(path):
    """Files of the host that others may look at too: a profiler may link them, nobody may change them."""
    st = os.lstat(path)
    facts = (st.st_mode, st.st_uid, st.st_gid, st.st_rdev, st.st_ino)
    return facts if path.startswith("/dev/") else (*facts, st.st_size, st.st_mtime_ns)


class Snapshot:
    """The host at one moment. Canaries: (folders of our own, files of the system)."""

    def __init__(self, canaries):
        self.files = {}
        for path in canaries[0]:
            self.files.update(tree_facts(path))
        self.files.update((path, system_facts(path)) for path in canaries[1])
        self.sets = {
            "mounts": _mounts(), "cgroups": _cgroups(), "/tmp": _listing("/tmp"), "/var/tmp": _listing("/var/tmp"),
            "/dev/shm": _listing("/dev/shm"), "/run": _listing("/run", exact=False), "System V ipc": _sysv(),
            "unix sockets": _unix_sockets(), "interfaces": _interfaces(),
        }
        self.processes = children()


def _differences(before, after, ignore):
    found = []
    for pid, what in after.processes.items():
        if pid not in before.processes:
            found.append(f"process {pid} is left: {what}")
    for name, old in before.sets.items():
        new = after.sets[name]
        gone, left = old - new, {e for e in new - old if not any(e.endswith(i) for i in ignore)}
        if left:
            found.append(f"{name}: left behind {sorted(left)[:5]}")
        # Mounts of container engines go when their folders do; those every program needs must stay.
        gone = {g for g in gone if name == "interfaces" or (name == "mounts" and g.split()[2] in LASTING)}
        if gone and EXACT:
            found.append(f"{name}: gone {sorted(gone)[:5]}")
    for path, facts in before.files.items():
        if after.files.get(path) != facts:
            found.append(f"canary {path} changed from {facts} to {after.files.get(path)}")
    for path in set(after.files) - set(before.files):
        found.append(f"canary folder gained {path}")
    return found


def compare(before, canaries, ignore=()):
    """Differences that are still there after the grace time, as sentences. Ends processes that were left."""
    end = time.monotonic() + GRACE_S
    while True:
        after = Snapshot(canaries)
        found = _differences(before, after, ignore)
        if not found or time.monotonic() > end:
            break
        time.sleep(0.02)
    for pid in set(after.processes) - set(before.processes):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError, PermissionError):
            pass
    return found
