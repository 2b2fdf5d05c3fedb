"""Trees and patches: whatever two trees look like, `git apply` of our patch turns one into the other.

CORDON_BUILD           build folder with tests/unit/workspace_tool (default: build/)
CORDON_PATCH_ROUNDS    random trees (default 60)
"""

import os
import pathlib
import random
import shutil
import stat
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("CORDON_BUILD") or ROOT / "build") / "tests" / "unit" / "workspace_tool"
ROUNDS = int(os.environ.get("CORDON_PATCH_ROUNDS", "60"))
NAMES = [b"a", b"b.txt", b"with space", b" lead", b"trail ", b'quo"te', b"back\\slash", b"new\nline", b"tab\there", b"\xff\xfe",
         "ünï".encode(), b"-rf", b"...", b"x" * 200, b"\x1b[31m", b"a b/../".replace(b"/", b"_"), b"dir", b"sub", b"{}", b"a=b",
         b"/dev/null".replace(b"/", b"-"), b"\x01"]


@pytest.fixture
def place():
    top = pathlib.Path(tempfile.mkdtemp(prefix="cordon-patch-"))
    yield top
    shutil.rmtree(top, ignore_errors=True)


def tool(*words):
    done = subprocess.run([TOOL, *map(os.fsencode, words)], capture_output=True)
    assert done.returncode == 0, done.stderr
    kinds = dict(reversed(entry.split(b" ", 1)) for entry in done.stderr.split(b"\0") if entry)
    return done.stdout, kinds


def content(rng):
    kind = rng.randrange(9)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(rng.randrange(1, 3000))
    if kind == 2:
        return b"".join(b"line %d\r\n" % rng.randrange(20) for _ in range(rng.randrange(1, 40)))
    if kind == 3:
        return "naïve\n".encode("latin-1") * rng.randrange(1, 4)
    if kind == 4:
        return b"\n" * rng.randrange(1, 12)
    if kind == 5:
        return b"no newline"
    lines = [b"%d %s\n" % (rng.randrange(30), b"w" * rng.randrange(4)) for _ in range(rng.randrange(1, 200))]
    return b"".join(lines)[:-1 if rng.random() < 0.3 else None]


def changed(rng, data):
    lines = data.splitlines(keepends=True)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(lines) + 1)
        act = rng.randrange(4)
        if act == 0:
            lines[at:at] = [b"added %d\n" % rng.randrange(9)] * rng.randrange(1, 5)
        elif act == 1:
            del lines[at:at + rng.randrange(1, 9)]
        elif act == 2 and at < len(lines):
            lines[at] = lines[at] + b"more\n"
        elif lines:
            rng.shuffle(lines)
    out = b"".join(lines)
    return out.rstrip(b"\n") if rng.random() < 0.2 else out


def put(rng, path):
    act = rng.random()
    if act < 0.12:
        # no link to itself: where a folder replaces it, git stumbles over the loop before it applies anything
        os.symlink(rng.choice([b"elsewhere", b"../x", b"/etc/passwd", b"nowhere\n", b"\xff", b"with space"]), path)
    elif act < 0.3:
        os.mkdir(path)
        fill(rng, path, rng.randrange(0, 4))
    else:
        with open(path, "wb") as f:
            f.write(content(rng))
        os.chmod(path, rng.choice([0o644, 0o755]))


def fill(rng, folder, n):
    for name in rng.sample(NAMES, n):
        path = os.path.join(folder, name)
        if not os.path.lexists(path) and path.count(b"/") < 9:
            put(rng, path)


def entries(folder):
    found = []
    for at, dirs, files in os.walk(folder):
        found += [os.path.join(at, n) for n in dirs + files]
    return found


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def mutate(rng, folder):
    for path in entries(folder):
        if not os.path.lexists(path) or rng.random() > 0.4:
            continue
        act = rng.randrange(5)
        if act == 0:
            remove(path)
        elif act == 1:
            remove(path)
            put(rng, path)
        elif os.path.islink(path) or os.path.isdir(path):
            continue
        elif act == 2:
            os.chmod(path, 0o755 if os.stat(path).st_mode & 0o111 == 0 else 0o644)
        else:
            with open(path, "rb") as f:
                data = f.read()
            with open(path, "wb") as f:
                f.write(changed(rng, data))
    fill(rng, folder, rng.randrange(0, 5))


def prune(folder):
    """Git knows no empty folders, and cannot remove one where a file is to be."""
    for at, _, _ in os.walk(os.fsencode(folder), topdown=False):
        if not os.listdir(at) and at != os.fsencode(folder):
            os.rmdir(at)


