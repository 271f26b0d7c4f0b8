"""Editing: one place or none, never a stale text, never twice, and what is written is what was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.tools.bench import call, context_for
from vivace.agent.applier import make_patch
from vivace.agent.tools.base import Context, ToolResult
from vivace.agent.tools.blocks import replace
from vivace.agent.tools.write import edit_call
from vivace.agent.workspace import SourceFile
from vivace.errors import UsageError


def opened(root: Path, name: str, text: str | bytes) -> Context:
    """A context whose model has read the file."""
    (root / name).write_bytes(text.encode() if isinstance(text, str) else text)
    context = context_for(root)
    assert call(context, "read", path=name).ok
    return context


def edit(context: Context, name: str, *pairs: tuple[str, str]) -> ToolResult:
    return call(context, "edit", path=name, edits=[{"search": a, "replace": b} for a, b in pairs])


@pytest.mark.parametrize(
    ("text", "search", "new", "result", "rung"),
    [
        ("a\nb\nc\n", "b\n", "B\n", "a\nB\nc\n", "exact"),
        ("a\nb\nc\n", "b", "B\nB2", "a\nB\nB2\nc\n", "exact"),
        ("x = f(1)\n", "f(1)", "g(2)", "x = g(2)\n", "part of a line"),
        ("xx = 1\nx = 1\n", "x = 1\n", "x = 2\n", "xx = 1\nx = 2\n", "exact"),
        ("a  \nb\n", "a\nb\n", "a\nB\n", "a  \nB\n", "trailing space"),
        ("    a\n        b\n", "a\n    b\n", "a\n    c\n", "    a\n        c\n", "indentation"),
        ("a\n  b\n", "    a\n      b\n", "    z\n      b\n", "z\n  b\n", "indentation"),
        ("\ta\n\tb\n", "    a\n    b\n", "    a\n    c\n", "\ta\n\tc\n", "indentation"),
        ("s = “x”\nt = 1\n", 's = "x"\nt = 1\n', 's = "x"\nt = 2\n', "s = “x”\nt = 2\n", "punctuation"),
        ("a\nb", "b", "", "a", "exact"),
        ("a\nb\n", "a\nb\n", "", "", "exact"),
    ],
)
def test_each_rung(text: str, search: str, new: str, result: str, rung: str) -> None:
    change = replace("f", text, search, new)
    assert (change.text, change.rung) == (result, rung)


@pytest.mark.parametrize(
    ("text", "search", "code"),
    [
        ("a\na\n", "a\n", "many_matches"),
        ("x1 x2\n", "x", "many_matches"),
        ("a \na  \n", "a", "many_matches"),
        ("  a\n    a\n", "a\n", "many_matches"),
        ("a\n  b\n", "a\nb\n", "no_match"),
        ("abcdef\n", "abcdeg\n", "no_match"),
        ("a\n", " \n", "empty_search"),
        ("", "a", "no_match"),
    ],
)
def test_nothing_is_guessed(text: str, search: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        replace("f", text, search, "new")
    assert caught.value.code == code


def test_complaints_20_and_21_a_miss_shows_the_nearest_real_lines(tmp_path: Path) -> None:
    body = "".join(f"def f{n}(value):\n    return value + {n}\n\n\n" for n in range(50))
    context = opened(tmp_path, "a.py", body)
    result = edit(context, "a.py", ("def f31(val):\n    return val + 31\n", "x"))
    assert not result.ok and "125\tdef f31(value):\n126\t    return value + 31" in result.text
    assert len(result.text) < 800
    done = edit(context, "a.py", ("def f9(v):\n    pass\n", "def f31(value):\n    return value + 31\n"))
    assert "already there (line 125)" in done.text


def test_complaint_22_a_file_that_changed_or_was_never_read_is_not_edited(tmp_path: Path) -> None:
    context = opened(tmp_path, "a.py", "x = 1\ny = 2\n")
    (tmp_path / "a.py").write_text("x = 1\ny = 3\n")
    first = edit(context, "a.py", ("x = 1", "x = 5"))
    assert first.data["code"] == "stale" and "2\ty = 3" in first.text
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"
    assert edit(context, "a.py", ("x = 1", "x = 5")).ok
    assert edit(context, "a.py", ("x = 5", "x = 6")).ok  # its own edit makes nothing stale
    (tmp_path / "b.py").write_text("z\n")
    assert "was not read yet" in edit(context, "b.py", ("z", "y")).text
    assert edit(context, "b.py", ("z", "y")).ok


def test_all_edits_or_none(tmp_path: Path) -> None:
    context = opened(tmp_path, "a.txt", "a\nb\nc\n")
    result = edit(context, "a.txt", ("a", "A"), ("nope", "x"))
    assert "edit 2 of 2" in result.text and (tmp_path / "a.txt").read_text() == "a\nb\nc\n"
    result = edit(context, "a.txt", ("a", "A"), ("A\nb", "A\nB"))
    assert result.ok and result.changed == ("a.txt",) and (tmp_path / "a.txt").read_text() == "A\nB\nc\n"


def test_bytes_that_were_not_edited_stay(tmp_path: Path) -> None:
    context = opened(tmp_path, "a.txt", b"\xef\xbb\xbfone \r\ntwo\nthree\r\nfour")
    (tmp_path / "a.txt").chmod(0o751)
    assert edit(context, "a.txt", ("one\ntwo\n", "one\n2\n")).data["rungs"] == ["trailing space"]
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfone \r\n2\r\nthree\r\nfour"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o751


def test_complaint_23_the_same_lines_are_not_put_in_twice(tmp_path: Path) -> None:
    context = opened(tmp_path, "a.py", "def f():\n    return 1\n")
    add = ("    return 1\n", "    return 1\n\n\n# The end of the module.\n")
    assert edit(context, "a.py", add).ok
    again = edit(
        context, "a.py", ("# The end of the module.\n", "# The end of the module.\n# The end of the module.\n")
    )
    assert not again.ok and "are there already" in again.text
    flood = edit(context, "a.py", ("def f():", "x = call(1)\n" * 50 + "def f():"))
    assert "repeat a line 50 times" in flood.text
    (tmp_path / "big.txt").write_text("start\n")
    call(context, "read", path="big.txt")
    grown = edit(context, "big.txt", ("start", "".join(f"some line number {n}\n" for n in range(5000))))
    assert "would grow" in grown.text and (tmp_path / "big.txt").read_text() == "start\n"


def test_what_breaks_or_elides_is_refused_and_lost_comments_are_told(tmp_path: Path) -> None:
    text = "# Keep me: the reason.\nx = 1\n\n\ndef f():\n    return x\n"
    context = opened(tmp_path, "a.py", text)
    assert "would not parse (line 6" in edit(context, "a.py", ("    return x", "    return (x")).text
    assert "leaves code out" in edit(context, "a.py", ("    return x", "    # ... existing code ...")).text
    assert (tmp_path / "a.py").read_text() == text
    result = edit(context, "a.py", ("# Keep me: the reason.\nx = 1\n", "x = 2\n"))
    assert result.ok and "comment removed: # Keep me" in result.text
    assert result.data["lost_comments"] == ["# Keep me: the reason."]


def test_complaint_25_writing_over_a_file_answers_with_the_edit_that_does_the_same(tmp_path: Path) -> None:
    old = "".join(f"line {n}\nsame\n" for n in range(30))
    context = opened(tmp_path, "a.txt", old)
    new = old.replace("line 7\nsame\n", "line seven\nsame\n").replace("line 20\n", "")
    result = call(context, "write", path="a.txt", content=new)
    assert not result.ok and (tmp_path / "a.txt").read_text() == old
    arguments = json.loads(
        next(line for line in result.text.split("\n") if line.startswith("edit ")).removeprefix("edit ")
    )
    assert call(context, "edit", **arguments).ok
    assert (tmp_path / "a.txt").read_text() == new


lines = st.lists(st.sampled_from(["a", "b", "", "  c", "d d", "e"]), min_size=1, max_size=14)


@given(old=lines, new=lines)
@settings(max_examples=300, deadline=None)
def test_the_edit_that_is_offered_really_does_the_same(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str]
) -> None:
    text = "\n".join(old) + "\n"
    source = SourceFile(tmp_path_factory.getbasetemp() / "f.txt", "f.txt", text.encode())
    patch = make_patch(source, "\n".join(new) + "\n")
    if not patch.blocks:
        return
    for step in json.loads(edit_call("f.txt", patch))["edits"]:
        if not step["search"].strip():
            return  # a file of nothing but blank lines has no place to name
        try:
            text = replace("f.txt", text, step["search"], step["replace"]).text
        except UsageError as error:
            assert error.code == "many_matches"  # what one edit adds may repeat what the next one searches
            return
    assert text == patch.text


def test_new_files_are_made_and_old_ones_replaced_only_when_asked(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    result = call(context, "write", path="deep/er/a.py", content="x = 1")
    assert result.ok and (tmp_path / "deep/er/a.py").read_bytes() == b"x = 1\n"
    assert edit(context, "deep/er/a.py", ("x = 1", "x = 2")).ok  # it knows what it wrote
    assert "does not parse" in call(context, "write", path="b.py", content="def f(:").text
    (tmp_path / "c.txt").write_text("one\ntwo\n")
    assert "Read it first" in call(context, "write", path="c.txt", content="1\n", replace=True).text
    call(context, "read", path="c.txt")
    assert call(context, "write", path="c.txt", content="1\n", replace=True).ok
    assert (tmp_path / "c.txt").read_text() == "1\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.py", "c.txt", "deep"]
    assert "has this very text" in call(context, "write", path="c.txt", content="1\n").text
