"""The input: several lines, a history, completion; what Enter means is the app's to say."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from vivace.ui.app.widgets.completion import Completion

PLACEHOLDER = "Say what is to be done · @ names a file · / commands"
WORKING = "Enter steers what works · Alt+Enter says it afterwards · Esc stops"
ANSWERING = "Type an answer, or choose one above"
DECIDING = "Choose an answer above: Shift+Up goes there"


class Prompt(TextArea):
    """Grows with its text. ``completion`` shows what fits; the app fills it."""

    HELP: ClassVar[str] = """\
## The input

| key | |
|---|---|
| Enter | send; while something works: steer it |
| Alt+Enter, or Tab with text | queue for when the turn has ended |
| Esc | stop the turn and give back what was not taken |
| Esc Esc | step back: undo the last turn in a fork, and give its text back |
| Ctrl+J, Shift+Enter | a new line |
| Alt+Up | take back the last waiting message |
| Up, Down | earlier messages, on the first and last line |
| @ | name a file; its contents are read ahead |
| / | commands |
| Ctrl+D | nothing there: leave |
| Ctrl+C | text there: clear it; working: stop; else twice: quit |
| Shift+Tab | next mode |
| PgUp, PgDn | scroll the transcript |
| Ctrl+O | unfold the last output |
"""
    DEFAULT_CSS = """
    Prompt {
        height: auto; min-height: 3; max-height: 10; padding: 0 1;
        background: $background; border: none; border-top: solid $panel; border-bottom: solid $panel;
    }
    Prompt:focus { border: none; border-top: solid $primary; border-bottom: solid $primary; }
    Prompt.busy:focus { border-top: solid $accent; border-bottom: solid $accent; }
    """

    class Sent(Message):
        """The user wants ``text`` said; ``queue``: not now, when the turn has ended."""

        def __init__(self, text: str, queue: bool) -> None:
            super().__init__()
            self.text, self.queue = text, queue

    class Typed(Message):
        """The text or the place in it has changed."""

    class Left(Message):
        """The user ended an empty input."""

    def __init__(self, completion: Completion, id: str | None = None) -> None:
        super().__init__(
            "",
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=False,
            placeholder=PLACEHOLDER,
        )
        self.completion = completion
        self._history: list[str] = []
        self._at = 0
        self._draft = ""
        self.highlight_cursor_line = False

    def word(self) -> tuple[str, int]:
        """The word up to the cursor and the column where it begins."""
        row, column = self.cursor_location
        line = self.document.get_line(row)[:column]
        start = max(line.rfind(" "), line.rfind("\t")) + 1
        return line[start:], start

    def complete(self, text: str) -> None:
        """Put ``text`` in the place of the word up to the cursor."""
        row, column = self.cursor_location
        _, start = self.word()
        self.replace(text + " ", (row, start), (row, column), maintain_selection_offset=False)
        self.completion.offer([])

    def put(self, text: str) -> None:
        """Have ``text`` in the input, before what is there already, and the cursor at its end."""
        self.text = text + ("\n" + self.text if self.text.strip() else "")
        self.move_cursor((self.document.line_count - 1, len(self.document.get_line(self.document.line_count - 1))))

    def remember(self, text: str) -> None:
        if text.strip() and (not self._history or self._history[-1] != text):
            self._history.append(text)
        self._at = len(self._history)

    def send(self, queue: bool) -> None:
        text = self.text
        if not text.strip():
            return
        self.remember(text)
        self.text = ""
        self.completion.offer([])
        self.post_message(self.Sent(text.strip("\n"), queue))

    async def _on_key(self, event: events.Key) -> None:
        if self._take(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def on_text_area_changed(self) -> None:
        self.post_message(self.Typed())

    def on_text_area_selection_changed(self) -> None:
        self.post_message(self.Typed())

    def _take(self, key: str) -> bool:
        """Whether ``key`` means something else here than in a text."""
        if self.completion.open and key in ("up", "down", "tab", "enter", "escape"):
            if key in ("up", "down"):
                self.completion.move(1 if key == "down" else -1)
            elif key == "escape":
                self.completion.offer([])
            else:
                word = self.word()[0]
                chosen = self.completion.choose(word)
                if key == "enter" and chosen in ("", word):
                    self.send(queue=False)
                elif chosen:
                    self.complete(chosen)
            return True
        if key == "enter":
            self.send(queue=False)
        elif key == "alt+enter" or (key == "tab" and self.text.strip()):
            self.send(queue=True)
        elif key == "ctrl+d" and not self.text:
            self.post_message(self.Left())
        elif key in ("ctrl+j", "shift+enter"):
            self.insert("\n")
        elif key == "up" and self.cursor_at_first_line and self._history:
            self._recall(-1)
        elif key == "down" and self.cursor_at_last_line and self._at < len(self._history):
            self._recall(1)
        else:
            return False
        return True

    def _recall(self, step: int) -> None:
        if self._at == len(self._history):
            self._draft = self.text
        self._at = min(max(self._at + step, 0), len(self._history))
        self.text = self._history[self._at] if self._at < len(self._history) else self._draft
        self.move_cursor(self.document.end)
