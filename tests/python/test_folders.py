"""Folders of the caller's: what a task's comparison sees, source text over large ones, outputs that cannot be."""

import os
import pathlib
import shutil
import tempfile

import pytest

from cordon import Sandbox, SandboxError
from cordon.workspace import SandboxConfig, apply_action, prepare_workspace

pytestmark = pytest.mark.full_tier("a workspace at /workspace")


@pytest.fixture
def home():
    """Outside /tmp, which inside is the guest's own."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cordon-folders-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_folders_that_move(home):
    """What lies below keeps its times."""
    config = SandboxConfig(work_root=str(home / "work"), logs_dir=str(home / "logs"))
    files = {"good/run": "good\n", "evil/run": "evil\n", "d/x": "x\n", "d/e/y": "y\n"}
    workspace = prepare_workspace("moves", files, config=config)
    for script, changed in (("mv d d2", ["d/e/y", "d/x", "d2/e/y", "d2/x"]),
                            ("mv good t; mv evil good; mv t evil", ["evil/run", "good/run"]),
                            ("head -c 20000000 /dev/zero > good/large", ["good/large"]), ("touch good/new", ["good/new"])):
        done = apply_action(workspace, {"command": ["sh", "-c", script]}, config=config)
        assert (done.changed_files, done.error) == (changed, None), script


def test_source_over_a_folder_that_is_looked_at_first(home):
    tree = home / "tree"
    tree.mkdir()
    for i in range(4200):
        os.close(os.open(tree / f"f{i}", os.O_CREAT | os.O_WRONLY, 0o644))
    if os.geteuid() == 0:
        os.chown(tree / "f7", 12345, 12345)
    with Sandbox(workspace=str(tree), timeout=60) as sandbox:
        for i in range(2):
            assert sandbox.run("print(7)").stdout == "7\n"


@pytest.mark.parametrize("output", ["*=/nope/x/y", "a=fd:12"])
def test_an_output_that_cannot_be_harms_nobody(output):
    with Sandbox(timeout=30) as other:
        run = other.start_command(["sh", "-c", "sleep 1; echo lives"])
        with Sandbox(output=output) as sandbox:
            for i in range(2):
                with pytest.raises(SandboxError) as e:
                    sandbox.run("open('a', 'w').write('x')")
                assert e.value.code == 78, e.value
        assert run.wait().stdout == "lives\n"
