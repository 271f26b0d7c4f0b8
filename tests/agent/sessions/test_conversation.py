"""A conversation loses nothing that it acknowledged, reads what was torn, damaged or older, and has one writer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.sessions import (
    Compaction,
    Conversation,
    Items,
    Mode,
    Note,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
    User,
)
from vivace.agent.sessions.entries import VERSION, decode_entry, encode_entry
from vivace.errors import UsageError, VivaceError

ITEM = b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Done.\\n"}],"new":1.50,"id":"m"}'


def made(folder: Path) -> Conversation:
    return Conversation.create(folder, folder)


def texts(conversation: Conversation) -> list[str]:
    return [entry.data.text for entry in conversation.path() if isinstance(entry.data, User | Note)]


def test_everything_comes_back_as_it_was_written(tmp_path: Path) -> None:
    data = [
        User("fix\nit \ud7ff €", "sent", ("a.py",)),
        Items((msgspec.Raw(ITEM),), "resp_1"),
        ToolCall("c", "shell", '{"cmd": "ls"}'),
        ToolResult("c", "a\x00b\u2028c", False, 0.25),
        Mode("deep", "coder-0.5b", "several files"),
        Compaction("so far", ("tests are in tests/",)),
        Usage(10, 5, 3, 0.5, 0.01, {"hours": 0.25}),
        Note(""),
    ]
    with made(tmp_path) as conversation:
        ids = [conversation.append(entry) for entry in data]
        assert not list(tmp_path.glob("*.new")) and conversation.leaf == ids[-1]
    with Conversation.open(conversation.path_of_file) as again:
        assert [entry.data for entry in again.path()] == data
        assert [entry.id for entry in again.path()] == ids
        assert bytes(again.entry(ids[1]).data.items[0]) == ITEM  # type: ignore[union-attr]
        assert again.header.version == VERSION and again.leaf == ids[-1] and again.title == "fix"


def test_nothing_said_leaves_nothing(tmp_path: Path) -> None:
    made(tmp_path).close()
    assert not list(tmp_path.glob("*.jsonl"))


def test_items_written_over_lines_stay_one_line() -> None:
    raw = msgspec.Raw(b'{\n  "z": 1.50,\r\n  "a": "x\\ny", "big": 12345678901234567890123\n}')
    entry = msgspec.structs.replace(
        decode_entry(b'{"id":"1","parent":null,"time":1,"kind":"note","data":{"text":""}}'), data=Items((raw,))
    )
    line = encode_entry(entry)
    assert line.count(b"\n") == 1
    assert b'{"z":1.50,"a":"x\\ny","big":12345678901234567890123}' in line


def test_a_newer_kind_is_kept(tmp_path: Path) -> None:
    line = b'{"id":"1","parent":null,"time":1.0,"kind":"dream","data":{"of":"sheep"}}\n'
    entry = decode_entry(line)
    assert isinstance(entry.data, Unknown) and entry.kind == "dream"
    assert encode_entry(entry) == line


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1), tail=st.sampled_from([b"", b"\0" * 40, b"\0" * 40 + b"\n", b'{"id": "x"}\n']))
def test_a_file_cut_anywhere_keeps_every_whole_entry_and_goes_on(
    tmp_path_factory: pytest.TempPathFactory, share: float, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    with made(folder) as conversation:
        for number in range(5):
            conversation.append(User(f"message {number}"))
        file = conversation.path_of_file
    whole = file.read_bytes()
    head = whole.index(b"\n") + 1
    cut = head + round(share * (len(whole) - head))
    entire = whole[head:cut].count(b"\n")
    file.write_bytes(whole[:cut] + tail)
    with Conversation.open(file) as again:
        assert texts(again) == [f"message {number}" for number in range(entire)]
        assert again.damaged == []
        again.append(User("and on"))
    assert file.read_bytes().startswith(
        whole[: head + sum(len(line) + 1 for line in whole[head:].split(b"\n")[:entire])]
    )
    with Conversation.open(file) as again:
        assert again.repaired == 0 and texts(again)[-1] == "and on" and len(texts(again)) == entire + 1


def test_a_damaged_line_in_the_middle_is_told_and_left(tmp_path: Path) -> None:
    with made(tmp_path) as conversation:
        ids = [conversation.append(Note(str(number))) for number in range(4)]
        file = conversation.path_of_file
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = b"#" * 20 + b"\n"
    file.write_bytes(b"".join(lines))
    with Conversation.open(file) as again:
        assert again.damaged == [3] and again.repaired == 0
        assert [entry.id for entry in again.path()] == ids[2:]
        again.append(Note("on"))
    assert file.read_bytes().startswith(b"".join(lines))


def test_branches_live_side_by_side_and_the_place_is_kept(tmp_path: Path) -> None:
    with made(tmp_path) as conversation:
        first = conversation.append(User("one"))
        old = conversation.append(User("two"))
        conversation.branch(first)
        new = conversation.append(User("three"))
        assert {entry.id for entry in conversation.leaves()} == {old, new}
        assert texts(conversation) == ["one", "three"]
        conversation.branch(old)
    with Conversation.open(conversation.path_of_file) as again:
        assert again.leaf == old and texts(again) == ["one", "two"]
        assert [entry.id for entry in again.path(new)] == [first, new]
        again.branch(None)
        assert again.path() == []
        root = again.append(User("anew"))
        assert again.entry(root).parent is None
        with pytest.raises(UsageError, match="no entry"):
            again.branch("nothing")


def test_a_fork_has_the_path_and_leaves_the_original_alone(tmp_path: Path) -> None:
    with made(tmp_path) as conversation:
        ids = [conversation.append(User(text)) for text in ("one", "two", "three")]
        conversation.set_state(ids[0], "delivered")
        conversation.set_title("A title")
        before = conversation.path_of_file.read_bytes()
        with conversation.fork(ids[1]) as fork:
            fork.append(User("else"))
            assert texts(fork) == ["one", "two", "else"]
        assert conversation.path_of_file.read_bytes() == before
    with Conversation.open(fork.path_of_file) as again:
        assert texts(again) == ["one", "two", "else"] and again.title == "A title"
        assert again.header.forked_from == (conversation.id, ids[1]) and again.id != conversation.id
        assert again.state(ids[0]).state == "delivered"


def test_every_message_has_a_state_that_is_known_after_a_crash(tmp_path: Path) -> None:
    """Messages that vanish while the agent works: openai/codex#34599."""
    conversation = made(tmp_path)
    queued, sent, failed, done = (conversation.append(User(text)) for text in ("a", "b", "c", "d"))
    conversation.set_state(sent, "sent")
    conversation.set_state(failed, "failed", "the backend is gone")
    conversation.set_state(done, "sent")
    conversation.set_state(done, "delivered")
    again = Conversation.open(conversation.path_of_file, write=False)
    assert [entry.id for entry in again.undelivered()] == [queued, sent]
    assert again.state(failed).reason == "the backend is gone"
    with pytest.raises(UsageError, match="not a message"):
        conversation.set_state(conversation.append(Note("n")), "sent")
    conversation.close()


