"""``vivace sessions``: list, export, replay and fork the conversations of a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from vivace import cli
from vivace.agent.sessions import (
    Conversation,
    Items,
    Mode,
    ToolCall,
    ToolResult,
    User,
    conversations,
    conversations_folder,
    find,
)
from vivace.ui.replay import timed
from vivace.ui.sessions_command import _paced

SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is mended."}]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "work")
    return conversations_folder(tmp_path / "work", tmp_path / "state")


@pytest.fixture
def talk(folder: Path) -> str:
    with Conversation.create(folder, Path.cwd()) as made:
        message = made.append(User("mend \x1b[31mit\nplease"))
        made.set_state(message, "delivered")
        made.append_all(
            [
                Mode("fast", "small", "one file is named"),
                ToolCall("c", "shell", '{"command":"pytest"}'),
                ToolResult("c", "line 1\nline 2\n", ok=False, seconds=1.5),
                Items((msgspec.Raw(msgspec.json.encode(SAID)),)),
            ]
        )
        late = made.append(User("again"))
        made.set_state(late, "failed", "no backend")
    return made.id


def say(*words: str) -> Result:
    app: Any = cli.app
    result = CliRunner().invoke(app, ["sessions", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_the_list(folder: Path, talk: str) -> None:
    told = say("list")
    when = time.strftime("%Y-%m-%d")
    assert told.exit_code == 0 and told.stdout.startswith(f"{talk}  {when}") and "\x1b" not in told.stdout
    assert told.stdout.endswith("    2  mend ␛[31mit\n")
    (folder / "bad.jsonl").write_bytes(b"?")
    first, second = json.loads(say("list", "--json").stdout)["conversations"]
    assert first["id"] == "bad" and "does not begin" in first["broken"]
    assert (second["id"], second["messages"], second["forked_from"], second["broken"]) == (talk, 2, None, None)
    assert "bad  " in say("list").stdout and "cannot be read" in say("list").stdout
    assert len(say("list", "--limit", "1").stdout.splitlines()) == 1


def test_a_folder_without_conversations(folder: Path) -> None:
    told = say("list")
    assert (told.exit_code, told.stdout) == (0, "") and "vivace exec begin one" in told.stderr
    assert json.loads(say("list", "--json").stdout) == {"conversations": [], "error": None}
    for verb in ("export", "replay", "fork"):
        told = say(verb, "x")
        assert (told.exit_code, told.stdout) == (2, "")
        assert told.stderr.startswith("vivace: There is no conversation in this folder yet.\nSay it in the folder")
        told = say(verb, "x", "--json")
        first = json.loads(told.stdout.splitlines()[0])
        assert told.exit_code == 2 and first.get("error", first)["code"] == "conversation_not_found"


@pytest.mark.parametrize("verb", ["export", "replay", "fork"])
def test_a_name_that_is_none_is_told_with_those_that_are(talk: str, verb: str) -> None:
    told = say(verb, f"{talk}0")
    assert told.exit_code == 2 and told.stderr.startswith(f"vivace: There is no conversation {talk}0.\nDid you mean")
    assert say(verb, "").exit_code == 2 and say(verb).exit_code == 2


def test_exports(talk: str, tmp_path: Path) -> None:
    page = say("export", talk[-6:])
    assert page.exit_code == 0 and page.stdout == say("export", talk, "--markdown").stdout
    assert "## User\n\nmend" in page.stdout and "## Assistant\n\nIt is mended." in page.stdout
    whole = json.loads(say("export", talk, "--json").stdout)
    assert whole["conversation"]["id"] == talk and whole["entries"][0]["kind"] == "user"
    told = say("export", talk, "--json", "--output", str(tmp_path / "out.json"))
    assert (told.exit_code, told.stdout) == (0, "") and json.loads((tmp_path / "out.json").read_text()) == whole
    told = say("export", talk, "--output", str(tmp_path / "out.json"))
    assert told.exit_code == 2 and "is there already" in told.stderr
    assert json.loads((tmp_path / "out.json").read_text()) == whole
    told = say("export", talk, "-o", str(tmp_path / "none" / "out.md"))
    assert told.exit_code == 1 and "cannot be written (No such file or directory)" in told.stderr
    assert say("export", talk, "--json", "--markdown").exit_code == 2


def test_a_replay_shows_what_exec_showed(talk: str) -> None:
    told = say("replay", talk)
    assert (told.exit_code, told.stdout) == (0, "It is mended.\n\n")
    assert told.stderr.splitlines() == [
        "you: mend ␛[31mit",
        "you: please",
        "fast · small · one file is named",
        "> shell pytest",
        "  | line 1",
        "  | line 2",
        "  failed, 1.5 s",
        "you: again (not delivered: no backend)",
    ]
    told = say("replay", talk, "--json")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    kinds = ["Opened", "MessageChanged", "TurnBegan", "ToolBegan", "ToolEnded", "Said", "MessageChanged", "Exited"]
    assert told.exit_code == 0 and [line["type"] for line in lines] == kinds
    assert [line.get("turn") for line in lines[1:-1]] == [1, 1, 1, 1, 1, 2]
    assert lines[0]["conversation"] == talk and lines[-1] == {"type": "Exited", "exit": 0, "undo": None}


def test_a_replay_keeps_the_pace_that_was_asked_for(folder: Path, talk: str) -> None:
    conversation = Conversation.open(find(folder, talk), write=False)
    for number, entry in enumerate(conversation.entries()):
        conversation._entries[entry.id] = msgspec.structs.replace(entry, time=100.0 + 4.0 * number)
    assert [moment for moment, _ in timed(conversation)] == [100.0, 104.0, 108.0, 112.0, 116.0, 120.0]
    assert [wait for wait, _ in _paced(conversation, 0.0)] == [0.0] * 6
    # The last one waited for a person.
    assert [wait for wait, _ in _paced(conversation, 2.0)] == [0.0, 2.0, 2.0, 2.0, 2.0, 1.0]


def test_a_fork_is_a_conversation_of_its_own(folder: Path, talk: str) -> None:
    held = Conversation.open(find(folder, talk))
    try:
        told = say("fork", talk)
    finally:
        held.close()
    new = told.stdout.strip()
    assert told.exit_code == 0 and new != talk and f"vivace --resume {new}" in told.stderr
    found = json.loads(say("fork", new, "--json").stdout)
    assert found["forked_from"] == new and found["error"] is None
    assert {summary.id for summary in conversations(folder)} == {talk, new, found["conversation"]}
    copy = Conversation.open(find(folder, found["conversation"]), write=False)
    assert copy.header.lineage == (talk, new) and len(copy.path()) == 6
