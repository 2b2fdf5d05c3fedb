"""What a guest can do with files to whoever looks at them afterwards: the collector, the diff, apply, cleanup."""

import ctypes
import json
import os
import pathlib
import stat
import subprocess
import tempfile
import threading
import time

import pytest

from cordon_run import GUESTS, SLOW, cordon, guest_path, run, start

pytestmark = pytest.mark.usefixtures("full")


@pytest.fixture
def quick():
    """A folder where many files are cheap to remove, and a layer's place in it: under the guard a tmpfs."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="e2e-", dir="/var/tmp"))
    for name in ("tmp", "tree", "granted"):
        (top / name).mkdir()
    os.chmod(top, 0o755)
    yield top
    # deeper than rm and rmtree may go: everything moves to the top first
    subprocess.run(["/usr/bin/python3", "-c", FLATTEN, str(top)], check=True)
    assert not top.exists()


FLATTEN = """
import os, sys
top = sys.argv[1]
n, todo = 0, [top]
os.chdir(top)
def flat(folder):
    global n
    os.chmod(folder, 0o700)
    for e in list(os.scandir(folder)):
        if e.is_dir(follow_symlinks=False):
            os.chmod(e.path, 0o700)
            os.rename(e.path, f'.flat{n}')
            n += 1
        else:
            os.unlink(e.path)
flat('.')
i = 0
while i < n:
    flat(f'.flat{i}')
    os.rmdir(f'.flat{i}')
    i += 1
os.rmdir(top)
"""


@pytest.fixture
def project(shared):
    tree = shared / "project"
    (tree / "sub").mkdir(parents=True)
    (tree / "a.txt").write_text("one\n")
    (tree / "sub" / "b.txt").write_text("b\n")
    return tree


def overlay(tree, script, *opts, **kw):
    return run("--workspace", f"{tree}:overlay", *opts, "--", "/usr/bin/python3", "-c", script, **kw)


def kinds(r):
    return {c["path"]: c["kind"] for c in r.result["changed_files"]}


def outputs(r):
    return {o["path"]: o.get("skipped") for o in r.result["outputs"]}


# ---- F10, F20: other names for files of the host -------------------------------------------------------

ATTEMPT = """
import errno, os, sys
def attempt(name, call, *args, **kw):
    try:
        call(*args, **kw)
        print(name, 'done')
    except OSError as e:
        print(name, errno.errorcode[e.errno])
"""

LINKS = ATTEMPT + """
os.chdir(sys.argv[1])
for source in sys.argv[2:]:
    attempt('link', os.link, source, 'hard')
    attempt('fd', os.link, '/proc/self/fd/%d' % os.open(source, os.O_RDONLY), 'hard', follow_symlinks=True)
open('own', 'w').write('x')
attempt('twin', os.link, 'own', 'twin')
"""


@pytest.mark.parametrize("where", ["granted", "home", "overlay"])
def test_no_second_name_for_a_file_of_the_host(project, shared, where):
    """A read-only file and one in a writable place are on two mounts, whatever disk they share."""
    (shared / "data").mkdir()
    secret = shared / "data" / "keep"
    secret.write_text("ours\n")
    place, opts = {"granted": (str(project), ["--allow-write", project]), "home": ("/home/sandbox", []),
                   "overlay": ("/workspace", ["--workspace", f"{project}:overlay"])}[where]
    r = run("--allow-read", shared / "data", *opts, "--", "/usr/bin/python3", "-c", LINKS, place, secret, "/usr/bin/env")
    said = r.out.split("\n")
    assert said[:4] == ["link EXDEV", "fd EXDEV"] * 2 and said[4] == "twin done", str(r)
    assert secret.stat().st_nlink == 1 and secret.read_text() == "ours\n"


def test_hard_links_in_an_overlay_change_nothing_below(project, shared):
    """A second name of a file of the lower folder, written through; and the two names apart in what comes out."""
    before = (project / "a.txt").stat()
    r = overlay(project, "import os; os.link('a.txt', 'hard'); open('hard', 'a').write('more\\n'); os.chmod('hard', 0o600)",
                "--output", f"*={shared}/out")
    assert r.verdict == "ok" and kinds(r) == {"a.txt": "modified", "hard": "added"}, str(r)
    after = (project / "a.txt").stat()
    assert (project / "a.txt").read_text() == "one\n" and (before.st_mode, before.st_nlink, before.st_mtime_ns) == (after.st_mode, after.st_nlink, after.st_mtime_ns)
    assert (shared / "out" / "hard").read_text() == "one\nmore\n" and (shared / "out" / "hard").stat().st_nlink == 1


SMUGGLE = ATTEMPT + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def rename2(a, b, flags):
    if libc.renameat2(-100, a, -100, b, flags) < 0:
        raise OSError(ctypes.get_errno(), '')
for name in ('opaque', 'redirect', 'whiteout', 'metacopy', 'origin', 'upper', 'protattr'):
    for space in ('user', 'trusted'):
        for path in ('a.txt', 'sub'):
            attempt(f'{space}.overlay.{name}', os.setxattr, path, f'{space}.overlay.{name}', b'y')
attempt('capability', os.setxattr, 'a.txt', 'security.capability', bytes.fromhex('0100000200000020000000000000000000000000'))
attempt('whiteout', os.mknod, 'sub/b.txt.x', 0o020000, 0)
attempt('rename whiteout', rename2, b'a.txt', b'moved', 4)
attempt('exchange', rename2, b'a.txt', b'sub', 2)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)
os.write(fd, b'unnamed')
attempt('tmpfile', os.link, '/proc/self/fd/%d' % fd, 'named', follow_symlinks=True)
"""


