"""The main states as kept screens: what waits, what runs, what asks, what failed; and what becomes of each."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from textual._compositor import Compositor
from textual.geometry import Region
from textual.widgets import OptionList

from tests.ui.app.screens import Stage, play
from tests.ui.scripted import ScriptedTalk
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter
from vivace.ui.app.blocks.diff import LiveEdit, Proposal
from vivace.ui.app.blocks.welcome import Welcome

ONE = ("-    return parse(data)", "+    parsed = parse(data)")
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+two\n"


async def writes(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    """A file is being rewritten, until the turn is stopped; each steer begins it anew."""
    for _ in range(3):
        talk.emit(ev.Editing(path="pkg/util.py", lines=()))
        talk.emit(ev.Editing(path="pkg/util.py", lines=("     data = read(path)", *ONE, "     return parsed")))
        talk.emit(ev.Meters(ttft=0.25, tokens_per_second=300.0, copied=0.5, input_tokens=900, output_tokens=40))
        while not talk.inbox.steered:
            await asyncio.sleep(0.01)
        talk.inbox.take_steers()
        talk.inbox.delivered()
    return None


async def proposes(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Proposed(diff=DIFF, paths=("a.py",), added=1, removed=1))
    await talk.ask(ev.Asked(ask="p", kind="proposal", text="", choices=(("apply", "Apply"), ("no", "Leave it"))))
    return None


async def wonders(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Thought(text="Two files could be meant."))
    talk.emit(ev.Said(text="There are two of that name.\n"))
    question = ev.Asked(ask="q", kind="question", text="Which one?", choices=(("1", "pkg/util.py"), ("2", "util.py")))
    await talk.ask(question)
    return None


async def fails(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.ToolBegan(call="1", name="shell", brief="make test"))
    talk.emit(ev.ToolOutput(call="1", text="no rule to make target 'test'\n"))
    talk.emit(ev.ToolEnded(call="1", ok=False, text="", seconds=0.1))
    talk.emit(ev.Noted(text="No sandbox: bubblewrap is not here.", level="warning"))
    return ev.TurnEnded(status="failed", reason="the backend is not reachable", seconds=3.0)


async def crowd(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    def worker(name: str, state: str, task: str, **more: object) -> None:
        talk.emit(ev.WorkerChanged(worker=name, task=task, state=state, **more))  # type: ignore[arg-type]

    worker("w1", "done", "write the docs", steps=9, tokens=31_000, seconds=80, offer=2)
    worker("w2", "running", "port the tests to pytest, file by file", steps=3, tokens=12_400, seconds=9, note="tests/a")
    worker("w3", "failed", "raise the coverage", steps=1, tokens=900, seconds=4, note="the model is gone")
    worker("w4", "waiting", "look for dead code")
    talk.emit(ev.ToolBegan(call="1", name="shell", brief="pytest -q"))
    await asyncio.sleep(60)
    return None


async def serves(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    def job(name: str, state: str, command: str, **more: object) -> None:
        talk.emit(ev.JobChanged(job=name, state=state, command=command, **more))  # type: ignore[arg-type]

    if "again" in letters[0].text:
        return None
    job("job-1", "running", "npm run dev", seconds=0.0)
    job("job-2", "failed", "make all\necho never", seconds=12.3, code=2)
    job("job-3", "stopped", "sleep 60", seconds=4.0, code=-15, note="stopped by the user")
    if "worker" in letters[0].text:
        talk.emit(ev.WorkerChanged(worker="w1", task="write the docs", state="running", steps=9, tokens=31_000))
    job("job-1", "running", "npm run dev", seconds=61.0)
    return None


async def begin(stage: Stage, until: str, message: str = "go") -> None:
    stage.paste(message)
    await stage.press("enter")
    await stage.shows(until)


@pytest.mark.parametrize("size", [(80, 24), (60, 18)], ids=["usual", "tiny"])
def test_an_edit_that_is_written_with_messages_that_wait(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "2 changed")
        stage.paste("then the tests")
        await stage.press("alt+enter")
        await stage.shows("· queued  then the tests")
        stage.matches(f"writing-{size[0]}")

    play(tmp_path, body, writes, size=size)


def test_a_steer_begins_the_edit_anew_behind_itself(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "2 changed")
        stage.paste("call it tree")
        await stage.press("enter")
        await stage.shows("» call it tree")
        await stage.shows("2 changed")
        edits = [block for block in stage.app.transcript.blocks if isinstance(block, LiveEdit)]
        assert len(edits) == 1 and edits[0].changed == 2
        assert stage.text().index("» call it tree") < stage.text().index("◦ pkg/util.py")

    play(tmp_path, body, writes)


def test_a_stop_gives_the_queue_back_and_says_that_nothing_was_written(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "2 changed")
        stage.paste("then the tests")
        await stage.press("alt+enter")
        await stage.press("escape")
        await stage.shows("stopped: by the user")
        await stage.until(lambda: stage.app.prompt.text == "then the tests")
        stage.matches("stopped-80")

    play(tmp_path, body, writes)


def test_what_a_stop_leaves_undecided_is_told_to_be_not_applied(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "Apply this change?")
        await stage.press("escape")
        await stage.shows("+1 -1 · not applied")

    play(tmp_path, body, proposes)


def test_a_question_with_what_the_model_thought(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "The model asks")
        stage.matches("question-80")
        assert stage.app.bar.asks

    play(tmp_path, body, wonders)


def test_a_failure_with_its_output(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "failed: the backend")
        stage.matches("failed-80")

    play(tmp_path, body, fails)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["below", "beside"])
def test_the_tree_of_workers(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "w4")
        await stage.shows("shell pytest")
        stage.matches(f"workers-{size[0]}")

    play(tmp_path, body, crowd, size=size)


@pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["below", "beside"])
def test_jobs_are_rows_of_the_tree_until_the_turn_after_their_end(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "job job-3 stopped", "a worker and jobs")
        await stage.shows("✓ done")
        stage.matches(f"jobs-{size[0]}")
        stage.paste("/jobs")
        await stage.press("enter")
        await stage.shows("job-2  failed · exit code 2 · 12 s  make all")
        stage.paste("/new")
        await stage.press("enter")
        await stage.shows("worker w1 runs: stop it first")
        await begin(stage, "> again", "again")
        await stage.until(lambda: "✗ job-2" not in stage.text())
        assert "◦ job-1  running · 61 s" in stage.text() and "npm run dev" in stage.text()
        await stage.type("/stop job")
        await stage.shows("▸ job-1")
        assert stage.app.crew.running == ["w1", "job-1"]

    play(tmp_path, body, serves, size=size)


def test_a_list_to_choose_from_over_what_was_said(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.paste("/model")
        await stage.press("enter")
        await stage.shows("type to narrow down")
        stage.matches("picker-80")
        await stage.type("bi")
        await stage.until(lambda: len(stage.app.screen.query_one(OptionList).options) == 1)
        await stage.press("enter")
        await stage.shows("auto · big")

    play(tmp_path, body)


def test_roles_are_given_taken_away_and_chosen(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.paste("/role planner big")
        await stage.press("enter")
        await stage.shows("planner of deep turns: big")
        assert stage.house.talk.calls[-1] == ("role", "planner", "big")
        assert stage.app.choice.roles == {"planner": "big"}
        stage.paste("/role")
        await stage.press("enter")
        await stage.shows("planner   big")
        await stage.press("down", "enter")
        await stage.shows("who is the builder")
        await stage.press("enter")
        await stage.shows("builder of deep turns: small")
        stage.paste("/role planner nobody")
        await stage.press("enter")
        await stage.shows("planner of deep turns: nobody")
        assert stage.house.talk.calls[-1] == ("role", "planner", "")
        assert stage.app.choice.roles == {"builder": "small"}
        stage.paste("/role painter big")
        await stage.press("enter")
        await stage.shows("there is no role")
        await stage.type("/role rev")
        await stage.shows("▸ reviewer")
        await stage.press("tab")
        await stage.type("b")
        await stage.shows("▸ big")

    play(tmp_path, body)


def test_completion_of_files_as_it_looks(tmp_path: Path) -> None:
    (tmp_path / "project" / "pkg").mkdir(parents=True)
    for name in ("pkg/util.py", "util.py", "pkg/main.py"):
        (tmp_path / "project" / name).write_text("x = 1\n")

    async def body(stage: Stage) -> None:
        await stage.type("mend @ut")
        await stage.shows("▸ @util.py")
        stage.matches("files-80")

    play(tmp_path, body)


def test_a_file_named_at_the_end_of_a_sentence_is_not_completed_again(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "util.py").write_text("x = 1\n")

    async def body(stage: Stage) -> None:
        await stage.type("what is in @util.py")
        await stage.press("question_mark")
        await stage.until(lambda: not stage.app.completion.open)
        await stage.press("enter")
        assert stage.house.talk.calls[-1] == ("say", "what is in @util.py?", "send", ("util.py",))

    play(tmp_path, body)


def test_a_key_that_comes_before_the_completion_does_not_take_an_old_one(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("/acc")
        await stage.shows("▸ /accept")
        with stage.app.prompt.prevent(stage.app.prompt.Changed, stage.app.prompt.SelectionChanged):
            stage.paste("/accept w1")
        assert stage.app.completion.open  # of what stood there before
        await stage.press("enter")
        await stage.shows("what worker w1 made" if "what worker" in stage.text() else "Apply this change?")
        assert stage.app.prompt.text == ""

    play(tmp_path, body)


def test_what_a_worker_made_says_what_became_of_it(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        for key, state in (("n", "declined"), ("y", "applied")):
            stage.paste("/accept w1")
            await stage.press("enter")
            await stage.shows("Apply this change?")
            await stage.press(key)
            await stage.until(lambda state=state: proposals(stage)[-1].state == state)  # type: ignore[misc]
        assert [block.state for block in proposals(stage)] == ["declined", "applied"]

    play(tmp_path, body)


def proposals(stage: Stage) -> list[Proposal]:
    return [block for block in stage.app.transcript.blocks if isinstance(block, Proposal)]


def test_the_welcome_goes_with_the_first_message(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        assert isinstance(stage.app.transcript.blocks[0], Welcome)
        await begin(stage, "✓ done")
        assert "vivace in" not in stage.text()
        assert stage.text().startswith("> go")

    play(tmp_path, body)


def test_the_end_of_an_empty_input_leaves(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("ab")
        await stage.press("left", "ctrl+d")
        assert stage.app.prompt.text == "a" and stage.app.is_running
        await stage.press("backspace", "ctrl+d")
        await stage.until(lambda: not stage.app.is_running)

    play(tmp_path, body)


def test_a_model_that_is_fetched_is_told_where_its_first_token_is_waited_for(tmp_path: Path) -> None:
    async def slow(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        sys.stderr.write("\r\x1b[2Kmirror \x1b[1mcoder\x1b[0m ━━━╸━━ 12.3/491.4 MB")
        await asyncio.sleep(0.5)
        talk.emit(ev.Said(text="here it is\n"))
        await asyncio.sleep(60)
        return None

    async def body(stage: Stage) -> None:
        stage.paste("go")
        await stage.press("enter")
        await stage.shows("  mirror coder 12.3/491.4 MB")
        await stage.shows("here it is")
        await stage.until(lambda: "mirror" not in stage.text())

    play(tmp_path, body, slow)


def test_the_time_of_a_turn_is_told_without_that_of_answers(tmp_path: Path) -> None:
    now = [100.0]

    async def body(stage: Stage) -> None:
        bar = stage.app.bar
        bar.clock = lambda: now[0]
        await begin(stage, "Apply this change?")
        now[0] += 50
        bar._show()
        assert "50 s" not in stage.text()
        bar.asks = False
        now[0] += 65
        bar._show()
        await stage.shows("· 1:05")

    play(tmp_path, body, proposes)


def test_stepping_back_gives_every_message_of_the_turn_back(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        talk = stage.house.talk
        start = talk.conversation.leaf
        await begin(stage, "2 changed", "call it leaf")
        stage.paste("and sort them")
        await stage.press("enter")
        await stage.shows("» and sort them")
        await stage.press("escape")
        await stage.until(lambda: talk.idle)

        async def undo() -> None:
            talk.conversation.branch(start)

        talk.undo = undo  # type: ignore[method-assign]
        stage.app.prompt.text = ""
        await stage.press("escape", "escape")
        await stage.until(lambda: stage.app.prompt.text == "call it leaf\nand sort them")

    play(tmp_path, body, writes)


def test_what_is_drawn_frugally_is_what_the_toolkit_draws(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await begin(stage, "w4")
        for keys in (("tab",), ("f1",), ("escape",), ("/", "c")):
            await stage.press(*keys)
            compositor = stage.app.screen._compositor
            whole = Region(0, 0, *stage.app.size)
            for crop in (whole, Region(0, 3, 80, 2), Region(5, 20, 30, 4), Region(0, 23, 80, 1)):
                own = compositor._render_chops(crop, lambda y: True)
                drawn = type(compositor)._get_renders
                try:
                    type(compositor)._get_renders = Compositor._get_renders  # type: ignore[method-assign]
                    other = compositor._render_chops(crop, lambda y: True)
                finally:
                    type(compositor)._get_renders = drawn  # type: ignore[method-assign]
                for y in range(crop.y, crop.bottom):
                    for x in (x for x in own[y] if crop.x <= x < crop.right):
                        assert own[y][x] == other[y][x], (crop, x, y)

    play(tmp_path, body, crowd)
