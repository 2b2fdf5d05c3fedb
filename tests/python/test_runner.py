"""cordon.runner: values through a real guest, exceptions, module control, limits."""

import asyncio
import datetime as dt
import decimal
import glob
import os
import tempfile

import pytest

from cordon.runner import SandboxConfig, SecurityLevel, SubprocessRunner, create_runner


@pytest.fixture(scope="module")
def runner():
    with SubprocessRunner(SandboxConfig(allowed_modules=("pandas", "numpy", "math", "json", "datetime", "time", "sys",
                                                         "os", "threading"))) as made:
        yield made


def test_result_and_last_expression(runner):
    assert runner.execute("result = 1\n2", {}).result == 1
    assert runner.execute("x = 1\nx + 1", {}).result == 2
    assert runner.execute("x = 1", {}).result is None
    assert runner.execute("", {}).result is None
    assert runner.execute("y * 2", {"y": "ab"}).result == "abab"
    assert runner.execute("from __future__ import annotations\ndef f(x: No): pass\nf.__annotations__", {}).result == {"x": "No"}


def test_values_travel(runner):
    values = {"none": None, "big": 10 ** 400, "nan": float("nan"), "text": "\ud800", "bytes": b"\0", "when": dt.datetime(
        2024, 1, 1, tzinfo=dt.timezone.utc), "money": decimal.Decimal("1.10"), "set": {1, (2, 3)}, "keys": {(1, None): {2: []}}}
    result = runner.execute("result = dict(everything)", {"everything": values})
    assert result.success, result.error
    back = result.result
    assert back.pop("nan") != back.get("nan") and values.pop("nan")
    assert back == values and list(back) == list(values) and type(back["money"]) is decimal.Decimal


def test_frames_travel(runner):
    pandas = pytest.importorskip("pandas", reason="needs the Debian package python3-pandas")
    frame = pandas.DataFrame({"g": pandas.Categorical(["a", "b", "a"]), "v": [1.5, None, 2],
                              "t": pandas.date_range("2024", periods=3, tz="Europe/Berlin")})
    result = runner.execute("result = (df, df.groupby('g').v.sum(), df.v.to_numpy())", {"df": frame})
    assert result.success, result.error
    back, sums, array = result.result
    pandas.testing.assert_frame_equal(back, frame)
    pandas.testing.assert_series_equal(sums, frame.groupby("g").v.sum())
    assert array.dtype == "float64" and array[0] == 1.5


def test_what_cannot_travel_comes_as_repr(runner):
    result = runner.execute("class A:\n    def __repr__(self): return 'an A'\n[A()]", {})
    assert result.success and result.result == "[an A]" and "cannot travel" in result.note
    result = runner.execute("class A:\n    def __repr__(self): raise ValueError\nA()", {})
    assert result.success and "ValueError" in result.result
    assert runner.execute("'x' * 70_000_000", {}).note.endswith("larger than 67108864 bytes")
    pytest.importorskip("pandas", reason="needs the Debian package python3-pandas")
    pytest.importorskip("dateutil", reason="needs the Debian package python3-dateutil")
    code = "import pandas\npandas.Series(pandas.date_range('2024', periods=2, tz='%s'))"
    result = runner.execute(code % "dateutil/Europe/Berlin", {})
    assert result.success and "2024-01-02" in result.result and "time zone" in result.note
    result = runner.execute(code % "Europe/Berlin", {})
    assert result.success and result.note is None and str(result.result.dtype) == "datetime64[ns, Europe/Berlin]"


def test_empty_scalars_of_numpy(runner):
    numpy = pytest.importorskip("numpy", reason="needs the Debian package python3-numpy")
    for value in (numpy.str_(""), numpy.bytes_(b"")):
        for code in ("x", f"import numpy\nnumpy.{value!r}" if repr(value).startswith("np") else
                     f"import numpy\nnumpy.{type(value).__name__}({value!r})"):
            result = runner.execute(code, {"x": value})
            assert result.success and type(result.result) is type(value) and result.result == value, result


