"""What a sandbox may be told: names, values, configurations."""

import pathlib
import re

import pytest

import cordon
from cordon import Sandbox, SandboxError


def test_imports_of_a_configuration(tmp_path, monkeypatch):
    """A list that is written there replaces the default block as one that is given does."""
    file = tmp_path / "cordon.toml"
    file.write_text('[sandbox]\ntime_limit = "20s"\n[sandbox.profiles.open]\nallowed_imports = ["os", "math"]\n')
    with Sandbox(config=file, profile="open") as allowed, Sandbox(config=file) as plain:
        for _ in range(2):
            assert allowed.run("import os, math").ok and allowed.run("import os", language="py").ok
            assert allowed.run("import json").verdict == "rejected"
            assert plain.run("import os").verdict == "rejected" and plain.run("import json").ok
        assert cordon.TestRunner(allowed).run_tests("import os\nx = os.sep", "assert x == '/'").passed == 1
        assert cordon.TestRunner(plain).run_tests("import os\nx = os.sep", "assert x == '/'").passed == 0
    with Sandbox(config=file, profile="open", blocked_imports=["os"]) as both:
        assert both.run("import os").verdict == "rejected" and both.run("import math").ok
    with Sandbox(config=file) as sandbox:
        file.write_text('[sandbox]\nallowed_imports = ["os"]\n')
        assert sandbox.run("import os").ok
        file.write_text("[sandbox]\n")
        assert sandbox.run("import os").verdict == "rejected"
    monkeypatch.chdir(tmp_path)
    with Sandbox(discover=True) as found:
        assert found.run("import os").verdict == "rejected"
        monkeypatch.setenv("CORDON_ALLOW_IMPORT", "os")
        assert found.run("import os").ok
    with Sandbox() as closed:
        assert closed.run("import os").verdict == "rejected"
    file.write_text("[sandbox]\nno_such_key = 1\n")
    with Sandbox(config=file) as broken, pytest.raises(SandboxError) as caught:
        broken.run("import os")
    assert caught.value.code == 78


def test_config_file(tmp_path):
    (tmp_path / "cordon.toml").write_text('[sandbox.profiles.small]\ntime_limit = "300ms"\n')
    with Sandbox(config=tmp_path / "cordon.toml", profile="small") as sandbox:
        assert sandbox.run_command(["sleep", "5"]).limit["value"] == "300ms"


@pytest.mark.parametrize("arguments, error", [
    ({"timeout": -1}, ValueError), ({"timeout": 0}, ValueError), ({"timeout": float("nan")}, ValueError),
    ({"timeout": None}, TypeError), ({"timeout": True}, TypeError), ({"max_memory_mb": -5}, ValueError),
    ({"max_memory_mb": "x"}, TypeError), ({"max_memory_mb": 1.5}, TypeError), ({"max_output_bytes": -1}, ValueError),
    ({"max_memory_mb": 2 ** 70}, ValueError),
    ({"filesystem": {"/abs": ""}}, ValueError), ({"filesystem": {"a/../../b": ""}}, ValueError),
    ({"filesystem": {"": ""}}, ValueError), ({"filesystem": {"a\0": ""}}, ValueError),
    ({"filesystem": {"a//b": ""}}, ValueError), ({"filesystem": {"x" * 300: ""}}, ValueError),
    ({"filesystem": {1: ""}}, TypeError), ({"filesystem": {"a": 1}}, TypeError), ({"filesystem": ["a"]}, TypeError),
    ({"allowed_imports": "o s"}, ValueError), ({"allowed_imports": [1]}, TypeError), ({"level": "none"}, ValueError),
    ({"level": 3}, TypeError), ({"level": "strict", "profile": "testing"}, ValueError), ({"env": {"A=B": "c"}}, ValueError),
    ({"env": {"A": 1}}, TypeError), ({"mounts": [("a",)]}, ValueError), ({"no_such_setting": 1}, TypeError),
    ({"mounts": 5}, TypeError), ({"allow_ports": 1.5}, TypeError), ({"allow_host_port": 0}, ValueError),
    ({"allow_host_port": {"a": 1.5}.values()}, TypeError),
    ({"processes": -1}, ValueError), ({"disk_limit": 1.5}, TypeError), ({"virtual_fs": "yes"}, TypeError),
])
def test_wrong_arguments(arguments, error):
    with pytest.raises(error):
        Sandbox(**arguments)


