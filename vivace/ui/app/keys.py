"""Keys that terminals send in the old way and the toolkit does not know."""

from __future__ import annotations

import os
from enum import StrEnum


class _More(StrEnum):
    ALT_ENTER = "alt+enter"
    SHIFT_ENTER = "shift+enter"


def prepare() -> None:
    """To be called before the toolkit is imported elsewhere, once per process.

    A terminal without the keyboard protocol of kitty sends Alt+Enter as ESC and a carriage return, which would be read
    as Enter: one verb taken for another. ESC alone is waited for 100 ms by default; a stop may take no longer in all.
    """
    os.environ.setdefault("ESCDELAY", "25")
    from textual import _ansi_sequences

    table = _ansi_sequences.ANSI_SEQUENCES_KEYS
    for sequence in ("\x1b\r", "\x1b[27;3;13~"):
        table[sequence] = (_More.ALT_ENTER,)  # type: ignore[index]
    table["\x1b[27;2;13~"] = (_More.SHIFT_ENTER,)  # type: ignore[index]
