"""What keys mean by state: three verbs that are never guessed, and no text that is ever lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual._xterm_parser import XTermParser

from tests.ui.app.screens import Stage, play
from tests.ui.scripted import ScriptedTalk, contents
from vivace.agent.sessions.entries import User
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter
from vivace.ui.app import keys


async def forever(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Said(text="working on it\n"))
    await asyncio.sleep(60)
    return None


async def asks(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    choices = (("once", "Yes, this once"), ("no", "No"))
    await talk.ask(ev.Asked(ask="a", kind="approval", text="Run: rm -rf build", choices=choices))
    reply = await talk.ask(ev.Asked(ask="q", kind="question", text="Which?", choices=(("1", "this"), ("2", "that"))))
    talk.emit(ev.Said(text=f"the answer is {reply}\n"))
    return None


def said(stage: Stage) -> list[tuple[str, str]]:
    return [call[1:3] for call in stage.house.talk.calls if call[0] == "say"]


async def busy(stage: Stage) -> None:
    await stage.type("go")
    await stage.press("enter")
    await stage.shows("working on it")


def test_enter_steers_and_alt_enter_queues_both_shown_and_editable(tmp_path: Path) -> None:
    """Complaint 5: a message could not be held until the turn ends."""

    async def body(stage: Stage) -> None:
        await busy(stage)
        await stage.type("to the left")
        await stage.press("enter")
        await stage.type("and then")
        await stage.press("alt+enter")
        await stage.type("at last")
        await stage.press("tab")
        await stage.shows("queued  at last")
        assert said(stage)[1:] == [("to the left", "steer"), ("and then", "queue"), ("at last", "queue")]
        assert "» steers  to the left" in stage.text() and "· queued  and then" in stage.text()
        await stage.press("alt+up")
        await stage.until(lambda: stage.app.prompt.text == "at last")
        assert [letter.text for letter in stage.house.talk.inbox.waiting] == ["to the left", "and then"]
        await stage.press("escape")
        await stage.until(lambda: stage.app.prompt.text == "to the left\nand then\nat last")
        assert stage.house.talk.idle and "queued" not in stage.text()

    play(tmp_path, body, forever)


def test_ctrl_c_clears_text_then_interrupts_then_quits(tmp_path: Path) -> None:
    """Complaint 8: one key for three things lost work."""

    async def body(stage: Stage) -> None:
        await busy(stage)
        await stage.type("a long thought")
        await stage.press("ctrl+c")
        assert stage.app.prompt.text == "" and not stage.house.talk.idle
        await stage.press("up")
        assert stage.app.prompt.text == "a long thought"
        await stage.press("ctrl+c", "ctrl+c")
        await stage.until(lambda: stage.house.talk.idle)
        assert stage.app.is_running
        await stage.press("ctrl+c")
        assert stage.app.is_running and "Ctrl+C again to quit" in stage.text()
        await stage.press("ctrl+c")
        await stage.until(lambda: not stage.app.is_running)
        assert stage.app.return_value == stage.house.talk.conversation.id

    play(tmp_path, body, forever)


def test_escape_stops_the_foreground_only(tmp_path: Path) -> None:
    """Complaint 7: Esc killed background tasks, too."""

    async def body(stage: Stage) -> None:
        await stage.type("/background write the docs")
        await stage.press("enter")
        await busy(stage)
        await stage.press("escape")
        await stage.until(lambda: stage.house.talk.idle)
        assert ("stop",) in stage.house.talk.calls
        assert not [call for call in stage.house.talk.calls if call[0] == "stop_worker"]
        await stage.shows("w1  running")

    play(tmp_path, body, forever)


def test_escape_twice_steps_back_in_a_fork_and_gives_the_text_back(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("do it")
        await stage.press("enter")
        await stage.shows("done")
        assert isinstance(stage.house.talk.conversation.path()[0].data, User)
        await stage.press("escape")
        assert stage.app.prompt.text == ""
        await stage.press("escape")
        await stage.until(lambda: stage.app.prompt.text == "do it")
        assert stage.house.talk.calls[-2:] == [("fork",), ("undo",)]

    play(tmp_path, body)


def test_words_that_are_typed_are_no_answer_to_an_approval(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("go")
        await stage.press("enter")
        await stage.shows("May it?")
        await stage.press("enter")  # nothing is chosen beforehand
        await stage.type("yes but not that")
        assert stage.app.prompt.text == "yes but not that"
        assert not [call for call in stage.house.talk.calls if call[0] == "answer"]
        await stage.press("ctrl+c", "shift+up", "n")
        await stage.until(lambda: ("answer", "a", "no") in stage.house.talk.calls)

    play(tmp_path, body, asks)


def test_a_question_takes_a_choice_or_any_words(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("go")
        await stage.press("enter")
        await stage.shows("May it?")
        await stage.press("down", "enter")
        await stage.shows("The model asks")
        assert ("answer", "a", "once") in stage.house.talk.calls
        await stage.type("neither")
        await stage.press("enter")
        await stage.shows("the answer is neither")
        assert said(stage) == [("go", "send")]

    play(tmp_path, body, asks)


def test_a_key_that_comes_with_the_question_is_not_its_answer(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        stage.app.ask.grace = 30.0
        await stage.type("go")
        await stage.press("enter")
        await stage.shows("May it?")
        await stage.press("y", "enter")
        assert stage.app.prompt.text.startswith("y") or said(stage)[-1] == ("y", "steer")
        assert not [call for call in stage.house.talk.calls if call[0] == "answer" and call[1] == "a"]

    play(tmp_path, body, asks)


def test_files_are_read_ahead_while_the_user_types(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("mend @a.py")
        await stage.until(lambda: ("typing", "mend @a.py") in stage.house.talk.calls)

    play(tmp_path, body)


def test_what_is_sent_before_the_workspace_is_open_is_not_lost(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        talk, stage.app.talk = stage.app.talk, None
        await stage.type("early")
        await stage.press("enter")
        assert stage.app.talk is None and talk is not None
        await talk.close()
        await stage.app.open(stage.app.choice)
        await stage.until(lambda: said(stage) == [("early", "send")])

    play(tmp_path, body)


def test_modes_are_changed_by_a_key(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.press("shift+tab")
        await stage.shows("fast · small")
        await stage.press("shift+tab")
        await stage.shows("deep · small")
        assert stage.house.talk.mode == "deep"

    play(tmp_path, body)


def test_commands_do_what_they_say(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        talk = stage.house.talk
        talk.points = [contents((7, "mend it", 1.7e9))]
        for line, call in (
            ("/undo", ("undo",)), ("/redo", ("redo",)), ("/checkpoints 3", ("go_to", 3)), ("/compact", ("compact",)),
            ("/candidates 4", ("candidates", 4)), ("/fork", ("fork",)), ("/stop w1", ("stop_worker", "w1")),
            ("/interrupt", ("interrupt",)), ("/continue", ("go_on",)), ("/stop", ("stop",)),
        ):  # fmt: skip
            stage.paste(line)
            await stage.press("enter")
            await stage.until(lambda call=call: talk.calls[-1] == call)  # type: ignore[misc]
        for line, shown in (
            ("/unod", "no command /unod"), ("/mode slow", "there is no mode slow"), ("/candidates x", "no number"),
            ("/undo now", "takes no argument"), ("/background", "wants one argument"), ("/resume", "no other"),
        ):  # fmt: skip
            stage.paste(line)
            await stage.press("enter")
            await stage.shows(shown)
        stage.paste("/checkpoints")
        await stage.press("enter")
        await stage.shows("mend it")
        await stage.press("enter")
        await stage.until(lambda: talk.calls[-1] == ("go_to", 7))
        stage.paste("/accept w1")
        await stage.press("enter")
        await stage.shows("Apply this change?")
        await stage.press("y")
        await stage.until(lambda: talk.calls[-1] == ("accept_worker", "w1"))
        stage.paste("/new")
        await stage.press("enter")
        await stage.until(lambda: len(stage.house.talks) == 2 and stage.app.talk is stage.house.talk)
        stage.paste("/etc/hosts is a path")
        await stage.press("enter")
        await stage.until(lambda: said(stage) == [("/etc/hosts is a path", "send")])

    play(tmp_path, body)


def test_old_terminals_send_alt_enter_as_two_characters() -> None:
    keys.prepare()
    parser = XTermParser()
    assert [event.key for event in parser.feed("\x1b\r")] == ["alt+enter"]  # type: ignore[union-attr]