def test_context_the_guest_cannot_read(runner, monkeypatch):
    """Its time zones may be others than the caller's."""
    import cordon.runner
    whole = cordon.runner.encode
    monkeypatch.setattr(cordon.runner, "encode", lambda value: whole(value).replace(b"Europe/Berlin", b"Europe/Borlin"))
    import zoneinfo
    moment = dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    result = runner.execute("x", {"x": moment})
    assert not result.success and result.exception.type == "DecodeError"
    assert result.error == "the context cannot be read in the guest: time zone Europe/Borlin is not known on this side"
    monkeypatch.undo()
    assert runner.execute("x", {"x": moment}).result == moment


def test_exceptions(runner):
    result = runner.execute("def f():\n    return 1 / 0\n\nf()", {})
    assert not result.success and result.error == "ZeroDivisionError: division by zero" and result.result is None
    assert result.exception.type == "ZeroDivisionError" and result.exception.message == "division by zero"
    assert 'File "main.py", line 4, in <module>\n    f()' in result.exception.traceback
    assert 'File "main.py", line 2, in f\n    return 1 / 0' in result.exception.traceback
    assert result.exception.traceback.count("File ") == 2 and result.exception.traceback in result.stderr
    result = runner.execute("x = 1\nx = (", {})
    assert result.exception.type == "SyntaxError" and "line 2" in result.error
    assert runner.execute("raise SystemExit(3)", {}).error == "SystemExit: 3"
    assert runner.execute("result = 5\nraise SystemExit", {}).result == 5
    result = runner.execute("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", {})
    assert not result.success and result.exception.type == "E"


def test_output(runner):
    result = runner.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)", {})
    assert (result.stdout, result.stderr, result.success) == ("out\n", "err\n", True)


def test_guests_that_spoil_their_outcome(runner):
    for code in ("import os\nos._exit(0)", "import os\nos._exit(3)", "import os\nos.kill(os.getpid(), 9)",
                 "import sys\nsys.modules.clear()\nresult = 1", "__builtins__.__dict__.clear()",
                 "import sys\nsys.setrecursionlimit(50)\nresult = [[[[1]]]]",
                 "import os, threading\nthreading.Thread(target=lambda: (__import__('time').sleep(0.1), os._exit(5))).start()\n1"):
        result = runner.execute(code, {})
        assert result.success or result.error, code
    assert runner.execute("import os\nos._exit(0)", {}).error == "the code ended with status 0 and left no result"
    assert runner.execute("import os\nos.kill(os.getpid(), 9)", {}).error == "killed: signal 9"


def test_forged_outcomes():
    """A guest that writes bytes of its own choosing gives a wrong result of its own, and no more."""
    with SubprocessRunner(SandboxConfig(allowed_modules=("os", "glob", "pickle"))) as runner:
        forge = ("import glob, os\npath = glob.glob('{tmp}/cordon-*/*')[0]\nopen(path, 'r+b').write({data!r})\nos._exit(0)")
        tmp = tempfile.gettempdir()
        for data in (b"", b"\x80\x04K\x01.", b"CDN1L\xff\xff\xff\xff\x07", b"CDN1N", b"CDN1M\x01S\x07successI\x01\x01"):
            result = runner.execute(forge.format(tmp=tmp, data=data), {})
            assert not result.success, data
        link = ("import glob, os\npath = glob.glob('%s/cordon-*/*')[0]\ntry:\n    os.unlink(path)\n    os.symlink('/etc/passwd', path)\n"
                "except OSError as e:\n    result = e.errno" % tmp)
        result = runner.execute(link, {})
        assert "root:" not in repr(result)


def test_module_control():
    with create_runner() as runner:
        result = runner.execute("import json\nimport os", {})
        assert result.error == "blocked import: os (line 2)" and "blocked" in result.stderr
        assert "blocked import: os" in runner.execute("__import__('o' + 's')", {}).error
        assert runner.execute("import pandas\npandas.Series([1]).sum()", {}).result == 1
        assert runner.execute("import pandas.core\nimport statistics\nimport math as m\nm.pi", {}).result > 3
    with create_runner(SecurityLevel.STRICT) as runner:
        assert runner.execute("import pandas", {}).error == "blocked import: pandas (line 1)"


