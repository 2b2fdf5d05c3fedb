"""--rootfs and --image: any root file system as the guest's root, and what archives may not do."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import stat
import tarfile

import pytest

from cordon_run import CORDON, cordon, host_env, run

pytestmark = pytest.mark.usefixtures("full")

BUSYBOX = "/usr/bin/busybox"
APPLETS = ("sh", "cat", "echo", "id", "ls", "touch", "rm", "env")


@pytest.fixture
def busybox(need):
    need(os.path.exists(BUSYBOX), "busybox is missing: install the Debian package busybox-static")
    return BUSYBOX


@pytest.fixture
def unpacker(need):
    helper = pathlib.Path(CORDON).parent / "cordon-unpack"
    need(helper.exists(), "cordon-unpack is missing: build with the Debian package libarchive-dev")


@pytest.fixture
def rootfs(shared, busybox):
    """A folder that is a small system of its own."""
    top = shared / "rootfs"
    for name in ("bin", "etc", "usr/bin", "var/lib", "home/somebody", "opt"):
        (top / name).mkdir(parents=True)
    shutil.copy(busybox, top / "bin" / "busybox")
    for name in APPLETS:
        (top / "bin" / name).symlink_to("busybox")
    (top / "etc" / "marker").write_text("from the image\n")
    (top / "etc" / "passwd").write_text("evil:x:0:0::/:/bin/sh\n")
    (top / "opt" / "data").write_text("data\n")
    for folder, _, _ in os.walk(top):
        os.chmod(folder, 0o755)
    return top


@pytest.fixture
def env(shared):
    """A cache of the test's own."""
    return host_env({"XDG_CACHE_HOME": str(shared / "cache")})


def pack(path, *entries, mode="w", fileobj=None):
    """A tar of (name, kind, value): 'file' bytes, 'link' target, 'hard' target, 'dir' mode, 'dev' type."""
    with tarfile.open(path, mode, fileobj=fileobj, format=tarfile.PAX_FORMAT) as tar:
        for name, kind, value in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            data = None
            if kind == "file":
                data = io.BytesIO(value)
                info.size = len(value)
            elif kind == "suid":
                data = io.BytesIO(value)
                info.size, info.mode = len(value), 0o6755
            elif kind in ("link", "hard"):
                info.type = tarfile.SYMTYPE if kind == "link" else tarfile.LNKTYPE
                info.linkname = value
            elif kind == "dir":
                info.type, info.mode = tarfile.DIRTYPE, value
            else:
                info.type, info.devmajor, info.devminor = value, 1, 3
            tar.addfile(info, data)
    return path


def system(busybox):
    """The least a guest needs."""
    return [("./", "dir", 0o755), ("bin", "dir", 0o755),
            ("bin/busybox", "file", pathlib.Path(busybox).read_bytes()),
            *[("bin/" + name, "link", "busybox") for name in APPLETS]]


def test_folder_is_the_root(rootfs, env):
    before = sorted(str(p) for p in rootfs.rglob("*"))
    got = run("--rootfs", rootfs, "--", "sh", "-c",
              "id -un; cat /etc/marker /opt/data; ls /usr/bin /home; cat /etc/passwd; touch /tmp/t && echo tmp; "
              "touch $HOME/h && echo home; pwd", env=env)
    assert got.verdict == "ok", got
    words = got.out.split()
    assert words[0] == "sandbox" and "image" in words and "data" in words and "somebody" in words
    assert "tmp" in words and "home" in words and words[-1] == "/home/sandbox"
    assert "evil" not in got.out, "the image's passwd is not the guest's"
    assert "python3" not in got.out, "the host's /usr is not there"
    assert sorted(str(p) for p in rootfs.rglob("*")) == before, "nothing was put into the folder"


