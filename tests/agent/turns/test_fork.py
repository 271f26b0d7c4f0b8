"""A fork of the conversation takes what waits along, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.turns.stage import play, say, stage
from vivace.agent.turns.events import MessageChanged
from vivace.agent.turns.inbox import Inbox, Letter
from vivace.agent.turns.waiting import WaitingFile


def test_a_fork_that_is_cut_off_loses_no_message_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every moment of the fork each message is on disk, of the old conversation or of the new one."""
    moments: list[list[str]] = []
    real = Inbox.put

    async def work() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")]) as scene:
            await scene.turn("one")
            scene.agent.say("two", "queue")
            scene.agent.say("three", "steer")
            kept = scene.agent.conversation.path_of_file.with_suffix(".waiting")

            def put(inbox: Inbox, *arguments: Any) -> Letter:
                moments.append([waiting.text for waiting in WaitingFile(kept).load(0)])
                return real(inbox, *arguments)

            monkeypatch.setattr(Inbox, "put", put)
            await scene.agent.fork()
            assert moments == [["two", "three"], ["two", "three"]] and not kept.exists()
            await scene.agent.wait_idle()
            assert scene.seen[-1].users == ["one", "three", "two"]
            states = [(event.text, event.state) for event in scene.of(MessageChanged) if event.text != "one"]
            for text in ("two", "three"):
                course = [state for said, state in states if said == text]
                assert course == ["queued", "failed", "queued", "sent", "delivered"]

    play(work)
