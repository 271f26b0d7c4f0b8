"""The parts of a turn by themselves: the inbox on disk, what the model sees, checks, guides, measured figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.sessions import Compaction, Conversation, Items, Note, ToolCall, ToolResult, User
from vivace.agent.tools.clip import estimate
from vivace.agent.turns.checks import Check, Kind, affordable, find_checks, related_tests, seconds_of
from vivace.agent.turns.history import CUT_OFF, ENDED, NOT_BEGUN, history, open_calls, unfinished
from vivace.agent.turns.inbox import Inbox
from vivace.agent.turns.measured import PATIENCE, Measured
from vivace.agent.turns.prompts import GUIDE_TOKENS, MAX_GUIDE, edit_rules, guides
from vivace.agent.turns.waiting import Waiting, WaitingFile
from vivace.protocol.contracts import ModelCard
from vivace.protocol.items import FunctionCall, FunctionCallOutput, Message, encode


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation.create(tmp_path / "talk", tmp_path) as conversation:
        yield conversation


def calls(*names: str) -> Items:
    return Items(tuple(msgspec.Raw(encode(FunctionCall(name, "shell", "{}"))) for name in names), f"resp_{names[0]}")


def test_every_call_has_an_output_whatever_was_cut_off(talk: Conversation) -> None:
    talk.append(User("go", "sent"))
    talk.append(calls("a", "b", "c"))
    talk.append(ToolCall("a", "shell", "{}"))
    talk.append(ToolResult("a", "fine"))
    begun = talk.append(ToolCall("b", "shell", "{}"))
    found = history(talk)
    outputs = {item.call_id: item.output for item in found.items if isinstance(item, FunctionCallOutput)}
    assert outputs == {"a": "fine", "b": CUT_OFF, "c": NOT_BEGUN}
    assert open_calls(talk) == {"b": begun} and unfinished(talk)
    assert [type(item).__name__ for item in found.after("resp_a") or []] == ["FunctionCallOutput"] * 3
    talk.append(Note(f"{ENDED}: stopped by the user"))
    assert not unfinished(talk)


KINDS = ["user", "failed", "calls", "begin", "result", "note", "compact", "back"]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.sampled_from(KINDS), max_size=25))
def test_the_model_always_sees_a_sound_request(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    with Conversation.create(tmp_path_factory.mktemp("talk"), Path("/w")) as talk:
        open_names: list[str] = []
        for n, step in enumerate(steps):
            match step:
                case "user":
                    talk.append(User(f"u{n}", "delivered"))
                case "failed":
                    talk.set_state(talk.append(User(f"lost{n}", "sent")), "failed")
                case "calls":
                    open_names = [f"c{n}x", f"c{n}y"]
                    talk.append(calls(*open_names))
                case "begin" if open_names:
                    talk.append(ToolCall(open_names[0], "shell", "{}"))
                case "result" if open_names:
                    talk.append(ToolResult(open_names.pop(0), "out"))
                case "note":
                    talk.append(Note("mind this"))
                case "compact" if talk.path():
                    kept = [entry.id for entry in talk.path() if isinstance(entry.data, Items | User)]
                    talk.append(Compaction("short", ("fact",), kept[-1] if kept else ""))
                case "back" if talk.path():
                    path = talk.path()
                    talk.branch(path[len(path) // 2].id)
        items = history(talk).items
        asked = [item.call_id for item in items if isinstance(item, FunctionCall)]
        given_back = [item.call_id for item in items if isinstance(item, FunctionCallOutput)]
        assert sorted(asked) == sorted(given_back) and len(set(asked)) == len(asked)
        waiting: set[str] = set()
        for item in items:
            if isinstance(item, FunctionCall):
                waiting.add(item.call_id)
            elif isinstance(item, FunctionCallOutput):
                waiting.remove(item.call_id)
            else:
                assert not waiting, "a message between a call and its output"
        assert not any("lost" in item.text for item in items if isinstance(item, Message))


def test_waiting_messages_are_on_disk_and_taken_once(tmp_path: Path, talk: Conversation) -> None:
    inbox = Inbox(talk)
    inbox.put("one", "queue", ("a.py",))
    inbox.put("two", "steer")
    again = Inbox(talk)
    assert [(letter.text, letter.verb, letter.files) for letter in again.waiting] == [
        ("one", "queue", ("a.py",)),
        ("two", "steer", ()),
    ]
    assert [letter.text for letter in again.take_steers()] == ["two"]
    assert [letter.text for letter in Inbox(talk).waiting] == ["one"]
    again.give_back()
    assert not talk.path_of_file.with_suffix(".waiting").exists()


@pytest.mark.parametrize(("users", "expected"), [(3, ["taken", "left"]), (4, ["left"])])
def test_a_crash_while_messages_are_taken_neither_loses_nor_doubles(
    tmp_path: Path, users: int, expected: list[str]
) -> None:
    """Before and after the conversation had them."""
    file = WaitingFile(tmp_path / "x.waiting")
    file.save([Waiting("left", "queue")], [Waiting("taken", "queue")], users=3)
    assert [waiting.text for waiting in WaitingFile(tmp_path / "x.waiting").load(users)] == expected


def test_guides_are_those_of_the_folders_on_the_way_and_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "AGENTS.md").write_text("top")
    (tmp_path / "a" / "CLAUDE.md").write_text("middle")
    (tmp_path / "a" / "b" / "AGENTS.md").write_text("line\n" * MAX_GUIDE)
    (tmp_path / "secret").write_text("s")
    found = guides(tmp_path, ["a/b", "../../etc"])
    assert [name for name, _ in found] == ["a/b/AGENTS.md"]  # the nearest has the room
    assert found[0][1].endswith("[... cut]") and len(found[0][1]) < MAX_GUIDE + 20
    assert guides(tmp_path, ["a"]) == [("AGENTS.md", "top"), ("a/CLAUDE.md", "middle")]
    (tmp_path / "AGENTS.md").unlink()
    (tmp_path / "AGENTS.md").symlink_to("/etc/hostname")
    assert guides(tmp_path) == []


@given(window=st.integers(0, 40_000), lines=st.integers(0, 3000), wide=st.sampled_from(["x", "word ", "äöü"]))
def test_rules_for_an_edit_keep_to_their_share_of_the_window(
    tmp_path_factory: pytest.TempPathFactory, window: int, lines: int, wide: str
) -> None:
    root = tmp_path_factory.mktemp("rules")
    (root / "AGENTS.md").write_text(f"{wide * 7}\n" * lines)
    text = edit_rules(root, "a/b.py", ModelCard("m-7b", window, "", False), estimate)
    assert estimate(text) <= min(GUIDE_TOKENS, window // 8)
    assert bool(text) or not lines or window < 2400
    assert edit_rules(root, "a/b.py", ModelCard("m-1.5b", window, "", False), estimate) == ""


def test_checks_are_found_and_never_made_up(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "core.py").write_text("def f():\n    return 1\n")
    (tmp_path / "pkg" / "docs.py").write_text('"""\n>>> 1\n1\n"""\n')
    (tmp_path / "tests" / "test_core.py").touch()
    (tmp_path / "tests" / "test_all.py").write_text("from pkg import core\n")
    (tmp_path / "tests" / "test_else.py").write_text("import os\n")
    known = ["pkg/__init__.py", "pkg/core.py", "pkg/docs.py", *(f"tests/test_{n}.py" for n in ("all", "core", "else"))]
    assert related_tests(tmp_path, ["pkg/core.py"], known) == ["tests/test_all.py", "tests/test_core.py"]
    assert [check.kind for check in find_checks(tmp_path, ["pkg/core.py"], known)] == ["tests"]
    assert [check.key for check in find_checks(tmp_path, ["pkg/docs.py"], known)] == ["doctest pkg/docs.py"]
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n[tool.mypy]\n")
    kinds = [check.kind for check in find_checks(tmp_path, ["pkg/core.py"], known)]
    assert kinds == ["lint", "tests", "types"]
    assert find_checks(tmp_path, ["README.md"], known) == []


def test_measured_figures_are_kept_and_a_broken_file_is_started_anew(tmp_path: Path) -> None:
    book = Measured(tmp_path / "measured.json")
    assert book.seconds("mypy") is None
    book.took("mypy", 4.0)
    book.took("mypy", 8.0)
    for _ in range(2):
        book.tool_use("tiny", well=False)
    again = Measured(tmp_path / "measured.json")
    assert again.seconds("mypy") == 6.0
    assert again.fails_with_tools("tiny") and not again.fails_with_tools("other")
    (tmp_path / "measured.json").write_text(json.dumps([1]))
    assert Measured(tmp_path / "measured.json").seconds("mypy") is None


def test_a_check_that_took_too_long_once_is_tried_again_another_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("vivace.agent.turns.measured.time.time", lambda: now)
    check = Check("tests", "pytest test_a.py", ("pytest",))

    def runs(room: float = 30.0) -> bool:
        return bool(affordable([check], Measured(tmp_path / "measured.json"), room).checks)

    book = Measured(tmp_path / "measured.json")
    book.gave_up(check.key, 30.0)
    assert book.seconds(check.key) is None, "that it was ended says nothing about how long it takes"
    assert not runs() and runs(60.0)
    now += PATIENCE + 1
    assert runs()
    Measured(tmp_path / "measured.json").took(check.key, 29.0)
    assert runs() and not runs(25.0)
    now += PATIENCE + 1
    assert runs(25.0)
    book = Measured(tmp_path / "measured.json")
    book.took(check.key, 3.0)
    assert book.seconds(check.key) == 3.0


@given(
    kinds=st.lists(st.sampled_from(["lint", "types", "doctest", "tests"]), max_size=8),
    room=st.floats(0, 60),
    data=st.data(),
)
def test_checks_that_fit_are_never_left_out_and_never_take_longer(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[Kind], room: float, data: st.DataObject
) -> None:
    book = Measured(tmp_path_factory.mktemp("book") / "measured.json")
    checks = [Check(kind, f"{kind} {n}", ()) for n, kind in enumerate(kinds)]
    for check in data.draw(st.lists(st.sampled_from(checks), unique=True)) if checks else []:
        book.took(check.key, data.draw(st.floats(0, 40)))
    choice = affordable(checks, book, room)
    assert sorted(one.key for one in [*choice.checks, *choice.left_out]) == sorted(check.key for check in checks)
    assert choice.seconds == pytest.approx(sum(seconds_of(check, book) for check in choice.checks))
    assert choice.seconds <= room
    assert all(choice.seconds + seconds_of(check, book) > room for check in choice.left_out)
    assert choice.guessed == any(book.seconds(check.key) is None for check in choice.checks)
