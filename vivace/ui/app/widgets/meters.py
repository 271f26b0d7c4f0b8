"""The line of measured figures."""

from __future__ import annotations

from typing import ClassVar

from textual.widgets import Static

from vivace.agent.turns.events import Meters
from vivace.ui.figures import seconds, tokens


class MetersLine(Static):
    """Figures of the running turn, or of the last; the least important are left out where there is no room."""

    HELP: ClassVar[str] = """\
## The meters

Measured, never guessed; a figure that was not measured is not shown.

| figure | |
|---|---|
| first | time to the first token |
| tok/s | speed of the answer |
| copied | share of the answer that was taken over from the file |
| lines | lines changed by this turn's edits |
| ctx | share of the model's window in use |
| in, out | tokens read (of them cached) and written |
| cost | in the currency of the model's prices; models on this machine have none |
"""
    DEFAULT_CSS = """
    MetersLine { height: 1; padding: 0 2; background: $surface; color: $secondary; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._meters = Meters()
        self._lines: int | None = None
        self._waits = False
        self._saying = ""

    def restart(self, waits: bool = False) -> None:
        """Nothing was measured; ``waits``: a turn has begun and no token has come."""
        self._meters, self._lines, self._waits, self._saying = Meters(), None, waits, ""
        self._show()

    def say(self, line: str) -> bool:
        """What is waited for, where a token is: a model that is fetched. Whether there was room to say so."""
        if self._waits:
            self._saying = line
            self._show()
        return self._waits

    def heard(self) -> None:
        """Something came of the model."""
        if self._waits:
            self._waits = False
            self._show()

    def measured(self, meters: Meters) -> None:
        self._meters = meters
        self._waits = self._waits and meters.ttft is None
        self._show()

    def changed(self, lines: int) -> None:
        self._lines = (self._lines or 0) + lines
        self._show()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        told = ""
        for part in self._parts():
            longer = f"{told}  {part}" if told else part
            if len(longer) > self.size.width - 4:
                break
            told = longer
        self.update(told, layout=False)

    def _parts(self) -> list[str]:
        """The most important first."""
        m = self._meters
        parts = [self._saying or "waiting for the first token"] if self._waits else []
        if m.ttft is not None:
            parts.append(f"first {seconds(m.ttft)}")
        if m.tokens_per_second is not None:
            parts.append(f"{m.tokens_per_second:,.0f} tok/s")
        if m.copied is not None:
            parts.append(f"copied {m.copied:.0%}")
        if self._lines is not None:
            parts.append(f"lines {self._lines}")
        if m.context is not None:
            parts.append(f"ctx {m.context:.0%}")
        if m.cost:
            parts.append(f"cost {m.cost:.4f}")
        if m.output_tokens:
            cached = f" ({tokens(m.cached_tokens)} cached)" if m.cached_tokens else ""
            parts.append(f"in {tokens(m.input_tokens)}{cached}  out {tokens(m.output_tokens)}")
        if m.steps > 1:
            parts.append(f"steps {m.steps}")
        return parts
