"""As every suite of the Python package; and what several of its files use."""

import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from package_world import pytest_configure, pytest_runtest_setup  # noqa: E402, F401


@pytest.fixture(scope="module")
def sandbox():
    from cordon import Sandbox  # the package that is tested: known when the suite is configured
    with Sandbox(timeout=10) as made:
        yield made


def gone(token, within=10.0):
    """No process of the host has this word in its command line any more."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        found = subprocess.run(["pgrep", "-f", token], capture_output=True, text=True).stdout.split()
        if not found:
            return True
        time.sleep(0.05)
    return False
