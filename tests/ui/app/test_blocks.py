"""Rows of text that grows: nothing is dropped, nothing is looked at twice, and pieces end as the whole would."""

from __future__ import annotations

import random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.color import Color

from vivace.agent.turns import events as ev
from vivace.ui.app.blocks import answer as answer_module
from vivace.ui.app.blocks.answer import Answer
from vivace.ui.app.blocks.base import Block
from vivace.ui.app.blocks.diff import LiveEdit, Proposal
from vivace.ui.app.blocks.markdown import Splitter
from vivace.ui.app.blocks.stream import Stream
from vivace.ui.app.blocks.thought import Thought
from vivace.ui.app.blocks.tool import KEPT, ToolCall
from vivace.ui.app.blocks.user import UserMessage
from vivace.ui.app.look import DARK, Look
from vivace.ui.app.mentions import near
from vivace.ui.app.pump import joined
from vivace.ui.app.wrapping import Growing, printable, shortened, wrap

TEXT = st.text(st.sampled_from("ab  c\n日é\t`*#-1."), max_size=200)
LOOK = Look(DARK, Color.parse("#000000"))


def cut(text: str, seed: int) -> list[str]:
    """``text`` in pieces of random lengths."""
    chance = random.Random(seed)
    pieces = []
    while text:
        n = chance.randint(1, 7)
        pieces.append(text[:n])
        text = text[n:]
    return pieces


def shown(block: Block) -> list[str]:
    return [row.text.rstrip() for row in block.rows]


@given(TEXT, st.integers(2, 30))
def test_wrapped_rows_are_the_line_and_fit(text: str, width: int) -> None:
    line = printable(text).replace("\n", " ")
    rows = wrap(line, width)
    assert "".join(rows) == line
    assert all(cell_len(row.rstrip(" ")) <= width for row in rows)
    assert cell_len(shortened(line, width)) <= width


@given(TEXT, st.integers(2, 30), st.integers(0, 99))
def test_text_in_pieces_is_wrapped_as_the_whole_is(text: str, width: int, seed: int) -> None:
    growing = Growing(width)
    rows = [row for piece in cut(printable(text), seed) for row in growing.feed(piece)]
    assert [*rows, growing.rest] == [row for line in printable(text).split("\n") for row in wrap(line, width)]


@given(TEXT, st.integers(10, 40), st.integers(0, 99))
@settings(max_examples=60)
def test_an_answer_in_pieces_ends_as_the_whole_does(text: str, width: int, seed: int) -> None:
    whole, pieces = Answer(), Answer()
    whole.feed(text)
    whole.finish()
    whole.lay(width, LOOK)
    pieces.lay(width, LOOK)
    for piece in cut(text, seed):
        pieces.feed(piece)
    pieces.finish()
    assert shown(pieces) == shown(whole) and pieces.plain() == text
    pieces.lay(width + 5, LOOK)
    pieces.lay(width, LOOK)
    assert shown(pieces) == shown(whole)


def test_the_terminal_is_not_the_bottleneck() -> None:
    """Complaint 27: the whole message was parsed again for each delta."""
    block = Answer()
    block.lay(80, LOOK)
    fed = 0
    with mock.patch.object(answer_module, "rows_of", side_effect=answer_module.rows_of) as render:
        with mock.patch("vivace.ui.app.wrapping.wrap", side_effect=wrap) as wrapped:
            for n in range(3000):
                piece = f"word{n} " if n % 10 else f"word{n}\n\n" if n % 100 == 0 else f"word{n}\n"
                fed += len(piece)
                block.feed(piece)
            looked_at = sum(len(call.args[0]) for call in wrapped.call_args_list)
        parsed = sum(len(call.args[0]) for call in render.call_args_list)
    assert parsed <= fed  # each closed block once
    assert looked_at < 80 * 3000  # never more than the last row with what is new


def test_a_very_long_block_stays_plain_and_whole() -> None:
    block = Answer()
    block.lay(80, LOOK)
    lines = [f"line {n}" for n in range(1000)]
    block.feed("```python\n" + "\n".join(lines) + "\n```\nafter")
    block.finish()
    assert [line for line in shown(block) if "line" in line] == [f"  {line}" for line in lines]


@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        (["a", "b", "", "c"], ["", "", "after", ""]),
        (["a", "```py", "", "x", "```"], ["", "before", "", "", "after"]),
        (["- a", "", "- b", "", "  more", "", "text"], ["", "", "", "", "", "", "before"]),
        (["~~~~", "~~~", "```", "~~~~"], ["", "", "", "after"]),
    ],
)
def test_where_a_block_of_markdown_ends(lines: list[str], verdicts: list[str]) -> None:
    splitter = Splitter()
    assert [splitter.line(line) for line in lines] == verdicts