def test_the_second_process_reads_and_follows(tmp_path: Path) -> None:
    with made(tmp_path) as conversation:
        conversation.append(User("one"))
        script = (
            "import sys; from pathlib import Path; from vivace.agent.sessions import Conversation, User\n"
            "c = Conversation.open(Path(sys.argv[1])); print(c.read_only); print(len(c.path()), flush=True)\n"
            "sys.stdin.readline(); print([e.data.text for e in c.refresh()])\n"
            "try: c.append(User('x'))\n"
            "except Exception as error: print(error.code)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", script, conversation.path_of_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline().strip() == (
            f"The conversation {conversation.id} is open in another vivace (process {os.getpid()})."
        )
        assert child.stdout.readline().strip() == "1"
        conversation.append(User("two"))
        out, _ = child.communicate("go\n", timeout=30)
        assert out.splitlines() == ["['two']", "read_only"]
    with Conversation.open(conversation.path_of_file) as again:
        assert again.read_only == "" and texts(again) == ["one", "two"]


def test_a_write_that_fails_leaves_whole_lines(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from vivace.agent.sessions import Conversation, User\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "c = Conversation.create(Path(sys.argv[1]), Path(sys.argv[1])); c.append(User('one'))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))\n"
        "try: c.append(User('x' * 5000))\n"
        "except Exception as error: print(error.code)\n"
        "c.append(User('two'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    assert done.stdout.strip() == "write_failed"
    [file] = tmp_path.glob("*.jsonl")
    with Conversation.open(file) as again:
        assert texts(again) == ["one", "two"] and again.repaired == 0


VERSION_1 = """\
{"version":1,"id":"20250101-000000-aa","workspace":"/w","created":1735689600000}
{"id":"a","parent":null,"time":1735689601500,"type":"user","data":{"text":"Fix the bug"}}
{"id":"b","parent":"a","time":1735689602000,"type":"items","data":{"items":[{"type":"message","x":1.0}]}}
{"id":"c","parent":"b","time":1735689603000,"type":"note","data":{"text":"stopped"}}
"""


@pytest.mark.parametrize("write", [True, False])
def test_version_1_is_read_and_upgraded_when_it_is_gone_on_with(tmp_path: Path, write: bool) -> None:
    file = tmp_path / "20250101-000000-aa.jsonl"
    file.write_text(VERSION_1 + '{"id":"torn', encoding="utf-8")
    with Conversation.open(file, write=write) as conversation:
        assert [entry.kind for entry in conversation.path()] == ["user", "items", "note"]
        assert conversation.entry("a").time == 1735689601.5 and conversation.header.created == 1735689600
        assert conversation.state("a").state == "delivered"
        if write:
            conversation.append(User("more"))
    if write:
        assert file.read_bytes().startswith(b'{"version":2,')
        with Conversation.open(file) as again:
            assert texts(again) == ["Fix the bug", "stopped", "more"]
    else:
        assert file.read_text(encoding="utf-8").startswith(VERSION_1)


def test_what_is_no_conversation_or_newer_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with pytest.raises(UsageError, match="There is no conversation x"):
        Conversation.open(file)
    for content in (b"", b"nothing", b"[1]\n", b'{"version":"2"}\n', b'{"version":2}\n'):
        file.write_bytes(content)
        with pytest.raises(VivaceError) as broken:
            Conversation.open(file)
        assert broken.value.code == "conversation_broken" and file.read_bytes() == content
    file.write_bytes(b'{"version":99,"id":"x","workspace":"/","created":1}\n')
    with pytest.raises(VivaceError, match="newer vivace"):
        Conversation.open(file)
