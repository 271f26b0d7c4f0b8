"""Candidates race: the first that verifies wins, the others are cancelled; else the most agreed on, the smallest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from vivace.agent.edit import Candidate
from vivace.agent.plan import Plan
from vivace.agent.turns.judge import best_of
from vivace.agent.turns.merge import merged
from vivace.agent.turns.verify import Report, Verifier
from vivace.protocol.contracts import ModelCard, Service

SMALL = 3.0
"""Billions of parameters below which a model's answers race by default."""
CANDIDATES = 4
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)


def billions(name: str) -> float | None:
    """The size that a model's name tells (``coder-1.5b``); of ``30b-a3b`` all of it counts."""
    found = [float(size) for size in _SIZE.findall(name)]
    return max(found, default=None)


def candidates_for(card: ModelCard, wanted: int | None) -> int:
    """How many race where nobody said so."""
    if wanted is not None:
        return max(1, wanted)
    size = billions(card.name)
    return CANDIDATES if size is not None and size < SMALL else 1


class Race:
    """The referee of one turn, for :func:`vivace.agent.edit.edit`.

    ``agreement`` is the share of valid candidates that came to the winner's very text; ``reports`` are by that text.
    """

    def __init__(
        self,
        count: int,
        instruction: str,
        verifier: Verifier | None = None,
        judge: tuple[Service, str] | None = None,
        note: Callable[[str], None] = lambda text: None,
        seed: int = 0,
        others: Mapping[str, bytes] | None = None,
    ) -> None:
        self.count = count
        self.instruction = instruction
        self.verifier = verifier
        self.judge = judge
        self.note = note
        self.seed = seed
        self.others = dict(others or {})
        """Contents of the files that were decided before, in a turn over several."""
        self.agreement: float | None = None
        self.reports: dict[bytes, Report] = {}
        self._seen: Counter[bytes] = Counter()

    async def wins(self, plan: Plan, candidate: Candidate) -> bool:
        data = _data(candidate)
        self._seen[data] += 1
        report = await self._verify(plan, data)
        if report is not None and report.ok and report.tested:
            self._win(data)
            return True
        # Half of the field says the same: more of it would only take time.
        agreed = self.count > 2 and self._seen[data] * 2 >= self.count
        if agreed and (report is None or report.ok):
            self._win(data)
            return True
        return False

    async def choose(self, plan: Plan, candidates: list[Candidate]) -> Candidate | None:
        valid = [candidate for candidate in candidates if candidate.verdict.patch]
        if not valid:
            return None
        passing = [c for c in valid if (report := await self._verify(plan, _data(c))) is None or report.ok]
        if not passing and (joined := await self._merge(plan, valid)) is not None:
            return joined
        field = passing or self._least_faulty(valid)
        chosen = await self._judged(field) or min(field, key=self._rank)
        self._win(_data(chosen))
        return chosen

    def report_of(self, data: bytes) -> Report | None:
        return self.reports.get(data)

    def _rank(self, candidate: Candidate) -> tuple[int, int, int]:
        patch = candidate.verdict.patch
        assert patch is not None
        return (-self._seen[patch.data], patch.lines_changed, candidate.index)

    def _least_faulty(self, valid: list[Candidate]) -> list[Candidate]:
        faults = {_data(c): report.faults for c in valid if (report := self.reports.get(_data(c))) is not None}
        least = min(faults.values(), default=0)
        return [c for c in valid if faults.get(_data(c), least) == least]

    async def _judged(self, field: list[Candidate]) -> Candidate | None:
        distinct = list({_data(candidate): candidate for candidate in field}.values())
        if self.judge is None or len(distinct) < 2:
            return None
        service, model = self.judge
        diffs = [candidate.verdict.patch.diff for candidate in distinct if candidate.verdict.patch]
        chosen = await best_of(service, model, self.instruction, diffs, self.seed)
        if chosen is None:
            return None
        self.note(f"{model} chose between {len(distinct)} candidates")
        return distinct[chosen]

    async def _merge(self, plan: Plan, valid: list[Candidate]) -> Candidate | None:
        """Two halves that make a whole, if a merge verifies."""
        patches = list({_data(c): c.verdict.patch for c in valid if c.verdict.patch}.values())
        for patch in merged(patches):
            report = await self._verify(plan, patch.data)
            if report is not None and report.ok and report.tested:
                self.note("two candidates were joined")
                self._win(patch.data)
                return replace(valid[0], verdict=replace(valid[0].verdict, patch=patch))
        return None

    async def _verify(self, plan: Plan, data: bytes) -> Report | None:
        """Each text once. None where there is nothing to verify with."""
        if self.verifier is None or not self.verifier.affordable:
            return None
        if data not in self.reports:
            self.reports[data] = await self.verifier.verify({**self.others, plan.ask.source.name: data})
        return self.reports[data]

    def _win(self, data: bytes) -> None:
        total = sum(self._seen.values())
        self.agreement = self._seen[data] / total if total else None


def _data(candidate: Candidate) -> bytes:
    assert candidate.verdict.patch is not None
    return candidate.verdict.patch.data
