"""OpenAI's harmony format, which gpt-oss writes: messages on channels, each with a head.

``analysis`` is reasoning, ``final`` the answer, ``commentary`` talk before calls, or with ``to=functions.NAME`` a call.
The form is that of OpenAI's openai-harmony.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING

from vivace.dialects.calls import Call
from vivace.dialects.reader import Parse, Reader
from vivace.dialects.tools import ToolTable

if TYPE_CHECKING:
    from vivace.dialects.output import Sink

HARMONY_TOKENS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
_HEADS = ("<|start|>", "<|channel|>")
_ENDS = ("<|end|>", "<|return|>", "<|call|>", "<|start|>")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class HarmonyParser:
    """One answer of gpt-oss, parsed while it comes; see :class:`vivace.dialects.output.OutputParser`."""

    def __init__(self, table: ToolTable, sink: Sink) -> None:
        self.reasoning = False
        self.watched = True
        self._table = table
        self._sink = sink
        self._reader = Reader()
        self._parse: Generator[None, None, None] = self._messages()
        self._done = False

    def feed(self, text: str) -> None:
        """The next piece of the model's text."""
        self._reader.put(text)
        self._go_on()

    def finish(self) -> None:
        """The model's text has ended; what was held back comes out."""
        self._reader.ended = True
        self._go_on()

    def _go_on(self) -> None:
        if not self._done:
            self._done = next(self._parse, True) is True

    def _messages(self) -> Parse[None]:
        reader = self._reader
        while head := (yield from reader.until(_HEADS, self._sink.text)):
            pieces = [head]
            reader.accept()
            if not (yield from reader.until(("<|message|>",), pieces.append)):
                return
            reader.accept()
            yield from self._message("".join(pieces))

    def _message(self, head: str) -> Parse[None]:
        reader = self._reader
        channel = _CHANNEL.search(head)
        recipient = _RECIPIENT.search(head)
        if recipient:
            yield from self._call(recipient.group(1))
            return
        self.reasoning = channel is not None and channel.group(1) == "analysis"
        end = yield from reader.until(_ENDS, self._sink.reasoning if self.reasoning else self._sink.text)
        self.reasoning = False
        self._next(end)

    def _call(self, name: str) -> Parse[None]:
        reader = self._reader
        call = Call(self._table, self._sink)
        call.named(name)
        yield from reader.blanks()
        reader.accept()
        raw = call.custom and (yield from reader.peek()) != "{"
        call.begin(raw)
        if not raw and (yield from call.arguments(reader)):
            call.whole()
            reader.accept()
        end = yield from reader.until(_ENDS, call.argument if raw else _nothing)
        if raw and end:
            call.whole()
        self._next(end)

    def _next(self, end: str) -> None:
        """After a message; the mark of the next one is read again as its head."""
        if end != "<|start|>":
            self._reader.accept()
        self._reader.at = 0


def _nothing(text: str) -> None:
    """What follows the arguments says nothing."""
