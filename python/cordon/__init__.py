"""Cordon runs code that nobody trusts and hands back an honest result.

>>> import cordon
>>> with cordon.Sandbox(timeout=5.0) as sandbox:
...     result = sandbox.run('print("hello")')
>>> result.stdout
'hello\\n'

``cordon.runner`` passes Python values in and out, ``cordon.workspace`` keeps a folder per task,
``cordon.executor`` runs shell commands in a container, ``cordon.grade`` grades programs. The wall is that of libcordon; this package needs
nothing but the standard library.
"""

from ._lib import version as library_version
from ._run import Run, Stream, StreamEvent
from .errors import SandboxError
from .grade import TestResult, TestRunner
from .result import ExecutionResult
from .sandbox import Sandbox, Stats

__version__ = "0.1.0"
__all__ = ["ExecutionResult", "Run", "Sandbox", "SandboxError", "Stats", "Stream", "StreamEvent",
           "TestResult", "TestRunner", "library_version", "__version__"]
