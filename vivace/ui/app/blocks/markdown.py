"""Where a block of Markdown ends, told line by line; and what it looks like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.theme import Theme

from vivace.ui.app.look import Look
from vivace.ui.app.wrapping import printable, wrap

_MARKED = re.compile(r"[*_`#\[\]<>|~&\\]|^(\s*([-+]|\d+[.)])\s|[-=]{2,}\s*$| {4}|\t)|  $|://", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")


class Splitter:
    """Takes whole lines. ``before``: the block ended before this line; ``after``: with it; ``""``: it goes on."""

    def __init__(self) -> None:
        self._fence = ""
        self._list = False
        self._blank = False
        self._any = False

    def line(self, line: str) -> Literal["before", "after", ""]:
        if self._fence:
            if line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._reset()
                return "after"
            return ""
        fence = _FENCE.match(line)
        if fence is not None:
            self._fence = fence[1]
            before = self._any
            self._any, self._list, self._blank = True, False, False
            return "before" if before else ""
        if not line.strip():
            if self._list:
                self._blank = True
                return ""
            self._reset()
            return "after"
        ended = self._blank and not line[:1].isspace() and _ITEM.match(line) is None
        if ended or not self._any:
            self._list = _ITEM.match(line) is not None
        self._any, self._blank = True, False
        return "before" if ended else ""

    def _reset(self) -> None:
        self._fence, self._list, self._blank, self._any = "", False, False, False


class _Heading(Heading):
    """On the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Without a frame or padding, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")


class PlainMarkdown(Markdown):
    """Headings on the left, code without frames."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


def rows_of(text: str, width: int, look: Look) -> Iterable[list[Segment]]:
    """One block, rendered; without empty rows around it."""
    if _MARKED.search(text) is None:
        # A paragraph without any marks: most are, and this costs a tenth.
        return [[Segment(row.rstrip(), look.base)] for row in wrap(" ".join(printable(text).split()), width)]
    style = {"markdown.code": look.code, "markdown.h1": look.strong, "markdown.h2": look.strong}
    style |= {"markdown.h3": look.strong, "markdown.item.bullet": look.accent, "markdown.item.number": look.accent}
    themed = _Themed(PlainMarkdown(printable(text), code_theme=look.syntax, hyperlinks=False), Theme(style))
    rows = look.rendered(themed, width)
    while rows and _empty(rows[0]):
        rows.pop(0)
    while rows and _empty(rows[-1]):
        rows.pop()
    return [[_on(segment, look.base) for segment in row] for row in rows]


class _Themed:
    """A renderable with styles of its own."""

    def __init__(self, inner: Markdown, theme: Theme) -> None:
        self._inner, self._theme = inner, theme

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with console.use_theme(self._theme):
            yield from console.render(self._inner, options)


def _empty(row: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in row)


def _on(segment: Segment, base: Style) -> Segment:
    style = base + segment.style if segment.style is not None else base
    if style.bgcolor is not None and style.bgcolor.is_default:
        # Code comes with the terminal's own ground, which need not be the app's.
        style += Style(bgcolor=base.bgcolor)
    return Segment(segment.text, style)
