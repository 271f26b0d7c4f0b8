"""How a server's process runs: its event loop, and what else it does at the same time."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

TURN = 0.0005
"""Seconds after which a thread that wants to run gets the interpreter. The database's thread would hold the loop up for
Python's 5 ms otherwise."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As :func:`asyncio.run`, on uvloop where that is."""
    sys.setswitchinterval(TURN)
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def settle() -> None:
    """Everything is set up: what there is now stays, so that no collection of garbage has to look at it again.

    Going through it takes 50 ms and more, in which no stream gets a token.
    """
    gc.collect()
    gc.freeze()


def _factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # it has no build for Windows and PyPy
        return asyncio.new_event_loop
    return uvloop.new_event_loop