def picture(tree):
    return {str(p.relative_to(tree)): (s.st_mode, s.st_ino, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_size, os.listxattr(p, follow_symlinks=False))
            for p in sorted(tree.rglob("*")) for s in [p.lstat()]}


def test_nothing_is_smuggled_through_an_overlay(project, shared):
    """Marks of the overlay itself, devices that mean a deletion, capabilities: neither below, nor applied."""
    before = picture(project)
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    done = cordon("workspace", "run", ident, "--json", "--", "/usr/bin/python3", "-c", SMUGGLE, cwd=shared)
    r = json.loads(done.stdout)
    said = dict(line.rsplit(" ", 1) for line in r["stdout"].splitlines())
    assert r["verdict"] == "ok" and said["capability"] != "done" and said["whiteout"] != "done" and said["tmpfile"] in ("done", "EXDEV"), r
    assert all(v != "done" for k, v in said.items() if k.startswith("trusted")), said
    assert picture(project) == before
    assert cordon("workspace", "apply", ident, "--force", cwd=shared).returncode == 0
    for path in project.rglob("*"):
        assert not [n for n in os.listxattr(path, follow_symlinks=False) if "overlay" in n or "capability" in n], path
        assert stat.S_ISDIR(path.lstat().st_mode) or stat.S_ISREG(path.lstat().st_mode), path
    if said["tmpfile"] == "done":  # Landlock takes a file without a name for one of another folder
        assert (project / "named").read_text() == "unnamed"
    again = cordon("workspace", "run", ident, "--json", "--", "/bin/sh", "-c", "cat */b.txt b.txt 2>/dev/null; ls", cwd=shared)
    assert json.loads(again.stdout)["verdict"] == "ok", "what the first run left does not close the workspace"
    assert cordon("workspace", "rm", ident, cwd=shared).returncode == 0


def test_a_forged_layer_is_read_as_what_it_is(project, shared):
    """A redirect or an opaque mark that somebody put into the layer itself leads nowhere else."""
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    upper = shared / ".sandbox" / ident / "layer" / "upper"
    (upper / "sub").mkdir()
    os.setxattr(upper / "sub", "user.overlay.redirect", b"/../../../../../etc")
    (upper / "file").write_text("")
    os.setxattr(upper / "file", "user.overlay.redirect", b"/etc/passwd")
    os.setxattr(upper / "file", "user.overlay.metacopy", b"")
    done = cordon("workspace", "run", ident, "--json", "--", "/bin/sh", "-c", "ls sub; cat file; true", cwd=shared)
    r = json.loads(done.stdout)
    assert "passwd" not in r["stdout"] and "root:" not in r["stdout"] and "shadow" not in r["stdout"], r
    cordon("workspace", "rm", ident, cwd=shared)


# ---- F8, F11, F23, F25: moving targets ---------------------------------------------------------------

