"""Shared by every pytest suite of the project: the helpers of the end-to-end tests can be imported, and
no test writes byte code into the tree."""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))
