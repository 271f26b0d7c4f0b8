"""The app in a terminal of a known size: keys in, the text of the screen out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from tests.ui.scripted import Script, ScriptedHouse, silent
from vivace.ui.app.app import VivaceApp
from vivace.ui.contract import Choice

KEPT = Path(__file__).parent / "screens"
UPDATE = "VIVACE_UPDATE_SCREENS"
"""Set it to have the screens that are kept written anew; look at them before they are committed."""

Body = Callable[["Stage"], Awaitable[None]]


class Stage:
    """One run of the app."""

    def __init__(self, app: VivaceApp, pilot: Pilot[Any], house: ScriptedHouse) -> None:
        self.app, self.pilot, self.house = app, pilot, house

    async def type(self, text: str) -> None:
        for character in text:
            await self.pilot.press({" ": "space", "/": "slash", "@": "at", "\n": "ctrl+j"}.get(character, character))

    def paste(self, text: str) -> None:
        """Have ``text`` in the input at once; nothing is completed."""
        self.app.prompt.text = text
        self.app.prompt.move_cursor(self.app.prompt.document.end)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that comes; three seconds at most."""
        for _ in range(150):
            if true():
                await self.pilot.pause()
                return
            await self.pilot.pause(0.02)
        raise AssertionError("it did not come\n" + self.text())

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.text())

    def text(self) -> str:
        """The screen, without blanks at the ends of its lines."""
        rows = self.app.screen._compositor.render_strips()
        return "\n".join(row.text.rstrip() for row in rows)

    def matches(self, name: str) -> None:
        """The screen is the one that is kept under this name."""
        path = KEPT / f"{name}.txt"
        shown = self.text().rstrip() + "\n"
        if os.environ.get(UPDATE):
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")
        kept = path.read_text(encoding="utf-8")
        assert shown == kept, f"{name} has changed; {UPDATE}=1 accepts it\n{shown}"


def play(
    folder: Path,
    body: Body,
    script: Script = silent,
    size: tuple[int, int] = (80, 24),
    conversation: str = "",
    light: bool = False,
) -> None:
    """Run ``body`` with the app before it. The workspace is ``folder / "project"``."""
    root = folder / "project"
    root.mkdir(exist_ok=True)

    async def main() -> None:
        house = ScriptedHouse(folder / "sessions", script)
        app = VivaceApp(house, Choice(root=root, model="small", conversation=conversation), light=light)
        app.animation_level = "none"
        app.bar.clock = lambda: 0.0
        async with app.run_test(size=size) as pilot:
            stage = Stage(app, pilot, house)
            await stage.until(lambda: app.talk is not None)
            app.ask.grace = 0.0
            await body(stage)
            if app.talk is not None:
                await app.talk.close()

    asyncio.run(main())