def facts(folder):
    """Everything git knows of a tree: files with their executable bit, links; no empty folders."""
    found = {}
    for path in entries(folder):
        st = os.lstat(path)
        name = os.path.relpath(path, folder)
        if stat.S_ISLNK(st.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISREG(st.st_mode):
            with open(path, "rb") as f:
                found[name] = ("x" if st.st_mode & 0o100 else "-", f.read())
    return found


def apply(tree, patch):
    if not patch:
        return
    done = subprocess.run(["git", "-c", "core.quotePath=true", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=tree, capture_output=True,
                          env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent), "GIT_CONFIG_GLOBAL": "/dev/null"})
    assert done.returncode == 0, done.stderr.decode(errors="replace") + "\n" + patch[:4000].decode(errors="replace")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_git_apply_gives_the_changed_tree(place, seed):
    rng = random.Random(seed)
    old, new, work = place / "old", place / "new", place / "work"
    old.mkdir()
    fill(rng, os.fsencode(old), rng.randrange(0, 12))
    prune(old)
    shutil.copytree(old, new, symlinks=True)
    mutate(rng, os.fsencode(new))
    shutil.copytree(old, work, symlinks=True)
    patch, kinds = tool("diff", old, new)
    patch.decode("utf-8")
    before, after = facts(os.fsencode(old)), facts(os.fsencode(new))
    assert {k for k in set(before) | set(after) if before.get(k) != after.get(k)} == set(kinds)
    apply(work, patch)
    assert facts(os.fsencode(work)) == after
    back = subprocess.run(["git", "apply", "-R", "--whitespace=nowarn", "-"], input=patch, cwd=work, capture_output=True,
                          env={**os.environ, "GIT_CEILING_DIRECTORIES": str(place), "GIT_CONFIG_GLOBAL": "/dev/null"})
    if patch:
        assert back.returncode == 0, back.stderr
        assert facts(os.fsencode(work)) == before


def test_no_difference_no_text(place):
    old, new = place / "old", place / "new"
    old.mkdir()
    fill(random.Random(1), os.fsencode(old), 10)
    new.mkdir()
    tool("copy", old, new)
    assert tool("diff", old, new) == (b"", {})


def test_patch_takes_text_too(place):
    """patch(1), the other reader of unified diffs."""
    if not shutil.which("patch"):
        pytest.skip("patch is missing: install the Debian package patch")
    old, new, work = place / "old", place / "new", place / "work"
    for d in (old, new):
        d.mkdir()
    (old / "f g").write_text("".join(f"{i}\n" for i in range(100)))
    (new / "f g").write_text("".join(f"{i}\n" for i in range(100) if i % 17) + "end")
    shutil.copytree(old, work)
    patch, _ = tool("diff", old, new)
    done = subprocess.run(["patch", "-p1", "-s"], input=patch, cwd=work, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (work / "f g").read_bytes() == (new / "f g").read_bytes()


def test_names_git_refuses_are_listed_apart(place):
    old, new = place / "old", place / "new"
    old.mkdir()
    for name in (".git", ".GIT", "git~1", ".git ", "sub/.git"):
        (new / name).mkdir(parents=True)
        (new / name / "config").write_text("x\n")
    patch, kinds = tool("diff", old, new)
    assert patch == b"" and set(kinds.values()) == {b"added-omitted"} and len(kinds) == 5


def test_special_files_are_reported_and_left_alone(place):
    old, new = place / "old", place / "new"
    old.mkdir()
    new.mkdir()
    os.mkfifo(new / "fifo")
    (old / "was").write_text("x\n")
    os.mkfifo(new / "was")
    patch, kinds = tool("diff", old, new)
    assert kinds == {b"fifo": b"special-omitted", b"was": b"special-omitted"} and patch == b""
    target = place / "copy"
    target.mkdir()
    tool("copy", new, target)
    assert list(target.iterdir()) == []


def test_huge_holes_cost_nothing(place):
    old, new = place / "old", place / "new"
    old.mkdir()
    new.mkdir()
    for d in (old, new):
        with open(d / "sparse", "wb") as f:
            f.truncate(1 << 40)
    with open(new / "more", "wb") as f:
        f.truncate(1 << 40)
    patch, kinds = tool("diff", old, new)
    assert kinds == {b"more": b"added-omitted"} and patch == b""


def test_depth_is_no_problem(place):
    """5,000 folders inside each other: removed; compared without a crash and honestly cut."""
    old, new = place / "old", place / "new"
    old.mkdir()
    new.mkdir()
    fd = os.open(new, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)
    _, kinds = tool("diff", old, new)
    assert kinds == {b"": b"truncated"}
    tool("remove", place, "new")
    assert not new.exists()


def test_removal_of_folders_closed_by_their_mode(place):
    top = place / "top"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "c").write_text("x")
    os.symlink("/", top / "a" / "root")
    os.chmod(top / "a" / "b", 0)
    os.chmod(top / "a", 0o111)
    tool("remove", place, "top")
    assert not top.exists()


def test_overlay_layer(place):
    """A layer as the kernel writes it: whiteouts, opaque folders, copies of unchanged files."""
    base, upper = place / "base", place / "upper"
    for name in ("keep/a", "gone/b", "opaque/c", "same", "edit"):
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name + "\n")
    for d in ("keep", "opaque"):
        (upper / d).mkdir(parents=True)
    try:
        os.mknod(upper / "gone", stat.S_IFCHR, 0)
        os.setxattr(upper / "opaque", "user.overlay.opaque", b"y")
    except OSError as e:
        pytest.skip(f"no whiteouts or user attributes in {place}: {e}")
    (upper / "opaque" / "new").write_text("n\n")
    (upper / "same").write_text("same\n")
    (upper / "edit").write_text("edited\n")
    patch, kinds = tool("layer", base, upper)
    assert kinds == {b"gone/b": b"deleted", b"opaque/c": b"deleted", b"opaque/new": b"added", b"edit": b"modified"}
    assert b"user.overlay" not in patch
