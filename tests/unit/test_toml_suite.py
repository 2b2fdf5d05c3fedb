"""The TOML reader against every case of the toml-test suite for TOML 1.0.

Needs the suite at ../shared/data/toml-test (relative to the project root) and the built toml_decode
in $CORDON_BUILD (default: build/). The values are compared as values: floats by number, times by
instant parts, so that the spelling of the expected file does not matter.
"""

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT.parent / "shared" / "data" / "toml-test" / "tests"
LIST = SUITE / "files-toml-1.0.0"
BUILD = ROOT / os.environ.get("CORDON_BUILD", "build")

TIME = re.compile(
    r"(?:(\d{4}-\d\d-\d\d))?[Tt ]?(?:(\d\d:\d\d:\d\d)(?:\.(\d+))?)?(?:([Zz])|([+-]\d\d:\d\d))?"
)


MISSING = "missing prerequisite: the toml-test suite at ../shared/data/toml-test"


def cases(kind):
    if not LIST.exists():
        return [pytest.param("", marks=pytest.mark.skip(reason=MISSING))]
    names = LIST.read_text().split()
    return [name for name in names if name.startswith(kind + "/") and name.endswith(".toml")]


@pytest.fixture(scope="session")
def decoder():
    if not LIST.exists():
        pytest.skip(MISSING)
    for path in (BUILD / "tests" / "unit" / "toml_decode", BUILD / "toml_decode"):
        if path.exists():
            return path
    pytest.fail(f"toml_decode is not built below {BUILD}; set CORDON_BUILD")


def decode(decoder, data):
    return subprocess.run([decoder], input=data, capture_output=True, timeout=60, check=False)


def time_parts(text):
    match = TIME.fullmatch(text)
    assert match, text
    date, time, fraction, _, offset = match.groups()
    minutes = None
    if match[4]:
        minutes = 0
    elif offset:
        minutes = int(offset[0] + "1") * (int(offset[1:3]) * 60 + int(offset[4:]))
    return date, time, (fraction or "").ljust(9, "0")[:9], minutes


def plain(value):
    """Tagged JSON as values that compare as the suite means them."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if set(value) == {"type", "value"} and isinstance(value["type"], str):
        kind, text = value["type"], value["value"]
        if kind == "float":
            number = float(text)
            return (kind, "nan") if math.isnan(number) else (kind, number, math.copysign(1, number))
        if kind == "integer":
            return kind, int(text)
        if kind in ("datetime", "datetime-local", "date-local", "time-local"):
            return kind, time_parts(text)
        return kind, text
    return {key: plain(item) for key, item in value.items()}


def test_suite_is_complete(decoder):
    assert len(cases("valid")) > 200
    assert len(cases("invalid")) > 450


@pytest.mark.parametrize("name", cases("valid"))
def test_valid(decoder, name):
    path = SUITE / name
    done = decode(decoder, path.read_bytes())
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert plain(json.loads(done.stdout)) == plain(expected)


@pytest.mark.parametrize("name", cases("invalid"))
def test_invalid(decoder, name):
    done = decode(decoder, (SUITE / name).read_bytes())
    assert done.returncode == 1, done.stdout.decode()
    assert done.stdout == b""
    message = done.stderr.decode("utf-8")
    assert re.fullmatch(r"stdin:[1-9]\d*:[1-9]\d*: [ -~\u00a0-\U0010ffff]+\n", message), message
