"""Does a change hold? Its checks, run in a copy of the workspace and in the sandbox, against how it was before.

Lint and types count faults, which may not become more. Tests, doctests and the examples of the instruction have to
pass; where they failed before, too, fewer failures are better but no proof.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.agent.approvals.approvals import Approvals
from vivace.agent.sandbox.base import detect
from vivace.agent.sandbox.policy import policy_for
from vivace.agent.tools.base import Context
from vivace.agent.tools.clip import head_and_tail
from vivace.agent.tools.output import Output
from vivace.agent.turns.checks import Check, affordable, find_checks, limit_of, program
from vivace.agent.turns.measured import Measured
from vivace.agent.turns.probe import SECONDS as PROBE_SECONDS
from vivace.agent.turns.probe import Finding, Probe
from vivace.agent.turns.scratch import Scratch
from vivace.errors import VivaceError

SHOWN_EXAMPLES = 5
SHOWN = 600
"""Tokens of a failing check that are shown to the model."""
MISSING = re.compile(r"No module named '?(pytest|mypy|ruff)'?\s*$", re.MULTILINE)

MENDS = re.compile(
    r"\b(fix|mend|repair|correct|debug|solv|resolv|bug|fail|fault|broke|break|error|wrong|crash|issue|test|pass|green)",
    re.IGNORECASE,
)
"""An instruction that may be about the very tests that fail."""


class Ran(Struct, frozen=True):
    """One check. ``faults`` is how many it found, None where it could not be run."""

    check: Check
    faults: int | None
    output: str
    seconds: float


class Report(Struct, frozen=True):
    """``ok``: nothing is worse than before and every test passes. ``tested``: tests, doctests or examples did run."""

    ok: bool
    tested: bool
    ran: tuple[str, ...]
    failure: str = ""
    """What failed, for people; ``output`` of it for the model."""
    output: str = ""
    faults: int = 0
    behaviour: tuple[str, ...] = ()
    """What the functions give for a few calls; candidates with the same behave alike. Empty: nothing is known."""
    moved: bool = True
    """It behaves otherwise than before, or nothing is known."""
    as_before: bool = False
    """The tests that fail failed before the change too, and nobody asked to mend them: no proof, and no fault of it."""

    @property
    def holds(self) -> bool:
        """There is nothing against the change."""
        return self.ok or self.as_before

    @property
    def words(self) -> str:
        if self.failure:
            return f"{self.failure}, as before" if self.as_before else self.failure
        return f"checked: {', '.join(self.ran)}" if self.ran else "nothing could be checked"


@dataclass(frozen=True)
class Ground:
    """Where and with what changes are checked: ``quick`` is how many seconds the checks of one may take."""

    root: Path
    context: Context
    measured: Measured
    cache_dir: Path
    quick: float = 30.0

    @classmethod
    async def apart(cls, root: Path, folder: Path) -> Ground:
        """Without a conversation: what is measured and made lies in ``folder``. The sandbox is this machine's."""
        root = root.resolve()
        found = await asyncio.to_thread(detect)
        context = Context(root, Approvals(root, "auto"), policy_for(root), found.sandbox)
        return cls(root, context, Measured.of(root, folder), folder / "cache")


