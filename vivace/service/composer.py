"""Pieces of an answer to items and events: the order of events is kept here and nowhere else.

``output_item.added`` -> its body -> ``output_item.done`` for each item, one item at a time. The final object of a
response is made of the very items that were emitted.
"""

from __future__ import annotations

from collections.abc import Callable

from vivace.backends.base import CallEnd, CallStart, CallText, Reasoning, Text
from vivace.dialects.jsontext import CustomInputDecoder
from vivace.dialects.tools import FlatTool, ToolTable
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.items import Item, ItemStatus, OutputText, ReasoningText, new_id

Seal = Callable[[str], str]
"""Raw reasoning -> the opaque text that a client sends back."""


class Composer:
    """Makes one response's items.

    ``number`` gives sequence numbers; ``seal`` is there when opaque reasoning was asked for.
    """

    def __init__(self, table: ToolTable, number: Callable[[], int], seal: Seal | None = None) -> None:
        self.table = table
        self.output: list[Item] = []
        self._number = number
        self._seal = seal
        self._open: _Open | None = None

    @property
    def between_items(self) -> bool:
        return self._open is None

    def starts_item(self, piece: Text | Reasoning | CallStart | CallText | CallEnd) -> bool:
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

    def feed(self, piece: Text | Reasoning | CallStart | CallText | CallEnd) -> list[ev.Event]:
        """The events of the next piece."""
        match piece:
            case Text(text):
                return self._say(_OpenMessage, text)
            case Reasoning(text):
                return self._say(_OpenReasoning, text)
            case CallStart():
                events = self.close("completed", before_call=True)
                tool = self.table.restore(piece.name)
                opened = _OpenCustom if tool.kind == "custom" else _OpenCall
                return [*events, *self._begin(opened(tool, piece))]
            case CallText(text):
                call = self._open
                return [] if call is None or not text else call.more(self._number, self._index, text)
            case CallEnd():
                return self.close("completed")

    def close(self, status: ItemStatus, before_call: bool = False) -> list[ev.Event]:
        """End the open item, if there is one.

        An unfinished call is never handed over: with ``incomplete`` it leaves no item and no closing events.
        """
        opened, self._open = self._open, None
        if opened is None:
            return []
        if status == "incomplete" and isinstance(opened, _OpenCall | _OpenCustom):
            return []
        index = self._index
        events, item = opened.done(self._number, index, status, before_call)
        if isinstance(item, it.Reasoning) and self._seal is not None:
            item.encrypted_content = self._seal(it.item_text(item))
        self.output.append(item)
        return [*events, ev.ItemDone(self._number(), index, item)]

    def whole(self, item: Item) -> list[ev.Event]:
        """Emit an item that is already finished, such as a compaction."""
        events = self.close("completed")
        index = self._index
        self.output.append(item)
        return [*events, ev.ItemAdded(self._number(), index, item), ev.ItemDone(self._number(), index, item)]

    @property
    def _index(self) -> int:
        return len(self.output)

    def _say(self, kind: type[_OpenMessage] | type[_OpenReasoning], text: str) -> list[ev.Event]:
        if not text:
            return []
        events: list[ev.Event] = []
        if not isinstance(self._open, kind):
            events = [*self.close("completed"), *self._begin(kind())]
        assert self._open is not None
        events += self._open.more(self._number, self._index, text)
        return events

    def _begin(self, opened: _Open) -> list[ev.Event]:
        self._open = opened
        return [ev.ItemAdded(self._number(), self._index, opened.first()), *opened.begin(self._number, self._index)]


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
        self, number: Callable[[], int], index: int, status: ItemStatus, before_call: bool
    ) -> tuple[list[ev.Event], Item]:
        text = "".join(self.parts)
        phase: it.Phase = "commentary" if before_call else "final_answer"
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
        self, number: Callable[[], int], index: int, status: ItemStatus, before_call: bool
    ) -> tuple[list[ev.Event], Item]:
        text = "".join(self.parts)
        return [
            ev.ReasoningTextDone(number(), self.id, index, 0, text),
            ev.PartDone(number(), self.id, index, 0, ReasoningText(text)),
        ], it.Reasoning(self.id, [], [ReasoningText(text)])


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
        self, number: Callable[[], int], index: int, status: ItemStatus, before_call: bool
    ) -> tuple[list[ev.Event], Item]:
        # A call without arguments is written as one with none of them: clients parse the text.
        arguments = "".join(self.parts) or "{}"
        return [ev.ArgumentsDone(number(), self.id, index, arguments, self.tool.public_name)], self.item(
            arguments, status
        )


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
        self, number: Callable[[], int], index: int, status: ItemStatus, before_call: bool
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