SWAPPER = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        n = 0
        while True:  # nobody waits for this one
            n += 1
            for act in (lambda: open('out.txt', 'w').write('x' * (n % 9000)), lambda: os.unlink('out.txt'), lambda: os.symlink(sys.argv[1], 'out.txt'),
                        lambda: os.unlink('out.txt'), lambda: os.mkfifo('out.txt'), lambda: os.unlink('out.txt')):
                try: act()
                except OSError: pass
    os._exit(0)
time.sleep(0.2)
"""


@pytest.mark.parametrize("where", ["home", "overlay", "rw"])
def test_a_file_that_changes_all_the_time(project, shared, canary, where):
    """It does not: whoever changes it is dead when it is looked at."""
    opts = [] if where == "home" else ["--workspace", f"{project}:{where}"]
    for i in range(5):
        out = shared / f"out{i}"
        r = run(*opts, "--output", f"out.txt={out}", "--", "/usr/bin/python3", "-c", SWAPPER, canary / "secret.txt", timeout=60)
        assert r.verdict == "ok", str(r)
        took = outputs(r).get("out.txt", "absent")
        assert took in (None, "symlink", "fifo", "absent"), str(r)
        if took is None:
            text = (out / "out.txt").read_text()
            assert set(text) <= {"x"} and len(text) == [o["size"] for o in r.result["outputs"]][0]
        else:
            assert not (out / "out.txt").exists() and not (out / "out.txt").is_symlink()


LOCKS = """
import fcntl, os, time
f = open('out.txt', 'w+'); f.write('x'); f.flush()
r = open('out.txt')
for act in (lambda: fcntl.flock(f, fcntl.LOCK_EX), lambda: fcntl.lockf(f, fcntl.LOCK_EX), lambda: fcntl.fcntl(r, 1024, fcntl.F_RDLCK),
            lambda: fcntl.fcntl(f, 1026, 0x3f | 0x80000000)):
    try: act()
    except OSError: pass
f.close()
if os.fork() == 0:
    os.setsid(); time.sleep(60)
"""


@pytest.mark.parametrize("where", ["home", "overlay", "rw"])
def test_locks_and_leases_delay_nobody(project, shared, where):
    opts = [] if where == "home" else ["--workspace", f"{project}:{where}"]
    began = time.monotonic()
    r = run(*opts, "--output", f"*={shared}/out", "--", "/usr/bin/python3", "-c", LOCKS, timeout=60)
    assert r.verdict == "ok" and outputs(r)["out.txt"] is None and (shared / "out" / "out.txt").read_text() == "x", str(r)
    assert time.monotonic() - began < 20 * SLOW  # a lease is broken after 45 seconds


LEASE = """
import errno, fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
for command in (fcntl.F_SETLEASE, 1024 + 16):
    try:
        fcntl.fcntl(fd, command, fcntl.F_WRLCK)
        print('leased', flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
print(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK, fcntl.fcntl(fd, fcntl.F_GETFD), flush=True)
"""


def test_no_lease_on_a_granted_file(project):
    """Whoever opens it would wait in the kernel until the guest ends: the host, and every other guest."""
    r = run("--workspace", f"{project}:ro", "--", "/usr/bin/python3", "-c", LEASE, "/workspace/a.txt")
    assert r.out == "EPERM\nEPERM\nTrue 1\n", str(r)
    assert {d["target"]: d["count"] for d in r.result["denials"]} == {"fcntl": 2}, str(r)


# ---- the top folder closed to its owner ---------------------------------------------------------------

CLOSE_TOP = "echo x > new; chmod 000 .; exit 3"


def test_a_closed_overlay_is_told_all_the_same(project, shared):
    r = run("--workspace", f"{project}:overlay", "--", "/bin/sh", "-c", CLOSE_TOP)
    assert r.verdict == "nonzero_exit" and r.code == 3, str(r)
    assert "new" in [c["path"] for c in r.result["changed_files"]], str(r)


def test_a_closed_kept_workspace_goes_on(project, shared):
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", CLOSE_TOP, cwd=shared).returncode == 3
    again = cordon("workspace", "run", ident, "--", "/bin/sh", "-c", "cat new", cwd=shared)
    assert (again.returncode, again.stdout) == (0, "x\n"), again
    assert "+x" in cordon("workspace", "diff", ident, cwd=shared).stdout
    assert cordon("workspace", "rm", ident, cwd=shared).returncode == 0


@pytest.mark.parametrize("mode", ["000", "444", "711"])
@pytest.mark.parametrize("where", ["rw", "overlay"])
def test_a_closed_folder_hides_nothing_from_the_disk_limit(quick, monkeypatch, where, mode):
    """Of mode 444 names can be read and nothing else, of 711 the other way round."""
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    script = f"mkdir sub; cd sub; chmod {mode} ..; exec 2>/dev/null; for i in $(seq 40); do head -c 4M /dev/zero > f$i || exit 7; sleep 0.05; done"
    words = ("--workspace", f"{quick}/tree:{where}", "--time-limit", "30s", "--memory-limit", "1G")
    r = run(*words, "--disk-limit", "16M", "--", "/bin/sh", "-c", script, timeout=60)
    os.chmod(quick / "tree", 0o755)
    assert r.verdict == "disk_limit", str(r)
    twin = run(*words, "--disk-limit", "16M", "--", "/bin/sh", "-c", script.replace("seq 40", "seq 2"), timeout=60)
    os.chmod(quick / "tree", 0o755)
    assert twin.verdict == "ok", str(twin)


NAMELESS = """
import array, ctypes, os, socket, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
how, fds, pair = sys.argv[1], [], socket.socketpair()
# of Landlock: a rule holds the file it names for as long as there is the ruleset, or who is held by it
rules = libc.syscall(444, (4).to_bytes(8, 'little'), 8, 0) if how == 'in a rule' else -1
def nameless():
    if how != 'unlinked':
        return os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
    fd = os.open('f', os.O_CREAT | os.O_RDWR, 0o600)
    os.unlink('f')
    return fd
def hold(fd):
    if how == 'mapped':
        assert libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_size_t(0)) != ctypes.c_void_p(-1).value
    if how == 'under way':
        pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
    ruled = rules >= 0 and libc.syscall(445, rules, 1, (4).to_bytes(8, 'little') + fd.to_bytes(4, 'little'), 0) == 0
    if how in ('mapped', 'under way') or ruled:
        os.close(fd)
    else:
        fds.append(fd)
