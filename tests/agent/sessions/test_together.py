"""Undo takes the turn out of the files and out of the context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from vivace.agent.checkpoints import CheckpointStore
from vivace.agent.sessions import (
    CheckpointRef,
    Conversation,
    Items,
    ToolCall,
    ToolResult,
    User,
    files_at,
    go_to,
    position_of,
    reconcile,
    step_back,
    step_forth,
)
from vivace.errors import UsageError


class Desk:
    """A workspace with one file, its checkpoints and a conversation."""

    def __init__(self, base: Path) -> None:
        (base / "work").mkdir()
        self.file = base / "work" / "a.py"
        self.file.write_text("0")
        self.store = CheckpointStore(base / "work", base / "state")
        self.talk = Conversation.create(base, base / "work")

    def turn(self, text: str, content: str | None) -> str:
        taken = self.store.take(text, "turn", position_of(self.talk))
        self.talk.append(CheckpointRef(taken.id))
        user = self.talk.append(User(text))
        self.talk.append(ToolCall("c", "write", "{}"))
        if content is not None:
            self.file.write_text(content)
        self.talk.append(ToolResult("c", "ok"))
        self.talk.append(Items((msgspec.Raw(b"{}"),)))
        return user

    def texts(self) -> list[str]:
        return [entry.data.text for entry in self.talk.path() if isinstance(entry.data, User)]

    @property
    def now(self) -> tuple[str, list[str]]:
        return self.file.read_text(), self.texts()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()
    desk.talk.close()


def test_undone_turns_are_gone_from_files_and_context_and_come_back(desk: Desk) -> None:
    """Undone code that is still in the context: openai/codex#9203, #8113; messages only: anomalyco/opencode#27664."""
    desk.turn("one", "1")
    desk.turn("two", "2")
    desk.turn("just talk", None)
    last = desk.talk.leaf
    for expected in (("2", ["one", "two"]), ("1", ["one"]), ("0", [])):
        assert not step_back(desk.talk, desk.store).refused
        assert desk.now == expected
    with pytest.raises(UsageError, match="nothing to undo"):
        step_back(desk.talk, desk.store)
    for expected in (("1", ["one"]), ("2", ["one", "two"]), ("2", ["one", "two", "just talk"])):
        step_forth(desk.talk, desk.store)
        assert desk.now == expected
    assert desk.talk.leaf == last


def test_going_on_after_a_step_back_makes_a_branch(desk: Desk) -> None:
    desk.turn("one", "1")
    desk.turn("two", "2")
    old = desk.talk.leaf
    step_back(desk.talk, desk.store)
    desk.turn("else", "3")
    assert desk.now == ("3", ["one", "else"])
    step_back(desk.talk, desk.store)
    assert desk.now == ("1", ["one"])
    assert old is not None and old in {leaf.id for leaf in desk.talk.leaves()}


def test_a_fork_steps_back_over_what_it_came_from(desk: Desk) -> None:
    desk.turn("one", "1")
    desk.turn("two", "2")
    original = desk.talk
    with original.fork() as desk.talk:
        step_back(desk.talk, desk.store)
        assert desk.now == ("1", ["one"])
        step_back(desk.talk, desk.store)
        assert desk.now == ("0", [])
    desk.talk = original
    assert desk.texts() == ["one", "two"]


def test_a_crash_between_files_and_context_is_made_good(desk: Desk) -> None:
    desk.turn("one", "1")
    desk.turn("two", "2")
    desk.store.undo("turn", position_of(desk.talk))  # and the process ends here
    assert desk.now == ("1", ["one", "two"])
    assert reconcile(desk.talk, desk.store)
    assert desk.now == ("1", ["one"])
    assert not reconcile(desk.talk, desk.store)
    desk.turn("three", "3")
    assert not reconcile(desk.talk, desk.store)


def test_each_place_of_a_conversation_knows_its_files(desk: Desk) -> None:
    one, two = desk.turn("one", "1"), desk.turn("two", "2")
    path = desk.talk.path()
    at = {entry.id: files_at(desk.talk, entry.id) for entry in path}
    first, second = at[one], at[two]
    assert first is not None and second is not None
    assert (first.number, first.exact, second.number, second.exact) == (1, True, 2, True)
    before_two = at[path[4].id]  # the last items of turn one: the checkpoint of turn two follows
    assert before_two is not None and (before_two.number, before_two.exact) == (2, True)
    last = at[path[-1].id]  # nothing was recorded since the tool ran
    assert last is not None and (last.number, last.exact) == (2, False)
    assert files_at(desk.talk, None) == msgspec.structs.replace(first, entry=path[0].id)
    go_to(desk.talk, desk.store, 2)
    assert desk.now == ("1", ["one"])
