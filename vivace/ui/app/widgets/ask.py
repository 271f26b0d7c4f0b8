"""A question of the model, an approval, a proposal: text, and choices with a key each."""

from __future__ import annotations

import time
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from vivace.agent.turns.events import Asked
from vivace.ui.app.wrapping import printable

TITLES = {"question": "The model asks", "approval": "May it?", "proposal": "Apply this change?"}
ROWS = 10
SURE = 0.25
"""Seconds that the letter of an approval waits for another one: a word that begins with y is no yes."""
GRACE = 0.3
"""Seconds after a question came up in which a key is not taken for its answer: nobody has read it yet."""


class AskPanel(Static, can_focus=True):
    """Hidden while nothing is asked. Several wait in line."""

    HELP: ClassVar[str] = """\
## Questions, approvals, proposals

| key | |
|---|---|
| y | yes: the first answer |
| n | no |
| 1 to 9 | the answer with this number |
| Up, Down, Enter | choose one; for an approval nothing is chosen beforehand |
| Esc | stop the turn |

A question of the model also takes any words that you type into the input. While you type, an arriving question waits
beside the input and takes no key: Shift+Up or Tab goes to it.
"""
    DEFAULT_CSS = """
    AskPanel {
        height: auto; max-height: 16; padding: 0 2; display: none;
        background: $surface; color: $foreground; border-left: thick $accent;
    }
    AskPanel:focus { background: $panel; }
    """

    class Replied(Message):
        def __init__(self, ask: Asked, reply: str) -> None:
            super().__init__()
            self.ask, self.reply = ask, reply

    class Left(Message):
        """Keys that are no answer: the input gets them."""

        def __init__(self, character: str = "") -> None:
            super().__init__()
            self.character = character

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._asks: list[Asked] = []
        self._at = 0
        self._shown = 0.0
        self._leaving = False
        self._letter = ""
        self._deciding: Timer | None = None
        self.grace = GRACE

    @property
    def current(self) -> Asked | None:
        return self._asks[0] if self._asks else None

    def asked(self, event: Asked) -> None:
        self._asks.append(event)
        if len(self._asks) == 1:
            self._come_up()

    def on_focus(self) -> None:
        self._leaving = False

    def answered(self, ask: str) -> None:
        """It waits no more, whoever answered."""
        first = self.current
        self._asks = [event for event in self._asks if event.ask != ask]
        if self.current is not first:
            self._come_up()

    def clear(self) -> None:
        self._asks = []
        self._undecided()
        self._show()

    def _come_up(self) -> None:
        """Show the first in line. An approval is given by a deliberate choice only: none is marked."""
        self._at = -1 if self.current is not None and self.current.kind == "approval" else 0
        self._shown = time.monotonic()
        self._undecided()
        self._show()

    def choices(self) -> list[tuple[str, str]]:
        """Keys and labels of the first in line; a proposal without any has yes and no."""
        if self.current is None:
            return []
        return list(self.current.choices) or ([] if self.current.kind == "question" else [("y", "Yes"), ("n", "No")])

    def on_key(self, event: events.Key) -> None:
        choices = self.choices()
        early = time.monotonic() - self._shown < self.grace
        if self._letter and event.is_printable and event.character:
            self._leave(self._letter + event.character)
        elif self._leaving or early:
            # Somebody is typing: no key of a word may be taken for an answer.
            if event.is_printable and event.character:
                self._leave(event.character)
            elif event.key != "enter":
                return
        elif event.key in ("up", "down") and choices:
            self._at = (max(self._at, 0 if event.key == "up" else -1) + (1 if event.key == "down" else -1)) % len(
                choices
            )
            self._show()
        elif event.key == "enter" and choices:
            if self._at >= 0:
                self._reply(self._at)
        elif (picked := self._picked(event)) is not None:
            if self.current is not None and self.current.kind == "approval" and event.character:
                self._letter = event.character
                self._deciding = self.set_timer(SURE, partial(self._reply, picked))
            else:
                self._reply(picked)
        elif event.is_printable and event.character:
            self._leave(event.character)
        else:
            return
        event.stop()
        event.prevent_default()

    def _leave(self, character: str) -> None:
        self._leaving = True
        self._undecided()
        self.post_message(self.Left(character))

    def _picked(self, event: events.Key) -> int | None:
        choices = self.choices()
        key = (event.character or "").lower()
        if not key or not choices:
            return None
        if key.isdigit() and 0 < int(key) <= len(choices):
            return int(key) - 1
        exact = [n for n, (name, _) in enumerate(choices) if name.lower() == key]
        if exact:
            return exact[0]
        if self.current is None or self.current.kind == "question":
            return None
        no = next((n for n, (name, _) in enumerate(choices) if name.lower().startswith("n")), None)
        return {"y": 0, "n": no}.get(key)

    def _key(self, at: int, name: str) -> str:
        """What is shown as the key of a choice; its number works as well."""
        if self.current is not None and self.current.kind != "question":
            if name.lower().startswith("n"):
                return "n"
            return "y" if at == 0 else str(at + 1)
        return name if len(name) == 1 else str(at + 1)

    def _reply(self, at: int) -> None:
        self._undecided()
        if self.current is not None:
            self.post_message(self.Replied(self.current, self.choices()[at][0]))

    def _undecided(self) -> None:
        self._letter = ""
        if self._deciding is not None:
            self._deciding.stop()
            self._deciding = None

    def _show(self) -> None:
        ask = self.current
        self.display = ask is not None
        if ask is None:
            return
        more = f"  (1 of {len(self._asks)})" if len(self._asks) > 1 else ""
        text = Text(TITLES[ask.kind] + more, style="bold")
        # The diff of a proposal is in the transcript, in full.
        told = "" if ask.kind == "proposal" and "@@" in ask.text else ask.text
        lines = printable(told).strip("\n").split("\n") if told.strip() else []
        for line in lines[:ROWS]:
            text.append("\n" + line, style="not bold")
        if len(lines) > ROWS:
            text.append(f"\n… {len(lines) - ROWS} more lines", style="not bold")
        for n, (name, label) in enumerate(self.choices()):
            key = self._key(n, name)
            mark = "▸" if n == self._at else " "
            text.append(f"\n{mark} {key}  {label}", style="bold" if n == self._at else "not bold")
        if ask.kind == "question":
            text.append("\n  or type an answer below", style="not bold italic")
        self.update(text)
