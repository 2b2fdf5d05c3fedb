"""cordon image build, status, clean."""

import json
import os
import shutil
import subprocess

import pytest

NAME = "cordon-test-image:1"


@pytest.fixture
def image(cordon, engine, folder):
    """A name of its own and a cache of its own."""
    env = {"XDG_CACHE_HOME": str(folder / "cache")}

    def call(*words, name=True):
        return cordon("image", *words, *(["--name", NAME] if name else []), env=env)
    yield call
    engine.ask("DELETE", f"/images/{NAME}?force=1")


@pytest.fixture
def tree(folder):
    """A root file system of one program."""
    top = folder / "root"
    (top / "bin").mkdir(parents=True)
    (top / "etc").mkdir()
    shutil.copy(os.path.join(os.path.dirname(os.environ["CORDON"]), "cordon-init"), top / "bin" / "program")
    (top / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (top / "etc" / "tool").write_text("x")
    os.chmod(top / "etc" / "tool", 0o4755)
    return top


def test_build_twice(image, engine):
    done = image("build", "--from-host")
    assert done.returncode == 0 and done.stdout.startswith(f"built {NAME}: "), done
    first = engine.ask("GET", f"/images/{NAME}/json")[1]
    assert first["Config"]["Labels"]["cordon"] == "image" and first["Config"]["User"] == "1000:1000"
    done = image("build", "--from-host")
    assert done.returncode == 0 and "up to date" in done.stdout
    assert engine.ask("GET", f"/images/{NAME}/json")[1]["Id"] == first["Id"]
    done = image("build", "--from-host", "--force")
    assert done.returncode == 0 and done.stdout.startswith("built ")
    second = engine.ask("GET", f"/images/{NAME}/json")[1]
    if second["Id"] != first["Id"]:  # the one before is not left without a name
        assert engine.ask("GET", f"/images/{first['Id']}/json")[0] == 404


def test_without_a_mirror(image, engine, run):
    """The engine's network of the tests leads nowhere: the files of installed packages serve, and that is said."""
    done = image("build")
    assert done.returncode == 0 and done.stdout.startswith(f"built {NAME}: "), done
    assert "no package mirror answers" in done.stderr, done.stderr
    got = run("--image", NAME, "--", "bash", "-c", "id -un; python3 -c 'print(6 * 7)'")
    assert got.out == "sandbox\n42\n", got
    assert "up to date" in image("build").stdout


def test_from_a_folder_and_an_archive(image, tree, folder, engine, run):
    done = image("build", "--rootfs", str(tree))
    assert done.returncode == 0, done
    recipe = json.loads(image("status", "--json").stdout)["image"]["recipe"]
    assert run("--image", NAME, "--", "/bin/program").code == 70  # our own pid 1 without an order
    assert "up to date" in image("build", "--rootfs", str(tree)).stdout
    (tree / "etc" / "new").write_text("1")
    assert image("build", "--rootfs", str(tree)).stdout.startswith("built ")
    assert json.loads(image("status", "--json").stdout)["image"]["recipe"] != recipe
    for suffix, flag in ((".tar", ""), (".tar.gz", "z")):
        archive = folder / f"root{suffix}"
        subprocess.run(["tar", "-C", tree, f"-c{flag}f", archive, "."], check=True)
        done = image("build", "--rootfs", str(archive), "--force")
        assert done.returncode == 0 and done.stdout.startswith("built "), done


def test_wrong_sources(image, folder):
    (folder / "junk").write_bytes(b"no archive" * 1000)
    for source in (folder / "junk", folder / "missing"):
        done = image("build", "--rootfs", str(source))
        assert done.returncode == 69 and "could not be made" in done.stderr
    assert image("build", "--all").returncode == 64
    assert image("nonsense").returncode == 64
    assert image("build", "--name", "../x", name=False).returncode == 64
    assert not any("tar" in name for _, _, files in os.walk(folder / "cache") for name in files)


def test_without_an_engine(cordon, folder):
    """The archive serves backends that need none."""
    env = {"XDG_CACHE_HOME": str(folder / "cache"), "DOCKER_HOST": "unix:///nonexistent.sock"}
    done = cordon("image", "status", env=env)
    assert done.returncode == 69 and "Docker is not running" in done.stdout
    done = cordon("image", "build", "--from-host", env=env)
    assert done.returncode == 0 and "Docker is not running" in done.stderr
    assert (folder / "cache/cordon/images/cordon-sandbox_latest/rootfs.tar").stat().st_size > 1 << 20
    assert cordon("image", "clean", env=env).returncode == 69


def test_status(cordon):
    done = cordon("image", "status")
    assert done.returncode == 0
    for word in ("engine: Docker ", "runtimes: ", "runc", "image: cordon-sandbox:latest sha256:", "MiB", "containers: 0"):
        assert word in done.stdout, done.stdout
    found = json.loads(cordon("image", "status", "--json").stdout)
    assert found["running"] and found["image"]["name"] == "cordon-sandbox:latest" and found["containers"] == []


def test_clean_all(image, tree, engine):
    assert image("build", "--rootfs", str(tree)).returncode == 0
    done = image("clean", "--all")
    assert done.returncode == 0 and "1 images" in done.stdout, done
    assert engine.ask("GET", f"/images/{NAME}/json")[0] == 404
    assert engine.ask("GET", "/images/cordon-sandbox:latest/json")[0] == 200
