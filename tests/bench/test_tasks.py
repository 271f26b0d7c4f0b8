"""The benchmark's tasks and what counts as a whole answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vivace.bench.tasks import Check, Task, judge, load_long_edits, load_tasks
from vivace.errors import UsageError

DATA = Path("benchmarks/data/speed")

BEFORE = '''def area(w, h):
    """w times h."""
    return w * h


def main():
    if area(1, 2) < 0:
        raise ValueError("negative")
    print(area(2, 3))
'''


def task(change: str = "any", old: str = "", new: str = "") -> Task:
    return Task("t", "do it", "a.py", BEFORE, Check(change, old, new))  # type: ignore[arg-type]


def answer(code: str) -> str:
    return f"```python\n{code}```"


def test_the_shipped_tasks_are_whole() -> None:
    tasks = load_tasks(DATA)
    assert [task.id for task in tasks] == ["rename", "hints", "exception", "free"]
    for shipped in tasks:
        if shipped.edits:
            compile(shipped.before, shipped.path, "exec")
            verdict = judge(shipped, answer(shipped.before), "stop")
            assert not verdict.fault and verdict.changed is False
            assert shipped.block in shipped.user
        else:
            assert shipped.max_output_tokens


def test_shipped_changes_are_recognised() -> None:
    by_id = {task.id: task for task in load_tasks(DATA)}
    exception = by_id["exception"]
    done = exception.before.replace("ValueError", "IndexError")
    assert judge(exception, answer(done), "stop").changed
    half = exception.before.replace("ValueError", "IndexError", 1)
    assert judge(exception, answer(half), "stop").changed is False
    hints = by_id["hints"]
    done = hints.before.replace("def getsize(filename):", "def getsize(filename: str) -> int:")
    assert judge(hints, answer(done), "stop").changed


def test_a_nonce_stands_first() -> None:
    one, other = (task().instructions(nonce) for nonce in ("a1", "b2"))
    assert one.index("a1") < 12 and one.replace("a1", "b2") == other


@pytest.mark.parametrize(
    ("text", "ending", "fault"),
    [
        (answer(BEFORE), "length", "ended by length"),
        ("```python\n" + BEFORE, "stop", "the code block is not closed"),
        ("I cannot do that.", "stop", "no code block"),
        (answer(BEFORE + "def broken(:\n"), "stop", "does not compile"),
        (answer(BEFORE[: BEFORE.index("def main")]), "stop", "not whole: main is missing"),
        (answer(BEFORE), "stop", ""),
    ],
)
def test_only_whole_compiling_answers_count(text: str, ending: str, fault: str) -> None:
    assert judge(task(), text, ending).fault == fault


def test_rename() -> None:
    rename = task("rename", "area", "surface")
    assert judge(rename, answer(BEFORE.replace("area", "surface")), "stop").changed
    assert judge(rename, answer(BEFORE.replace("area", "surface", 1)), "stop").changed is False
    assert not judge(rename, answer(BEFORE.replace("area", "surface")), "stop").fault


def test_hints() -> None:
    hints = task("hints", new="area")
    assert judge(hints, answer(BEFORE.replace("(w, h)", "(w: int, h: int) -> int")), "stop").changed
    assert judge(hints, answer(BEFORE.replace("(w, h)", "(w: int, h) -> int")), "stop").changed is False


def test_free_text_may_end_by_its_limit() -> None:
    free = Task("f", "Tell me.", max_output_tokens=8)
    assert judge(free, "Once", "length").fault == ""
    assert judge(free, "Once", "stop").changed is None
    assert judge(free, " ", "stop").fault == "no text"
    assert judge(free, "Once", "the peer died").fault == "ended by the peer died"


def test_long_edits_that_fit(tmp_path: Path) -> None:
    rows = [{"id": f"l{n}", "instruction": "x", "path": "a.py", "before": "y = 1\n" * n} for n in (900, 3, 2, 1)]
    file = tmp_path / "long.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    assert [task.id for task in load_long_edits(file, 2, 100)] == ["l3", "l2"]
    with pytest.raises(UsageError, match="Cannot read"):
        load_long_edits(tmp_path / "none.jsonl", 1, 1)


def test_missing_and_damaged_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not in"):
        load_tasks(tmp_path)
    (tmp_path / "tasks.json").write_text("[{}]")
    with pytest.raises(UsageError, match="damaged"):
        load_tasks(tmp_path)
