"""The fast mode: one call, one diff; proposals; what is kept of edits; files read ahead."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from tests.agent.turns.stage import Seen, call, play, say, stage, whole
from vivace.agent.edit import SEED_STEP
from vivace.agent.turns.events import Applied, Asked, Editing, Noted, Proposed, Said, ToolBegan, TurnBegan, TurnEnded
from vivace.agent.turns.kept_edits import read_kept
from vivace.backends.paced import Pace
from vivace.backends.paced_script import Step


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    (root / "a.py").write_text(DOC + "def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    return root


DOC = '"""Numbers.\n\n>>> f()\n3\n"""\n\n\n'
THREE = DOC + "def f():\n    return 3\n\n\ndef g():\n    return 2\n"


def test_the_fast_mode_edits_and_stops(tmp_path: Path, work: Path) -> None:
    """48 minutes for a one-line change, everything checked a hundred times: ZaxbyHub/opencode-swarm#252."""

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="fast") as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert (ended.status, ended.changed) == ("done", ("a.py",))
            assert len(scene.seen) == 1 and not scene.of(ToolBegan)
            proposed = scene.of(Proposed)[0]
            assert (proposed.added, proposed.removed) == (1, 1)
            assert proposed.diff.count("\n+") == 2  # the head of the diff, and one line
            assert ended.details["lines_changed"] == 1
            lines = [line for event in scene.of(Editing) for line in event.lines]
            assert "-    return 1" in lines and "+    return 3" in lines

    play(run)


def test_a_proposal_waits_for_yes_and_a_no_changes_nothing(tmp_path: Path, work: Path) -> None:
    before = (work / "a.py").read_bytes()

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="fast", propose=True) as scene:
            for number, (reply, status) in enumerate([("no", "unchanged"), ("apply", "done")], 1):
                scene.agent.say("let f return 3 in a.py")
                asked = await scene.until(Asked, count=number)
                assert asked.kind == "proposal" and (work / "a.py").read_bytes() == before
                scene.agent.answer(asked.ask, reply)
                assert (await scene.until(TurnEnded, count=number)).status == status
            assert (work / "a.py").read_text() == THREE
            assert len(scene.of(Applied)) == 1
            await scene.agent.undo()
            assert (work / "a.py").read_bytes() == before
        kept = read_kept(tmp_path / "state")
        assert [(edit.accepted, edit.reason) for edit in kept] == [(False, "user"), (True, "user"), (False, "undone")]
        assert kept[1].after == THREE and kept[1].instruction == "let f return 3 in a.py"

    play(run)


def test_other_words_than_yes_or_no_ask_again_with_them(tmp_path: Path, work: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [whole(THREE.replace("return 3", "return 4") if "make it 4" in seen.user else THREE)]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast", propose=True) as scene:
            scene.agent.say("let f return 3 in a.py")
            await scene.until(Asked)
            scene.agent.say("make it 4", "steer")
            asked = await scene.until(Asked, count=2)
            scene.agent.answer(asked.ask, "apply")
            await scene.until(TurnEnded)
            assert "return 4" in (work / "a.py").read_text()
            assert len(scene.of(TurnBegan)) == 1

    play(run)


@pytest.mark.parametrize("mode", ["fast", "auto", "deep"])
def test_where_only_reading_is_allowed_an_edit_is_shown_and_nobody_is_asked(
    tmp_path: Path, work: Path, mode: str
) -> None:
    before = (work / "a.py").read_bytes()

    async def run() -> None:
        weak = mode != "auto"
        async with stage(
            tmp_path, lambda seen: [whole(THREE)], mode=mode, weak=weak, approvals="read-only", propose=True
        ) as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert ended.status == "unchanged" and "only reading is allowed" in ended.reason
            assert len(scene.of(Proposed)) == 1 and not scene.of(Asked) and not scene.of(Applied)
            assert len(scene.seen) == 1 and (work / "a.py").read_bytes() == before
        assert read_kept(tmp_path / "state") == []

    play(run)


def test_a_deep_turn_is_told_that_it_may_only_read(tmp_path: Path, work: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [say("f should return 3.")] if seen.outputs else [call("write", path="new.py", content="x = 1\n")]

    async def run() -> None:
        async with stage(tmp_path, act, mode="deep", weak=False, approvals="read-only") as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert "Only reading is allowed" in scene.seen[0].instructions
            assert (ended.status, ended.changed) == ("done", ()) and not (work / "new.py").exists()
            assert not scene.of(Asked)

    play(run)


@pytest.mark.parametrize(("name", "told"), [("acting", True), ("big-7b", True), ("tiny-0.5b", False)])
def test_the_rules_of_the_project_reach_an_edit_of_models_that_can_bear_them(
    tmp_path: Path, work: Path, name: str, told: bool
) -> None:
    (work / "AGENTS.md").write_text("Numbers are written in words.")
    (work / "sub").mkdir()
    (work / "sub" / "CLAUDE.md").write_text("Deeper rules. " * 2000)
    (work / "sub" / "b.py").write_text("x = 1\n")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [whole("x = 2\n")], mode="fast", name=name, candidates=1) as scene:
            await scene.turn("set x to 2 in sub/b.py")
            await scene.turn("let f return 3 in a.py")
            assert scene.agent.desk is not None
            inner, outer = scene.seen[0].instructions, scene.seen[1].instructions
            assert ("Deeper rules" in inner) == told == ("Numbers are written in words." in outer)
            assert "Deeper" not in outer
            assert scene.agent.desk.context.count(inner) < 1600

    play(run)


def test_edits_are_not_kept_when_that_is_switched_off(tmp_path: Path, work: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="fast", keep_edits=False) as scene:
            await scene.turn("let f return 3 in a.py")
        assert read_kept(tmp_path / "state") == []

    play(run)


def test_an_answer_without_an_edit_writes_nothing_and_says_why(tmp_path: Path, work: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("I would rather not.")], mode="fast") as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert ended.status == "unchanged" and "no code" in ended.reason
            ended = await scene.turn("improve things")
            assert ended.status == "failed" and "no file was named" in ended.reason

    play(run)


