"""Pieces of an answer to items and events: the order of events is kept here and nowhere else.

``output_item.added`` -> its body -> ``output_item.done`` for each item, one item at a time. The final object of a
response is made of the very items that were emitted. A call is whole when its :class:`CallEnd` came and not before: one
that breaks off leaves an ``added`` and no ``done``, since Codex CLI starts a tool at whatever is done.
"""

from __future__ import annotations

from collections.abc import Callable

from vivace.backends.base import CallEnd, CallStart, CallText, Reasoning, Text
from vivace.dialects.jsontext import CustomInputDecoder
from vivace.dialects.tools import FlatTool, ToolTable
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.items import Item, ItemStatus, OutputText, ReasoningText, SummaryText, new_id

Told = Text | Reasoning | CallStart | CallText | CallEnd
Seal = Callable[[str], str]
"""Raw reasoning -> the opaque text that a client sends back."""


class Composer:
    """Makes one response's items.

    ``number`` gives sequence numbers; ``seal`` is there when opaque reasoning was asked for. With ``summarises``
    thoughts go out as the summary that the request asked for: an open model's thoughts are all there is to summarise,
    and clients that ask show nothing else.
    """

    def __init__(
        self, table: ToolTable, number: Callable[[], int], seal: Seal | None = None, summarises: bool = False
    ) -> None:
        self._thinks: type[_OpenReasoning] = _OpenSummary if summarises else _OpenReasoning
        self.table = table
        self.output: list[Item] = []
        self.broken = False
        """A call broke off, so more was generated than the items say."""
        self._number = number
        self._index = -1
        self._seal = seal
        self._open: _Open | None = None

    @property
    def between_items(self) -> bool:
        return self._open is None

    @property
    def in_call(self) -> bool:
        """A call is open, and not yet whole."""
        return isinstance(self._open, _OpenCall | _OpenCustom)

    def starts_item(self, piece: Told) -> bool:
        """Whether ``piece`` would open an item: the moment before it is a boundary."""
        match piece:
            case Text():
                return not isinstance(self._open, _OpenMessage)
            case Reasoning():
                return not isinstance(self._open, _OpenReasoning)
            case CallStart():
                return True
            case _:
                return False

    def feed(self, piece: Told) -> list[ev.Event]:
        """The events of the next piece."""
        opened = self._open
        match piece:
            case Text(text):
                return self._say(opened if isinstance(opened, _OpenMessage) else None, _OpenMessage, text)
            case Reasoning(text):
                return self._say(opened if isinstance(opened, _OpenReasoning) else None, self._thinks, text)
            case CallText(text):
                if not isinstance(opened, _OpenCall | _OpenCustom) or not text:
                    return []
                return opened.more(self._number, self._index, text)
            case CallStart():
                events = self.close(more=True)
                tool = self.table.restore(piece.name)
                return [*events, *self._begin((_OpenCustom if tool.kind == "custom" else _OpenCall)(tool, piece))]
            case CallEnd():
                if not isinstance(opened, _OpenCall | _OpenCustom):
                    return []
                self._open = None
                return self._done(opened, "completed", more=False)

    def close(self, status: ItemStatus = "completed", *, more: bool = False) -> list[ev.Event]:
        """End the open item, if there is one; ``more`` tells that others follow.

        A call that is still open broke off. It leaves no item, and nobody is told that it is done.
        """
        opened, self._open = self._open, None
        if isinstance(opened, _OpenCall | _OpenCustom):
            self.broken = True
            return []
        return [] if opened is None else self._done(opened, status, more)

    def compacting(self, item_id: str) -> list[ev.Event]:
        """The events of a compaction that is being made."""
        events = self.close(more=True)
        self._index += 1
        added = ev.ItemAdded(self._number(), self._index, it.Compaction("", item_id))
        return [*events, added, ev.Compacting(self._number(), item_id, self._index)]

    def compacted(self, item: it.Compaction) -> list[ev.Event]:
        """The end of what :meth:`compacting` began."""
        self.output.append(item)
        return [ev.ItemDone(self._number(), self._index, item)]

    def _say(
        self, opened: _OpenMessage | _OpenReasoning | None, kind: type[_OpenMessage] | type[_OpenReasoning], text: str
    ) -> list[ev.Event]:
        if not text:
            return []
        if opened is not None:
            return opened.more(self._number, self._index, text)
        opened = kind()
        events = [*self.close(more=True), *self._begin(opened)]
        return [*events, *opened.more(self._number, self._index, text)]

    def _begin(self, opened: _Open) -> list[ev.Event]:
        self._open = opened
        self._index += 1
        return [ev.ItemAdded(self._number(), self._index, opened.first()), *opened.begin(self._number, self._index)]

    def _done(self, opened: _Open, status: ItemStatus, more: bool) -> list[ev.Event]:
        events, item = opened.done(self._number, self._index, status, more)
        if isinstance(item, it.Reasoning) and self._seal is not None:
            item.encrypted_content = self._seal(it.item_text(item))
        self.output.append(item)
        return [*events, ev.ItemDone(self._number(), self._index, item)]


