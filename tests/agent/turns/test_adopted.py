"""Messages that a process which is gone had taken, and that no model had begun to answer."""

from __future__ import annotations

from pathlib import Path

from tests.agent.turns.stage import play, say, stage, whole
from tests.agent.turns.test_steering import states
from vivace.agent.sessions.entries import User
from vivace.agent.turns.events import MessageChanged


def left_unanswered(tmp_path: Path) -> None:
    """A conversation whose process ended when the message was taken and the model had not begun to answer."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.py").write_text("x = 1\n")

    async def work() -> None:
        async with stage(tmp_path, lambda seen: []) as scene:
            scene.agent.conversation.append(User("explain monads", "sent"))

    play(work)


def test_an_edit_delivers_no_message_of_a_process_that_is_gone(tmp_path: Path) -> None:
    """Its prompt holds the file and what was said now; the older message is told as failed, and can be sent again."""
    left_unanswered(tmp_path)

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [whole("x = 2\n")], mode="fast", resume=True) as scene:
            (old,) = scene.agent.inbox.sent
            await scene.turn("set x to 2 in a.py")
            assert "monads" not in scene.seen[0].text
            assert (old.state, "the last process ended" in old.reason) == ("failed", True)
            assert states(scene, old.number) == ["failed"]
            new = next(event.number for event in scene.of(MessageChanged) if event.text.startswith("set x"))
            assert states(scene, new)[-1] == "delivered"

    play(work)


def test_an_answer_in_words_delivers_a_message_of_a_process_that_is_gone(tmp_path: Path) -> None:
    left_unanswered(tmp_path)

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], resume=True) as scene:
            (old,) = scene.agent.inbox.sent
            await scene.turn("and comonads?")
            assert "explain monads" in scene.seen[0].text and old.state == "delivered"

    play(work)
