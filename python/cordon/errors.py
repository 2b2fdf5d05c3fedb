"""The one exception of the package that means: Cordon, or this host, failed."""

from __future__ import annotations

from typing import Type


class SandboxError(Exception):
    """Cordon could not do what was asked. It never says anything about the guest: how a guest ended is a
    result.

    ``code``   64 the call is wrong, 69 this host cannot build the wall, 70 a failure of Cordon or the
               host, 78 a configuration is wrong (the exit statuses of the command)
    ``stage``  where: ``"policy"``, ``"plan"``, ``"mount"``, ``"open"`` …
    ``hint``   the smallest fix, or ``""``
    ``errno``  of the failing system call, or 0
    """

    def __init__(self, message: str, *, code: int = 70, stage: str = "", hint: str = "", errno: int = 0):
        super().__init__(message)
        self.message = message
        self.code = code
        self.stage = stage
        self.hint = hint
        self.errno = errno
        if hint and hasattr(self, "add_note"):  # Python 3.11 shows it below the message
            self.add_note(hint)

    def __reduce__(self):  # keyword-only arguments survive pickling between processes, and so do subclasses
        return _rebuild, (type(self), self.message), dict(self.__dict__)


def _rebuild(kind: Type[SandboxError], message: str) -> SandboxError:
    """Without what a subclass's own way of making one may ask for."""
    made = kind.__new__(kind)
    Exception.__init__(made, message)
    return made