def test_a_question_is_answered_in_words_with_the_file_shown(tmp_path: Path, work: Path) -> None:
    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("It returns one.")], mode="auto") as scene:
            ended = await scene.turn("What does f in a.py return?")
            assert ended.status == "done" and ended.changed == ()
            assert "return 1" in scene.seen[0].text and scene.seen[0].tools == []
            assert "".join(event.text for event in scene.of(Said)) == "It returns one."
            assert scene.of(TurnBegan)[0].reason == "a question about a.py"

    play(run)


def test_a_deep_turn_knows_what_the_fast_one_did(tmp_path: Path, work: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [whole(THREE)] if not seen.tools else [say("ok")]

    async def run() -> None:
        async with stage(tmp_path, act, mode="fast") as scene:
            await scene.turn("let f return 3 in a.py")
            scene.agent.set_mode("deep")
            await scene.turn("and now?")
            assert "+    return 3" in scene.seen[-1].text

    play(run)


def test_files_are_prefilled_while_the_user_types_and_read_once(tmp_path: Path, work: Path) -> None:
    async def run() -> None:
        pace = Pace(tok_s=100_000, ttft=0.0, prefill_tok_s=2000.0)
        (work / "a.py").write_text("".join(f"def f{n}():\n    return {n}\n\n\n" for n in range(20)))
        async with stage(tmp_path, lambda seen: [say("ok")], mode="fast", pace=pace) as scene:
            scene.agent.typing("let f return 3 in a.")
            scene.agent.typing("let f return 3 in a.py")
            prefills = scene.agent._prefills
            assert prefills is not None
            for _ in range(400):
                await asyncio.sleep(0.005)
                if prefills.done:
                    break
            assert list(prefills.done) == [("acting", "a.py")]
            scene.agent.prefill(["a.py", "missing.py"])
            await prefills.settled()
            await asyncio.sleep(0.3)
            await scene.turn("let f return 3 in a.py")
            usage = [entry.data for entry in scene.agent.conversation.path() if entry.kind == "usage"]
            assert usage[0].cached_tokens > 0  # type: ignore[union-attr]

    play(run)


def test_secrets_are_not_sent_without_a_word(tmp_path: Path, work: Path) -> None:
    (work / ".env").write_text("TOKEN=abc\n")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], mode="fast") as scene:
            scene.agent.say("What is in .env?", files=[".env"])
            asked = await scene.until(Asked)
            assert "secrets" in asked.text
            scene.agent.answer(asked.ask, "no")
            ended = await scene.until(TurnEnded)
            assert ended.status == "failed" and "abc" not in "".join(seen.text for seen in scene.seen)

    play(run)


def test_a_fast_answer_that_fails_its_tests_is_replaced_by_the_deep_mode(tmp_path: Path, work: Path) -> None:
    """Both speeds in one turn: the quick answer is there at once, and the checked one comes behind it."""

    def act(seen: Seen) -> list[Step]:
        if not seen.tools:
            return [whole(THREE.replace("return 3", "return 4"))]
        if not seen.outputs:
            return [call("read", path="a.py")]
        if len(seen.outputs) == 1:
            return [call("edit", path="a.py", edits=[{"search": "    return 4", "replace": "    return 3"}])]
        return [say("It returned 4; now 3.")]

    async def run() -> None:
        async with stage(tmp_path, act, mode="auto", weak=False) as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert ended.status == "done", ended
            assert (work / "a.py").read_text() == THREE
            kinds = [type(event).__name__ for event in scene.events]
            assert kinds.index("Applied") < kinds.index("ToolBegan")
            assert "verified in about" in scene.of(TurnBegan)[0].reason
            assert any("A quick answer to the task was made" in text for text in scene.seen[1].users)

    play(run)


