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
| cost | in the currency of the model's prices |
"""
    DEFAULT_CSS = """
    MetersLine { height: 1; padding: 0 2; background: $surface; color: $secondary; }
    """

    def __init__(self, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self._meters = Meters()
        self._lines: int | None = None

    def restart(self) -> None:
        """A turn begins."""
        self._meters, self._lines = Meters(), None
        self._show()

    def measured(self, meters: Meters) -> None:
        self._meters = meters
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
        parts = []
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
        if m.cost is not None:
            parts.append(f"cost {m.cost:.4f}")
        if m.output_tokens:
            cached = f" ({tokens(m.cached_tokens)} cached)" if m.cached_tokens else ""
            parts.append(f"in {tokens(m.input_tokens)}{cached}  out {tokens(m.output_tokens)}")
        if m.steps > 1:
            parts.append(f"steps {m.steps}")
        return parts
