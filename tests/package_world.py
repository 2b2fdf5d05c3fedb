"""Hooks of the suites of the Python package: the package from the source tree, with the library of the build beside it
(or CORDON_LIBRARY), and tests that need tier full."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, os.environ.get("CORDON_PYTHON", str(ROOT / "python")))
STRICT = os.environ.get("CORDON_TEST_STRICT") == "1"
_tier = None


def pytest_configure(config):
    config.addinivalue_line("markers", "full_tier: needs tier full, the reason says for what")


def pytest_runtest_setup(item):
    global _tier
    marker = item.get_closest_marker("full_tier")
    if marker is None:
        return
    if _tier is None:
        import cordon
        with cordon.Sandbox() as sandbox:
            _tier = sandbox.run_command(["true"]).enforcement["tier"]
    if _tier != "full":
        reason = f"needs tier full ({marker.args[0]}); this host gives tier {_tier}"
        pytest.fail(reason) if STRICT else pytest.skip(reason)
