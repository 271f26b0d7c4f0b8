"""The run: turns, grades, journal, and that nothing of the tests gets out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.agent.scripted import Script, ScriptedService
from tests.bench.tasksets.samples import GOOD, SECRET, WRONG, entry, task, write
from vivace.agent.edit import SEED_STEP
from vivace.agent.sandbox.base import NoSandbox
from vivace.agent.tools.output import Output
from vivace.agent.tools.process import Process
from vivace.agent.tools.processes import Processes
from vivace.bench.tasksets.job import Job, run_job
from vivace.bench.tasksets.journal import Head, Journal, journal_of
from vivace.bench.tasksets.record import Options, Record, load
from vivace.bench.tasksets.run import Memory, one_task, run_tasks
from vivace.bench.tasksets.solver import Fast, Outcome, check_mode
from vivace.bench.tasksets.task import Problem
from vivace.errors import UsageError
from vivace.protocol.contracts import Service
from vivace.protocol.items import encode


def fast(*scripts: Script, candidates: int = 1) -> tuple[ScriptedService, Fast]:
    service = ScriptedService(list(scripts))
    return service, Fast(service, "coder-0.5b", candidates)


def solved(*scripts: Script, candidates: int = 1) -> Record:
    return asyncio.run(one_task(task(), 0, fast(*scripts, candidates=candidates)[1], NoSandbox()))


def test_a_right_answer() -> None:
    found = solved(Script.file(GOOD))
    assert (found.status, found.passed, found.grade, found.wrong_place) == ("changed", True, "passed", False)
    assert found.changed == ("solution.py",) and found.lines_changed == 1 and found.changed_lines_ratio == 1.0
    assert "+    return x * 2\n" in found.diff
    assert found.seconds > 0 and found.ttft is not None and found.output_tokens > 0
    assert not found.second_round


def test_a_wrong_answer_and_none() -> None:
    wrong = solved(Script.file(WRONG))
    assert wrong.applied and not wrong.passed and wrong.grade == "failed"
    none = solved(Script("I cannot."))
    assert not none.applied and none.status in ("unchanged", "refused") and none.reason and none.grade == ""
    assert none.second_round and none.wrong_place is None


def test_a_failing_service_is_an_error_of_that_task_only() -> None:
    found = solved(Script("x", end="failed"))
    assert found.status == "error" and "the engine ended unexpectedly" in found.reason


def test_what_counts_is_on_the_disk() -> None:
    """A solver that claims a change has made none; one that claims none has."""

    async def boasts(problem: Problem, root: Path, seed: int) -> Outcome:
        return Outcome(status="changed")

    async def quiet(problem: Problem, root: Path, seed: int) -> Outcome:
        (root / "solution.py").write_text(GOOD)
        (root / "junk.txt").write_text("x")
        return Outcome(status="unchanged")

    found = asyncio.run(one_task(task(), 0, boasts, NoSandbox()))
    assert not found.applied and not found.passed
    found = asyncio.run(one_task(task(), 0, quiet, NoSandbox()))
    assert found.applied and found.passed and found.wrong_place and found.changed == ("junk.txt", "solution.py")


def test_the_tests_never_reach_the_model_the_filters_or_the_workspace() -> None:
    """Every request of a race with two rounds is recorded, and the workspace is searched while it runs."""
    bad = Script.file("def double(:\n")
    service, solver = fast(*[bad] * 4, Script.file(GOOD), candidates=4)
    seen: list[str] = []

    async def spy(problem: Problem, root: Path, seed: int) -> Outcome:
        outcome = await solver(problem, root, seed)
        seen.extend(path.name + (path.read_text() if path.is_file() else "") for path in [root, *root.rglob("*")])
        return outcome

    found = asyncio.run(one_task(task(), 0, spy, NoSandbox()))
    assert found.passed and found.second_round and len(service.requests) == 8
    for request in service.requests:
        text = encode(request).decode()
        assert "Fix the bug in the function" in text
        assert SECRET not in text and "task_tests" not in text and "TESTS PASSED" not in text
    assert len(seen) == 2 and not any(SECRET in text or "task_tests" in text for text in seen)


def test_several_candidates_race_as_in_the_agent_and_are_checked_by_what_the_task_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The smallest diff is wrong; the instruction's example says which is right. No check sees the hidden tests."""
    run = Processes.run
    ran: list[str] = []

    async def watched(self: Processes, argv: Sequence[str], cwd: Path, timeout: float, output: Output) -> Process:
        ran.append(" ".join(argv))
        copies = [path for folder in (cwd, cwd.parent) for path in folder.rglob("*") if path.is_file()]
        ran.extend(f"{path} {path.read_text()}" for path in copies)
        return await run(self, argv, cwd, timeout, output)

    monkeypatch.setattr(Processes, "run", watched)
    right = GOOD.replace("    return x * 2", "    twice = x + x\n    return twice")
    service, solver = fast(*[Script.file(WRONG)] * 3, Script.file(right), candidates=4)
    given = task(instruction="Mend `double`: double(21) == 42.")
    found = asyncio.run(one_task(given, 3, solver, NoSandbox()))
    assert found.passed and len(service.requests) == 4 and not found.second_round
    assert any("double(21)" in text for text in ran) and any("return x * 3" in text for text in ran)
    assert not any(SECRET in text or "task_tests" in text or "TESTS PASSED" in text for text in ran)
    assert [request.seed for request in service.requests] == [3 * SEED_STEP + n for n in range(4)]


