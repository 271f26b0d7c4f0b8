"""Calls as models write them in JSON: ``{"name": ..., "arguments": {...}}``, told while they come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vivace.dialects.jsontext import CustomInputDecoder, StringDecoder
from vivace.dialects.reader import Parse, Reader

if TYPE_CHECKING:
    from vivace.dialects.output import Sink
    from vivace.dialects.tools import FlatTool, ToolTable

_NAMES = ("name", "function", "tool_name")
_ARGUMENTS = ("arguments", "parameters", "args")
_BESIDE = ("type", "id")


class Call:
    """One call on its way to the sink. ``offered_only`` takes only tools that may be called."""

    def __init__(self, table: ToolTable, sink: Sink, offered_only: bool = False) -> None:
        self.table = table
        self.sink = sink
        self.offered_only = offered_only
        self.tool: FlatTool | None = None
        self.name = ""
        self.filled = False
        """All of its arguments were read."""
        self.ended = False
        """It was told to be whole."""
        self._custom: CustomInputDecoder | None = None

    def named(self, name: str) -> bool:
        """The model has named the tool; False when it cannot be called."""
        tool = self.table.find(name)
        if not name or (self.offered_only and tool not in self.table.callable):
            return False
        self.tool, self.name = tool, tool.name if tool else name
        return True

    @property
    def custom(self) -> bool:
        return self.tool is not None and self.tool.kind == "custom"

    def begin(self, raw: bool = False) -> None:
        """Tell of the call. ``raw``: the model writes the free text of a custom tool as it is, not as JSON."""
        self.sink.call(self.name, self.custom)
        self._custom = CustomInputDecoder() if self.custom and not raw else None

    def argument(self, text: str) -> None:
        """The next piece of what the model writes as arguments."""
        text = self._custom.feed(text) if self._custom else text
        if text:
            self.sink.argument(text)

    def whole(self) -> None:
        """All of the call was written."""
        if self._custom and (rest := self._custom.finish()):
            self.sink.argument(rest)
        self.sink.call_end()
        self.ended = True

    def arguments(self, reader: Reader) -> Parse[bool]:
        """Tell of the JSON value that comes next; one that is JSON within a string is told without the string."""
        if (yield from reader.peek()) != '"':
            self.filled = yield from reader.value(self.argument)
            return self.filled
        if self.custom:
            self._custom = None  # The string is the free text itself.
        decoder = StringDecoder()
        opening = 1

        def decoded(text: str) -> None:
            nonlocal opening
            if plain := decoder.feed(text[opening:]):
                self.argument(plain)
            opening = 0

        self.filled = yield from reader.value(decoded)
        if self.filled and (rest := decoder.finish()):
            self.argument(rest)
        return self.filled


def json_call(reader: Reader, call: Call) -> Parse[bool]:
    """Read one object with a name and arguments, in any order, among other keys.

    Told from its name on, or with ``offered_only`` from its arguments on; before that it may still turn out to be no
    call: then False, and the reader can take everything back. A call that was told is ended when its object is.
    """
    yield from reader.blanks()
    if not (yield from reader.take("{")):
        return False
    started = False
    held: str | None = None
    while True:
        yield from reader.blanks()
        key = (yield from reader.string()) if (yield from reader.peek()) == '"' else None
        if key is None:
            return started
        yield from reader.blanks()
        if not (yield from reader.take(":")):
            return started
        yield from reader.blanks()
        word = key[1:-1]
        if word in _NAMES and not call.name:
            name = (yield from reader.string()) if (yield from reader.peek()) == '"' else None
            if name is None or not call.named(_plain(name)):
                return False
            if held is not None or not call.offered_only:
                reader.accept()
                call.begin()
                started = True
            if held is not None:
                call.argument(_unwrapped(held))
                call.filled = True
        elif word in _ARGUMENTS and call.name and not (started and held is not None):
            reader.accept()
            if not started:
                call.begin()
                started = True
            held = ""
            if not (yield from call.arguments(reader)):
                return True
        elif call.offered_only and word not in _BESIDE:
            return started  # Some other object, which is not to be held back until it ends.
        else:
            value = yield from _skipped(reader)
            if value is None:
                return started
            held = value if word in _ARGUMENTS and held is None else held
        yield from reader.blanks()
        closed = yield from reader.take(",", "}")
        if closed == ",":
            continue
        if closed == "}" and started:
            if held is None:
                call.argument("{}")
            call.whole()
            reader.accept()
        return started


def _skipped(reader: Reader) -> Parse[str | None]:
    """The text of the value that comes next, read but not settled; None when it breaks off."""
    start = reader.at
    inner = Reader()
    inner.text = reader.text[start:]
    taken: list[str] = []
    parse = inner.value(taken.append)
    while True:
        try:
            next(parse)
        except StopIteration as stop:
            text = "".join(taken)
            reader.at = start + len(text)
            return text if stop.value else None
        length = len(reader.text)
        if (yield from reader.more()):
            inner.put(reader.text[length:])
        else:
            inner.ended = True


def _plain(quoted: str) -> str:
    try:
        return str(json.loads(quoted, strict=False)).strip()
    except ValueError:
        return quoted[1:-1]


def _unwrapped(value: str) -> str:
    """Arguments that were given as a string of JSON, without the string."""
    if not value.startswith('"'):
        return value
    decoder = StringDecoder()
    return decoder.feed(value[1:]) + decoder.finish()