class Verifier:
    """The checks of one change: of these ``paths``, by this ``instruction``. Close it when the turn is over."""

    def __init__(self, ground: Ground, paths: Sequence[str], instruction: str = "") -> None:
        root = ground.root
        self.context = ground.context
        self.measured = ground.measured
        self.quick = ground.quick
        self.scratch = Scratch(root, ground.cache_dir)
        self.checks = find_checks(root, paths)
        self.mends = MENDS.search(instruction) is not None
        self.original = {path: (root / path).read_bytes() for path in paths}
        freely = self.context.sandbox.holds
        probes = [
            Probe(path, data.decode("utf-8", "replace"), instruction, freely=freely)
            for path, data in self.original.items()
            if path.endswith(".py")
        ]
        self.probes = {probe.path: probe for probe in probes if probe}
        self.python = program(root, "python", sys.executable)
        self._before: dict[str, Ran] = {}
        self._making: asyncio.Task[Path] | None = None
        self._one = asyncio.Lock()

    @property
    def affordable(self) -> list[Check]:
        """As many checks as the time allows, cheap ones first."""
        return affordable(self.checks, self.measured, self.quick).checks

    @property
    def able(self) -> bool:
        """Whether anything can be checked at all."""
        return bool(self.affordable or self.probes)

    async def verify(self, contents: Mapping[str, bytes]) -> Report:
        """Check the files with these contents; those that are not named are as they were.

        One at a time: checks side by side would measure each other.
        """
        async with self._one:
            checks = self.affordable
            if not self.able:
                return Report(ok=True, tested=False, ran=())
            try:
                root = await self._copy()
            except VivaceError as error:
                return Report(ok=True, tested=False, ran=(), output=error.message)
            found = await self._probed(root, contents)
            report = self._shown(found)
            if not report.ok:
                return report
            await self._put(root, {**self.original, **contents})
            done: list[Ran] = []
            for check in checks:
                now = await self._run(root, check)
                if now.faults is None:
                    continue
                done.append(now)
                if now.faults and await self._worse(root, check, now, contents):
                    failing = self._failing(done, now)
                    return msgspec.structs.replace(
                        failing,
                        behaviour=report.behaviour,
                        moved=report.moved,
                        as_before=await self._as_before(root, check, now, contents),
                    )
            tested = report.tested or any(ran.check.kind in ("tests", "doctest") for ran in done)
            ran = (*report.ran, *(ran.check.key for ran in done))
            return msgspec.structs.replace(report, tested=tested, ran=ran)

    async def prepare(self) -> None:
        """See how the files behave as they are, while the model still writes. What is wrong shows later."""
        with contextlib.suppress(VivaceError):
            async with self._one:
                if self.probes:
                    await self._probed(await self._copy(), {})

    async def close(self) -> None:
        if self._making is not None:  # whoever wanted it may be gone, and the thread still copies
            await asyncio.wait((self._making,))
            self._making.exception()
        await asyncio.to_thread(self.scratch.close)

    async def _copy(self) -> Path:
        """The folder that changes are tried in. Raises :class:`VivaceError` as :class:`Scratch` does."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self.scratch.made))
        return await asyncio.shield(self._making)

    async def _probed(self, root: Path, contents: Mapping[str, bytes]) -> dict[str, Finding]:
        """The probes of the files that are changed."""
        if any(probe.unseen for probe in self.probes.values()):
            await self._put(root, self.original)
            for probe in self.probes.values():
                await probe.prepare(root, self._call)
        if not any(path in contents for path in self.probes):
            return {}
        await self._put(root, {**self.original, **contents})
        return {path: await probe.find(root, self._call) for path, probe in self.probes.items() if path in contents}

    def _shown(self, found: Mapping[str, Finding]) -> Report:
        """What the probes come to."""
        broken = [
            f"{path} does not run ({finding.broken})"
            for path, finding in found.items()
            if finding.broken and not self.probes[path].before.broken
        ]
        fails = [line for finding in found.values() for line in finding.fails]
        count = sum(finding.examples for finding in found.values())
        telling = any(finding.telling for finding in found.values())
        moved = any(finding.behaviour != self.probes[path].before.behaviour for path, finding in found.items())
        words = f"example{'' if count == 1 else 's'} {'does' if len(fails) == 1 else 'do'} not hold"
        return Report(
            ok=not (broken or fails),
            tested=bool(count),
            ran=(f"{count} {'example' if count == 1 else 'examples'}",) if count else (),
            failure="; ".join([*broken, *([f"{len(fails)} of {count} {words}"] if fails else [])]),
            output="\n".join([*broken, *fails[:SHOWN_EXAMPLES]]),
            faults=len(fails) + sum(self.probes[path].most for path in found if broken),
            behaviour=tuple(line for finding in found.values() for line in finding.behaviour) if telling else (),
            moved=moved or not telling,
        )

    async def _call(self, arguments: list[str]) -> str | None:
        """The workspace's Python with these arguments, in an empty folder: what is called may write, but not there."""
        assert self.scratch.root is not None
        with tempfile.TemporaryDirectory(dir=self.scratch.root.parent) as folder:
            place = Path(folder).resolve()
            policy = policy_for(place)
            readable = (*policy.readable, self.context.root, self.scratch.root)
            policy = msgspec.structs.replace(policy, readable=readable)
            fixed = ("PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0")
            argv = self.context.sandbox.wrap(["env", *fixed, self.python, *arguments], policy, place)
            process = await self.context.processes.run(argv, place, PROBE_SECONDS, Output(lambda text: None))
        return process.output.text if process.ended == "exited" else None

    async def _worse(self, root: Path, check: Check, now: Ran, contents: Mapping[str, bytes]) -> bool:
        """Lint and types: more faults than before. Tests: any failure at all."""
        assert now.faults is not None
        if check.kind in ("tests", "doctest"):
            return True
        before = (await self._ran_before(root, check, contents)).faults
        return before is not None and now.faults > before

    async def _as_before(self, root: Path, check: Check, now: Ran, contents: Mapping[str, bytes]) -> bool:
        """Whether the very tests fail that failed before, where nothing is to be mended."""
        if check.kind not in ("tests", "doctest") or self.mends:
            return False
        before = await self._ran_before(root, check, contents)
        failed, known = _failed(now.output), _failed(before.output)
        return bool(failed) and failed <= known and (now.faults or 0) <= (before.faults or 0)

    async def _ran_before(self, root: Path, check: Check, contents: Mapping[str, bytes]) -> Ran:
        """The check on the files as they were; run once."""
        if check.key not in self._before:
            await self._put(root, self.original)
            self._before[check.key] = await self._run(root, check)
            await self._put(root, {**self.original, **contents})
        return self._before[check.key]

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
        limit = limit_of(self.quick)
        process = await context.processes.run(argv, root, limit, Output(lambda text: None))
        output = process.output.text.replace(f"{root}/", "")
        if process.ended != "exited":
            if process.ended == "timeout":
                self.measured.gave_up(check.key, limit)
            return Ran(check, None, output, process.seconds)
        self.measured.took(check.key, process.seconds)
        return Ran(check, _faults(check, process.code or 0, output), output, process.seconds)

    async def _put(self, root: Path, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)


def _failed(output: str) -> set[tuple[str, str]]:
    """Which tests failed, by the names that pytest and doctest give them."""
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)|^File \".*\", line \d+, in (\S+)", output, re.MULTILINE))


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
