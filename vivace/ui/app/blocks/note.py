"""Something that the user should know."""

from __future__ import annotations

from typing import Literal

from vivace.ui.app.blocks.base import Block

Level = Literal["info", "warning", "error", "good", "turn"]
_SIGNS: dict[Level, str] = {"info": "· ", "warning": "! ", "error": "✗ ", "good": "✓ ", "turn": "  "}


class Note(Block):
    """``turn`` is the line that a turn begins with."""

    def __init__(self, text: str, level: Level = "info") -> None:
        super().__init__()
        self.text, self.level = text, level
        self.gap = level in ("error", "turn")

    def plain(self) -> str:
        return self.text

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        style = {"warning": look.warn, "error": look.bad, "good": look.good}.get(self.level, look.dim)
        self.add_text(self.text, style, _SIGNS[self.level])
