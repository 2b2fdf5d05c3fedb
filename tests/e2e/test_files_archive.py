"""Files out of a run as a tar archive: whoever reads it gets the same bytes, and holes where there were holes."""

import hashlib
import os
import subprocess
import tarfile

import pytest

from cordon_run import run

pytestmark = pytest.mark.usefixtures("full")

# Each file is its size and where it has data. The guest makes them; what the readers give is compared with this.
FILES = {
    "at-start": (1 << 20, [((1 << 20) - 5000, b"S" * 5000)]),
    "in-middle": (1 << 20, [(0, b"A" * 4096), ((1 << 20) - 4096, b"Z" * 4096)]),
    "at-end": (1 << 20, [(0, b"E" * 6000)]),
    "not-a-block": (12345678, [(5000001, b"x")]),
    "fragments": (5000 * 16384, [(i * 16384, b"%d" % i) for i in range(5000)]),
    "only-a-hole": (512 << 20, []),
    "empty": (0, []),
    "plain": (5000, [(0, b"p" * 5000)]),
    "d" * 100 + "/" + "e" * 120 + "/long-with-a-hole": (1 << 21, [(1 << 20, b"L")]),
    "d" * 100 + "/" + "e" * 120 + "/long-and-plain": (4, [(0, b"long")]),
    "raw-\udcff\udcfe": (1 << 20, [(500000, b"r")]),
}
MAKE = """
import os
for name, (size, pieces) in eval(input()).items():
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as f:
        f.truncate(size)
        for at, data in pieces:
            f.seek(at)
            f.write(data)
"""


def collect(files, target, *opts):
    with open(target, "wb") as out:
        r = run("--memory-limit", "1G", "--output", f"**=fd:{out.fileno()}", *opts, "--", "/usr/bin/python3", "-c", MAKE,
                stdin=ascii(files).encode() + b"\n", pass_fds=[out.fileno()])
    assert r.verdict == "ok", str(r)
    return {row["path"]: row.get("skipped") for row in r.result["outputs"]}


def digest_of(size, pieces):
    h, end = hashlib.sha1(), 0
    zeros = bytes(1 << 20)
    for at, data in [*pieces, (size, b"")]:
        for done in range(end, at, len(zeros)):
            h.update(zeros[:min(len(zeros), at - done)])
        h.update(data)
        end = at + len(data)
    return h.hexdigest()


def digest(path):
    h = hashlib.sha1()
    with open(path, "rb") as f:
        while part := f.read(1 << 20):
            h.update(part)
    return h.hexdigest()


def by_gnu(archive, folder, program):
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=120)


def by_libarchive(archive, folder, program):
    subprocess.run([program("bsdtar", "libarchive-tools"), "-xf", archive, "-C", folder], check=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"})


def by_python(archive, folder, program=None):
    with tarfile.open(archive) as t:
        t.extractall(folder)


@pytest.fixture(scope="module")
def archive(world, tmp_path_factory):
    if not world.full:
        pytest.skip("needs tier full")
    target = tmp_path_factory.mktemp("archive") / "out.tar"
    skipped = collect(FILES, target)
    assert len(skipped) == len(FILES) and set(skipped.values()) == {None}
    return target


@pytest.mark.parametrize("read", [by_gnu, by_libarchive, by_python])
def test_readers_get_the_same_files_with_their_holes(archive, tmp_path, program, read):
    read(archive, tmp_path, program)
    found = [os.path.join(top, name)[len(str(tmp_path)) + 1:] for top, _, names in os.walk(tmp_path) for name in names]
    assert sorted(found) == sorted(FILES)
    for name, (size, pieces) in FILES.items():
        st = os.stat(tmp_path / name)
        assert st.st_size == size and digest(tmp_path / name) == digest_of(size, pieces), name
        # a piece takes its pages, and a file system may round a little more
        assert st.st_blocks * 512 <= sum(len(data) + 8192 for _, data in pieces) + 65536, name


def test_holes_cost_nothing_and_files_without_are_plain(archive):
    assert archive.stat().st_size < 5000 * (4096 + 64) + (1 << 20)
    with tarfile.open(archive) as t:
        sparse = {m.name for m in t.getmembers() if m.sparse is not None}
    assert sparse == {name for name, (size, pieces) in FILES.items() if size > sum(len(data) for _, data in pieces)}


def test_more_fragments_than_are_told_are_joined(tmp_path):
    """The list of pieces is bounded: the shortest holes become zeros, the content stays the same."""
    pieces = [(i * 8192, b"%d" % i) for i in range(70000)] + [(900 << 20, b"end")]
    files = {"many": (1 << 30, pieces)}
    (tmp_path / "tree").mkdir()
    assert collect(files, tmp_path / "t", "--workspace", str(tmp_path / "tree")) == {"many": None}
    by_python(tmp_path / "t", tmp_path)
    st = os.stat(tmp_path / "many")
    assert digest(tmp_path / "many") == digest_of(*files["many"])
    assert st.st_blocks * 512 < (550 << 20), "the long hole before the last piece has become data"


def test_caps_count_data_in_all_and_the_apparent_size_of_each(tmp_path):
    """Twenty holes of 4 GiB are nothing; one byte more is too large, whatever is in it."""
    limit = 4 << 30
    files = {f"hole{i}": (limit, [(limit - 1, b"x")]) for i in range(20)}
    files |= {"over": (limit + 1, []), "tera": (1 << 40, [])}
    skipped = collect(files, tmp_path / "t")
    assert {name for name, why in skipped.items() if why} == {"over", "tera"} and skipped["tera"] == skipped["over"] == "too large"
    assert (tmp_path / "t").stat().st_size < 1 << 20
    with tarfile.open(tmp_path / "t") as t:
        assert sorted((m.name, m.size) for m in t.getmembers()) == sorted((f"hole{i}", limit) for i in range(20))
