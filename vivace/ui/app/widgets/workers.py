"""The task tree: the foreground and the background workers below it."""

from __future__ import annotations

from typing import ClassVar

from textual.widgets import Static

from vivace.agent.turns.events import WorkerChanged
from vivace.ui.app.wrapping import printable, shortened
from vivace.ui.figures import tokens

SIGNS = {"waiting": "◌", "running": "◦", "done": "✓", "failed": "✗", "stopped": "■"}
ROWS = 6


class WorkerTree(Static):
    """Hidden while there are no workers. Beside the transcript where there is room, else below it."""

    HELP: ClassVar[str] = """\
## Background workers

Each works on a copy of the files as they are, unsaved changes included, with limits of its own. `/background TASK`
starts one, `/stop ID` ends one (Esc never does), `/accept ID` shows what one made as a change to say yes or no to.
"""
    DEFAULT_CSS = """
    WorkerTree { height: auto; padding: 0 2; background: $surface; color: $foreground; display: none; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.known: dict[str, WorkerChanged] = {}
        self._front = ""

    def changed(self, event: WorkerChanged) -> None:
        self.known[event.worker] = event
        self._show()

    def foreground(self, text: str) -> None:
        """What the foreground does."""
        if text != self._front:
            self._front = text
            self._show()

    def clear(self) -> None:
        self.known.clear()
        self._show()

    def on_resize(self) -> None:
        self._show()

    def table(self) -> list[str]:
        """A line for each worker."""
        return [f"{name}  {_told(event)}  {printable(event.task)}" for name, event in self.known.items()]

    def _show(self) -> None:
        self.display = bool(self.known)
        if not self.known:
            return
        width = max(self.size.width - 4, 16)
        rows = [shortened(f"foreground  {self._front or 'idle'}", width)]
        names = list(self.known)
        hidden = max(len(names) - ROWS, 0)
        for name in names[hidden:]:
            event = self.known[name]
            branch = "└─" if name == names[-1] else "├─"
            rows.append(shortened(f"{branch}{SIGNS[event.state]} {name}  {_told(event)}", width))
            rest = "  " if name == names[-1] else "│ "
            rows.append(shortened(f"{rest}  {printable(event.note or event.task)}", width))
        if hidden:
            rows.insert(1, f"├─ … {hidden} more")
        self.update("\n".join(rows))


def _told(event: WorkerChanged) -> str:
    parts: list[str] = [event.state]
    if event.steps:
        parts.append(f"{event.steps} step{'s' if event.steps != 1 else ''}")
    if event.tokens:
        parts.append(f"{tokens(event.tokens)} tok")
    if event.seconds:
        parts.append(f"{event.seconds:.0f} s")
    if event.offer:
        parts.append(f"offers {event.offer} file{'s' if event.offer != 1 else ''}")
    return " · ".join(parts)
