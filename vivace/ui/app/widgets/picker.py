"""Choose one of a list: a checkpoint, a conversation, a model, a mode."""

from __future__ import annotations

from typing import ClassVar

from rapidfuzz import fuzz
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option


class Picker(ModalScreen[str]):
    """``entries`` are what is given back and what is shown. "" when nothing was chosen."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 60%; }
    Picker Vertical {
        width: 90%; max-width: 90; height: auto; max-height: 80%; background: $surface;
        border: solid $primary; padding: 0 1;
    }
    Picker Static { color: $secondary; text-style: bold; }
    Picker Input, Picker Input:focus { border: none; height: 1; padding: 0; background: $surface; }
    Picker OptionList { border: none; height: auto; max-height: 14; background: $surface; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "Close")]

    def __init__(self, title: str, entries: list[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._entries = entries

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, markup=False)
            yield Input(placeholder="type to narrow down")
            yield OptionList(*self._options(""), markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(self._options(event.value))
        options.highlighted = 0 if options.option_count else None

    def on_input_submitted(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.dismiss(options.get_option_at_index(options.highlighted).id or "")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id or "")

    def on_key(self, event: events.Key) -> None:
        options = self.query_one(OptionList)
        if event.key in ("up", "down") and self.focused is not options:
            event.stop()
            (options.action_cursor_down if event.key == "down" else options.action_cursor_up)()

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = 0 if self._entries else None

    def _options(self, typed: str) -> list[Option]:
        words = typed.casefold().split()
        fits = [entry for entry in self._entries if all(word in entry[1].casefold() for word in words)]
        if not fits and typed:
            fits = [entry for entry in self._entries if fuzz.partial_ratio(typed, entry[1]) > 70]
        return [Option(label, id=name) for name, label in fits]
