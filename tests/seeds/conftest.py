"""The package from the source tree, with the library of the build beside it (or CORDON_LIBRARY)."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, os.environ.get("CORDON_PYTHON", str(ROOT / "python")))
