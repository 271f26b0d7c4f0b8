"""The command line of ``vivace bench tasks`` and ``vivace bench blind``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner, Result

from tests.agent.scripted import Script, ScriptedService
from tests.bench.tasksets.samples import GOOD, WRONG, entry, write
from vivace.bench.commands import bench_app
from vivace.bench.host import Host
from vivace.bench.tasksets.record import load
from vivace.errors import UsageError
from vivace.settings import Settings


class Line:
    """The ``bench`` group over a scripted service."""

    def __init__(self, *scripts: Script) -> None:
        self.service = ScriptedService(list(scripts))
        self.opened: list[str] = []

    def __call__(self, *words: str | Path) -> Result:
        @asynccontextmanager
        async def open_host(model: str, settings: Settings) -> AsyncIterator[Host]:
            self.opened.append(model)
            yield cast(Host, SimpleNamespace(service=self.service))

        return CliRunner().invoke(bench_app(open_host), [str(word) for word in words], catch_exceptions=True)

    def refused(self, *words: str | Path) -> UsageError:
        error = self(*words).exception
        assert isinstance(error, UsageError), error
        assert not self.opened, "nothing is opened for what is refused"
        return error


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return write(tmp_path / "set.jsonl", *(entry(id=f"t/{n}") for n in range(4)))


def test_run_table_compare_and_judge(tmp_path: Path, tasks: Path) -> None:
    one, four = tmp_path / "one.json", tmp_path / "four.json"
    wrong, good = Line(Script.file(WRONG)), Line(Script.file(GOOD))
    done = wrong("tasks", tasks, "--limit", "2", "--json", one)
    assert done.exit_code == 0 and "passed 0 of 2" in done.output, done.output
    done = good("tasks", tasks, "--candidates", "4", "--seed", "0", "--seed", "1", "--json", four)
    assert done.exit_code == 0 and "passed 8 of 8" in done.output
    assert (wrong.opened, good.opened) == (["coder-0.5b"], ["coder-0.5b"] * 2)
    assert load(four).options.seeds == (0, 1) and load(one).options.limit == 2

    line = Line(Script('{"better": "2"}'))
    table = line("tasks", "--table", one, four)
    assert table.exit_code == 0 and table.output.count("| coder-0.5b | fast |") == 2
    compared = line("tasks", "--compare", one, four)
    assert "gain: +100.0 points" in compared.output and "left out: 6" in compared.output
    assert not line.opened
    judged = line("blind", one, four, "--tasks", tasks, "--judge", "big", "--verdicts", tmp_path / "v.jsonl")
    assert judged.exit_code == 0 and line.opened == ["big"]
    assert "2 verdicts of big" in judged.output
    again = line(
        "blind", one, four, "--tasks", tasks, "--judge", "big", "--verdicts", tmp_path / "v.jsonl", "--ratings"
    )
    assert "2 verdicts of big" in again.output and line.opened == ["big"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks"], "Name one or more files"),
        (["tasks", "SET", "--mode", "slow"], "no mode 'slow'"),
        (["tasks", "none.jsonl"], "No such file"),
        (["tasks", "SET", "--compare", "a", "b"], "two results and nothing else"),
        (["tasks", "--table", "SET"], "no result of"),
        (["blind", "SET", "--tasks", "SET"], "no result of"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_opened(tasks: Path, words: list[Any], said: str) -> None:
    assert said in Line().refused(*(tasks if word == "SET" else word for word in words)).message


def test_without_a_terminal_nobody_is_asked(tmp_path: Path, tasks: Path) -> None:
    out = [tmp_path / "a.json", tmp_path / "b.json"]
    for candidates, path in enumerate(out, 1):
        Line(Script.file(GOOD))("tasks", tasks, "--candidates", str(candidates), "--json", path)
    assert "no terminal" in Line().refused("blind", *out, "--tasks", tasks).message


def test_a_stopped_run_says_what_is_kept(tmp_path: Path, tasks: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    line = Line(Script.file(GOOD), Script.file(GOOD, on_chunk=stop))
    stopped = line("tasks", tasks, "--json", tmp_path / "out.json")
    assert stopped.exit_code != 0
    assert "stopped after 1 of 4 turns; the same command goes on from" in stopped.output
    done = Line(Script.file(GOOD))
    assert "passed 4 of 4" in done("tasks", tasks, "--json", tmp_path / "out.json").output
    assert len(done.service.requests) == 3, "the first is not run again"
