"""The help screen: the widget that had the focus first, then everything else."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from vivace.ui.app.blocks.markdown import PlainMarkdown
from vivace.ui.app.commands import COMMANDS
from vivace.ui.app.transcript import Transcript
from vivace.ui.app.widgets.ask import AskPanel
from vivace.ui.app.widgets.bar import StatusBar
from vivace.ui.app.widgets.completion import Completion
from vivace.ui.app.widgets.meters import MetersLine
from vivace.ui.app.widgets.prompt import Prompt
from vivace.ui.app.widgets.waiting import WaitingList
from vivace.ui.app.widgets.workers import WorkerTree

HELPED = (Prompt, Transcript, AskPanel, WaitingList, WorkerTree, Completion, MetersLine, StatusBar)


def help_text(first: str = "") -> str:
    """All of it as Markdown; the part that begins with ``first`` comes first."""
    parts = [widget.HELP for widget in HELPED]
    parts.sort(key=lambda part: part != first)
    rows = [f"| /{command.name} {command.takes} | {command.brief} |".replace("  |", " |") for command in COMMANDS]
    return "\n\n".join([*parts, "\n".join(["## Commands", "", "| command | |", "|---|---|", *rows])])


class HelpScreen(ModalScreen[None]):
    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen VerticalScroll {
        width: 94%; max-width: 100; height: 90%; background: $surface; border: solid $primary; padding: 0 1;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,f1,enter", "dismiss", "Close")]

    def __init__(self, first: str = "") -> None:
        super().__init__()
        self._first = first

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.border_title = "help"
            scroll.border_subtitle = "Esc closes"
            yield Static(PlainMarkdown(help_text(self._first)))