def write():
    for i in range(int(sys.argv[2])):
        if how == 'undumpable':
            libc.prctl(4, 0, 0, 0, 0)
        fd = nameless()
        os.write(fd, b'x' * (4 << 20))
        hold(fd)
        time.sleep(0.03)
    time.sleep(0.5)
    print('wrote', flush=True)
    os._exit(0)
if how == 'leaderless':
    # the first thread ends, which makes a zombie of what /proc shows as the process
    threading.Thread(target=write).start()
    libc.syscall(60, 0)
if how.startswith('behind'):
    # whoever looks at one after the other comes to the last one late, or never
    more = nameless if how == 'behind files' else lambda: os.dup(0)
    for i in range(18 if how == 'behind files' else 100):
        r, w = os.pipe()
        if os.fork() == 0:
            try:
                while more(): pass
            except OSError:
                os.write(w, b'x')
                time.sleep(60)
        os.read(r, 1), os.close(r), os.close(w)
    if os.fork():
        os.wait(), os._exit(0)
write()
"""


@pytest.mark.parametrize("how", ["tmpfile", "unlinked", "mapped", "under way", "in a rule", "undumpable", "leaderless", "behind files", "behind descriptors"])
@pytest.mark.parametrize("where", ["rw", "overlay"])
def test_files_without_a_name_are_not_free(quick, monkeypatch, where, how):
    """Made without one, or removed while they are open: no look at a folder finds them."""
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    words = ("--workspace", f"{quick}/tree:{where}", "--disk-limit", "12M", "--memory-limit", "1G", "--", "/usr/bin/python3", "-c", NAMELESS, how)
    r = run(*words, "20", timeout=60)
    assert r.verdict == "disk_limit" and "wrote" not in r.out, str(r)
    assert run(*words, "2", timeout=60).out == "wrote\n"


def test_what_others_write_is_not_what_the_guest_maps(full, quick):
    """Removed files in its own memory, which maps shows like any other."""
    guest = "import mmap, os, time\n" \
            "for path in ('/tmp/x', '/dev/shm/x'):\n" \
            " fd = os.open(path, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 8192); globals()[path] = mmap.mmap(fd, 8192); os.unlink(path)\n" \
            "shared = mmap.mmap(-1, 8192)\nprint(open('/proc/self/maps').read().count('(deleted)'), flush=True)\ntime.sleep(1.5)\nprint('end')"
    p = start("--workspace", f"{quick}/tree:rw", "--disk-limit", "4M", "--", "/usr/bin/python3", "-c", guest)
    assert p.stdout.readline() == b"3\n"
    (quick / "granted" / "big").write_bytes(b"x" * (20 << 20))
    assert p.stdout.read() == b"end\n" and p.wait(30) == 0, p.stderr.read()


@pytest.mark.parametrize("children", ["sleep", "come and go"])
def test_what_others_write_is_not_the_guests(quick, children):
    """Many open descriptors, none of them a file without a name, while somebody else fills the disk. What ends is
    closed to an ordinary user's look from the moment its memory is gone, as if it hid something."""
    guest = "import os, time\nfor i in range(20): os.fork() or [time.sleep(2), os._exit(0)]\n" \
            "fds = [os.open('/dev/null', 0) for i in range(900)]\nprint('up', flush=True)\nend = time.time() + 1.5\n"
    guest += "time.sleep(1.5)\n" if children == "sleep" else "while time.time() < end: os.fork() or os._exit(0); os.wait()\n"
    guest += "print('end')"
    p = start("--workspace", f"{quick}/tree:rw", "--disk-limit", "4M", "--", "/usr/bin/python3", "-c", guest)
    assert p.stdout.readline() == b"up\n"
    (quick / "granted" / "big").write_bytes(b"x" * (20 << 20))
    assert p.stdout.read() == b"end\n" and p.wait(30) == 0, p.stderr.read()


