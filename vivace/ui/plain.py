"""The plain face: the diff while it is made, the final diff, the question, and what was measured."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from vivace.agent.livediff import LiveDiff, Shown
from vivace.agent.result import Began, EditEvent, EditResult, Lines, Opened, Settled

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

TAIL = 16
"""Lines of the growing diff that stay in sight."""
STYLES = {"+": "green", "-": "red", "@": "cyan"}
_CONTROLS = (
    {n: 0x2400 + n for n in range(32) if n not in (9, 10)} | {127: 0x2421} | dict.fromkeys(range(128, 160), 0xFFFD)
)


def visible(text: str) -> str:
    """Control characters as pictures: a file must not be able to drive the terminal."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8")


class PlainFace:
    """Listens to an edit turn. To a terminal it streams; elsewhere it prints the final diff only."""

    def __init__(self, console: Console | None = None) -> None:
        self._terminal = console.is_terminal if console else sys.stdout.isatty()
        self._console = console
        self._live: Live | None = None
        self._diff = LiveDiff([])
        self._tail: tuple[Shown, ...] = ()  # replaced, never changed: the screen is drawn by another thread
        self._title = ""
        self._since = 0.0
        self._lines = 0

    def __call__(self, event: EditEvent) -> None:
        """Take one event; cheap whatever the length of the file."""
        if not self._terminal:
            return
        if isinstance(event, Opened):
            detail = f" ({event.card.detail})" if event.card.detail else ""
            self._out.print(
                visible(event.card.name + detail), style="dim", markup=False, highlight=False, soft_wrap=True
            )
        elif isinstance(event, Began):
            if event.retry:
                self.pause()
                self._out.print(
                    visible(f"again: {event.retry}"), style="yellow", markup=False, highlight=False, soft_wrap=True
                )
            self._begin(event)
        elif isinstance(event, Lines):
            self._lines += len(event.lines)
            # Only what changes, and one line before it, is worth the eyes.
            tail = list(self._tail)
            for mark, line in self._diff.feed(event.lines):
                if mark == " " and tail and tail[-1][0] == " ":
                    tail.pop()
                tail.append((mark, line))
            self._tail = tuple(tail[-TAIL:])
        elif isinstance(event, Settled):
            self.pause()

    def pause(self) -> None:
        """Take the streaming part off the screen."""
        if self._live:
            self._live.stop()
            self._live = None

    def show(self, result: EditResult) -> None:
        """The final diff of every file, and the reasons of those without one."""
        self.pause()
        for file in result.files:
            if file.patch:
                self._print_diff(file.patch.diff)
            if file.reason:
                self._say(f"{file.source.name}: {file.reason}", "yellow")

    def ask(self) -> bool:
        """The question; everything but a yes is a no. Raises :class:`KeyboardInterrupt` on Ctrl-C."""
        while True:
            try:
                answer = input("Apply? [y/n] ").strip().lower()
            except EOFError:
                print()
                return False
            if answer in ("y", "yes", "n", "no"):
                return answer[0] == "y"

    def close(self, result: EditResult, ending: str) -> None:
        """The last line: what happened, and what was measured."""
        self._say(f"{ending}: {measured(result)}", "bold")

    @property
    def _out(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(soft_wrap=True)
        return self._console

    def _begin(self, event: Began) -> None:
        from rich.live import Live

        self._diff, self._lines, self._since = LiveDiff(event.old), 0, time.perf_counter()
        self._tail = ()
        self._title = visible(event.source.name)
        if self._live is None:
            self._live = Live(console=self._out, get_renderable=self._render, refresh_per_second=20, transient=True)
            self._live.start()

    def _render(self) -> RenderableType:
        from rich.text import Text

        seconds = time.perf_counter() - self._since
        text = Text(f"{self._title}  {self._lines} lines, {self._diff.changed} changed, {seconds:.1f} s", style="dim")
        text.no_wrap, text.overflow = True, "ellipsis"
        for mark, line in self._tail:
            text.append("\n" + mark + visible(line), style=STYLES.get(mark, "dim"))
        return text

    def _print_diff(self, diff: str) -> None:
        if not self._terminal:
            # The exact bytes: the output may be on its way to a file or to git apply.
            sys.stdout.flush()
            sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()
            return
        from rich.text import Text

        text = Text()
        for n, line in enumerate(diff.removesuffix("\n").split("\n")):
            style = "bold" if n < 2 else STYLES.get(line[:1], "")
            text.append(visible(line.removesuffix("\r")) + "\n", style=style)
        self._out.print(text, end="", soft_wrap=True)

    def _say(self, line: str, style: str) -> None:
        if self._terminal:
            self._out.print(visible(line), style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            print(visible(line), flush=True)


def measured(result: EditResult) -> str:
    """Time to first token, decode speed, share of the draft, lines changed, seconds; only what was measured."""
    parts = []
    if result.ttft is not None:
        parts.append(f"first token {result.ttft:.2f} s")
    if (rate := result.decode_rate) is not None:
        parts.append(f"{rate:.0f} tok/s")
    if (share := result.draft_accepted) is not None:
        parts.append(f"{share:.0%} from the draft")
    lines = result.lines_changed
    parts.append(f"{lines} {'line' if lines == 1 else 'lines'} changed")
    parts.append(f"{result.seconds:.2f} s")
    return ", ".join(parts)