def test_a_fast_answer_that_passes_its_tests_is_left_alone(tmp_path: Path, work: Path) -> None:
    (work / "test_a.py").write_text("from a import f\n\n\ndef test_f():\n    assert f() == 3\n")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="auto", weak=False) as scene:
            await scene.turn("let f return 3 in a.py")
            assert len(scene.seen) == 1 and (work / "a.py").read_text() == THREE
            assert scene.agent.desk is not None
            assert scene.agent.desk.measured.seconds("pytest test_a.py") is not None

    play(run)


def test_a_weak_model_is_sampled_anew_until_the_tests_pass(tmp_path: Path, work: Path) -> None:
    tries: list[str] = []

    def act(seen: Seen) -> list[Step]:
        tries.append(seen.user)
        return [whole(THREE.replace("return 3", f"return {len(tries) + 5}") if len(tries) < 3 else THREE)]

    async def run() -> None:
        async with stage(tmp_path, act, mode="deep", weak=True, candidates=1) as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert ended.status == "done" and (work / "a.py").read_text() == THREE
            assert len(tries) == 3 and "f() should give 3, not 6" in tries[1]
            assert "return 1" in tries[2]  # from the original again
            assert scene.of(Proposed)[-1].replaces
            sampled = [seen.sampling for seen in scene.seen]
            assert [bool(temperature) for temperature, _ in sampled] == [False, True, True]
            assert len({seed for _, seed in sampled}) == 3, "no round repeats another's answers"

    play(run)


def test_a_model_that_gives_code_back_unchanged_is_asked_in_the_free_manner_from_then_on(
    tmp_path: Path, work: Path
) -> None:
    def act(seen: Seen) -> list[Step]:
        if "Reply with the whole updated file" in seen.user:
            return [whole((work / "a.py").read_text())]
        return [whole(THREE if "should give" in seen.user else THREE.replace("return 3", "return 4"))]

    async def run() -> None:
        async with stage(tmp_path, act, mode="deep", weak=True, candidates=1) as scene:
            ended = await scene.turn("let f return 3 in a.py")
            assert ended.status == "done" and (work / "a.py").read_text() == THREE
            careful = ["Reply with the whole updated file" in seen.user for seen in scene.seen]
            assert careful == [True, False, False], "the second round goes on where the first one came to"

    play(run)


@pytest.mark.parametrize(("mode", "rounds"), [("deep", 6), ("auto", 2)])
def test_the_best_round_stays_and_a_quick_answer_is_not_worked_on_for_nothing(
    tmp_path: Path, work: Path, mode: str, rounds: int
) -> None:
    both = DOC.replace("3\n", "3\n>>> g()\n4\n") + "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    (work / "a.py").write_text(both)
    half = both.replace("return 1", "return 3")
    numbers = itertools.count(5)

    def act(seen: Seen) -> list[Step]:
        number = next(numbers)
        return [whole(half if number == 5 else both.replace("return 1", f"return {number}"))]

    async def run() -> None:
        async with stage(tmp_path, act, mode=mode, weak=True, candidates=1) as scene:
            ended = await scene.turn("let f return 3 and g return 4 in a.py")
            assert len(scene.seen) == rounds and (work / "a.py").read_text() == half
            assert ended.status == "done" and "did not mend it" in ended.reason and ended.changed == ("a.py",)
            assert any("An earlier round's answer is better" in event.text for event in scene.of(Noted))
            await scene.agent.undo()
            assert (work / "a.py").read_text() == both

    play(run)


@pytest.mark.parametrize(("mode", "count"), [("fast", 4), ("deep", 8)])
def test_more_answers_race_in_a_deep_turn_of_a_small_model(tmp_path: Path, work: Path, mode: str, count: int) -> None:
    numbers = itertools.count(4)

    def act(seen: Seen) -> list[Step]:
        return [whole(THREE.replace("return 3", f"return {next(numbers)}"))]

    async def run() -> None:
        async with stage(tmp_path, act, mode=mode, name="tiny-0.5b", candidates=None) as scene:
            await scene.turn("let f return 3 in a.py")
            seeds = [seen.sampling[1] or 0 for seen in scene.seen]
            assert sorted(seed for seed in seeds if seed < SEED_STEP) == list(range(count))

    play(run)


def test_a_proposal_that_was_open_when_the_program_ended_is_made_again(tmp_path: Path, work: Path) -> None:
    async def first() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="fast", propose=True) as scene:
            scene.agent.say("let f return 3 in a.py")
            await scene.until(Asked)

    async def second() -> None:
        async with stage(tmp_path, lambda seen: [whole(THREE)], mode="auto", propose=True, resume=True) as scene:
            assert scene.agent.unfinished and scene.agent.idle
            await scene.agent.go_on()
            scene.agent.answer((await scene.until(Asked)).ask, "apply")
            await scene.until(TurnEnded)
            assert scene.modes == ["fast"] and (work / "a.py").read_text() == THREE
            assert not scene.agent.unfinished

    play(first)
    play(second)
