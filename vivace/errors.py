"""The one exception that a user may see.

Every room raises :class:`VivaceError` (or a subclass) for what a user can understand and act on. Anything else that
escapes is a defect. The text says what happened and where; the hint says what to do next.
"""

from __future__ import annotations


class VivaceError(Exception):
    """What happened, and what to do next.

    ``code`` is a stable word for programs (``model_not_found``), ``param`` names the offending argument or request
    field, ``exit_code`` is what the command returns: 1 failure, 2 usage, 3 nothing changed.
    """

    def __init__(
        self, message: str, *, hint: str = "", code: str = "error", param: str | None = None, exit_code: int = 1
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.param = param
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(VivaceError):
    """The command or request itself is wrong; exit code 2."""

    def __init__(self, message: str, *, hint: str = "", code: str = "usage", param: str | None = None) -> None:
        super().__init__(message, hint=hint, code=code, param=param, exit_code=2)


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint that names the nearest known names, for messages about an unknown one."""
    from rapidfuzz import process

    near = [match[0] for match in process.extract(name, known, limit=3, score_cutoff=50)]
    return f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