class _OpenMessage:
    def __init__(self) -> None:
        self.id = new_id("msg")
        self.parts: list[str] = []

    def first(self) -> Item:
        return it.Message("assistant", [], self.id, "in_progress")

    def begin(self, number: Callable[[], int], index: int) -> list[ev.Event]:
        return [ev.PartAdded(number(), self.id, index, 0, OutputText(""))]

    def more(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        self.parts.append(text)
        return [ev.TextDelta(number(), self.id, index, 0, text)]

    def done(
        self, number: Callable[[], int], index: int, status: ItemStatus, more: bool
    ) -> tuple[list[ev.Event], Item]:
        text = "".join(self.parts)
        phase: it.Phase = "commentary" if more else "final_answer"
        item = it.Message("assistant", [OutputText(text)], self.id, status, phase)
        return [
            ev.TextDone(number(), self.id, index, 0, text),
            ev.PartDone(number(), self.id, index, 0, OutputText(text)),
        ], item


class _OpenReasoning:
    def __init__(self) -> None:
        self.id = new_id("rs")
        self.parts: list[str] = []

    def first(self) -> Item:
        return it.Reasoning(self.id)

    def begin(self, number: Callable[[], int], index: int) -> list[ev.Event]:
        return [ev.PartAdded(number(), self.id, index, 0, ReasoningText(""))]

    def more(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        self.parts.append(text)
        return [ev.ReasoningTextDelta(number(), self.id, index, 0, text)]

    def done(
        self, number: Callable[[], int], index: int, status: ItemStatus, more: bool
    ) -> tuple[list[ev.Event], Item]:
        text = "".join(self.parts)
        return [
            ev.ReasoningTextDone(number(), self.id, index, 0, text),
            ev.PartDone(number(), self.id, index, 0, ReasoningText(text)),
        ], it.Reasoning(self.id, [], [ReasoningText(text)])


class _OpenSummary(_OpenReasoning):
    """The same thoughts by the events of a summary."""

    def begin(self, number: Callable[[], int], index: int) -> list[ev.Event]:
        return [ev.ReasoningSummaryPartAdded(number(), self.id, index, 0, SummaryText(""))]

    def more(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        self.parts.append(text)
        return [ev.ReasoningSummaryTextDelta(number(), self.id, index, 0, text)]

    def done(
        self, number: Callable[[], int], index: int, status: ItemStatus, more: bool
    ) -> tuple[list[ev.Event], Item]:
        text = "".join(self.parts)
        return [
            ev.ReasoningSummaryTextDone(number(), self.id, index, 0, text),
            ev.ReasoningSummaryPartDone(number(), self.id, index, 0, SummaryText(text)),
        ], it.Reasoning(self.id, [SummaryText(text)], [ReasoningText(text)])


class _OpenCall:
    def __init__(self, tool: FlatTool, start: CallStart) -> None:
        self.id = new_id("fc")
        self.tool = tool
        self.call_id = start.call_id
        self.parts: list[str] = []

    def item(self, arguments: str, status: ItemStatus) -> it.FunctionCall:
        tool = self.tool
        return it.FunctionCall(self.call_id, tool.public_name, arguments, tool.namespace, self.id, status)

    def first(self) -> Item:
        return self.item("", "in_progress")

    def begin(self, number: Callable[[], int], index: int) -> list[ev.Event]:
        return []

    def more(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        self.parts.append(text)
        return [ev.ArgumentsDelta(number(), self.id, index, text)]

    def done(
        self, number: Callable[[], int], index: int, status: ItemStatus, more: bool
    ) -> tuple[list[ev.Event], Item]:
        # A call without arguments is written as one with none of them: clients parse the text.
        events = [] if self.parts else self.more(number, index, "{}")
        arguments = "".join(self.parts)
        done = ev.ArgumentsDone(number(), self.id, index, arguments, self.tool.public_name)
        return [*events, done], self.item(arguments, status)


class _OpenCustom:
    """A custom tool's call, out of raw text or of the JSON that a model without free text writes around it."""

    def __init__(self, tool: FlatTool, start: CallStart) -> None:
        self.id = new_id("ctc")
        self.tool = tool
        self.call_id = start.call_id
        self.parts: list[str] = []
        self._decoder = None if start.raw else CustomInputDecoder()

    def item(self, text: str, status: ItemStatus) -> it.CustomToolCall:
        tool = self.tool
        return it.CustomToolCall(self.call_id, tool.public_name, text, tool.namespace, self.id, status)

    def first(self) -> Item:
        return self.item("", "in_progress")

    def begin(self, number: Callable[[], int], index: int) -> list[ev.Event]:
        return []

    def more(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        if self._decoder is not None:
            text = self._decoder.feed(text)
        return self._emit(number, index, text)

    def done(
        self, number: Callable[[], int], index: int, status: ItemStatus, more: bool
    ) -> tuple[list[ev.Event], Item]:
        events = self._emit(number, index, self._decoder.finish()) if self._decoder is not None else []
        text = "".join(self.parts)
        return [*events, ev.CustomInputDone(number(), self.id, index, text)], self.item(text, status)

    def _emit(self, number: Callable[[], int], index: int, text: str) -> list[ev.Event]:
        if not text:
            return []
        self.parts.append(text)
        return [ev.CustomInputDelta(number(), self.id, index, text)]


_Open = _OpenMessage | _OpenReasoning | _OpenCall | _OpenCustom
