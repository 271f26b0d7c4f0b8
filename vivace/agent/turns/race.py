"""Candidates race: the first that verifies wins, the others are cancelled.

Where nothing verifies, those with the fewest faults are left, and of these wins what most came to, the greedy answer
counting for more than one; then the smallest. Candidates came to the same when they behave alike, or where that cannot
be seen, when they mean the same to a compiler. One that behaves as the file did before is the last choice, unless the
instruction asks for just that.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from vivace.agent.dialect import Ask
from vivace.agent.edit import Candidate, Listener, edit
from vivace.agent.languages import language_of, python_tree
from vivace.agent.plan import Plan
from vivace.agent.result import EditRequest, EditResult
from vivace.agent.turns.judge import best_of
from vivace.agent.turns.merge import merged
from vivace.agent.turns.verify import Ground, Report, Verifier
from vivace.agent.workspace import SourceFile
from vivace.model_size import SMALL, billions
from vivace.protocol.contracts import ModelCard, Service

CANDIDATES = 4
"""That race by default, of a model that is small."""
THOROUGH = 8
"""The same in a deep turn, which takes its time."""
WIDE = 16
"""The same in the round behind a quick answer that does not hold: 16 answers take half as long again as 4, and it is
the last round unless it brings something."""
GREEDY = 1.5
"""Votes of the greedy answer beyond its own: it takes three others that agree to outvote it."""


_ABOUT_LOOKS = re.compile(
    r"\b(renam|refactor|docstring|comment|document|annotat|type hint|typing|format|styl|readab|simplif|clean|tidy"
    r"|optimi|faster|speed|efficien|performan|complexity|memory|vectori|log)",
    re.IGNORECASE,
)
"""An instruction after which the functions may well give what they gave before."""


def candidates_for(card: ModelCard, wanted: int | None, free: int | None = None, *, small: int = CANDIDATES) -> int:
    """How many race: what was asked for, else ``small`` of them where the model is small, and one of others.

    Never more than the service has slots ``free``.
    """
    size = billions(card.name)
    count = wanted if wanted is not None else small if size is not None and size < SMALL else 1
    return max(1, count if free is None else min(count, free))


@dataclass
class _Field:
    """The valid candidates of one file so far, those of an earlier round among them."""

    all: list[Candidate] = field(default_factory=list)
    reports: dict[bytes, Report] = field(default_factory=dict)
    kinds: dict[bytes, object] = field(default_factory=dict)
    ended: int = 0
    """Of ``all``, those that an earlier round had."""


class Race:
    """The referee of one turn, for :func:`vivace.agent.edit.edit`.

    ``agreement`` is the share of valid candidates that came to what the winner came to; of several files, the least.
    """

    def __init__(
        self,
        count: int,
        instruction: str,
        verifier: Verifier | None = None,
        judge: tuple[Service, str] | None = None,
        note: Callable[[str], None] = lambda text: None,
        seed: int = 0,
    ) -> None:
        self.count = count
        self.instruction = instruction
        self.verifier = verifier
        self.judge = judge
        self.note = note
        self.seed = seed
        self.agreement: float | None = None
        self.decided: dict[str, bytes] = {}
        """What the files came to that were decided before, in a turn over several: the next is verified with them."""
        self._fields: dict[str, _Field] = {}

    async def wins(self, plan: Plan, candidate: Candidate) -> bool:
        here, data = self._field(plan), _data(candidate)
        here.all.append(candidate)
        report = await self._verify(plan, data)
        if report is not None and report.ok and report.tested:
            self._win(plan, data)
            return True
        if (report is None or report.ok) and self._settled(plan, candidate):
            self._win(plan, data)
            return True
        return False

    async def choose(self, plan: Plan, candidates: list[Candidate]) -> Candidate | None:
        """The best of all rounds so far. None asks for another one, once, when all fail what was tested."""
        here = self._field(plan)
        here.ended = len(here.all)
        if not here.all:
            return None
        reports = {_data(c): await self._verify(plan, _data(c)) for c in here.all}
        passing = [c for c in here.all if (report := reports[_data(c)]) is None or report.ok]
        if not passing and (joined := await self._merge(plan, here.all)) is not None:
            return joined
        tested = all(report is not None and report.tested for report in reports.values())
        if self.count > 1 and not passing and tested and _asks_again(plan, candidates):
            self.note("no answer passes what can be checked; asked again")
            return None
        standing = passing or _least_faulty(here.all, here.reports)
        chosen = await self._judged(standing) or min(standing, key=lambda c: self._rank(plan, c))
        self._win(plan, _data(chosen))
        return chosen

    def report_of(self, name: str, data: bytes) -> Report | None:
        """What verifying this content of a file came to, where it was verified."""
        return self._fields[name].reports.get(data) if name in self._fields else None

    def _settled(self, plan: Plan, candidate: Candidate) -> bool:
        """Whether those still to come cannot outvote this one: more of them would only take time."""
        here = self._field(plan)
        report = here.reports.get(_data(candidate))
        if self.count < 3 or not self._moved(report) or any(one.tested for one in here.reports.values()):
            return False
        alike = self._alike(plan, _data(candidate))
        if self.judge is not None:  # who decides then, unless half of the field says the same
            return 2 * len(alike) >= self.count
        fresh = here.all[here.ended :]
        coming = self.count - len(fresh) + (0.0 if any(not one.index for one in fresh) else GREEDY)
        others = {self._kind(plan, _data(one)): self._votes(plan, _data(one)) for one in here.all if one not in alike}
        return self._votes(plan, _data(candidate)) > max(others.values(), default=0.0) + coming

    def _field(self, plan: Plan) -> _Field:
        return self._fields.setdefault(plan.ask.source.name, _Field())

    def _alike(self, plan: Plan, data: bytes) -> list[Candidate]:
        """Those that came to the same: they behave alike, or else they mean the same to a compiler."""
        kind = self._kind(plan, data)
        return [candidate for candidate in self._field(plan).all if self._kind(plan, _data(candidate)) == kind]

    def _votes(self, plan: Plan, data: bytes) -> float:
        alike = self._alike(plan, data)
        return len(alike) + (GREEDY if any(not other.index for other in alike) else 0.0)

    def _moved(self, report: Report | None) -> bool:
        return report is None or report.moved or _ABOUT_LOOKS.search(self.instruction) is not None

    def _kind(self, plan: Plan, data: bytes) -> object:
        here = self._field(plan)
        report = here.reports.get(data)
        if report is not None and report.behaviour:
            return report.behaviour
        if data not in here.kinds:
            here.kinds[data] = meaning(plan.ask.source.name, data)
        return here.kinds[data]

    def _rank(self, plan: Plan, candidate: Candidate) -> tuple[bool, float, int, int]:
        patch = candidate.verdict.patch
        assert patch is not None
        report = self._field(plan).reports.get(patch.data)
        # Of answers that come to the same the greedy one, whose form is the model's own habit; else the smallest.
        size = patch.lines_changed if candidate.index else 0
        return (not self._moved(report), -self._votes(plan, patch.data), size, candidate.index)

    async def _judged(self, standing: Sequence[Candidate]) -> Candidate | None:
        distinct = list({_data(candidate): candidate for candidate in standing}.values())
        if self.judge is None or len(distinct) < 2:
            return None
        service, model = self.judge
        diffs = [candidate.verdict.patch.diff for candidate in distinct if candidate.verdict.patch]
        chosen = await best_of(service, model, self.instruction, diffs, self.seed)
        if chosen is None:
            return None
        self.note(f"{model} chose between {len(distinct)} candidates")
        return distinct[chosen]

    async def _merge(self, plan: Plan, valid: Sequence[Candidate]) -> Candidate | None:
        """Two halves that make a whole, if a merge verifies."""
        patches = list({_data(c): c.verdict.patch for c in valid if c.verdict.patch}.values())
        for patch in merged(patches):
            report = await self._verify(plan, patch.data)
            if report is not None and report.ok and report.tested:
                self.note("two candidates were joined")
                self._win(plan, patch.data)
                return replace(valid[0], verdict=replace(valid[0].verdict, patch=patch))
        return None

    async def _verify(self, plan: Plan, data: bytes) -> Report | None:
        """Each text once. None where there is nothing to verify with."""
        if self.verifier is None or not self.verifier.able:
            return None
        reports, name = self._field(plan).reports, plan.ask.source.name
        if data not in reports:
            reports[data] = await self.verifier.verify({**self.decided, name: data})
        return reports[data]

    def _win(self, plan: Plan, data: bytes) -> None:
        self.decided[plan.ask.source.name] = data
        here = self._field(plan)
        if here.all:
            share = len(self._alike(plan, data)) / len(here.all)
            self.agreement = share if self.agreement is None else min(self.agreement, share)


@asynccontextmanager
async def racing(
    ground: Ground,
    names: Sequence[str],
    instruction: str,
    count: int,
    verify: bool = False,
    judge: tuple[Service, str] | None = None,
    note: Callable[[str], None] = lambda text: None,
    seed: int = 0,
) -> AsyncIterator[Race]:
    """The race of ``count`` answers to an edit of the files ``names``: the one way of every face and of the benchmark.

    With more than one answer, or where ``verify`` asks for it, what the workspace and the instruction show is checked.
    """
    verifier: Verifier | None = None
    if count > 1 or verify:
        verifier = await asyncio.to_thread(Verifier, ground, names, instruction)
    early = asyncio.create_task(verifier.prepare()) if verifier is not None and verifier.probes else None
    try:
        yield Race(count, instruction, verifier if verifier and verifier.able else None, judge, note, seed)
    finally:
        if early is not None:
            early.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await early
        if verifier is not None:
            await verifier.close()


async def edit_in_race(
    service: Service, request: EditRequest, sources: list[SourceFile], on_event: Listener
) -> EditResult:
    """:func:`vivace.agent.edit.edit` without a conversation around it; where it asks for several candidates, they race.

    Nothing but a folder for temporary files is written. Raises as that does.
    """
    if request.candidates == 1:
        return await edit(service, request, sources, on_event)
    with tempfile.TemporaryDirectory(prefix="vivace-race-") as folder:
        ground = await Ground.apart(request.root or Path.cwd(), Path(folder))
        names = [source.name for source in sources]
        async with racing(ground, names, request.instruction, request.candidates, seed=request.seed) as race:
            return await edit(service, request, sources, on_event, race)


def meaning(name: str, data: bytes) -> object:
    """What two texts have in common that differ in layout and comments only."""
    text = data.decode("utf-8", "surrogateescape")
    if language_of(name, text) == "python" and (tree := python_tree(text)) is not None:
        return ast.dump(tree)
    return data


def _asks_again(plan: Plan, candidates: Sequence[Candidate]) -> bool:
    """Whether :func:`vivace.agent.edit.edit` asks the same once more when nothing is chosen."""
    asked_before = not isinstance(plan.ask, Ask) or plan.again or plan.fallback
    return not asked_before and not any(candidate.attempt.lost for candidate in candidates)


def _least_faulty(valid: Sequence[Candidate], reports: dict[bytes, Report]) -> list[Candidate]:
    faults = {_data(c): report.faults for c in valid if (report := reports.get(_data(c))) is not None}
    least = min(faults.values(), default=0)
    return [c for c in valid if faults.get(_data(c), least) == least]


def _data(candidate: Candidate) -> bytes:
    assert candidate.verdict.patch is not None
    return candidate.verdict.patch.data
