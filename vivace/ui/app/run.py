"""Starts the terminal app. Importing this imports the toolkit: only the command that needs it does."""

from __future__ import annotations

import asyncio
import os
import sys

from vivace.errors import UsageError
from vivace.ui.app import keys
from vivace.ui.contract import Choice, House


def run_app(house: House, choice: Choice) -> int:
    """Show the app until the user leaves; 0. Raises :class:`UsageError` (``no_terminal``) without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the terminal app needs a terminal",
            hint='For scripts and pipes there is: vivace exec "TASK"',
            code="no_terminal",
        )
    keys.prepare()
    ended = asyncio.run(_run(house, choice))
    if ended:
        print(f"To go on with this conversation: vivace --resume {ended}")
    return 0


async def _run(house: House, choice: Choice) -> str:
    from vivace.ui.app.app import VivaceApp

    app = VivaceApp(house, choice, light=light_terminal(os.environ.get("COLORFGBG", "")))
    try:
        return await app.run_async() or ""
    finally:
        if app.talk is not None:
            await app.talk.close()
        await house.close()


def light_terminal(colours: str) -> bool:
    """What rxvt, Konsole and others say in ``COLORFGBG``: the last number is the background's, 7 or 15 when light."""
    return colours.rpartition(";")[2] in ("7", "15")
