"""What the model thinks: shown while it does, then folded to one row."""

from __future__ import annotations

from rich.style import Style

from vivace.ui.app.blocks.stream import Stream


class Thought(Stream):
    foldable = True

    def __init__(self) -> None:
        super().__init__()
        self.done = False

    @property
    def style(self) -> Style:
        assert self.look is not None
        return self.look.thought

    def fill(self) -> None:
        if not self.done or not self.folded:
            super().fill()
            return
        assert self.look is not None
        words = len(self.plain().split())
        self.add(("▸ ", self.look.dim), (f"thought, {words:,} word{'s' if words != 1 else ''}", self.look.dim))

    def finish(self) -> None:
        self.done = True
        self.again()
