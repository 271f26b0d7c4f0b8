"""``vivace undo``, ``redo`` and ``checkpoints`` in a folder where the agent has worked, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vivace import cli
from vivace.agent.checkpoints import CheckpointStore
from vivace.agent.checkpoints.single import MOST_FILES, take_before
from vivace.agent.sessions import CheckpointRef, Conversation, User, conversations_folder, find, position_of


class Worked:
    """A folder in which turns were made, each in a conversation of its own, as ``vivace exec`` makes them."""

    def __init__(self, base: Path) -> None:
        self.state = base / "state"
        self.work = base / "work"
        self.work.mkdir()
        self.file = self.work / "a.py"
        self.file.write_text("0")
        self.talks: list[str] = []

    def turn(self, content: str, talk: str = "") -> None:
        folder = conversations_folder(self.work, self.state)
        conversation = Conversation.open(find(folder, talk)) if talk else Conversation.create(folder, self.work)
        with CheckpointStore(self.work, self.state) as store:
            taken = store.take(f"make it {content}", "turn", position_of(conversation))
        conversation.append_all([CheckpointRef(taken.id, taken.label), User(f"make it {content}")])
        self.file.write_text(content)
        conversation.close()
        if not talk:
            self.talks.append(conversation.id)

    def said(self, talk: str) -> list[str]:
        """The messages that the conversation holds now."""
        conversation = Conversation.open(find(conversations_folder(self.work, self.state), talk), write=False)
        return [entry.data.text for entry in conversation.path() if isinstance(entry.data, User)]


@pytest.fixture
def worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worked]:
    found = Worked(tmp_path)
    monkeypatch.setenv("VIVACE_STATE_DIR", str(found.state))
    monkeypatch.chdir(found.work)
    yield found


def say(*words: str) -> tuple[int, str]:
    app: Any = cli.app
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_turns_are_undone_one_by_one_and_done_again(worked: Worked) -> None:
    worked.turn("1")
    worked.turn("2")
    first, second = worked.talks
    assert say("undo") == (
        0,
        "undone: files and conversation are as before the last turn; vivace redo brings it back\n  a.py (changed)\n",
    )
    assert (worked.file.read_text(), worked.said(first), worked.said(second)) == ("1", ["make it 1"], [])
    assert say("undo")[0] == 0
    assert (worked.file.read_text(), worked.said(first), worked.said(second)) == ("0", [], [])
    code, told = say("undo")
    assert code == 3 and "nothing to undo" in told and worked.file.read_text() == "0"
    assert say("redo") == (0, "done again\n  a.py (changed)\n")
    assert (worked.file.read_text(), worked.said(first), worked.said(second)) == ("1", ["make it 1"], [])
    assert say("redo")[0] == 0
    assert (worked.file.read_text(), worked.said(second)) == ("2", ["make it 2"])
    assert say("redo")[0] == 3


def test_turns_of_one_conversation(worked: Worked) -> None:
    worked.turn("1")
    (talk,) = worked.talks
    worked.turn("2", talk)
    say("undo")
    assert (worked.file.read_text(), worked.said(talk)) == ("1", ["make it 1"])
    say("undo")
    assert (worked.file.read_text(), worked.said(talk)) == ("0", [])


def test_a_turn_that_changed_no_file_is_undone_too(worked: Worked) -> None:
    worked.turn("1")
    (talk,) = worked.talks
    worked.turn("1", talk)
    say("undo")
    assert (worked.file.read_text(), worked.said(talk)) == ("1", ["make it 1"])


def test_what_was_changed_by_hand_since_comes_back_with_redo(worked: Worked) -> None:
    worked.turn("1")
    worked.file.write_text("by hand")
    (worked.work / "new.py").write_text("new")
    code, told = say("undo", "--json")
    found = json.loads(told)
    assert code == 0 and worked.file.read_text() == "0" and not (worked.work / "new.py").exists()
    assert found["files"] == [{"path": "a.py", "change": "changed"}, {"path": "new.py", "change": "removed"}]
    assert found["checkpoint"] == 1 and found["refused"] == [] and found["error"] is None
    say("redo")
    assert worked.file.read_text() == "by hand" and (worked.work / "new.py").read_text() == "new"


def test_checkpoints_are_listed_and_gone_to(worked: Worked) -> None:
    worked.turn("1")
    worked.turn("2")
    code, told = say("checkpoints")
    lines = told.splitlines()
    assert code == 0 and [line.split()[0] for line in lines] == ["2", "1"]
    assert lines[0].endswith("  make it 2")
    found = json.loads(say("checkpoints", "--json")[1])
    assert [(point["id"], point["kind"], point["label"]) for point in found["checkpoints"]] == [
        (2, "turn", "make it 2"),
        (1, "turn", "make it 1"),
    ]
    assert found["head"] == 2
    code, told = say("checkpoints", "1")
    assert told.startswith("the files are those of checkpoint 1; vivace undo and vivace redo move from here\n")
    assert (code, worked.file.read_text(), worked.said(worked.talks[0])) == (0, "0", [])
    code, told = say("checkpoints", "77", "--json")
    assert code == 2 and json.loads(told)["error"]["code"] == "checkpoint_not_found"


@pytest.mark.parametrize("verb", ["undo", "redo", "checkpoints"])
def test_where_nobody_has_worked(worked: Worked, verb: str) -> None:
    code, told = say(verb)
    assert code == 2 and "Nothing was changed by vivace" in told and "vivace exec" in told
    code, told = say(verb, "--json")
    assert code == 2 and json.loads(told)["error"]["code"] == "conversation_not_found"


def test_a_conversation_that_is_open_elsewhere_is_left_alone(worked: Worked) -> None:
    worked.turn("1")
    held = Conversation.open(find(conversations_folder(worked.work, worked.state), worked.talks[0]))
    try:
        code, told = say("undo")
    finally:
        held.close()
    assert code == 2 and "is open in another vivace" in told and worked.file.read_text() == "1"
    assert say("undo")[0] == 0


def test_a_deleted_conversation_keeps_nobody_from_the_files(worked: Worked) -> None:
    worked.turn("1")
    worked.turn("2")
    find(conversations_folder(worked.work, worked.state), worked.talks[0]).unlink()
    assert say("undo")[0] == 0 and worked.file.read_text() == "1"
    assert say("undo")[0] == 0 and worked.file.read_text() == "0"


def edit(worked: Worked, content: str) -> None:
    """As ``vivace edit`` does it, which has no conversation."""
    taken = take_before(worked.work, worked.state, ["a.py"], f"edit a.py: make it {content}")
    assert taken is not None
    worked.file.write_text(content)


def test_an_edit_without_a_conversation_is_undone_and_done_again(worked: Worked) -> None:
    edit(worked, "1")
    edit(worked, "2")
    said = "undone: the files are as before the last vivace edit; vivace redo brings it back\n  a.py (changed)\n"
    assert say("undo") == (0, said) and worked.file.read_text() == "1"
    assert say("undo") == (0, said) and worked.file.read_text() == "0"
    assert say("undo")[0] == 3
    assert say("redo")[0] == 0 and worked.file.read_text() == "1"
    assert say("redo")[0] == 0 and worked.file.read_text() == "2"
    assert say("redo")[0] == 3
    code, told = say("checkpoints")
    assert code == 0 and "edit a.py: make it 2" in told
    number = told.split()[0]
    assert say("checkpoints", number)[0] == 0


def test_turns_and_edits_are_undone_in_their_order(worked: Worked) -> None:
    worked.turn("1")
    edit(worked, "2")
    worked.turn("3")
    first, second = worked.talks
    for content, left in (("2", ["make it 1"]), ("1", ["make it 1"]), ("0", [])):
        assert say("undo")[0] == 0
        assert (worked.file.read_text(), worked.said(first), worked.said(second)) == (content, left, [])
    assert say("undo")[0] == 3
    for content in "123":
        assert say("redo")[0] == 0 and worked.file.read_text() == content
    assert (worked.said(first), worked.said(second)) == (["make it 1"], ["make it 3"])


def test_an_edit_is_recorded_where_the_folder_is_a_workspace(tmp_path: Path) -> None:
    state, large, other = tmp_path / "state", tmp_path / "large", tmp_path / "other"
    for folder in (large, other):
        folder.mkdir()
        (folder / "a.py").write_text("1")
    for number in range(MOST_FILES):
        (large / f"{number}.txt").touch()
    assert take_before(large, state, ["a.py"], "edit") is None and not (state / "checkpoints").exists()
    assert take_before(other, state, ["../large/a.py"], "edit") is None
    assert take_before(other, state, ["a.py"], "edit") is not None
    (large / ".git").mkdir()
    assert take_before(large, state, ["a.py"], "edit") is not None
