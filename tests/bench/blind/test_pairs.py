"""What is shown, and in what order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.tasksets.samples import entry, record, report, write
from vivace.bench.blind.pairs import Pair, contenders, pairs, undecided
from vivace.bench.tasksets.record import Report
from vivace.bench.tasksets.task import TaskSet, load
from vivace.errors import UsageError


@pytest.fixture
def sets(tmp_path: Path) -> list[TaskSet]:
    return load([write(tmp_path / "set.jsonl", *(entry(id=f"t/{n}", instruction=f"Do {n}.") for n in range(40)))])


def made(diff: str, count: int = 40, **options: object) -> Report:
    return report([record(n, passed=n % 2 == 0, diff=f"{diff} {n}") for n in range(count)], **options)


def test_every_task_once_for_every_two(sets: list[TaskSet]) -> None:
    named = {"a": made("A"), "b": made("B"), "c": made("C", 10)}
    found = pairs(named, sets, 0)
    assert len(found) == 40 + 10 + 10 == len({pair.key for pair in found})
    assert {pair.instruction for pair in found} == {f"Do {n}." for n in range(40)}
    for pair in found:
        for side in (pair.first, pair.second):
            assert side.diff == f"{side.contender.upper()} {pair.task[2:]}"


def test_sides_and_order_tell_nothing_and_stay(sets: list[TaskSet]) -> None:
    named = {"a": made("A"), "b": made("B")}
    found = pairs(named, sets, 0)
    first = sum(pair.first.contender == "a" for pair in found)
    assert 10 < first < 30
    assert [pair.task for pair in found] != [f"t/{n}" for n in range(40)]
    assert pairs(named, sets, 0) == found != pairs(named, sets, 1)
    more = {pair.key: pair for pair in pairs({**named, "c": made("C")}, sets, 0)}
    assert all(more[pair.key] == pair for pair in found), "another contender changes no pair"


def test_what_is_decided_is_not_shown_again(sets: list[TaskSet]) -> None:
    found = pairs({"a": made("A"), "b": made("B")}, sets, 0)
    done = {found[3].key, found[5].swapped().key}
    assert list(undecided(found, done)) == [pair for n, pair in enumerate(found) if n not in (3, 5)]


def test_results_get_names_of_their_own() -> None:
    one, other, third = made("A"), made("B"), made("C", candidates=4)
    found = contenders([Path("x/one.json"), Path("other.json"), Path("n4.json")], [one, other, third])
    assert list(found) == ["coder-0.5b fast (one.json)", "coder-0.5b fast (other.json)", "coder-0.5b fast x4"]
    with pytest.raises(UsageError, match="two results"):
        contenders([Path("a")], [one])
    with pytest.raises(UsageError, match="named twice"):
        contenders([Path("a"), Path("a")], [one, one])


def test_other_task_files_are_refused(sets: list[TaskSet]) -> None:
    one = made("A")
    one.tasks = {"set.jsonl": "00"}
    with pytest.raises(UsageError, match=r"set\.jsonl is not the file"):
        pairs({"a": one, "b": made("B")}, sets, 0)
    with pytest.raises(UsageError, match="no task in common"):
        pairs({"a": made("A", 0), "b": made("B")}, sets, 0)


def test_the_same_diff_is_the_same() -> None:
    side = made("A").records[0].diff
    from vivace.bench.blind.pairs import Side

    assert Pair("t", 0, "", Side("a", side), Side("b", side)).same
    assert not Pair("t", 0, "", Side("a", side), Side("b", "")).same