def test_apply_into_a_tree_that_moves(project, shared, canary):
    """A folder on the way is a link to somewhere else for half of the time: nothing is ever written there."""
    outside = shared / "outside"
    (outside / "deep").mkdir(parents=True)
    (project / "sub" / "deep").mkdir()
    (project / "sub" / "deep" / "f").write_text("old\n")
    ident = cordon("workspace", "new", "--from", project, cwd=shared).stdout.split()[-1]
    assert cordon("workspace", "run", ident, "--", "/bin/sh", "-c", "echo guest > sub/deep/f; echo guest > sub/deep/new", cwd=shared).returncode == 0
    stop = threading.Event()
    os.symlink(outside, project / "other")
    exchange = ctypes.CDLL(None).renameat2

    def move():
        n = 0
        while not stop.is_set() or n % 2:
            n += 1
            exchange(-100, bytes(project / "sub"), -100, bytes(project / "other"), 2)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        codes = {cordon("workspace", "apply", ident, "--force", cwd=shared).returncode for _ in range(25)}
    finally:
        stop.set()
        mover.join()
    assert os.listdir(outside / "deep") == [] and os.listdir(outside) == ["deep"], codes
    assert cordon("workspace", "apply", ident, "--force", cwd=shared).returncode == 0
    assert (project / "sub" / "deep" / "new").read_text() == "guest\n"
    cordon("workspace", "rm", ident, cwd=shared)


# ---- F12, D18, D19: much of everything ----------------------------------------------------------------

