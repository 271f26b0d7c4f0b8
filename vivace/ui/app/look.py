"""Colours of the transcript, from the theme of the app."""

from __future__ import annotations

from io import StringIO

from rich.color import Color as RichColor
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

DARK = Theme(
    name="vivace-dark",
    primary="#6ea8fe",
    secondary="#8fb4d8",
    accent="#e0b060",
    foreground="#d8dade",
    background="#14161a",
    surface="#1b1e24",
    panel="#23272f",
    success="#7fc97f",
    warning="#e0b060",
    error="#f07878",
    dark=True,
)
LIGHT = Theme(
    name="vivace-light",
    primary="#1f5fbf",
    secondary="#41698f",
    accent="#8a5a00",
    foreground="#22252a",
    background="#fbfbf9",
    surface="#f1f1ee",
    panel="#e5e6e3",
    success="#23782b",
    warning="#8a5a00",
    error="#b3261e",
    dark=False,
)


class Look:
    """Styles of one theme, and what turns rich's renderables into rows."""

    def __init__(self, theme: Theme, background: Color) -> None:
        def style(color: str | None, *, tint: float = 0.0, bold: bool = False, italic: bool = False) -> Style:
            front = Color.parse(color or theme.foreground or "white")
            back = background.blend(front, tint) if tint else background
            return Style(color=_rich(front), bgcolor=_rich(back), bold=bold, italic=italic)

        faint = background.blend(Color.parse(theme.foreground or "white"), 0.6).hex
        self.dark = theme.dark
        self.base = style(None)
        self.dim = style(faint)
        self.thought = style(faint, italic=True)
        self.strong = style(None, bold=True)
        self.user = style(theme.primary, bold=True)
        self.accent = style(theme.accent)
        self.name = style(theme.secondary, bold=True)
        self.good = style(theme.success)
        self.warn = style(theme.warning)
        self.bad = style(theme.error)
        self.added = style(theme.success, tint=0.12)
        self.removed = style(theme.error, tint=0.12)
        self.hunk = style(theme.secondary)
        self.code = style(theme.accent)
        self.code_theme = "ansi_dark" if theme.dark else "ansi_light"
        self.syntax = "monokai" if theme.dark else "default"
        self._console = Console(file=StringIO(), force_terminal=True, color_system="truecolor", legacy_windows=False)

    def row(self, width: int, *parts: tuple[str, Style]) -> Strip:
        """One row of exactly ``width`` cells; too much is cut."""
        strip = Strip([Segment(text, style) for text, style in parts if text])
        return strip.adjust_cell_length(width, self.base)

    def rendered(self, renderable: object, width: int) -> list[list[Segment]]:
        """What rich makes of ``renderable``, as rows of segments."""
        options = self._console.options.update(width=max(width, 1), height=None, highlight=False)
        return self._console.render_lines(renderable, options, style=self.base, pad=False)  # type: ignore[arg-type]


def _rich(color: Color) -> RichColor:
    return RichColor.from_rgb(color.r, color.g, color.b)
