"""The plan of a turn: short steps and their states, replaced as a whole."""

from __future__ import annotations

from vivace.ui.app.blocks.base import Block

MARKS = {"pending": "☐ ", "active": "▸ ", "done": "☑ ", "dropped": "☒ "}


class Steps(Block):
    def __init__(self, steps: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self.steps = steps

    def become(self, steps: tuple[tuple[str, str], ...]) -> None:
        self.steps = steps
        self.again()

    def plain(self) -> str:
        return "\n".join(MARKS.get(state, "  ") + text for text, state in self.steps)

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        for text, state in self.steps:
            style = {"active": look.strong, "pending": look.base}.get(state, look.dim)
            self.add_text(text, style, "  " + MARKS.get(state, "  "), look.accent)
