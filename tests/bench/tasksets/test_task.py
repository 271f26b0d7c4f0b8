"""Task files: what is read, what is refused, what a solver sees of it, what counts as a stray change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.tasksets.samples import SECRET, entry, task, write
from tests.tasks import TASKS
from vivace.bench.tasksets.task import Problem, Region, chosen, load
from vivace.errors import UsageError


def test_a_file_is_read_with_its_hash(tmp_path: Path) -> None:
    path = write(tmp_path / "some.jsonl", entry(), entry(id="other", files={"a/b.py": "x\n"}, paths=["a/b.py"]))
    (found,) = load([path])
    assert found.name == "some.jsonl" and len(found.sha256) == 64
    first, second = found.tasks
    assert first.problem.paths == ("solution.py",)
    assert second.problem.paths == ("a/b.py",)
    assert set(second.workspace) == {"solution.py", "a/b.py"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "../up.py"}, "not a plain one"),
        ({"path": "/etc/passwd"}, "not a plain one"),
        ({"files": {"a//b.py": ""}}, "not a plain one"),
        ({"files": {"task_tests.py": ""}}, "name of the hidden tests"),
        ({"paths": ["nowhere.py"]}, "nowhere.py of `paths`"),
        ({"before": 5}, "no task"),
    ],
)
def test_a_bad_task_is_refused_with_its_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = write(tmp_path / "some.jsonl", entry(id="fine"), entry(**change))
    with pytest.raises(UsageError) as caught:
        load([path])
    assert "line 2" in caught.value.message and said in caught.value.message


def test_an_id_counts_once(tmp_path: Path) -> None:
    twice = write(tmp_path / "twice.jsonl", entry(), entry())
    with pytest.raises(UsageError, match="a second task"):
        load([twice])
    one, other = write(tmp_path / "one.jsonl", entry()), write(tmp_path / "other.jsonl", entry())
    with pytest.raises(UsageError, match=r"is in one\.jsonl and in other\.jsonl"):
        load([one, other])


def test_files_that_are_not_there_or_empty_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load([tmp_path / "none.jsonl"])
    with pytest.raises(UsageError, match="holds no task"):
        load([write(tmp_path / "empty.jsonl")])


def test_a_problem_has_neither_tests_nor_reference() -> None:
    """What a solver is given cannot leak what it does not have."""
    assert "tests" not in Problem.__struct_fields__ and "reference" not in Problem.__struct_fields__
    whole = task(reference_files={"other.py": f"# {SECRET}\n"})
    assert SECRET.encode() in msgspec.json.encode(whole)
    assert SECRET.encode() not in msgspec.json.encode(whole.problem)


def test_a_limit_takes_tasks_from_everywhere(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", *(entry(id=f"a{n}") for n in range(60)))
    other = write(tmp_path / "other.jsonl", *(entry(id=f"b{n}") for n in range(30)))
    sets = load([one, other])
    ids = [found.id for found in chosen(sets, 9)]
    assert len(set(ids)) == 9 and sum(name.startswith("a") for name in ids) == 6
    assert chosen(sets, None) == chosen(sets, 90) == chosen(sets, 1000)
    assert len(chosen(sets, 89)) == 89 == len({found.id for found in chosen(sets, 89)})


def test_other_files_are_strays_and_new_tests_are_none() -> None:
    found = task(files={"tests/test_a.py": "pass\n", "b.py": "pass\n"}, reference_files={"b.py": "1\n"})
    before = {path: text.encode() for path, text in found.workspace.items()}
    assert not found.strays(before)
    assert not found.strays({**before, "solution.py": b"x", "b.py": b"y"})
    assert not found.strays({**before, "tests/test_new.py": b"x"})
    assert found.strays({**before, "tests/test_a.py": b"x"})
    assert found.strays({**before, "new.py": b"x"})
    assert found.strays({path: data for path, data in before.items() if path != "tests/test_a.py"})


def test_lines_outside_of_the_region_are_strays() -> None:
    found = task(before="a\nb\nc\nd", region=Region(2, 3))
    for text, stray in [
        ("a\nX\nd", False),
        ("a\nd", False),
        ("a\nb\nc\nd", False),
        ("a\nd\n", True),
        ("X\nb\nc\nd", True),
    ]:
        assert found.strays({"solution.py": text.encode()}) is stray, text
    assert task(before="a\nb\n", region=Region(1, 1)).strays({"solution.py": b""})


@pytest.mark.skipif(not TASKS.is_dir(), reason="no task files beside the checkout")
def test_the_long_edits_agree_with_the_region() -> None:
    for found in load([TASKS / "long_edit.jsonl"])[0].tasks:
        reference = found.reference.encode()
        assert found.region is not None
        assert not found.strays({found.path: reference}), found.id
        for changed in (reference + b"\n", b" " + reference, reference[:-1], b""):
            assert found.strays({found.path: changed}), found.id
