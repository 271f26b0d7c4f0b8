"""What a change makes of its examples, and how it behaves: its functions called in the sandbox, before and after.

The examples are those of the instruction and the docstrings. Where a sandbox holds, more calls are made up, to see
which candidates behave alike; without one only what the user wrote is run. Of a file that cannot be loaded because what
it imports is not here, as much is loaded as can be.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.agent.turns.examples import Example, examples_of
from vivace.agent.turns.inputs import inputs_of

SECONDS = 6.0
"""Limit of one probe."""
SLOW = 1.5
"""Seconds of loading and calling a file after which nothing is made up for it."""
MOST_BYTES = 48 * 1024
"""Of all calls together: they travel as one argument."""
MOST_SHOWN = 16
"""Made-up calls whose results are compared."""

_NOT_HERE = ("ImportError:", "ModuleNotFoundError:")

Run = Callable[[list[str]], Awaitable[str | None]]
"""Arguments of the workspace's Python -> its output; None where it was stopped."""


class Finding(Struct, frozen=True):
    """``broken`` says why the file cannot be loaded or which name it lacks; empty where it runs.

    ``behaviour`` is what every call gave; two candidates with the same behave alike. Empty where nothing was called.
    """

    holds: int = 0
    fails: tuple[str, ...] = ()
    """Examples that do not hold, and what came instead."""
    behaviour: tuple[str, ...] = ()
    broken: str = ""

    @property
    def examples(self) -> int:
        return self.holds + len(self.fails)

    @property
    def telling(self) -> bool:
        """Whether any call came to a value."""
        return any(not shown.startswith("!") for shown in self.behaviour)


class _Outcome(Struct):
    shown: str
    holds: bool | None = None


class Probe:
    """Of one file, whose text before the change is ``text``."""

    def __init__(self, path: str, text: str, instruction: str, *, freely: bool) -> None:
        self.path = path
        self._examples = examples_of(instruction, text)
        calls = inputs_of(text, instruction, self._examples) if freely and instruction else []
        given = {example.call for example in self._examples}
        self._calls = [call for call in calls if call not in given]
        self._before: Finding | None = None
        self._parts = False

    def __bool__(self) -> bool:
        return bool(self._examples or self._calls)

    @property
    def unseen(self) -> bool:
        return self._before is None

    @property
    def most(self) -> int:
        """Faults of a file that does not run: more than examples can fail."""
        return len(self._examples) + 1

    @property
    def before(self) -> Finding:
        return self._before or Finding()

    async def prepare(self, root: Path, run: Run) -> None:
        """Run it on the file as it was: what cannot be called then tells nothing, and what holds then asks nothing."""
        if self._before is not None:
            return
        began = time.perf_counter()
        told = await self._told(root, run)
        if isinstance(told, str) and told.startswith(_NOT_HERE):
            self._parts = True
            told = await self._told(root, run)
        if not self._examples and time.perf_counter() - began > SLOW:  # every candidate would take as long again
            self._calls, told = [], []
        if isinstance(told, str) or told is None:
            self._calls = []
            self._examples = [example for example in self._examples if example.asked]
            self._before = Finding(broken=told or "it takes too long")
            return
        here, made = told[: len(self._examples)], told[len(self._examples) :]
        self._calls = [call for call, one in zip(self._calls, made, strict=True) if _tells(one)][:MOST_SHOWN]
        self._examples = [
            example for example, one in zip(self._examples, here, strict=True) if example.asked or one.holds is False
        ]
        self._before = self._finding(await self._told(root, run))

    async def find(self, root: Path, run: Run) -> Finding:
        """After a change, which lies in ``root``."""
        return self._finding(await self._told(root, run))

    async def _told(self, root: Path, run: Run) -> list[_Outcome] | str | None:
        calls = [*(example.call for example in self._examples), *self._calls]
        wanted: list[str | None] = [f"!{one.error}" if one.error else one.value for one in self._examples]
        if not calls:
            return []
        while len(calls) > len(self._examples) and sum(map(len, calls)) > MOST_BYTES:
            calls.pop()
        del self._calls[len(calls) - len(self._examples) :]
        wanted += [None] * (len(calls) - len(wanted))
        pairs = list(zip(calls, wanted, strict=True))
        spec = {"root": str(root), "file": self.path, "calls": pairs, "parts": self._parts}
        output = await run(["-c", _script(), json.dumps(spec)])
        if output is None:
            return None
        lines = output.strip().splitlines()
        try:
            return msgspec.json.decode(lines[-1] if lines else "", type=list[_Outcome] | str)
        except msgspec.DecodeError:  # it ended the process, or wrote over the answer
            return "it ends the process"

    def _finding(self, told: list[_Outcome] | str | None) -> Finding:
        if told is None:
            return Finding(broken="it takes too long")
        if isinstance(told, str):
            return Finding(broken=told)
        here = list(zip(self._examples, told, strict=False))
        lacks = [one.shown[1:] for one in told if one.shown in ("!NameError", "!UnboundLocalError")]
        return Finding(
            sum(one.holds is True for _, one in here),
            tuple(_failing(example, one) for example, one in here if one.holds is False),
            tuple(one.shown for one in told),
            f"{lacks[0]} when it runs" if lacks else "",
        )


def _tells(one: _Outcome) -> bool:
    """A call that the function was not made for shows nothing."""
    return one.shown not in ("!missing", "!TypeError", "!AttributeError", "!timeout", "!ImportError")


def _failing(example: Example, one: _Outcome) -> str:
    wanted = example.error or example.value
    return f"{example.call} should {'raise' if example.error else 'give'} {wanted}, not {one.shown.split(' after ')[0]}"


@functools.lru_cache(maxsize=1)
def _script() -> str:
    return Path(__file__).with_name("probe_script.py").read_text(encoding="utf-8")