def test_a_hole_of_a_terabyte_in_a_workspace(project, quick, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    r = overlay(project, "import os\nfor n in ('huge', 'a.txt'):\n  f = os.open(n, os.O_RDWR | os.O_CREAT); os.ftruncate(f, 1 << 40); os.pwrite(f, b'end', (1 << 40) - 3)",
                "--max-file-size", "2T", timeout=60)
    assert r.verdict == "ok" and kinds(r) == {"huge": "added", "a.txt": "modified"}, str(r)
    assert all(c.get("omitted") for c in r.result["changed_files"]) and list((quick / "tmp").iterdir()) == []


DEPTH = 100000 // SLOW


@pytest.mark.parametrize("where,how", [("overlay", "closed"), pytest.param("tmp", "nest", marks=pytest.mark.slow), pytest.param("tmp", "closed", marks=pytest.mark.slow),
                                       pytest.param("granted", "nest", marks=pytest.mark.slow), pytest.param("granted", "closed", marks=pytest.mark.slow),
                                       pytest.param("overlay", "nest", marks=pytest.mark.slow)])
def test_folders_nested_100_000_deep(quick, monkeypatch, where, how):
    """Made from the inside out, as the kernel's own cost of a path grows with its depth; closed: of mode 000."""
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    place, opts = {"tmp": ("/tmp", ["--profile", "development"]), "granted": (str(quick / "granted"), ["--allow-write", quick / "granted"]),
                   "overlay": ("/workspace", ["--workspace", f"{quick}/tree:overlay"])}[where]
    r = run("--allow-read", GUESTS, *opts, "--time-limit", "100s", "--memory-limit", "1G", "--", guest_path("disk"), how, place, str(DEPTH), timeout=300, cwd=quick)
    assert r.verdict == "ok" and r.get("done") == str(DEPTH), str(r)
    if where == "overlay":
        assert {"path": "", "kind": "truncated"} in r.result["changed_files"]
    assert list((quick / "tmp").iterdir()) == []
    assert run("--", "/bin/true").verdict == "ok"


def test_a_kept_workspace_with_deep_folders_goes_on(quick):
    words = ("--allow-read", str(GUESTS), "--time-limit", "60s", "--json", "--", guest_path("disk"), "nest", "/workspace", str(5000 // SLOW))
    ident = cordon("workspace", "new", "--from", quick / "tree", cwd=quick).stdout.split()[-1]
    assert json.loads(cordon("workspace", "run", ident, *words, cwd=quick).stdout)["verdict"] == "ok"
    again = json.loads(cordon("workspace", "run", ident, "--json", "--", "/bin/sh", "-c", "echo x > x; ls", cwd=quick).stdout)
    assert again["verdict"] == "ok" and again["stdout"] == "d\nx\n" and "x" in [c["path"] for c in again["changed_files"]], again
    for word in ("diff", "discard", "rm"):
        assert cordon("workspace", word, ident, cwd=quick).returncode == 0, word
    assert list((quick / ".sandbox").glob("[!.]*")) == []


WIDE = """
import os, sys
n, depth = int(sys.argv[1]), int(sys.argv[2])
os.mkdir('d')
for i in range(n):
    os.mkdir(f'd/w{i}')
for i in range(depth):
    os.mkdir('n'); os.rename('d', 'n/d'); os.rename('n', 'd')
"""


def test_many_folders_far_down_cost_no_more_than_others(quick, monkeypatch):
    """Each was opened by its whole path once: a guest of a second cost half a minute afterwards."""
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    r = run("--workspace", f"{quick}/tree:overlay", "--output", f"**={quick}/granted", "--", "/usr/bin/python3", "-c", WIDE, str(8000 // SLOW), "1900", timeout=120)
    assert r.verdict == "ok" and list((quick / "tmp").iterdir()) == [], str(r)


@pytest.mark.parametrize("how,amount", [
    ("files", "200000"), ("many", "8000"), pytest.param("names", "200000", marks=pytest.mark.slow), pytest.param("dirs", "200000", marks=pytest.mark.slow),
    pytest.param("links", "200000", marks=pytest.mark.slow), pytest.param("fallocate", "4096", marks=pytest.mark.slow)])
def test_disk_and_inodes_filled_in_a_workspace(quick, monkeypatch, how, amount):
    """Held by looking: stopped, told, and gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(quick / "tmp"))
    r = run("--allow-read", GUESTS, "--time-limit", "60s", "--disk-limit", "64M", "--max-files", "20000", "--workspace", f"{quick}/tree:overlay", "--",
            guest_path("disk"), how, "/workspace", amount, timeout=120)
    assert r.verdict in ("disk_limit", "nonzero_exit"), str(r)
    if r.verdict == "nonzero_exit":
        assert {"ENOSPC", "EFBIG", "EDQUOT"} & set(r.out.split()), str(r)
    assert list((quick / "tmp").iterdir()) == [] and list((quick / "tree").iterdir()) == []


def test_folders_closed_to_the_collector_are_told(shared):
    r = run("--output", f"**={shared}/out", "--", "/bin/sh", "-c", "mkdir open closed; echo x > open/f; echo x > closed/f; chmod 0 closed")
    assert outputs(r)["open/f"] is None, str(r)
    if os.geteuid() != 0:  # root reads it anyhow
        assert outputs(r)["closed"] == "cannot be read"
