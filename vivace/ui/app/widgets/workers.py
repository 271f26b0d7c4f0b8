"""The task tree: the foreground and the background workers below it."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.widgets import Static

from vivace.agent.turns.events import WorkerChanged
from vivace.ui.app.wrapping import printable, shortened
from vivace.ui.figures import tokens

SIGNS = {"waiting": "◌", "running": "◦", "done": "✓", "failed": "✗", "stopped": "■"}
ROWS = 6
BELOW = 7
"""Rows of the whole tree where it stands below the transcript: of many workers each has one row then."""


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
        return [
            f"{name}  {' · '.join([event.state, *_figures(event)])}  {printable(event.task)}"
            for name, event in self.known.items()
        ]

    def _show(self) -> None:
        self.display = bool(self.known)
        if not self.known:
            return
        width = max(self.size.width - 4, 16)
        rows = [shortened(f"foreground  {self._front or 'idle'}", width)]
        names = list(self.known)
        below = self.screen.has_class("-narrow")
        brief = below and 2 * len(names) + 1 > BELOW
        shown = BELOW - 2 if brief and len(names) > BELOW - 1 else ROWS
        hidden = max(len(names) - shown, 0)
        for name in names[hidden:]:
            event = self.known[name]
            branch = "└─" if name == names[-1] else "├─"
            rest = "  " if name == names[-1] else "│ "
            about = printable(event.note or event.task)
            first, *more = [event.state, *_figures(event)]
            if brief:
                rows.append(
                    shortened(f"{branch}{SIGNS[event.state]} {name}  {' · '.join([first, *more[:1], about])}", width)
                )
                continue
            head = f"{branch}{SIGNS[event.state]} {name}  {first}"
            while more and cell_len(head) + 3 + cell_len(more[0]) <= width:
                head += f" · {more.pop(0)}"
            rows.append(shortened(head, width))
            if more:
                rows.append(shortened(f"{rest}  {' · '.join(more)}", width))
            rows.append(shortened(f"{rest}  {about}", width))
        if hidden:
            rows.insert(1, f"├─ … {hidden} more")
        self.update("\n".join(rows))


def _figures(event: WorkerChanged) -> list[str]:
    """The most important first."""
    parts: list[str] = []
    if event.offer:
        parts.append(f"offers {event.offer} file{'s' if event.offer != 1 else ''}")
    if event.steps:
        parts.append(f"{event.steps} step{'s' if event.steps != 1 else ''}")
    if event.tokens:
        parts.append(f"{tokens(event.tokens)} tok")
    if event.seconds:
        parts.append(f"{event.seconds:.0f} s")
    return parts
