"""Candidates: the first that verifies wins; agreement; halves joined; a judge that knows no names."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.turns.stage import Seen, play, say, stage, whole
from vivace.agent.applier import make_patch
from vivace.agent.turns.events import Noted, Proposed
from vivace.agent.turns.merge import merged
from vivace.agent.turns.race import billions, candidates_for
from vivace.agent.workspace import SourceFile
from vivace.backends.paced_script import Step
from vivace.protocol.contracts import ModelCard

BEFORE = "def f():\n    return 1\n\n\nGAP = 0\n\n\ndef g():\n    return 2\n"


def code(f: int, g: int) -> str:
    return BEFORE.replace("return 1", f"return {f}").replace("return 2", f"return {g}")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(BEFORE)
    return root


TESTS = '"""Two numbers.\n\n>>> f(), g()\n(5, 6)\n"""\n\n\n'


def with_tests(work: Path) -> None:
    """A doctest, which runs in a tenth of the time that pytest takes to start."""
    (work / "a.py").write_text(TESTS + BEFORE)


def test_the_first_candidate_that_verifies_wins_and_the_rest_are_cancelled(tmp_path: Path, work: Path) -> None:
    with_tests(work)
    numbers = itertools.count()

    def act(seen: Seen) -> list[Step]:
        n = next(numbers)
        if n == 0:
            return [whole(TESTS + code(7, 7))]
        return [whole(TESTS + code(5, 6))] if n == 1 else [Step(tokens=5), Step(hang=True)]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", candidates=4) as scene:
            ended = await scene.turn("let f return 5 and g return 6 in a.py")
            assert ended.status == "done" and (work / "a.py").read_text() == TESTS + code(5, 6)
            assert not scene.backend.runs
            assert "doctest a.py" in scene.of(Proposed)[0].verified

    play(run)


def test_half_of_the_field_agreeing_is_enough_where_nothing_can_be_verified(tmp_path: Path, work: Path) -> None:
    numbers = itertools.count()

    def act(seen: Seen) -> list[Step]:
        n = next(numbers)
        return [Step(hang=True)] if n == 3 else [whole(code(5, 6) if n else code(1, 6))]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", candidates=4) as scene:
            await scene.turn("let f return 5 and g return 6 in a.py")
            assert (work / "a.py").read_text() == code(5, 6)

    play(run)


def test_two_halves_are_joined_and_verified(tmp_path: Path, work: Path) -> None:
    with_tests(work)
    numbers = itertools.count()

    def act(seen: Seen) -> list[Step]:
        return [whole(TESTS + (code(5, 2), code(1, 6), code(8, 2), code(1, 9))[next(numbers) % 4])]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", candidates=4) as scene:
            ended = await scene.turn("let f return 5 and g return 6 in a.py")
            assert ended.status == "done" and (work / "a.py").read_text() == TESTS + code(5, 6)
            assert any("joined" in event.text for event in scene.of(Noted))

    play(run)


def test_a_candidate_that_makes_lint_worse_is_left_out(tmp_path: Path, work: Path) -> None:
    (work / "ruff.toml").write_text('lint.select = ["F"]\n')
    numbers = itertools.count()

    def act(seen: Seen) -> list[Step]:
        return [whole("import os\n\n" + code(5, 6) if next(numbers) % 4 < 3 else code(5, 6))]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", candidates=4) as scene:
            await scene.turn("let f return 5 and g return 6 in a.py")
            assert (work / "a.py").read_text() == code(5, 6)

    play(run)


def test_the_judge_sees_numbers_only_and_in_an_order_of_chance(tmp_path: Path, work: Path) -> None:
    """Anonymised labels, as asked for in bolt-cli#65."""
    numbers = itertools.count()
    asked: list[str] = []

    def act(seen: Seen) -> list[Step]:
        return [whole(code(next(numbers) % 2 + 5, 6))]

    def judge(seen: Seen) -> list[Step]:
        asked.append(seen.user)
        shown = {n: seen.user.split(f"Change {n}:")[1].split("Change")[0].split("-    return 2")[0] for n in (1, 2)}
        return [say(next(str(n) for n in shown if "return 6" in shown[n]))]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", candidates=2, others={"bigger": judge}) as scene:
            scene.agent.set_model("acting", "bigger")
            ended = await scene.turn("let f return 6 and g return 6 in a.py")
            assert ended.status == "done" and (work / "a.py").read_text() == code(6, 6)
            assert len(asked) == 1 and "acting" not in asked[0] and "candidate" not in asked[0].lower()

    play(run)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("coder-0.5b", 0.5),
        ("Qwen2.5-Coder-1.5B-Instruct", 1.5),
        ("qwen3-30b-a3b", 30.0),
        ("oss", None),
        ("x4bit", None),
    ],
)
def test_a_name_tells_the_size(name: str, size: float | None) -> None:
    assert billions(name) == size


def test_four_race_where_the_model_is_small_and_nobody_said_otherwise() -> None:
    def card(name: str) -> ModelCard:
        return ModelCard(name, 32_768, "chatml", True)

    assert [candidates_for(card(name), None) for name in ("coder-0.5b", "coder-7b", "big")] == [4, 1, 1]
    assert candidates_for(card("coder-0.5b"), 2) == 2


LINES = st.lists(st.sampled_from(["a", "b", "c", "d", ""]), min_size=1, max_size=12)


@given(LINES, LINES, LINES)
def test_a_merge_holds_the_changes_of_both_or_is_none(old: list[str], one: list[str], other: list[str]) -> None:
    def text(lines: list[str]) -> str:
        return "".join(f"{line}\n" for line in lines)

    source = SourceFile(Path("/x/a.txt"), "a.txt", text(old).encode())
    patches = [make_patch(source, text(one)), make_patch(source, text(other))]
    for patch in merged(patches):
        added = [line for p in patches for block in p.blocks for line in p.new[block.j1 : block.j2]]
        changes = {(block.i1, block.i2): block for p in patches for block in p.blocks}.values()
        assert len(patch.new) == len(old) + sum((b.j2 - b.j1) - (b.i2 - b.i1) for b in changes)
        assert all(line in patch.new for line in added)
        assert patch.data not in {p.data for p in patches}