def test_markdown_is_rendered_once_it_is_closed() -> None:
    block = Answer()
    block.lay(40, LOOK)
    block.feed("Some **bold")
    assert shown(block) == ["  Some **bold"]
    block.feed("** text\n\n```\ncode\n")
    assert shown(block) == ["  Some bold text", "", "  ```", "  code"]
    block.feed("```\n1. one\n\n2. two\n")
    block.finish()
    assert shown(block) == ["  Some bold text", "", "  code", "", "   1 one", "   2 two"]


def test_what_drives_a_terminal_is_shown_as_pictures() -> None:
    block = Stream()
    block.lay(40, LOOK)
    block.feed("\x1b[31mred\x07")
    assert shown(block) == ["  ␛[31mred␇"]


def test_a_thought_folds_when_it_has_ended() -> None:
    block = Thought()
    block.lay(40, LOOK)
    block.feed("one two three\nfour")
    assert len(block.rows) == 2
    block.finish()
    assert shown(block) == ["▸ thought, 4 words"]
    block.toggle()
    assert shown(block) == ["  one two three", "  four"]


def test_output_shows_its_end_and_lets_go_of_what_is_far_back() -> None:
    block = ToolCall("shell", "make " + "x" * 200)
    block.lay(60, LOOK)
    for n in range(KEPT * 2):
        block.feed(f"line {n}\n")
    assert shown(block)[-1] == f"  │ line {KEPT * 2 - 1}" and len(block.rows) < 12
    block.end(True, "", 61.5, ("a.py",))
    assert all(row.cell_length == 60 for row in block.rows)
    assert shown(block)[0].endswith("61.5 s  changed a.py")
    block.toggle()
    assert len(block.rows) >= KEPT and "more lines" in shown(block)[1]


def test_a_live_edit_shows_changes_with_one_line_before_each() -> None:
    block = LiveEdit("a.py")
    block.lay(40, LOOK)
    block.feed((" one", " two", "-three", "+drei", " four", " five", "+six"))
    assert shown(block) == ["◦ a.py  6 lines, 3 changed", "    two", "  - three", "  + drei", "    five", "  + six"]


def test_a_diff_has_the_numbers_of_its_lines() -> None:
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n@@ -9 +9 @@ def f():\n--- x\n+++ y\n"
    block = Proposal(diff, 2, 2, "syntax")
    block.lay(40, LOOK)
    assert shown(block) == [
        "  a.py", "      1   one", "      2 - two", "      2 + zwei",
        "     ⋮  def f():", "      9 - -- x", "      9 + ++ y", "  +2 -2 · syntax",
    ]  # fmt: skip
    new = Proposal("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n", 1, 0, "")
    new.lay(40, LOOK)
    assert shown(new)[0] == "  new.py (new)"


def test_every_state_of_a_message_is_shown() -> None:
    """Complaint 1: messages vanished."""
    block = UserMessage("mend it", "steer", "sent")
    block.lay(40, LOOK)
    assert shown(block) == ["» mend it", "  sent"]
    block.become("delivered", "")
    assert shown(block) == ["» mend it"]
    block.become("failed", "the server is gone")
    assert shown(block) == ["» mend it", "  not delivered: the server is gone"]


@given(st.lists(st.tuples(st.sampled_from(["said", "thought", "output", "edit", "note"]), st.text(max_size=3))))
def test_joined_events_say_the_same_in_the_same_order(parts: list[tuple[str, str]]) -> None:
    make = {
        "said": lambda text: ev.Said(text=text),
        "thought": lambda text: ev.Thought(text=text),
        "output": lambda text: ev.ToolOutput(call="c", text=text),
        "edit": lambda text: ev.Editing(path="a", lines=(text,)),
        "note": lambda text: ev.Noted(text=text),
    }
    events = [make[kind](text) for kind, text in parts]

    def flat(some: list[ev.Event]) -> list[tuple[type, str]]:
        told: list[tuple[type, str]] = []
        for event in some:
            text = "".join(event.lines) if isinstance(event, ev.Editing) else event.text  # type: ignore[attr-defined]
            told += [(type(event), letter) for letter in text]
        return told

    assert flat(joined(events)) == flat(events)
    assert flat(events) == [(type(make[kind](text)), letter) for kind, text in parts for letter in text]


def test_files_are_found_by_letters_left_out() -> None:
    paths = ["benchmarks/multi/file/build.py", "src/util.py", "src/utility/other.py", "tests/test_util.py", "README.md"]
    assert near("util", paths)[:3] == ["src/util.py", "tests/test_util.py", "src/utility/other.py"]
    assert near("utl", paths)[0] == "src/util.py"
    assert near("redme", paths) == ["README.md"]
    assert near("zzzz", paths) == []
