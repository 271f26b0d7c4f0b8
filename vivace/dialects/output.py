"""What a model writes, as it comes: text, reasoning, tool calls.

:class:`OutputParser` does what all families share: reasoning first, then text with calls in it. How a call is
written is the family's :class:`CallSyntax`. Three rules hold for all: what turns out to be no call comes out as the
text that it was, nothing is held back that cannot be the beginning of a mark, a call that breaks off is never ended.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Protocol

from vivace.dialects.calls import Call, json_call
from vivace.dialects.reader import Parse, Reader
from vivace.dialects.syntax import CallSyntax
from vivace.dialects.tools import ToolTable

THINK, THOUGHT = "<think>", "</think>"
_REASONING_ENDS = ("\n</think>", THOUGHT)
_FENCE = re.compile(r"[A-Za-z_]")


class Sink(Protocol):
    """Told of what was found, in order."""

    def text(self, text: str) -> None:
        """The next piece of the answer."""

    def reasoning(self, text: str) -> None:
        """The next piece of the model's own thoughts."""

    def call(self, name: str, raw: bool) -> None:
        """A call of the tool with this flat name begins; ``raw`` where free text follows instead of JSON arguments."""

    def argument(self, text: str) -> None:
        """The next piece of the call's arguments or free text."""

    def call_end(self) -> None:
        """The call is whole."""


class OutputParser:
    """One answer, parsed while it comes.

    Calls are looked for where ``table`` has tools that may be called. ``thinks`` looks for reasoning at the beginning;
    ``opened`` says that the prompt has opened it already. ``printed`` also takes an answer that begins with the JSON of
    a call to a tool that may be called, bare or in a fence, as small models write it.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        table: ToolTable,
        sink: Sink,
        *,
        thinks: bool = False,
        opened: bool = False,
        printed: bool = True,
    ) -> None:
        self.reasoning = opened
        """Whether the model thinks, as far as it was read."""

        self.watched = thinks or opened
        """Reasoning may still come or go on."""

        self._syntax = syntax
        self._table = table
        self._sink = sink
        self._thinks = thinks or opened
        self._printed = printed and bool(table.callable)
        self._reader = Reader()
        self._parse: Generator[None, None, None] = self._answer()
        self._done = False

    def feed(self, text: str) -> None:
        """The next piece of the model's text."""
        if self._done:
            self._sink.text(text)
            return
        self._reader.put(text)
        self._go_on()

    def finish(self) -> None:
        """The model's text has ended; what was held back comes out."""
        self._reader.ended = True
        self._go_on()

    def _go_on(self) -> None:
        try:
            next(self._parse)
        except StopIteration:
            self._done = True
            if rest := self._reader.text:
                self._reader.text = ""
                self._sink.text(rest)

    def _answer(self) -> Parse[None]:
        reader = self._reader
        if self.reasoning:
            yield from self._reason()
        yield from self._opening()
        self.watched = False
        marks = self._syntax.marks if self._table.callable else ()
        while marks:
            mark = yield from reader.until(marks, self._sink.text)
            if not mark:
                return
            if (yield from self._syntax.calls(mark, reader, Call(self._table, self._sink))):
                yield from self._after_call()
            else:
                self._sink.text(reader.take_back())

    def _opening(self) -> Parse[None]:
        """The beginning of the answer: reasoning, and calls that are printed rather than made."""
        reader = self._reader
        if not (self._thinks or self._printed):
            return
        yield from reader.blanks()
        if self._thinks and (yield from reader.take(THINK)):
            reader.accept()
            self.reasoning = True
            yield from self._reason()
        while self._printed and (yield from self._printed_call()):
            yield from self._after_call()
            yield from reader.take(";")  # What Llama puts between calls.
            yield from reader.blanks()
        if taken := reader.take_back():
            self._sink.text(taken)

    def _reason(self) -> Parse[None]:
        """Up to the closing mark, the white space at both ends left out."""
        reader = self._reader
        yield from reader.blanks()
        reader.accept()
        yield from reader.until(_REASONING_ENDS, self._sink.reasoning)
        self.reasoning = False
        yield from reader.blanks()
        reader.accept()

    def _printed_call(self) -> Parse[bool]:
        reader = self._reader
        if (yield from reader.peek()) not in ("{", "`"):
            return False
        fenced = yield from reader.take("```")
        if fenced:
            yield from reader.matching(_FENCE)
            yield from reader.blanks()
        if not (yield from json_call(reader, Call(self._table, self._sink, offered_only=True))):
            return False
        if fenced:
            yield from reader.blanks()
            if (yield from reader.take("```")):
                reader.accept()
        return True

    def _after_call(self) -> Parse[None]:
        """White space after a call belongs to nothing."""
        self._reader.accept()
        yield from self._reader.blanks()
        self._reader.accept()
