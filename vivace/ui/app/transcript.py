"""The conversation on the screen: one widget that draws rows of blocks, and only those in sight."""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar, TypeVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from vivace.ui.app.blocks.base import Block
from vivace.ui.app.look import Look

B = TypeVar("B", bound=Block)


class Transcript(ScrollView, can_focus=True):
    """Blocks below each other. Change a block, then say so with :meth:`touch`; :meth:`settle` draws once for all.

    It follows its end until the user scrolls up, and again once the user is back at the end.
    """

    HELP: ClassVar[str] = """\
## The transcript

What was said and done. A row of `…` hides more: Enter or a click unfolds it.

| key | |
|---|---|
| Up, Down, PgUp, PgDn, Home, End | scroll |
| j, k | go from block to block |
| Enter, Space | fold or unfold the block |
| c | copy the block |
| Esc, i | back to the input |
"""
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 0;
        background: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "next_block", "Next block", show=False),
        Binding("k", "previous_block", "Previous block", show=False),
        Binding("enter,space", "fold", "Fold", show=False),
        Binding("c", "copy_block", "Copy", show=False),
        Binding("i,escape", "leave", "Input", show=False),
    ]

    class Left(Message):
        """The user wants the input back."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.blocks: list[Block] = []
        self._starts: list[int] = []  # the row that each block begins at, its gap included
        self._total = 0
        self._dirty: tuple[int, int] | None = None  # a block and a row of it
        self._look: Look | None = None
        self._empty = self._mark_of_thumb = Strip.blank(1)
        self._cursor: Block | None = None
        self._follow = True
        self._drawn: LRUCache[int, tuple[Strip, Strip]] = LRUCache(1024)

    @property
    def look(self) -> Look:
        if self._look is None:
            self._look = Look(self.app.current_theme, self.background_colors[1])
            self._empty = Strip.blank(1, self._look.base)
            self._mark_of_thumb = Strip([Segment("▐", self._look.dim)], 1)
        return self._look

    def add(self, block: B) -> B:
        """A new block at the end."""
        self.blocks.append(block)
        self._starts.append(self._total)
        if self._width:
            block.lay(self._width, self.look)
        self._mark(len(self.blocks) - 1)
        return block

    def touch(self, block: Block, row: int = 0) -> None:
        """``block`` has other rows now, from its row ``row`` on."""
        # Looked for from the end: nearly always it is the last one.
        at = len(self.blocks) - 1
        while at >= 0 and self.blocks[at] is not block:
            at -= 1
        if at >= 0:
            self._mark(at, max(row, 0))

    def replace(self, old: list[Block], new: Block) -> None:
        """``new`` stands where the first of ``old`` stood; at the end when there is none."""
        places = [n for n, block in enumerate(self.blocks) if any(block is gone for gone in old)]
        if not places:
            self.add(new)
            return
        for n in reversed(places):
            del self.blocks[n], self._starts[n]
        self.blocks.insert(places[0], new)
        self._starts.insert(places[0], 0)
        if self._width:
            new.lay(self._width, self.look)
        self._mark(places[0])

    def drop(self, block: Block) -> None:
        """``block`` is shown no more."""
        at = next((n for n, known in enumerate(self.blocks) if known is block), None)
        if at is not None:
            del self.blocks[at], self._starts[at]
            self._mark(at)

    def clear(self) -> None:
        self.blocks, self._starts, self._cursor = [], [], None
        self._mark(0)
        self.settle()

    def settle(self) -> None:
        """Draw what has changed since the last time."""
        if self._dirty is None:
            return
        (at, inner), self._dirty = self._dirty, None
        row = self._starts[at - 1] + self._height(at - 1) if at else 0
        changed = row + self._gap(at) + inner if at < len(self.blocks) else 0
        for n in range(at, len(self.blocks)):
            self._starts[n] = row
            row += self._height(n)
        same, self._total = row == self._total, row
        top = self.scroll_offset.y
        self._grow(Size(self._width, row))
        if self._follow:
            self._to_end()
        if same and top == self.scroll_offset.y and changed > top:
            self.refresh(Region(0, changed - top, self.size.width, max(self.size.height - changed + top, 1)))
        else:
            self.refresh()

    def plain(self) -> str:
        """All of it."""
        return "\n\n".join(block.plain() for block in self.blocks)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rows in sight. There is no border or padding to draw around them, so they go out as they are.

        Rows keep their place while text streams: the strip of one, and with it what the terminal is sent, is made once.
        """
        width, top = self.size.width, self.scroll_offset.y
        filters = self.get_line_filters()
        background = self.background_colors[1]
        thumb = self._thumb(top)
        selection = self.text_selection
        look = self.look
        mark = self._mark_of_thumb
        for line_filter in filters:
            mark = mark.apply_filter(line_filter, background)
        strips = []
        for row in range(top + crop.y, top + crop.bottom):
            source = self._strip(row, selection)
            known = self._drawn.get(row)
            if known is None or known[0] is not source:
                strip = source.adjust_cell_length(width, look.base).apply_offsets(0, row)
                for line_filter in filters:
                    strip = strip.apply_filter(line_filter, background)
                known = self._drawn[row] = (source, strip)
            strip = known[1]
            if row - top in thumb:
                strip = Strip.join([strip.crop(0, width - 1), mark])
            strips.append(strip)
        if (crop.x, crop.right) != (0, width):
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        return strips

    def _thumb(self, top: int) -> range:
        """The rows of the screen that show where in the whole this is. A proper scroll bar would cost more."""
        height, total = self.size.height, self._total
        if total <= height:
            return range(0)
        length = max(height * height // total, 1)
        start = min(round(top * (height - length) / (total - height)), height - length)
        return range(start, start + length)

    def render_line(self, y: int) -> Strip:
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def _strip(self, row: int, selection: Selection | None) -> Strip:
        """One row of the whole transcript."""
        at = bisect_right(self._starts, row) - 1
        if at < 0 or row >= self._total:
            return self._empty
        block = self.blocks[at]
        inner = row - self._starts[at] - self._gap(at)
        if not 0 <= inner < len(block.rows):
            return self._empty
        strip = block.rows[inner]
        if selection is not None and (span := selection.get_span(row)) is not None:
            return self._selected(strip, *span)
        if block is self._cursor and self.has_focus:
            return Strip.join([Strip([Segment("▌", self.look.user)], 1), strip.crop(1)])
        return strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = []
        for at, block in enumerate(self.blocks):
            lines += [""] * self._gap(at) + [strip.text.rstrip() for strip in block.rows]
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached and self._look is not None:
            self._lay_out()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follow = self.is_vertical_scroll_end

    def on_click(self, event: events.Click) -> None:
        at = bisect_right(self._starts, event.y + self.scroll_offset.y) - 1
        if 0 <= at < len(self.blocks) and self.blocks[at].foldable and not self.screen.get_selected_text():
            self._fold(self.blocks[at])

    def action_next_block(self) -> None:
        self._move(1)

    def action_previous_block(self) -> None:
        self._move(-1)

    def action_fold(self) -> None:
        if self._cursor is not None and self._cursor.foldable:
            self._fold(self._cursor)

    def action_copy_block(self) -> None:
        if self._cursor is not None:
            self.app.copy_to_clipboard(self._cursor.plain())
            self.notify("copied", timeout=2)

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def unfold_last(self) -> None:
        """Fold or unfold the last block that can be."""
        for block in reversed(self.blocks):
            if block.foldable:
                self._fold(block)
                return

    @property
    def _width(self) -> int:
        return max(self.size.width - 1, 0)

    def _grow(self, size: Size) -> None:
        """Have another ``virtual_size``. Setting it the usual way would lay out the whole screen for each new row."""
        self.set_reactive(Transcript.virtual_size, size)
        self.scroll_y = self.validate_scroll_y(self.scroll_y)

    def _to_end(self) -> None:
        """Be at the end. Scrolling there the usual way would lay out the whole screen, too."""
        end = float(self.max_scroll_y)
        self.set_reactive(Transcript.scroll_y, end)
        self.set_reactive(Transcript.scroll_target_y, end)

    def _lay_out(self) -> None:
        self._look = None
        self._drawn.clear()
        for block in self.blocks:
            block.lay(self._width, self.look)
        self._mark(0)
        self.settle()

    def _mark(self, at: int, row: int = 0) -> None:
        self._dirty = (at, row) if self._dirty is None else min(self._dirty, (at, row))

    def _gap(self, at: int) -> int:
        return int(at > 0 and self.blocks[at].gap)

    def _height(self, at: int) -> int:
        return len(self.blocks[at].rows) + self._gap(at)

    def _fold(self, block: Block) -> None:
        block.toggle()
        self.touch(block)
        self.settle()

    def _move(self, step: int) -> None:
        if not self.blocks:
            return
        now = next((n for n, block in enumerate(self.blocks) if block is self._cursor), len(self.blocks))
        at = min(max(now + step, 0), len(self.blocks) - 1)
        self._cursor = self.blocks[at]
        self._follow = False
        self.scroll_to(y=max(self._starts[at] - 2, 0), animate=False)
        self.refresh()

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        end = strip.cell_length if end == -1 else end
        parts = strip.divide([start, end, strip.cell_length])
        return Strip.join([part.apply_style(style) if n == 1 else part for n, part in enumerate(parts)])