def test_settings_are_the_engines():
    """Every name the package takes is one of the engine's, and the other way round."""
    from cordon import _settings
    text = (pathlib_root() / "src/policy/fields.def").read_text()
    rows = re.findall(r'^X\([A-Z_]+, "(\w*)", \w+, "([\w-]*)"', text, re.M)
    flags = {flag.replace("-", "_") for _, flag in rows if flag}
    keys = {key for key, _ in rows}
    assert _settings.NAMES <= flags | keys
    taken = _settings.NAMES | {"file", "env", "allow_import", "block_import", "seccomp", "apparmor", "preload"}
    assert flags - taken == set(), "a setting the package does not know"
    own = {"env", "filesystem", "mounts", "preload", "allowed_imports", "blocked_imports"}  # arguments of their own
    assert keys - {""} - _settings.NAMES - own == set(), "a key the package does not know"


def settings_names():
    from cordon import _settings
    return sorted(_settings.NAMES)


@pytest.mark.parametrize("name", settings_names())
def test_every_setting_reaches_the_engine(name, tmp_path):
    """By the name the package takes; whether this host can do it is another matter."""
    from cordon import _settings
    kinds = {_settings.DURATIONS: 5, _settings.SIZES: 10 ** 8, _settings.COUNTS: 50, _settings.BOOLS: False}
    value = next((value for names, value in kinds.items() if name in names), "x")
    value = {"allow_binary": "true", "allowed_binaries": ["true"], "output": f"*.x={tmp_path}/o", "network": "none",
             "backend": "native", "log": "quiet", "deny": "*.key", "deny_patterns": ["*.key"], "allow_ports": 80,
             "allow_host_port": [8080], "allow_read": tmp_path, "allow_write": [tmp_path], "temp_dir": "/tmp",
             "mount": "/usr/share:/mnt/share", "allow_network": "example.com", "allow_domains": ["example.com"],
             "allow_patterns": "*.example.com", "deny_network": "*.example.org", "workspace": f"{tmp_path}:ro",
             "publish": "18080:80", "dns": "127.0.0.1", "http_proxy": "http://127.0.0.1:3128", "runtime": "runc",
             "require_tier": "landlock", "cpu_limit": 100, "reuse": False}.get(name, value)
    with Sandbox(**{name: value}) as sandbox:
        try:
            assert sandbox.run_command(["true"]).ok
        except SandboxError as e:
            assert "unknown" not in str(e), e


def test_settings_that_have_another_name():
    with Sandbox(allow_binary="true") as one, Sandbox(allowed_binaries=["true", "echo"]) as other:
        assert one.run_command(["true"]).ok and other.run_command(["echo"]).ok
        for sandbox in (one, other):
            assert sandbox.run_command(["cat"]).verdict == "rejected"
    with Sandbox(scratch_size="1M", max_file_size="64M") as small, Sandbox(scratch_size="32M") as large:
        fill = ["sh", "-c", "head -c 4000000 /dev/zero > $TMPDIR/x"]
        assert not small.run_command(fill).ok and large.run_command(fill).ok
        runner = cordon.TestRunner(small)
        code = "import tempfile\ndef f():\n    with tempfile.TemporaryFile() as t:\n        t.write(bytes(4 << 20))\n    return 1\n"
        assert runner.run_tests(code, "assert f() == 1").passed == 0
        assert cordon.TestRunner(large).run_tests(code, "assert f() == 1").passed == 1


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy", reason="needs the Debian package python3-numpy")
    with Sandbox(timeout=numpy.float32(2), max_memory_mb=numpy.int64(64), processes=numpy.uint8(20)) as sandbox:
        assert sandbox.run_command(["true"]).ok
        assert sandbox.run("x = bytearray(100 << 20)").limit["value"] == "64M"
    for wrong in (numpy.bool_(True), numpy.arange(1), numpy.float64(2)):
        with pytest.raises(TypeError):
            Sandbox(max_memory_mb=wrong)


def pathlib_root():
    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / "src/policy/fields.def").exists():
        pytest.skip("needs the source tree")
    return root
