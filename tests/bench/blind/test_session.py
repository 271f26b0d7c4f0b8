"""Persons and models as judges, and the file of verdicts."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.agent.scripted import Script, ScriptedService
from tests.bench.tasksets.samples import entry, record, report, write
from vivace.bench.blind.judge import ModelJudge, question, read
from vivace.bench.blind.pairs import Pair, Side
from vivace.bench.blind.person import Person
from vivace.bench.blind.session import Session, run_model, run_person
from vivace.bench.blind.verdicts import Verdicts, verdict
from vivace.bench.tasksets.record import save
from vivace.errors import UsageError

PAIR = Pair("t/1", 0, "Do it.", Side("model one fast", "-a\n+b\n"), Side("model two deep", ""))


def judged(*texts: str) -> tuple[str, str]:
    service = ScriptedService([Script(text) for text in texts])
    said = asyncio.run(ModelJudge(service, "judge").decide(PAIR))
    for request in service.requests:
        told = f"{request.instructions}{request.input}"
        assert "model one" not in told and "fast" not in told and "Do it." in told
    assert len(service.requests) == 2
    return said.won, said.note


def test_a_judge_is_asked_in_both_orders() -> None:
    one, two, tie = '{"better": "1"}', '{"better": "2"}', '{"better": "tie"}'
    assert judged(one, two) == ("first", "")
    assert judged(two, one) == ("second", "")
    assert judged(tie, tie) == ("tie", "")
    assert judged(one, one) == ("tie", "the order decided")
    assert judged(one, tie) == ("tie", "the order decided")
    assert judged(one, "what?")[0] == "skip"


def test_a_judge_that_fails_decides_nothing() -> None:
    service = ScriptedService([Script('{"better": "1"}', end="failed")])
    assert asyncio.run(ModelJudge(service, "judge").decide(PAIR)).won == "skip"


def test_verdicts_are_read_strictly() -> None:
    assert read('Here: {"better": "2"}.').won == "second"
    for text in ("", "1", '{"better": "3"}', '{"better": 1}', "{", "} {"):
        assert read(text).won == "skip", text
    assert "(nothing was changed)" in question(PAIR)


def shown(width: int, *keys: str) -> tuple[list[str | None], str]:
    out = io.StringIO()
    pressed = iter(keys)
    person = Person(lambda: next(pressed), Console(file=out, width=width, highlight=False))
    return [person.decide(PAIR, "1 of 9") for _ in range(1)], out.getvalue()


@pytest.mark.parametrize(
    ("keys", "wanted"), [("1", "first"), ("2", "second"), ("T", "tie"), ("s", "skip"), ("xy1", "first"), ("q", None)]
)
def test_keys_of_a_person(keys: str, wanted: str | None) -> None:
    assert shown(80, *keys)[0] == [wanted]


@pytest.mark.parametrize("width", [80, 200])
def test_a_person_sees_diffs_and_no_names(width: int) -> None:
    _, text = shown(width, "1")
    assert "Do it." in text and "+b" in text and "(nothing was changed)" in text
    assert "model one" not in text and "deep" not in text
    beside = any("-a" in line and "(nothing was changed)" in line for line in text.splitlines())
    assert beside == (width == 200)


def test_verdicts_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "some" / "verdicts.jsonl"
    kept = Verdicts(path)
    kept.add(verdict(PAIR, "first", "ann"))
    with path.open("ab") as file:
        file.write(b'{"task": "t/2", "se')
    again = Verdicts(path)
    assert [one.won for one in again.all] == ["first"] and again.done("ann") == {PAIR.key} and not again.done("bob")
    again.add(verdict(PAIR.swapped(), "second", "bob"))
    assert len(Verdicts(path).all) == 2
    assert len(again.between(["model one fast", "model two deep"], "bob")) == 1
    assert again.between(["model one fast"]) == []
    path.write_text("{}\n")
    with pytest.raises(UsageError, match="line 1"):
        Verdicts(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    tasks = write(tmp_path / "set.jsonl", *(entry(id=f"t/{n}") for n in range(6)))
    results = []
    for name, candidates in (("one", 1), ("four", 4)):
        rows = [record(n, passed=True, diff="same" if n < 2 else f"{name} {n}") for n in range(6)]
        results.append(tmp_path / f"{name}.json")
        save(report(rows, candidates=candidates), results[-1])
    return results, [tasks]


def test_a_session_goes_on_where_it_ended(
    tmp_path: Path, files: tuple[list[Path], list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "verdicts.jsonl"
    shown: list[Pair] = []

    class Likes(Person):
        def decide(self, pair: Pair, place: str):  # type: ignore[no-untyped-def]
            if len(shown) == 3:
                return None
            shown.append(pair)
            return "first" if pair.first.contender.endswith("x4") else "second"

    def session() -> Session:
        return Session.of(*files, kept, "ann")

    run_person(session(), lambda: "q", Likes(lambda: "q"))
    assert "5 verdicts of ann: 2 on results that are the same, 0 skipped" in capsys.readouterr().out
    assert [pair.task for pair in session().open()] == list({f"t/{n}" for n in range(2, 6)} - {p.task for p in shown})
    shown.clear()
    run_person(session(), lambda: "q", Likes(lambda: "q"))
    told = capsys.readouterr().out
    assert len(shown) == 1 and session().open() == []
    assert "coder-0.5b fast x4" in told and "4 won, 2 tied, 0 lost" in told
    assert len(Session.of(*files, kept, "bob", limit=2).open()) == 2


def test_a_session_of_a_model(
    tmp_path: Path, files: tuple[list[Path], list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    service = ScriptedService([Script('{"better": "1"}')])
    session = Session.of(*files, tmp_path / "verdicts.jsonl", "judge")
    asyncio.run(run_model(session, service, "judge"))
    assert "6 verdicts of judge: 2 on results that are the same" in capsys.readouterr().out
    assert {one.note for one in session.verdicts.all} == {"the same", "the order decided"}
