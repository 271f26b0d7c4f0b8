"""A parser's findings as the pieces of a run."""

from __future__ import annotations

from vivace.backends.base import CallEnd, CallStart, CallText, Reasoning, Text
from vivace.protocol.items import new_id

Told = Text | Reasoning | CallStart | CallText | CallEnd


class PieceSink:
    """A :class:`vivace.dialects.output.Sink` that makes pieces; neighbours of one kind become one piece."""

    def __init__(self) -> None:
        self._pieces: list[Told] = []
        self._kind: type[Text] | type[Reasoning] | type[CallText] = Text
        self._texts: list[str] = []

    def text(self, text: str) -> None:
        self._add(Text, text)

    def reasoning(self, text: str) -> None:
        self._add(Reasoning, text)

    def call(self, name: str, raw: bool) -> None:
        self._close()
        self._pieces.append(CallStart(name, new_id("call"), raw))

    def argument(self, text: str) -> None:
        self._add(CallText, text)

    def call_end(self) -> None:
        self._close()
        self._pieces.append(CallEnd())

    def take(self) -> list[Told]:
        """The pieces since the last time."""
        self._close()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _add(self, kind: type[Text] | type[Reasoning] | type[CallText], text: str) -> None:
        if kind is not self._kind:
            self._close()
            self._kind = kind
        self._texts.append(text)

    def _close(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        if text:
            self._pieces.append(self._kind(text))
