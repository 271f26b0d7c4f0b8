"""The task tree: the foreground, and the background workers and jobs below it."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual.widgets import Static

from vivace.agent.sessions.conversation import short
from vivace.agent.turns.events import JobChanged, WorkerChanged
from vivace.ui.app.wrapping import printable, shortened
from vivace.ui.figures import tokens

SIGNS = {"waiting": "◌", "running": "◦", "done": "✓", "failed": "✗", "stopped": "■"}
ROWS = 6
BELOW = 7
"""Rows of the whole tree where it stands below the transcript: of many workers each has one row then."""


class WorkerTree(Static):
    """Hidden while there is nothing in the background. Beside the transcript where there is room, else below it."""

    HELP: ClassVar[str] = """\
## Background workers and jobs

Each worker works on a copy of the files as they are, unsaved changes included, with limits of its own. `/background
TASK` starts one, `/stop ID` ends one (Esc never does), `/accept ID` shows what one made as a change to say yes or no
to.

A job is a command that the model runs in the background, such as a server: `/jobs` lists them, `/stop ID` ends one.
"""
    DEFAULT_CSS = """
    WorkerTree { height: auto; padding: 0 2; background: $surface; color: $foreground; display: none; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.known: dict[str, WorkerChanged] = {}
        self.jobs: dict[str, JobChanged] = {}
        self._away: set[str] = set()
        self._front = ""

    @property
    def running(self) -> list[str]:
        """The ids of what works in the background."""
        workers = [name for name, worker in self.known.items() if worker.state in ("waiting", "running")]
        return workers + [name for name, job in self.jobs.items() if job.state == "running"]

    def changed(self, event: WorkerChanged) -> None:
        self.known[event.worker] = event
        self._show()

    def job_changed(self, event: JobChanged) -> None:
        self.jobs[event.job] = event
        self._show()

    def put_away(self) -> None:
        """A turn begins: jobs that have ended were seen, and leave the tree."""
        self._away = {name for name, event in self.jobs.items() if event.state != "running"}
        self._show()

    def foreground(self, text: str) -> None:
        """What the foreground does."""
        if text != self._front:
            self._front = text
            self._show()

    def clear(self) -> None:
        self.known.clear()
        self.jobs.clear()
        self._away.clear()
        self._show()

    def on_resize(self) -> None:
        self._show()

    def table(self) -> list[str]:
        """A line for each worker."""
        return [
            f"{name}  {' · '.join([event.state, *_figures(event)])}  {printable(event.task)}"
            for name, event in self.known.items()
        ]

    def jobs_table(self) -> list[str]:
        """A line for each job."""
        return [
            f"{name}  {' · '.join([event.state, *_job_figures(event)])}  {printable(short(event.command))}"
            for name, event in self.jobs.items()
        ]

    def _show(self) -> None:
        jobs = {name: event for name, event in self.jobs.items() if name not in self._away}
        names = [*self.known, *jobs]
        self.display = bool(names)
        if not names:
            return
        width = max(self.size.width - 4, 16)
        below = self.screen.has_class("-narrow")
        brief = below and 2 * len(self.known) + len(jobs) + 1 > BELOW
        most = BELOW - 2 if brief and len(names) > BELOW - 1 else ROWS
        running = set(self.running)
        # The oldest that are over go first.
        hidden = set(sorted(names, key=running.__contains__)[: max(len(names) - most, 0)])
        shown = [name for name in names if name not in hidden]
        rows = [shortened(f"foreground  {self._front or 'idle'}", width)]
        if hidden:
            rows.append(f"├─ … {len(hidden)} more")
        for name in shown:
            last = name == shown[-1]
            if name in jobs:
                rows += _job_rows(jobs[name], width, below, last)
            else:
                rows += self._worker_rows(self.known[name], width, brief, last)
        self.update("\n".join(rows))

    def _worker_rows(self, event: WorkerChanged, width: int, brief: bool, last: bool) -> list[str]:
        branch, rest = ("└─", "  ") if last else ("├─", "│ ")
        about = printable(event.note or event.task)
        first, *more = [event.state, *_figures(event)]
        head = f"{branch}{SIGNS[event.state]} {event.worker}  "
        if brief:
            return [shortened(head + " · ".join([first, *more[:1], about]), width)]
        head += first
        while more and cell_len(head) + 3 + cell_len(more[0]) <= width:
            head += f" · {more.pop(0)}"
        rows = [shortened(head, width)]
        if more:
            rows.append(shortened(f"{rest}  {' · '.join(more)}", width))
        return [*rows, shortened(f"{rest}  {about}", width)]


def _job_rows(event: JobChanged, width: int, below: bool, last: bool) -> list[str]:
    """One row below the transcript; beside it, where it is narrow, the command has its own."""
    head = f"{'└─' if last else '├─'}{SIGNS[event.state]} {event.job}  "
    head += " · ".join([event.state, *_job_figures(event)])
    about = printable(short(event.command))
    if below or cell_len(f"{head} · {about}") <= width:
        return [shortened(f"{head} · {about}", width)]
    return [shortened(head, width), shortened(f"{'  ' if last else '│ '}  {about}", width)]


def _job_figures(event: JobChanged) -> list[str]:
    parts = [event.note] if event.note else [f"exit code {event.code}"] if event.code else []
    return [*parts, f"{event.seconds:.0f} s"]


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
