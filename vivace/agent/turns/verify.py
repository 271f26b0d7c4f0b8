"""Does a change hold? Its checks, run in a copy of the workspace and in the sandbox, against how it was before.

Lint and types count faults, which may not become more. Tests and doctests have to pass; where they failed before, too,
fewer failures are better but no proof.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.agent.sandbox.policy import policy_for
from vivace.agent.tools.base import Context
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.output import Output
from vivace.agent.turns.checks import GUESSES, Check, find_checks
from vivace.agent.turns.measured import Measured
from vivace.agent.turns.scratch import Scratch
from vivace.errors import VivaceError

SHOWN = 600
"""Tokens of a failing check that are shown to the model."""
MISSING = re.compile(r"No module named '?(pytest|mypy|ruff)'?\s*$", re.MULTILINE)


class Ran(Struct, frozen=True):
    """One check. ``faults`` is how many it found, None where it could not be run."""

    check: Check
    faults: int | None
    output: str
    seconds: float


class Report(Struct, frozen=True):
    """``ok``: nothing is worse than before and every test passes. ``tested``: tests or doctests did run."""

    ok: bool
    tested: bool
    ran: tuple[str, ...]
    failure: str = ""
    """What failed, for people; ``output`` of it for the model."""
    output: str = ""
    faults: int = 0

    @property
    def words(self) -> str:
        if self.failure:
            return self.failure
        return f"checked: {', '.join(self.ran)}" if self.ran else "nothing could be checked"


class Verifier:
    """The checks of one change: of these ``paths``. Close it when the turn is over."""

    def __init__(
        self, root: Path, paths: Sequence[str], context: Context, measured: Measured, cache_dir: Path, quick: float
    ) -> None:
        self.context = context
        self.measured = measured
        self.quick = quick
        self.scratch = Scratch(root, cache_dir)
        self.checks = find_checks(root, paths)
        self.original = {path: (root / path).read_bytes() for path in paths}
        self._before: dict[str, Ran] = {}
        self._one = asyncio.Lock()

    @property
    def seconds(self) -> float:
        """What all checks take: as measured, else as guessed."""
        return sum(self.seconds_of(check) for check in self.checks)

    @property
    def affordable(self) -> list[Check]:
        """As many checks as the time allows, cheap ones first."""
        room, found = self.quick, []
        for check in self.checks:
            room -= self.seconds_of(check)
            if room >= 0:
                found.append(check)
        return found

    def seconds_of(self, check: Check) -> float:
        known = self.measured.seconds(check.key)
        return GUESSES[check.kind] if known is None else known

    async def verify(self, contents: Mapping[str, bytes]) -> Report:
        """Check the files with these contents; those that are not named are as they were.

        One at a time: checks side by side would measure each other.
        """
        async with self._one:
            checks = self.affordable
            if not checks:
                return Report(ok=True, tested=False, ran=())
            try:
                root = await asyncio.to_thread(self.scratch.made)
            except VivaceError as error:
                return Report(ok=True, tested=False, ran=(), output=error.message)
            await self._put(root, {**self.original, **contents})
            done: list[Ran] = []
            for check in checks:
                now = await self._run(root, check)
                if now.faults is None:
                    continue
                done.append(now)
                if now.faults and await self._worse(root, check, now, contents):
                    return self._failing(done, now)
            tested = any(ran.check.kind in ("tests", "doctest") for ran in done)
            return Report(ok=True, tested=tested, ran=tuple(ran.check.key for ran in done))

    async def close(self) -> None:
        await asyncio.to_thread(self.scratch.close)

    async def _worse(self, root: Path, check: Check, now: Ran, contents: Mapping[str, bytes]) -> bool:
        """Lint and types: more faults than before. Tests: any failure at all."""
        assert now.faults is not None
        if check.kind in ("tests", "doctest"):
            return True
        if check.key not in self._before:
            await self._put(root, self.original)
            self._before[check.key] = await self._run(root, check)
            await self._put(root, {**self.original, **contents})
        before = self._before[check.key].faults
        return before is not None and now.faults > before

    def _failing(self, done: list[Ran], last: Ran) -> Report:
        text = head_and_tail(last.output.strip(), SHOWN, self.context.count)
        first = f"{last.check.key} finds {last.faults} {'fault' if last.faults == 1 else 'faults'}"
        tested = any(ran.check.kind in ("tests", "doctest") for ran in done)
        ran = tuple(one.check.key for one in done)
        return Report(ok=False, tested=tested, ran=ran, failure=first, output=text, faults=last.faults or 0)

    async def _run(self, root: Path, check: Check) -> Ran:
        context = self.context
        policy = policy_for(root)
        # The project's own interpreter and packages lie in the workspace itself.
        policy = msgspec.structs.replace(policy, readable=(*policy.readable, context.root))
        path = f"{root}:{root / 'src'}"
        argv = context.sandbox.wrap(
            ["env", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=1", *check.argv], policy, root
        )
        limit = max(5.0, self.quick)
        process = await context.processes.run(argv, root, limit, Output(lambda text: None))
        output = process.output.text.replace(f"{root}/", "")
        if process.ended == "exited":
            self.measured.took(check.key, process.seconds)
        else:
            self.measured.took(check.key, limit * 2)
            return Ran(check, None, output, process.seconds)
        return Ran(check, _faults(check, process.code or 0, output), output, process.seconds)

    async def _put(self, root: Path, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)


def _faults(check: Check, code: int, output: str) -> int | None:
    """How many faults; None when the check itself could not be run."""
    if code and MISSING.search(output):
        return None
    if check.kind == "lint":
        return sum(bool(re.match(r"\S+:\d+", line)) for line in output.splitlines()) or int(code != 0)
    if check.kind == "types":
        return None if code > 1 else sum(": error:" in line for line in output.splitlines())
    if check.kind == "doctest":
        failing = re.search(r"\*\*\*Test Failed\*\*\* (\d+)", output)
        return int(failing[1]) if failing else int(code != 0)
    if code in (4, 5):  # pytest: used wrongly, or no test was collected
        return None
    failed = re.search(r"(\d+) failed", output)
    errors = re.search(r"(\d+) errors?\b", output)
    counted = (int(failed[1]) if failed else 0) + (int(errors[1]) if errors else 0)
    return counted or int(code != 0)
