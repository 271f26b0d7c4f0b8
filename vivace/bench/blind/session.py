"""A session: pair by pair to the judge, each verdict kept at once, and then what they come to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.bench.blind.bradley_terry import described, ratings
from vivace.bench.blind.judge import ModelJudge
from vivace.bench.blind.pairs import Pair, contenders, pairs, undecided
from vivace.bench.blind.person import Person
from vivace.bench.blind.verdicts import Verdicts, verdict
from vivace.bench.tasksets.record import load as load_report
from vivace.bench.tasksets.task import load as load_tasks
from vivace.protocol.contracts import Service


@dataclass(frozen=True, kw_only=True)
class Session:
    """The options of ``vivace bench blind``, as its help describes them."""

    names: Sequence[str]
    pairs: Sequence[Pair]
    verdicts: Verdicts
    judge: str
    limit: int | None = None

    @classmethod
    def of(
        cls,
        results: Sequence[Path],
        tasks: Sequence[Path],
        verdicts: Path,
        judge: str,
        *,
        limit: int | None = None,
        seed: int = 0,
    ) -> Session:
        """Everything that can be refused before anybody is asked. Raises :class:`UsageError`."""
        named = contenders(results, [load_report(path) for path in results])
        found = pairs(named, load_tasks(tasks), seed)
        return cls(names=list(named), pairs=found, verdicts=Verdicts(verdicts), judge=judge, limit=limit)

    def open(self) -> list[Pair]:
        """What is to be decided now. Where both results are the same it is a tie, and nobody is asked."""
        left = list(undecided(self.pairs, self.verdicts.done(self.judge)))
        for pair in left:
            if pair.same:
                self.verdicts.add(verdict(pair, "tie", self.judge, "the same"))
        return [pair for pair in left if not pair.same][: self.limit]

    def report(self) -> str:
        """The ratings by all verdicts of this judge on these contenders."""
        found = self.verdicts.between(self.names, self.judge)
        skipped = sum(one.won == "skip" for one in found)
        same = sum(one.note == "the same" for one in found)
        head = f"{len(found)} verdicts of {self.judge}: {same} on results that are the same, {skipped} skipped"
        return "\n".join([head, described(ratings(found))]).rstrip()


def run_person(session: Session, key: Callable[[], str], person: Person | None = None) -> None:
    """Ask until everything is decided or the person ends it."""
    asked = session.open()
    person = person or Person(key)
    for number, pair in enumerate(asked, 1):
        won = person.decide(pair, f"{number} of {len(asked)}")
        if won is None:
            break
        session.verdicts.add(verdict(pair, won, session.judge))
    print(session.report())


async def run_model(session: Session, service: Service, model: str) -> None:
    """Have a model decide everything that is open."""
    await service.open(model)
    judge = ModelJudge(service, model)
    asked = session.open()
    for number, pair in enumerate(asked, 1):
        said = await judge.decide(pair)
        session.verdicts.add(verdict(pair, said.won, session.judge, said.note))
        print(f"{number:>4}/{len(asked)} {pair.task:<28} {said.won:<6} {said.note}", file=sys.stderr, flush=True)
    print(session.report())
