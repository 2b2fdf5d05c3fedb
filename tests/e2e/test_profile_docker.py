"""Docker's default seccomp profile, as an intersection with our own filter."""

import pathlib

import pytest

from cordon_run import run

PROFILE = pathlib.Path(__file__).resolve().parents[3] / "shared/data/seccomp/docker-default.json"


@pytest.fixture
def docker_profile():
    if not PROFILE.exists():
        pytest.skip("needs ../shared/data/seccomp/docker-default.json")
    return PROFILE


@pytest.mark.parametrize("words", [
    ["/bin/sh", "-c", "echo hello | tr a-z A-Z"],
    ["/usr/bin/python3", "-c", "import subprocess, threading; t = threading.Thread(target=print, args=('HELLO',)); "
                               "t.start(); t.join(); subprocess.run(['true'], check=True)"],
    ["/usr/bin/perl", "-e", "print uc 'hello', \"\\n\""],
])
def test_ordinary_programs_run_under_it(docker_profile, words):
    r = run("--seccomp", docker_profile, "--", *words)
    assert r.code == 0 and r.out == "HELLO\n", str(r)


def test_it_can_only_tighten(docker_profile, tmp_path):
    """What our own filter refuses stays refused, and a profile may refuse more."""
    code = "import os\ntry:\n os.mkdir('x'); print('made')\nexcept OSError as e:\n print(e.errno)"
    assert run("--seccomp", docker_profile, "--", "/usr/bin/python3", "-c", code).out == "made\n"
    mine = tmp_path / "profile.json"
    mine.write_text('{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], '
                    '"syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}, '
                    '{"names": ["mount", "unshare", "bpf"], "action": "SCMP_ACT_ALLOW"}]}')
    assert run("--seccomp", mine, "--", "/usr/bin/python3", "-c", code).out == "1\n"
    unshare = "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nprint(c.unshare(0x10000000), ctypes.get_errno())"
    assert run("--seccomp", mine, "--", "/usr/bin/python3", "-c", unshare).out == "-1 1\n"
