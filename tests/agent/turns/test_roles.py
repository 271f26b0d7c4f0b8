"""One plans, another builds, a third reviews: seen, counted, steered, stopped, kept, gone on with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.turns.stage import Act, Seen, Stage, call, play, say, stage, whole
from vivace.agent.sessions.entries import Usage
from vivace.agent.turns.events import Meters, Noted, PlanChanged, TurnBegan, TurnEnded
from vivace.agent.turns.history import FOUND
from vivace.agent.turns.limits import Limits
from vivace.agent.turns.options import roles_of
from vivace.agent.turns.roles import PLANNED
from vivace.backends.paced_script import Step
from vivace.errors import UsageError

OK = json.dumps({"ok": True, "findings": []})
ROLES = {"planner": "thinker", "builder": "hand", "reviewer": "critic"}


def plan(*steps: str) -> Step:
    return say(json.dumps({"steps": list(steps)}))


def faults(*found: str) -> Step:
    return say(json.dumps({"ok": False, "findings": list(found)}))


def writes(seen: Seen) -> list[Step]:
    """Writes a file for each word of the task and each finding, then says so."""
    if seen.outputs and seen.user == "":
        return [say("Built.")]
    return [call("shell", command=f"echo {len(seen.outputs)} >> made.txt")]


def never(seen: Seen) -> list[Step]:
    raise AssertionError("this model is not asked")


class Cast:
    """Models by name; ``seen`` is what each was shown."""

    def __init__(self, **acts: Act | Sequence[Step]) -> None:
        self.seen: dict[str, list[Seen]] = {name: [] for name in acts}
        self.acts = {name: self._of(name, act) for name, act in acts.items()}

    def _of(self, name: str, act: Act | Sequence[Step]) -> Act:
        def of(seen: Seen) -> list[Step]:
            self.seen[name].append(seen)
            return act(seen) if callable(act) else [act[min(len(self.seen[name]), len(act)) - 1]]

        return of


def notes(scene: Stage) -> str:
    return "\n".join(event.text for event in scene.of(Noted))


def test_one_plans_another_builds_a_third_reviews(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(
        thinker=[plan("Write made.txt.", "Look at it.")], hand=writes, critic=[faults("made.txt is short"), say(OK)]
    )

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=False) as scene:
            ended = await scene.turn("make a file")
            assert (ended.status, ended.changed, ended.details["review"]) == ("done", ("made.txt",), "ok")
            assert scene.of(TurnBegan)[0].model == "hand"
            assert scene.of(PlanChanged)[0].steps == (("Write made.txt.", "pending"), ("Look at it.", "pending"))
            assert "thinker plans" in notes(scene) and "critic found:\n- made.txt is short" in notes(scene)
            # Each was shown what it needs.
            assert "make a file" in cast.seen["thinker"][0].text and not cast.seen["thinker"][0].tools
            assert "1. Write made.txt." in cast.seen["hand"][0].text and "shell" in cast.seen["hand"][0].tools
            first, second = cast.seen["critic"]
            assert "+++ b/made.txt" in first.text and "+0" in first.text and "make a file" in first.text
            assert "Look at it." in first.text and not first.tools
            assert "made.txt is short" in cast.seen["hand"][2].text and "+1" in second.text
            # And everything is counted, once.
            meters = scene.of(Meters)[-1]
            assert meters.steps == 1 + 4 + 2
            entries = [entry.data for entry in scene.agent.conversation.path()]
            books = [data for data in entries if isinstance(data, Usage)]
            assert sum(book.output_tokens for book in books) == meters.output_tokens
            assert sum(book.input_tokens for book in books) == meters.input_tokens
            await scene.turn("and on")
            assert len(cast.seen["thinker"]) == 2
            assert any(PLANNED in text for text in cast.seen["hand"][-1].users)

    play(work)


def test_findings_come_back_twice_and_what_is_left_is_told(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(hand=writes, critic=[faults("still wrong")])

    async def work() -> None:
        roles = {"builder": "hand", "reviewer": "critic"}
        async with stage(tmp_path, never, others=cast.acts, roles=roles, weak=False) as scene:
            ended = await scene.turn("make a file")
            assert ended.status == "done" and "critic still finds: still wrong" in ended.reason
            assert len(cast.seen["critic"]) == 3
            assert (tmp_path / "work" / "made.txt").read_text().count("\n") == 3

    play(work)


@pytest.mark.parametrize(
    ("answer", "review", "rounds"),
    [
        ("OK.", "ok", 1),
        ("```json\n" + OK + "\n```", "ok", 1),
        ("I like it a lot", "no verdict", 1),
        ('{"ok": false, "findings": []}', "no verdict", 1),
    ],
)
def test_a_reviewer_without_forms_is_understood_or_told(tmp_path: Path, answer: str, review: str, rounds: int) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(critic=[say(answer)])

    async def work() -> None:
        async with stage(tmp_path, writes, others=cast.acts, roles={"reviewer": "critic"}, weak=False) as scene:
            ended = await scene.turn("make a file")
            assert ended.status == "done" and ended.details["review"] == review
            assert len(cast.seen["critic"]) == rounds
            assert ("gave no verdict" in notes(scene)) == (review == "no verdict")

    play(work)


def test_what_was_built_stands_when_the_reviewer_fails(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    async def work() -> None:
        async with stage(tmp_path, writes, roles={"reviewer": "nobody"}, weak=False) as scene:
            ended = await scene.turn("make a file")
            assert (ended.status, ended.changed, ended.details["review"]) == ("done", ("made.txt",), "no verdict")
            assert "nobody gave no verdict: " in notes(scene) and "does not exist" in notes(scene)
            assert not scene.agent.unfinished
        async with stage(tmp_path, never, roles={"planner": "nobody"}, weak=False) as scene:
            ended = await scene.turn("make a file")
            assert ended.status == "failed" and "nobody" in ended.reason and ended.changed == ()

    play(work)


def test_a_planner_without_forms_is_understood_or_done_without(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(thinker=[say("Here it is:\n1. Look.\n2) Write.\n- Check."), say("I do not know.")])

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], others=cast.acts, roles={"planner": "thinker"}) as scene:
            await scene.turn("one")
            assert [step for step, _ in scene.of(PlanChanged)[0].steps] == ["Look.", "Write.", "Check."]
            ended = await scene.turn("two")
            assert ended.status == "done" and "gave no plan" in notes(scene) and len(scene.of(PlanChanged)) == 1

    play(work)


def test_nothing_changed_is_nothing_to_review_and_questions_need_no_plan(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(thinker=never, critic=never)
    roles = {"planner": "thinker", "reviewer": "critic"}

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("42.")], others=cast.acts, roles=roles, weak=False) as scene:
            ended = await scene.turn("What is it?")
            assert ended.status == "done" and "review" not in ended.details

    play(work)


def test_a_steer_reaches_the_planner_and_makes_the_review_wait(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    def thinks(seen: Seen) -> list[Step]:
        return [plan("a")] if "also b" in seen.text else [Step(tokens=4000, pause=0.01)]

    def judges(seen: Seen) -> list[Step]:
        return [say(OK)] if "and c" in seen.text else [Step(tokens=4000, pause=0.01)]

    cast = Cast(thinker=thinks, hand=writes, critic=judges)

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=False) as scene:
            scene.agent.say("make a")
            while not cast.seen["thinker"]:
                await asyncio.sleep(0.005)
            scene.agent.say("also b", "steer")
            while not cast.seen["critic"]:
                await asyncio.sleep(0.005)
            assert len(cast.seen["thinker"]) == 2 and len(scene.of(PlanChanged)) == 1
            scene.agent.say("and c", "steer")
            ended = await scene.until(TurnEnded)
            assert ended.status == "done" and ended.details["review"] == "ok"
            assert "and c" in cast.seen["hand"][-1].text and len(cast.seen["critic"]) == 2
            assert scene.agent.inbox.waiting == []

    play(work)


@pytest.mark.parametrize("who", ["thinker", "critic"])
def test_stop_ends_the_one_that_is_asked(tmp_path: Path, who: str) -> None:
    (tmp_path / "work").mkdir()
    long = [Step(tokens=20_000, pause=0.01)]
    cast = Cast(thinker=long if who == "thinker" else [plan("a")], hand=writes, critic=long)

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=False) as scene:
            scene.agent.say("make a")
            while not cast.seen[who]:
                await asyncio.sleep(0.005)
            await asyncio.wait_for(scene.agent.stop(), 2)
            assert scene.of(TurnEnded)[-1].status == "stopped" and not scene.agent.unfinished

    play(work)


def test_limits_count_what_all_of_them_take(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(thinker=[plan("a")], hand=writes, critic=never)

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=False, limits=Limits(steps=3)) as scene:
            ended = await scene.turn("make a")
            assert ended.status == "limit" and "before the review" in ended.reason
            assert ended.changed == ("made.txt",)

    play(work)


def test_a_turn_that_was_cut_off_in_its_review_goes_on_there(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    first = Cast(thinker=[plan("a")], hand=writes, critic=[faults("one"), Step(tokens=20_000, pause=0.01)])
    second = Cast(thinker=never, hand=writes, critic=[faults("two"), say(OK)])

    async def cut_off() -> None:
        async with stage(tmp_path, never, others=first.acts, roles=ROLES, weak=False) as scene:
            scene.agent.say("make a")
            while len(first.seen["critic"]) < 2:
                await asyncio.sleep(0.005)

    async def goes_on() -> None:
        async with stage(tmp_path, never, others=second.acts, roles=ROLES, weak=False, resume=True) as scene:
            assert scene.agent.unfinished
            await scene.agent.go_on()
            ended = await scene.until(TurnEnded)
            assert ended.details["review"] == "ok"
            assert len(second.seen["critic"]) == 2 and len(second.seen["hand"]) == 2
            assert "+0\n+1" in second.seen["critic"][0].text  # all of the turn, not only what came after
            assert sum(FOUND in text for text in second.seen["hand"][0].users) == 2
            assert not scene.agent.unfinished

    play(cut_off)
    play(goes_on)


def test_a_weak_builder_is_planned_for_and_reviewed_too(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text("def f():\n    return 1\n")

    def edits(seen: Seen) -> list[Step]:
        return [whole(f"def f():\n    return {3 if 'return 3 is wanted' in seen.text else 2}\n")]

    cast = Cast(thinker=[plan("Change f.")], hand=edits, critic=[faults("return 3 is wanted"), say(OK)])

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=True, candidates=1) as scene:
            ended = await scene.turn("let f return more in a.py")
            assert ended.details["review"] == "ok", ended
            assert (tmp_path / "work" / "a.py").read_text() == "def f():\n    return 3\n"
            assert "Change f." in cast.seen["hand"][0].text

    play(work)


def test_a_worker_has_the_roles_and_its_own_builds(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(thinker=[plan("a")], hand=never, critic=writes)

    async def work() -> None:
        async with stage(tmp_path, never, others=cast.acts, roles=ROLES, weak=False) as scene:
            assert scene.agent.crew is not None
            name = await scene.agent.background("make a", role="reviewer")
            worker = await asyncio.wait_for(scene.agent.crew.wait(name), 30)
            assert (worker.state, worker.model, [c.path for c in worker.changes]) == ("done", "critic", ["made.txt"])
            assert len(cast.seen["thinker"]) == 1

    play(work)


def test_roles_are_set_and_taken_away(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    cast = Cast(hand=[say("I am the hand.")])

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("I am the other.")], others=cast.acts, weak=False) as scene:
            scene.agent.set_role("builder", "hand")
            await scene.turn("who?")
            scene.agent.set_role("builder", "")
            await scene.turn("who?")
            assert [event.model for event in scene.of(TurnBegan)] == ["hand", "acting"]
            with pytest.raises(UsageError, match="no role 'bilder'"):
                scene.agent.set_role("bilder", "hand")

    play(work)
    assert roles_of(["planner=a/b", " reviewer = c "]) == {"planner": "a/b", "reviewer": "c"}
    for wrong in ("planner", "planner=", "boss=a"):
        with pytest.raises(UsageError):
            roles_of([wrong])
