"""The progress of a pull on the terminal; always on stderr, so that stdout stays what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vivace.models.catalogue import ModelInfo
from vivace.models.pull import pull
from vivace.models.sources import PullEvent, Report
from vivace.settings import Settings


@contextmanager
def show_progress(name: str) -> Iterator[Report]:
    """A bar for bytes and one line for each source that is tried; gives the function that takes the events."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
    task = bars.add_task(name, total=None, visible=False)

    def report(event: PullEvent) -> None:
        if event.kind in ("progress", "verify"):
            doing = "checking" if event.kind == "verify" else event.source
            part = f" {event.text}" if event.text else ""
            if event.text or event.kind == "verify":
                bars.update(task, description=f"{doing} {name}{part}")
            bars.update(task, completed=event.done, total=event.total or None, visible=True)
            bars.start()
            return
        where = f"{event.source}: " if event.source and event.kind == "failed" else ""
        console.print(f"{where}{event.text}", markup=False, soft_wrap=True)
        if event.kind == "source":  # Another source starts at nothing; so does the rate.
            bars.reset(task, total=event.total or None, visible=False, description=f"{event.source} {name}")

    try:
        yield report
    finally:
        if bars.live.is_started:  # stopping one that was never begun prints an empty line
            bars.stop()


def pull_shown(info: ModelInfo, settings: Settings) -> None:
    """Fetch a model that somebody waits for, from wherever it is, with its progress on the terminal."""
    with show_progress(info.name) as report:
        pull(info, settings, "auto", report)
