"""Conversations are listed, found by a part of their name, searched and exported."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from vivace.agent.sessions import (
    CheckpointRef,
    Compaction,
    Conversation,
    Items,
    Mode,
    Note,
    ToolCall,
    ToolResult,
    User,
    conversations,
    conversations_folder,
    find,
    search,
    to_json,
    to_markdown,
)
from vivace.errors import UsageError

ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "The Größe is 3."}]}


def items(*found: object) -> Items:
    return Items(tuple(msgspec.Raw(msgspec.json.encode(item)) for item in found))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    folder = conversations_folder(tmp_path / "work", tmp_path / "state")
    for number, text in enumerate(("\n  first question\nmore", "x" * 200)):
        with Conversation.create(folder, tmp_path / "work") as conversation:
            conversation.append(User(text))
            conversation.append(items({"type": "reasoning"}, ITEM))
        os.utime(conversation.path_of_file, (number, number))
    return folder


def test_the_list_has_titles_and_times_and_tells_what_is_broken(folder: Path) -> None:
    (folder / "bad.jsonl").write_bytes(b"?")
    broken, second, first = conversations(folder)
    assert (first.title, first.updated, first.messages, first.entries) == ("first question", 0.0, 1, 2)
    assert second.title == "x" * 79 + "…" and second.updated == 1.0
    assert broken.id == "bad" and "does not begin" in broken.broken
    assert stat.S_IMODE(second.path.stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_workspaces_are_kept_apart_by_their_real_path(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "link").symlink_to("work")
    (tmp_path / "other").mkdir()
    assert conversations_folder(tmp_path / "link", tmp_path / "state") == folder
    assert conversations(conversations_folder(tmp_path / "other", tmp_path / "state")) == []
    with pytest.raises(UsageError):
        conversations_folder(tmp_path / "none", tmp_path / "state")


def test_one_is_found_by_a_part_of_its_name(folder: Path) -> None:
    last, first = conversations(folder)
    assert find(folder) == last.path
    assert find(folder, first.id) == find(folder, first.id[-8:]) == first.path
    with pytest.raises(UsageError, match="fits"):
        find(folder, first.id[:4])
    with pytest.raises(UsageError, match="no conversation zzz"):
        find(folder, "zzz")


def test_search_finds_words_of_both_sides_whatever_their_case(folder: Path) -> None:
    hits = list(search(folder, "die GRÖSSE".removeprefix("die ")))
    assert [hit.kind for hit in hits] == ["items", "items"] and "Größe is 3" in hits[0].text
    assert [hit.kind for hit in search(folder, "first  QUESTION".replace("  ", " "))] == ["user"]
    assert list(search(folder, "reasoning")) == []
    with pytest.raises(UsageError):
        list(search(folder, " "))


def test_exports_show_the_path_and_nothing_else(tmp_path: Path) -> None:
    with Conversation.create(tmp_path, tmp_path) as conversation:
        first = conversation.append(User("Do it"))
        conversation.append(User("an abandoned branch"))
        conversation.branch(first)
        conversation.set_state(first, "failed", "no backend")
        for data in (
            CheckpointRef(3),
            Mode("deep", "m", "several files"),
            items(ITEM),
            ToolCall("c", "shell", "{}"),
            ToolResult("c", "```\nout\n```", False),
            Compaction("what was", ("fact",)),
            Note("stopped"),
        ):
            conversation.append(data)
        page = to_markdown(conversation)
        whole = json.loads(to_json(conversation))
    assert "## User (failed: no backend)\n\nDo it" in page and "abandoned" not in page
    assert "## Assistant\n\nThe Größe is 3." in page and "It failed:\n\n````\n```\nout\n```\n````" in page
    assert "- fact" in page and "> stopped" in page and "*checkpoint 3*" in page
    assert [entry["kind"] for entry in whole["entries"]][:2] == ["user", "checkpoint"]
    assert whole["entries"][0]["state"] == "failed" and whole["entries"][3]["data"]["items"] == [ITEM]
