"""The examples of the documents run, and so do those in the docstrings."""

import doctest
import importlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/python.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


@pytest.mark.full_tier("the page shows workspaces")
@pytest.mark.parametrize("code", EXAMPLES, ids=lambda c: f"line {PAGE[:PAGE.index(c)].count(chr(10)) + 1}")
def test_page(code):
    exec(compile(code, "docs/python.md", "exec"), {"__name__": "example"})


def test_page_has_examples():
    assert len(EXAMPLES) >= 8


@pytest.mark.full_tier("the docstrings show workspaces")
@pytest.mark.parametrize("name", ["cordon", "cordon.result", "cordon.sandbox", "cordon.runner", "cordon.workspace"])
def test_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0 and failed == 0


def test_llm_executor():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = subprocess.run([sys.executable, "-B", str(ROOT / "examples/llm_executor.py")], capture_output=True, text=True,
                         env=environment, timeout=60)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith("attempt: blocked import: os (line 1)") and "NameError" in lines[1]
    assert lines[2].startswith("attempt: ok") and lines[3] == "answer: {'mean': 5, 'top': 8}"


def test_wheel(tmp_path):
    """What pip installs: the whole package, typed, and the library where there is a build."""
    backend = ROOT / "python/tools"
    code = f"import sys\nsys.path.insert(0, {str(backend)!r})\nimport build_wheel\nprint(build_wheel.build_wheel({str(tmp_path)!r}))"
    run = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / run.stdout.strip()) as wheel:
        names = set(wheel.namelist())
        assert wheel.testzip() is None
    package = ROOT / "python/cordon"
    sources = {str(p.relative_to(ROOT / "python")) for p in package.rglob("*") if p.suffix in (".py", ".typed")}
    assert sources <= names and "cordon-0.1.0.dist-info/RECORD" in names
    if (ROOT / "build/cordon").exists():
        target = tmp_path / "site"
        with zipfile.ZipFile(tmp_path / run.stdout.strip()) as wheel:
            wheel.extractall(target)
        os.chmod(target / "cordon/_bundled/bin/cordon", 0o755)
        out = subprocess.run([sys.executable, "-B", "-c", "import cordon; print(cordon.Sandbox().run('print(6 * 7)').stdout)"],
                             env={"PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
                             cwd=tmp_path)
        assert out.stdout.strip() == "42", out.stderr