def test_seeds_and_order() -> None:
    tasks = [task(id=f"t/{n}") for n in range(3)]
    service, solver = fast(Script.file(GOOD))
    found = asyncio.run(run_tasks(tasks, (5, 6), solver, NoSandbox(), Memory(), parallel=2))
    assert [(record.id, record.seed) for record in found] == [(f"t/{n}", seed) for seed in (5, 6) for n in range(3)]
    assert {request.seed for request in service.requests} == {5 * SEED_STEP, 6 * SEED_STEP}


def head(**options: object) -> Head:
    return Head("1", Options(**{"model": "m", **options}), {"a.jsonl": "00"})  # type: ignore[arg-type]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out.json.journal"
    tasks = [task(id=f"t/{n}") for n in range(5)]
    calls: list[str] = []

    def solver(fails_at: int):  # type: ignore[no-untyped-def]
        async def solve(problem: Problem, root: Path, seed: int) -> Outcome:
            if len(calls) == fails_at:
                raise KeyboardInterrupt
            calls.append(problem.id)
            (root / "solution.py").write_text(GOOD)
            return Outcome(status="changed")

        return solve

    journal = Journal(path, head())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_tasks(tasks, (0,), solver(2), NoSandbox(), journal))
    journal.close(finished=False)
    with path.open("ab") as file:  # and a line that a kill cut off
        file.write(b'{"id": "t/2", "kind"')
    journal = Journal(path, head())
    assert [record.id for record in journal.done] == ["t/0", "t/1"]
    found = asyncio.run(run_tasks(tasks, (0,), solver(-1), NoSandbox(), journal))
    assert calls == [f"t/{n}" for n in range(5)]
    assert [record.id for record in found] == calls and all(record.passed for record in found)
    journal.close(finished=True)
    assert not path.exists()


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.json.journal"
    Journal(path, head()).close(finished=False)
    before = path.read_bytes()
    for other, said in [(head(model="n", candidates=4), "model, candidates"), (head(seeds=(0, 1)), "seeds")]:
        with pytest.raises(UsageError, match=f"different in {said}"):
            Journal(path, other)
    with pytest.raises(UsageError, match="different in tasks"):
        Journal(path, Head("1", Options(model="m"), {"a.jsonl": "11"}))
    assert path.read_bytes() == before
    path.write_bytes(b"[]\n")
    with pytest.raises(UsageError, match="no journal"):
        Journal(path, head())


def test_a_whole_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [write(tmp_path / "one.jsonl", entry(id="a"), entry(id="b", kind="edit"))]
    out = tmp_path / "results" / "out.json"
    job = Job(files=files, options=Options(model="coder-0.5b", seeds=(0, 1)), out=out)
    job.check()
    service = ScriptedService([Script.file(GOOD)])
    opened = 0

    @asynccontextmanager
    async def open_service() -> AsyncIterator[Service]:
        nonlocal opened
        opened += 1
        yield service

    made = asyncio.run(run_job(open_service, job))
    assert opened == 2, "no seed finds the prompts of another in KV memory"
    assert not journal_of(out).exists()
    assert load(out) == made
    # A record a line.
    assert sum(line.startswith(b'  {"id"') for line in out.read_bytes().splitlines()) == 4
    summary = msgspec.to_builtins(made.summary["all"])
    wanted = {"pass_rate", "applied_rate", "median_seconds", "p90_seconds", "ttft", "tok_s", "changed_lines_ratio"}
    assert wanted | {"wrong_place", "refused", "reasons"} <= set(summary)
    assert summary["pass_rate"]["percent"] == 100.0 and summary["pass_rate"]["of"] == 4
    assert made.command == (
        "vivace bench tasks one.jsonl --model coder-0.5b --mode fast --candidates 1 --seed 0 --seed 1 --parallel 1"
    )
    assert str(tmp_path) not in out.read_text()
    assert "passed 4 of 4" in capsys.readouterr().out


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="no mode 'fats'") as caught:
        check_mode("fats")
    assert "fast" in caught.value.hint


def test_a_mode_whose_agent_is_missing_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivace.bench.tasksets.solver.AGENT", "vivace.agent.no_such_module")
    check_mode("fast")
    with pytest.raises(UsageError, match="no agent for the mode 'deep'"):
        check_mode("deep")


def test_a_result_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no result"):
        load(path)