def test_what_is_denied_is_hidden_in_a_folder_too(rootfs, env):
    show = ("--rootfs", rootfs, "--", "cat", "/opt/data", "/etc/marker")
    got = run("--deny", rootfs / "opt" / "*", "--deny", rootfs / "etc" / "marker", *show, env=env)
    assert (got.verdict, got.out) == ("ok", ""), got
    assert run(*show, env=env).out == "data\nfrom the image\n"
    denied = run("--deny", rootfs.parent, *show, env=env, as_json=False)
    assert denied.code == 78 and b"denied by" in denied.log, denied


def test_image_names_a_path_too(rootfs, env):
    got = run("--image", rootfs, "--", "cat", "/etc/marker", env=env)
    assert got.out == "from the image\n", got


def test_a_name_without_a_tag_means_latest(rootfs, env):
    images = pathlib.Path(env["XDG_CACHE_HOME"]) / "cordon" / "images"
    images.mkdir(parents=True, exist_ok=True)
    shutil.copytree(rootfs, images / "some_thing_latest", symlinks=True)
    for name in ("some/thing", "some/thing:latest"):
        assert run("--image", name, "--", "cat", "/etc/marker", env=env).out == "from the image\n"
    for name in ("some/thing:other", "some/things"):
        got = run("--image", name, "--", "cat", "/etc/marker", env=env, as_json=False)
        assert got.code == 69 and f"Image not found: {name}" in got.log_text, str(got)


@pytest.mark.parametrize("place", ["/etc/x", "/bin/x", "/opt/data", "/x", "/var/lib/x"])
def test_root_is_read_only(rootfs, env, place):
    got = run("--rootfs", rootfs, "--", "sh", "-c", f"echo no > {place}", env=env)
    assert got.verdict == "nonzero_exit" and "Read-only" in got.err, got
    assert (rootfs / "opt" / "data").read_text() == "data\n"


def test_host_is_not_there(rootfs, env, canary):
    got = run("--rootfs", rootfs, "--", "cat", canary / "secret.txt", env=env)
    assert got.verdict == "nonzero_exit" and "No such file" in got.err, got
    allowed = run("--rootfs", rootfs, "--allow-read", rootfs / "opt", "--", "cat", rootfs / "opt" / "data", env=env)
    assert allowed.out == "data\n", allowed


def test_links_in_our_places_lead_nowhere(rootfs, env, canary):
    """CVE-2025-31133 and its kin: an image whose /dev, /proc, /tmp or /etc is a link."""
    shutil.rmtree(rootfs / "etc")
    for name in ("dev", "proc", "tmp", "etc", "sys", "run"):
        (rootfs / name).symlink_to(canary)
    (rootfs / "home" / "sandbox").symlink_to(canary)
    (rootfs / "out").symlink_to(canary)
    got = run("--rootfs", rootfs, "--", "sh", "-c",
              "touch /tmp/a /home/sandbox/b && echo x > /dev/null; id -un; cat /proc/self/comm; cat /out/secret.txt",
              env=env)
    assert got.out == "sandbox\ncat\n", got
    assert "No such file" in got.err
    assert sorted(os.listdir(canary)) == ["link", "private", "secret.txt"]


def test_a_wrong_folder_is_named_with_its_place(rootfs, env, shared):
    """Where it was asked for: file and line, option or variable."""
    project = shared / "project"
    project.mkdir()
    (project / "cordon.toml").write_text('[sandbox]\n\nrootfs = "/nowhere"\n')
    got = run("--", "true", env=env, cwd=project, as_json=False)
    assert got.code == 78 and "cordon.toml:3:10: /nowhere: No such file" in got.err and "Hint: " in got.err, got
    got = run("--rootfs", "/nowhere", "--", "true", env=env, as_json=False)
    assert got.code == 78 and "--rootfs: /nowhere: No such file" in got.err, got
    got = run("--", "true", env=env | {"CORDON_ROOTFS": "/nowhere"}, as_json=False)
    assert got.code == 78 and "CORDON_ROOTFS: /nowhere: No such file" in got.err, got
    (project / "cordon.toml").write_text(f'[sandbox]\n\nrootfs = "{rootfs}"\n')
    assert run("--", "cat", "/etc/marker", env=env, cwd=project).out == "from the image\n"


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_files_are_put_into_the_workspace_of_an_image(rootfs, env, shared, kind):
    """Where an image's /workspace is a link, it means a place of the image: not the host's of that name."""
    outside, tree = shared / "outside", shared / "tree"
    for top in (outside, tree):
        top.mkdir()
        os.chmod(top, 0o777)
    (shared / "in").write_text("text\n")
    if kind == "folder":
        (rootfs / "workspace").mkdir()
    else:
        (rootfs / str(outside)[1:]).mkdir(parents=True)
        (rootfs / "workspace").symlink_to(outside)
    got = run("--rootfs", rootfs, "--workspace", f"{tree}:rw", "--file", f"file={shared}/in", "--", "cat", "/workspace/file",
              env=env)
    assert not list(outside.iterdir()), got
    assert (got.code, got.out) == (0, "text\n"), got
    assert (tree / "file").read_text() == "text\n"


