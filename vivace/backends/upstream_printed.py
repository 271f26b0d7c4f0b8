"""Tool calls that a model prints into its text, where the server in between does not make calls of them.

vLLM without a tool parser, and any server with a small model that puts its call into a fence, stream calls as text.
"""

from __future__ import annotations

from vivace.backends.base import Job, Piece, Text
from vivace.backends.pieces import PieceSink
from vivace.dialects.families import FAMILIES, family_of
from vivace.errors import UsageError, did_you_mean
from vivace.protocol.options import JsonObjectFormat, JsonSchemaFormat

NONE = "none"


def check_dialect(name: str) -> None:
    """Raises :class:`UsageError` for a family that is not known."""
    known = [NONE, *(family.name for family in FAMILIES)]
    if name not in known:
        raise UsageError(f"dialect is {name!r}.", hint=did_you_mean(name, known), param="dialect")


class PrintedCalls:
    """Reads the text of one answer. Where no tool may be called, all of it is text."""

    def __init__(self, job: Job, dialect: str) -> None:
        self._sink = PieceSink()
        asked = job.request.text.format if job.request.text is not None else None
        # JSON that was asked for is the answer, even where it looks like a call.
        printed = not isinstance(asked, JsonObjectFormat | JsonSchemaFormat)
        wanted = dialect != NONE and bool(job.tools.callable)
        self._parser = family_of(None, dialect).parser(job.tools, self._sink, printed=printed) if wanted else None

    def feed(self, text: str) -> list[Piece]:
        """The pieces that ``text`` completes."""
        if self._parser is None:
            return [Text(text)]
        self._parser.feed(text)
        return list(self._sink.take())

    def finish(self) -> list[Piece]:
        """The text has ended, or calls made by the server follow: what was held back."""
        if self._parser is None:
            return []
        self._parser.finish()
        return list(self._sink.take())