@pytest.mark.full_tier("folders of root that others cannot enter")
def test_data_dirs(tmp_path):
    (tmp_path / "data.txt").write_text("read")
    with SubprocessRunner(SandboxConfig(data_dirs=(str(tmp_path),))) as runner:
        assert runner.execute(f"open('{tmp_path}/data.txt').read()", {}).result == "read"
        assert "OSError" in runner.execute(f"open('{tmp_path}/data.txt', 'w')", {}).error.replace("PermissionError", "OSError")
    with SubprocessRunner(SandboxConfig()) as runner:
        assert "FileNotFoundError" in runner.execute(f"open('{tmp_path}/data.txt')", {}).error.replace(
            "PermissionError", "FileNotFoundError")


def test_wrong_arguments(runner):
    for code, context, error in ((b"1", {}, TypeError), ("a\0", {}, ValueError), ("1", [], TypeError), ("1", {1: 1}, TypeError),
                                 ("1", {"f": open}, TypeError), ("1", {"deep": {"x": object()}}, TypeError)):
        with pytest.raises(error):
            runner.execute(code, context)
    with pytest.raises(TypeError, match=r"context\['f'\]: .* cannot travel"):
        runner.execute("1", {"f": open})
    with pytest.raises(ValueError):
        SubprocessRunner(SandboxConfig(timeout_seconds=-1))
    with pytest.raises(TypeError):
        SubprocessRunner({"timeout": 1})


def test_environment_settings():
    config = SandboxConfig.from_environment({"CORDON_RUNNER_LEVEL": "strict", "CORDON_RUNNER_TIMEOUT_SECONDS": "2.5",
                                             "CORDON_RUNNER_ALLOWED_MODULES": "math, json"})
    assert config == SandboxConfig(SecurityLevel.STRICT, 2.5, 256, ("math", "json"))
    with pytest.raises(ValueError):
        SandboxConfig.from_environment({"CORDON_RUNNER_MAX_MEMORY_MB": "much"})


def test_async_and_nothing_left(runner):
    async def main():
        return await asyncio.gather(*(runner.execute_async("n * n", {"n": n}) for n in range(8)))

    before = set(glob.glob(os.path.join(tempfile.gettempdir(), "cordon-*")))
    assert [r.result for r in asyncio.run(main())] == [n * n for n in range(8)]
    with pytest.raises(TypeError):
        runner.execute("1", {"x": object()})
    mine = [p for p in set(glob.glob(os.path.join(tempfile.gettempdir(), "cordon-*"))) - before
            if os.stat(p).st_uid == os.getuid() and not os.path.basename(p).startswith("cordon-lib")]
    assert mine == []
    assert runner.stats().runs > 8


def test_wrong_configurations():
    for name, text in (("TIMEOUT_SECONDS", "nan"), ("TIMEOUT_SECONDS", "-1"), ("TIMEOUT_SECONDS", "x"), ("MAX_MEMORY_MB", "1.5")):
        with pytest.raises(ValueError, match="CORDON_RUNNER_" + name):
            SandboxConfig.from_environment({"CORDON_RUNNER_" + name: text})
    assert SandboxConfig.from_environment({"CORDON_RUNNER_TIMEOUT_SECONDS": "1.5"}).timeout_seconds == 1.5
    with pytest.raises(TypeError, match="data_dirs"):
        SubprocessRunner(SandboxConfig(data_dirs=5))


def test_one_data_dir():
    """A single text is one folder, not its letters."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, "x"), "w") as file:
            file.write("seen")
        for given in (folder, (folder,)):
            with SubprocessRunner(SandboxConfig(data_dirs=given)) as runner:
                assert runner.execute("open(path).read()", {"path": folder + "/x"}).result == "seen"


def test_names_of_the_modules():
    import cordon.runner
    import cordon.workspace
    for module in (cordon, cordon.runner, cordon.workspace):
        assert all(getattr(module, name).__doc__ for name in module.__all__)
    assert "SandboxConfig" in cordon.runner.__all__ and "annotations" not in cordon.workspace.__all__