def test_devices_and_setuid_in_a_folder_serve_nobody(rootfs, env, world):
    if not world.is_root:
        pytest.skip("needs root: to make a device")
    os.mknod(rootfs / "bin" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(rootfs / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.chmod(rootfs / "bin" / "busybox", 0o4755)
    got = run("--rootfs", rootfs, "--", "sh", "-c", "id -u; echo x > /bin/null; cat /zero", env=env)
    assert got.out == "1000\n" and "denied" in got.err.lower() and "No such file" in got.err, got


def test_the_hosts_root_is_no_image(env):
    got = run("--rootfs", "/", "--", "true", env=env)
    assert got.code == 78 and "host's own root" in got.result["error"], got


def test_missing_is_an_error_before_anything(env, shared):
    got = run("--rootfs", shared / "none", "--", "true", env=env)
    assert got.code == 78, got
    got = run("--image", "cordon-nothing:latest", "--", "true", env=env)
    assert got.code == 69 and "Image not found: cordon-nothing:latest" in got.result["error"], got
    got = run("--image", "/", "--rootfs", "/", "--", "true", env=env)
    assert got.code == 78 and "exclude" in got.result["error"], got


@pytest.mark.parametrize("kind", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archive(busybox, unpacker, shared, env, kind):
    path = pack(shared / "image.tar", *system(busybox), ("etc/marker", "file", b"packed\n"),
                ("usr/lib/x", "hard", "etc/marker"), ("dev/null", "dev", tarfile.CHRTYPE), mode=kind)
    got = run("--rootfs", path, "--", "sh", "-c", "cat /etc/marker /usr/lib/x", env=env)
    assert got.out == "packed\npacked\n", got


def test_archive_is_unpacked_once(busybox, unpacker, shared, env):
    path = pack(shared / "image.tar", *system(busybox))
    assert run("--rootfs", path, "--", "id", env=env).verdict == "ok"
    top = shared / "cache" / "cordon" / "rootfs"
    first = [(p.name, p.stat().st_ino) for p in top.glob("sha256-*")]
    shutil.copy(path, shared / "again.tar")
    assert run("--rootfs", path, "--", "id", env=env).verdict == "ok"
    assert run("--rootfs", shared / "again.tar", "--", "id", env=env).verdict == "ok"
    assert [(p.name, p.stat().st_ino) for p in top.glob("sha256-*")] == first, "one content, one folder"
    pack(path, *system(busybox), ("etc/new", "file", b"new\n"))
    assert run("--rootfs", path, "--", "cat", "/etc/new", env=env).out == "new\n"


def test_setuid_is_left_out(busybox, unpacker, shared, env):
    path = pack(shared / "image.tar", *system(busybox), ("bin/su", "suid", b"x"))
    assert run("--rootfs", path, "--", "id", env=env).verdict == "ok"
    (made,) = (shared / "cache" / "cordon" / "rootfs").glob("sha256-*")
    assert stat.S_IMODE((made / "bin" / "su").stat().st_mode) == 0o755


def deep():
    return "/".join(["d"] * 200) + "/x"


HOSTILE = {
    "dotdot": [("../evil", "file", b"x")],
    "dotdot inside": [("bin/../../evil", "file", b"x")],
    "absolute": [("/var/tmp/evil", "file", b"x")],
    "through a link": [("out", "link", "/var/tmp"), ("out/evil", "file", b"x")],
    "through a relative link": [("a/b", "link", "../bin"), ("a/b/evil", "file", b"x")],
    "link out": [("a/out", "link", "../../../../etc")],
    "absolute link out": [("a/out", "link", "/../../etc")],
    "hard link out": [("evil", "hard", "../../../etc/passwd")],
    "absolute hard link": [("evil", "hard", "/etc/passwd")],
    "hard link to nothing": [("evil", "hard", "etc/none")],
    "hard link through a link": [("out", "link", "/etc"), ("evil", "hard", "out/passwd")],
    "device": [("bin/mem", "dev", tarfile.CHRTYPE)],
    "block device": [("disk", "dev", tarfile.BLKTYPE)],
    "too deep": [(deep(), "file", b"x")],
    "top is a link": [("./.", "link", "bin")],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused(busybox, unpacker, shared, env, case):
    path = pack(shared / "image.tar", *system(busybox), *HOSTILE[case])
    got = run("--rootfs", path, "--", "id", env=env)
    assert got.code == 78 and "refused" in got.result["error"], got
    assert not os.path.exists("/var/tmp/evil") and not (shared / "evil").exists()
    left = list((shared / "cache" / "cordon" / "rootfs").glob("*"))
    assert [p.name for p in left] == ["seen"] and not list(left[0].iterdir()), "nothing stays of it"


def test_bombs_are_refused(busybox, unpacker, shared, env):
    class Zeros:
        @staticmethod
        def read(n):
            return bytes(n)
    with tarfile.open(shared / "bomb.tar.gz", "w:gz", compresslevel=9) as tar:
        info = tarfile.TarInfo("zeros")
        info.size = 400 << 20
        tar.addfile(info, Zeros)
    got = run("--rootfs", shared / "bomb.tar.gz", "--", "id", env=env)
    assert got.code == 78 and "grows by more than" in got.result["error"], got
    # a file that says it is larger than everything allowed
    sparse = shared / "sparse.tar"
    info = tarfile.TarInfo("huge")
    info.size = 1 << 45
    sparse.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    got = run("--rootfs", sparse, "--", "id", env=env)
    assert got.code == 78, got


def test_garbage_is_no_archive(unpacker, shared, env):
    for content in (b"", b"hello\n" * 1000, os.urandom(5000), b"\x1f\x8b" + os.urandom(5000)):
        (shared / "garbage").write_bytes(content)
        got = run("--rootfs", shared / "garbage", "--", "id", env=env)
        assert got.code == 78 and not got.out, got


class Layout:
    """An OCI image layout with these layers, lowest first."""

    def __init__(self, top, *layers, arch="amd64"):
        self.top = top
        (top / "blobs" / "sha256").mkdir(parents=True)
        (top / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.layers = [self.layer(entries) for entries in layers]
        config = self.blob(json.dumps({"architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).encode())
        manifest = self.blob(json.dumps({"schemaVersion": 2, "config": config, "layers": self.layers}).encode())
        (top / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        (self.top / "blobs" / "sha256" / digest).write_bytes(data)
        return {"mediaType": "application/octet-stream", "digest": "sha256:" + digest, "size": len(data)}

    def layer(self, entries):
        packed = io.BytesIO()
        pack(None, *entries, mode="w:gz", fileobj=packed)
        return self.blob(packed.getvalue())


def test_layers_and_whiteouts(busybox, unpacker, shared, env):
    Layout(shared / "image",
           system(busybox) + [("etc/gone", "file", b"1"), ("etc/kept", "file", b"kept\n"), ("opt/a", "file", b"a"),
                              ("opt/b", "file", b"b"), ("lib", "link", "usr/lib"), ("usr/lib/old", "file", b"old")],
           [("etc/.wh.gone", "file", b""), ("opt/new", "file", b"n"), ("opt/.wh..wh..opq", "file", b""),
            ("lib/added", "file", b"added\n")])
    got = run("--image", shared / "image", "--", "sh", "-c", "ls /etc /opt; cat /etc/kept /usr/lib/added", env=env)
    assert got.verdict == "ok", got
    words = got.out.split()
    assert "gone" not in words and "a" not in words and "b" not in words
    assert {"kept", "new", "added"} <= set(words) and not any(w.startswith(".wh") for w in words)


LAYERS_REFUSED = {
    "whiteout of the folder above": [("etc/.wh...", "file", b"")],
    "whiteout outside": [("../../.wh.canary", "file", b"")],
    "whiteout of an absolute name": [("/var/tmp/.wh.canary", "file", b"")],
    "opaque outside": [("../.wh..wh..opq", "file", b"")],
    "whiteout of nothing": [("etc/.wh.", "file", b"")],
    "hard link out": [("evil", "hard", "../../../../etc/passwd")],
    "hard link to a name outside": [("evil", "hard", "/etc/shadow-of-the-host")],
    "device": [("mem", "dev", tarfile.CHRTYPE)],
    "link that climbs": [("a/out", "link", "../../../../etc")],
}


@pytest.mark.parametrize("case", LAYERS_REFUSED)
def test_hostile_layers_are_refused(busybox, unpacker, shared, env, case):
    Layout(shared / "image", system(busybox) + [("etc/kept", "file", b"kept\n")], LAYERS_REFUSED[case])
    got = run("--image", shared / "image", "--", "id", env=env)
    assert got.code == 78 and "refused" in got.result["error"], got
    left = list((shared / "cache" / "cordon" / "rootfs").glob("*"))
    assert [p.name for p in left] == ["seen"] and not list(left[0].iterdir()), "nothing stays of it"


def test_links_of_lower_layers_stay_inside(busybox, unpacker, shared, env):
    """A layer may write and remove through a link of a lower one, as runtimes do it: in the image, never outside."""
    out = shared / "outside"
    out.mkdir()
    (out / "canary").write_text("alive\n")
    Layout(shared / "image",
           system(busybox) + [("out", "link", str(out)), (f"{out}"[1:] + "/canary", "file", b"the image's\n"),
                              ("opt/data", "file", b"x"), ("o", "link", "/opt")],
           [("out/.wh.canary", "file", b""), ("out/evil", "file", b"evil\n"), ("o/.wh..wh..opq", "file", b""),
            ("bin/su", "suid", b"x"), ("bin/pwd", "hard", "bin/busybox")])
    got = run("--image", shared / "image", "--", "/bin/pwd", env=env)
    assert got.out == "/home/sandbox\n", got
    assert (out / "canary").read_text() == "alive\n" and os.listdir(out) == ["canary"]
    (made,) = (shared / "cache" / "cordon" / "rootfs").glob("sha256-*")
    assert os.listdir(made / str(out)[1:]) == ["evil"] and os.listdir(made / "opt") == []
    assert stat.S_IMODE((made / "bin" / "su").stat().st_mode) == 0o755


def test_layout_that_lies(busybox, unpacker, shared, env):
    image = Layout(shared / "image", system(busybox))
    path = shared / "image" / "blobs" / "sha256" / image.layers[0]["digest"][7:]
    path.write_bytes(path.read_bytes() + b"x")
    got = run("--image", shared / "image", "--", "id", env=env)
    assert got.code == 78 and "digest" in got.result["error"], got
    Layout(shared / "other", system(busybox), arch="arm64")
    got = run("--image", shared / "other", "--", "id", env=env)
    assert got.code == 78 and "another architecture" in got.result["error"], got
    image = Layout(shared / "out", system(busybox), [("../.wh.seen", "file", b"")])
    got = run("--image", shared / "out", "--", "id", env=env)
    assert got.code == 78 and "refused" in got.result["error"], got
    index = json.loads((shared / "out" / "index.json").read_text())
    index["manifests"][0]["digest"] = "sha256:../../../../../../etc/passwd"
    (shared / "out" / "index.json").write_text(json.dumps(index))
    assert run("--image", shared / "out", "--", "id", env=env).code == 78


def test_explain_shows_the_image(rootfs, env):
    got = cordon("explain", "--rootfs", rootfs, "--", "id", env=env)
    assert got.returncode == 0 and str(rootfs / "bin") in got.stdout, got


# ---- languages in an image ---------------------------------------------------------------------------

C = '#include <stdio.h>\nint main(void) { puts("from the host"); }\n'


@pytest.mark.parametrize("option", ["--rootfs", "--image"])
def test_a_compiler_the_image_lacks_is_nobodys_answer(rootfs, env, shared, option):
    """A right submission must not become a compile error because of whoever made the image."""
    (shared / "a.c").write_text(C)
    (shared / "1.in").write_text("")
    (shared / "1.out").write_text("from the host\n")
    assert run(shared / "a.c", env=env).out == "from the host\n"
    got = run(option, rootfs, shared / "a.c", env=env)
    assert (got.verdict, got.code) == ("sandbox_error", 69) and "c needs gcc" in got.result["error"], got
    case = ("--stdin", shared / "1.in", "--expect", shared / "1.out", shared / "a.c")
    done = cordon("grade", option, rootfs, *case, env=env)
    assert done.returncode == 69 and "c needs gcc" in done.stderr and "CE" not in done.stdout, done
    assert cordon("grade", *case, env=env).returncode == 0
    (rootfs / "bin" / "sh").unlink()
    assert "c needs sh" in run(option, rootfs, shared / "a.c", env=env).result["error"]


@pytest.mark.parametrize("option", ["--rootfs", "--image"])
def test_an_interpreter_the_image_lacks_is_nobodys_answer(rootfs, env, shared, option):
    (shared / "a.py").write_text("print(1)\n")
    got = run(option, rootfs, shared / "a.py", env=env)
    assert (got.verdict, got.code, got.result["stage"]) == ("sandbox_error", 69, "run"), got
    assert "python needs python3" in got.result["error"] and "Debian package python3" in got.result["error"], got
    # the twins: one that is there, and a command of the guest's own that is not
    (shared / "a.sh").write_text("nosuch\n")
    got = run(option, rootfs, "--language", "sh", shared / "a.sh", env=env)
    assert (got.verdict, got.code, got.result["error"]) == ("nonzero_exit", 127, None), got
    assert run(option, rootfs, "--", "nosuch", env=env).code == 127


def test_an_interpreter_that_should_check_imports_and_is_missing(rootfs, env, shared):
    (shared / "a.py").write_text("print(1)\n")
    got = run("--block-import", "os", "--rootfs", rootfs, shared / "a.py", env=env)
    assert (got.verdict, got.code) == ("sandbox_error", 69) and "python needs python3" in got.result["error"], got
    assert run("--block-import", "os", shared / "a.py", env=env).out == "1\n"


@pytest.mark.parametrize("option", ["--rootfs", "--image"])
def test_an_images_compiler_stays_with_the_image(rootfs, env, shared, option):
    """Its programs must not come out of the cache for a run without it, nor the host's for one with it."""
    (shared / "a.c").write_text(C)
    gcc = rootfs / "bin" / "gcc"
    gcc.write_text("#!/bin/sh\nwhile [ $1 != -o ]; do shift; done\n"
                   "echo '#!/bin/sh' >$2\necho 'echo from the image' >>$2\n")
    gcc.chmod(0o755)
    assert run(option, rootfs, shared / "a.c", env=env).out == "from the image\n"
    assert run(shared / "a.c", env=env).out == "from the host\n"
    assert run(option, rootfs, shared / "a.c", env=env).out == "from the image\n"
