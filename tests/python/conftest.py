"""As every suite of the Python package."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from package_world import pytest_configure, pytest_runtest_setup  # noqa: E402, F401
