"""Tool calls out of a stream in which they may be mixed: one after the other, each ended as soon as it is whole.

A call is whole when its JSON object is closed. Codex CLI starts a tool when its item is done, so waiting for the end of
the stream would hold the first of several calls up for as long as the others take.
"""

from __future__ import annotations

import re

from vivace.backends.base import CallEnd, CallStart, CallText, Piece
from vivace.dialects.jsontext import CustomInputDecoder
from vivace.dialects.tools import ToolTable
from vivace.protocol.items import new_id

_MARKS = re.compile(r'["\\{}\[\]]')


class JsonEnd:
    """Finds the end of a JSON object that comes in pieces."""

    def __init__(self) -> None:
        self.closed = False
        self._depth = 0
        self._string = False
        self._escaped = False

    def feed(self, text: str) -> int:
        """How much of ``text`` belongs to the object; what follows its end does not."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        while not self.closed and (found := _MARKS.search(text, at)):
            at, mark = found.end(), found[0]
            if self._string:
                if mark == "\\":
                    self._escaped = at == len(text)
                    at += 1
                elif mark == '"':
                    self._string = False
            elif mark == '"':
                self._string = True
            elif mark in "{[":
                self._depth += 1
            elif mark in "}]":
                self._depth -= 1
                self.closed = self._depth <= 0
        return at if self.closed else len(text)


class _Call:
    def __init__(self, call_id: str, free: bool) -> None:
        self.call_id = call_id
        self.free = free
        self.name = ""
        self.raw = free
        self.started = False
        self.empty = True
        self.ended = False
        self.waiting: list[str] = []
        self.json = JsonEnd()
        self.decoder: CustomInputDecoder | None = None

    @property
    def whole(self) -> bool:
        return self.ended or self.json.closed

    def take(self, text: str) -> None:
        if self.empty and text.strip() and not text.lstrip().startswith("{"):
            self.free = True  # no object, so its end cannot be seen; the client is to see what the model wrote
        if not self.free:
            text = text[: self.json.feed(text)] if not self.json.closed else ""
        if text:
            self.empty = False
            self.waiting.append(text)


class Calls:
    """Keeps the calls of one answer apart by whatever key the stream has for them."""

    def __init__(self, tools: ToolTable) -> None:
        self._tools = tools
        self._calls: dict[object, _Call] = {}
        self._open: list[_Call] = []

    def add(self, key: object, call_id: str, name: str, text: str, *, free: bool = False) -> list[Piece]:
        """The next piece of a call: ``name`` once, then its arguments; ``free`` is text that is no JSON."""
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _Call(call_id or new_id("call"), free)
            self._open.append(call)
        if name and not call.name:
            tool = self._tools.restore(name)
            call.name = tool.name
            call.raw = free or tool.kind == "custom"
            call.decoder = CustomInputDecoder() if call.raw and not free else None
        if text:
            call.take(text)
        return self._drain()

    def end(self, key: object, text: str = "") -> list[Piece]:
        """The stream says that a call is whole; ``text`` is all of it, for streams that sent no pieces."""
        call = self._calls.get(key)
        if call is None or call.ended:
            return []
        if text and call.empty:
            call.take(text)
        call.ended = call.free or call.json.closed or call.empty
        return self._drain()

    def finish(self, *, cut: bool) -> list[Piece]:
        """The stream is over. The first call that is not whole is cut off: left open, with nothing behind it."""
        for call in self._open:
            call.ended = call.whole or (not cut and (call.empty or call.free))
        # Whole ones come first, unless the one that is cut off has already begun.
        self._open.sort(key=lambda call: not call.ended and not call.started)
        last = next((n for n, call in enumerate(self._open) if not call.ended), len(self._open))
        self._open = self._open[: last + 1]
        pieces = self._drain()
        self._open = []
        return pieces

    def _drain(self) -> list[Piece]:
        """What can be said now: of the first call that is not whole everything, of those behind it nothing."""
        pieces: list[Piece] = []
        while self._open and self._open[0].name:
            call = self._open[0]
            if not call.started:
                call.started = True
                pieces.append(CallStart(call.name, call.call_id, call.raw))
            text = "".join(call.waiting)
            call.waiting = []
            if call.ended and call.empty and not call.raw:
                text = "{}"  # a call without arguments, which some servers write as nothing
            if call.decoder is not None:
                text = call.decoder.feed(text) + (call.decoder.finish() if call.whole else "")
            if text:
                pieces.append(CallText(text))
            if not call.whole:
                break
            pieces.append(CallEnd())
            self._open.pop(0)
        return pieces
