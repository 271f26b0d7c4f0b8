"""The messages that wait: what was queued, and steers that were not taken yet."""

from __future__ import annotations

from typing import ClassVar

from textual.widgets import Static

from vivace.agent.turns.events import MessageChanged
from vivace.ui.app.wrapping import printable, shortened

ROWS = 4


class WaitingList(Static):
    """Hidden while nothing waits. The last one can be taken back into the input."""

    HELP: ClassVar[str] = """\
## Waiting messages

Everything you sent that was not taken yet, and how it will be taken: a steer at the next token or tool boundary, a
queued one when the turn has ended. Alt+Up takes the last one back into the input; there it can be changed and sent
again, or dropped with Ctrl+C. Nothing that you sent is lost: Esc gives all of it back.
"""
    DEFAULT_CSS = """
    WaitingList { height: auto; max-height: 5; padding: 0 2; background: $surface; color: $accent; display: none; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._waiting: dict[int, MessageChanged] = {}

    @property
    def last(self) -> MessageChanged | None:
        return next(reversed(self._waiting.values()), None)

    def changed(self, event: MessageChanged) -> None:
        if event.state == "queued":
            self._waiting[event.number] = event
        else:
            self._waiting.pop(event.number, None)
        self._show()

    def gone(self, number: int) -> None:
        """It was taken back."""
        self._waiting.pop(number, None)
        self._show()

    def clear(self) -> None:
        self._waiting.clear()
        self._show()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        self.display = bool(self._waiting)
        messages = list(self._waiting.values())
        hidden = max(len(messages) - ROWS, 0)
        rows = [f"… {hidden} more"] if hidden else []
        for event in messages[hidden:]:
            mark = "» steers  " if event.verb == "steer" else "· queued  "
            rows.append(shortened(mark + " ".join(printable(event.text).split()), max(self.size.width - 4, 10)))
        self.update("\n".join(rows))
