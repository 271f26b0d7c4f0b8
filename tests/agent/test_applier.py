"""The applier: exact bytes for what was not edited, the smallest diff for what was."""

from __future__ import annotations

import difflib
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.applier import make_patch
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.linediff import diff, matches
from vivace.agent.reply import ReplyParser
from vivace.agent.verdict import judge
from vivace.agent.workspace import BOM, SourceFile, split_lines

LINE = st.text(st.sampled_from(["a", "b", " ", "\t", "é", "\x0b", "\x0c", "\x85", "\u2028", "x", "🦀"]), max_size=4)
LINES = st.lists(LINE, max_size=12)


@st.composite
def sources(draw: st.DrawFn) -> SourceFile:
    lines = draw(LINES)
    ends = [draw(st.sampled_from(["\n", "\r\n"])) for _ in lines]
    if lines and lines[-1] and draw(st.booleans()):
        ends[-1] = ""
    body = "".join(line + end for line, end in zip(lines, ends, strict=True))
    return make(draw(st.sampled_from(["", BOM])) + body)


@st.composite
def edits(draw: st.DrawFn) -> tuple[SourceFile, list[str]]:
    source = draw(sources())
    lines = list(source.lines)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 2))] = draw(st.lists(LINE, max_size=2))
    return source, lines


def make(text: str, name: str = "f.txt") -> SourceFile:
    return SourceFile(Path(name), name, text.encode())


def joined(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


@given(sources())
def test_an_edit_that_changes_nothing_keeps_every_byte(source: SourceFile) -> None:
    for keep in (False, True):
        patch = make_patch(source, source.text, keep_trailing_space=keep)
        assert (patch.data, patch.diff, patch.lines_changed) == (source.raw, "", 0)


@given(sources())
def test_an_answer_that_copies_the_file_is_no_change(source: SourceFile) -> None:
    ask = Ask(source, "do something")
    parser = ReplyParser(ask.fence)
    parser.feed(ask.block)
    verdict = judge(ask, Attempt(reply=parser.finish()))
    assert verdict.unchanged


@given(edits())
def test_the_result_is_the_new_text_under_the_newlines_of_the_file(edit: tuple[SourceFile, list[str]]) -> None:
    source, lines = edit
    after = make(make_patch(source, joined(lines)).data.decode())
    assert after.bom == source.bom
    if source.raw_lines and not source.final_newline and lines and not lines[-1]:
        lines.pop()  # an empty last line without an end is no line
    assert after.lines == lines
    if lines and source.raw_lines and (source.final_newline or lines[-1]):
        assert after.final_newline == (source.final_newline or after.raw_lines[-1].endswith("\n"))


@given(edits())
def test_untouched_lines_keep_their_bytes_and_new_ones_get_the_prevailing_end(
    edit: tuple[SourceFile, list[str]],
) -> None:
    source, lines = edit
    patch = make_patch(source, joined(lines))
    after = make(patch.data.decode()).raw_lines
    changed = diff(source.lines, lines)
    at = 0
    kept: list[tuple[int, int]] = []
    j = 0
    for i1, i2, j1, j2 in changed:
        kept += zip(range(at, i1), range(j, j1), strict=True)
        at, j = i2, j2
    kept += zip(range(at, len(source.lines)), range(j, len(lines)), strict=True)
    edge = {len(source.raw_lines) - 1}
    for i, k in kept:
        if i not in edge and k != len(lines) - 1:
            assert after[k] == source.raw_lines[i]
    for _, _, j1, j2 in changed:
        for k in range(j1, min(j2, len(lines) - 1)):
            assert after[k] == lines[k] + source.newline


@given(st.lists(st.sampled_from("abcd"), max_size=14), st.lists(st.sampled_from("abcd"), max_size=14))
@settings(max_examples=300)
def test_no_diff_is_smaller(old: list[str], new: list[str]) -> None:
    found = matches(old, new)
    assert all(old[i] == new[j] for i, j in found)
    assert found == sorted(set(found)) and [j for _, j in found] == sorted({j for _, j in found})
    assert len(found) == longest(old, new)
    theirs = difflib.SequenceMatcher(None, old, new, autojunk=False)
    assert len(found) >= sum(match.size for match in theirs.get_matching_blocks())
    rebuilt, at = [], 0
    for i1, i2, j1, j2 in diff(old, new):
        rebuilt += [*old[at:i1], *new[j1:j2]]
        at = i2
    assert rebuilt + old[at:] == new


def longest(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        previous = 0
        for j, y in enumerate(b):
            previous, row[j + 1] = row[j + 1], previous + 1 if x == y else max(row[j + 1], row[j])
    return row[-1]


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@given(edits())
@settings(max_examples=40, deadline=None)
def test_git_applies_the_diff_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, edit: tuple[SourceFile, list[str]]
) -> None:
    source, lines = edit
    patch = make_patch(source, joined(lines))
    if not patch.diff or not source.raw_lines or not patch.new:
        return  # git wants other headers for files that appear or vanish
    folder = tmp_path_factory.mktemp("git")
    (folder / "f.txt").write_bytes(source.raw)
    command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
    subprocess.run(command, cwd=folder, input=patch.diff.encode(), check=True, capture_output=True)
    assert (folder / "f.txt").read_bytes() == patch.data


def test_trailing_blanks_that_a_model_drops_are_no_change() -> None:
    source = make("a  \nb\t\r\n\t\nc\n")
    patch = make_patch(source, "a\nb\n\nd\n", keep_trailing_space=True)
    assert patch.data == b"a  \nb\t\r\n\t\nd\n"
    assert patch.lines_changed == 1


def test_an_insertion_is_told_where_a_reader_expects_it() -> None:
    before = "def a():\n    return 1\n\n\ndef c():\n    return 1\n"
    after = "def a():\n    return 1\n\n\ndef b():\n    return 1\n\n\ndef c():\n    return 1\n"
    (block,) = diff(split_lines(before), split_lines(after))
    assert split_lines(after)[block.j1 : block.j2] == ["def b():", "    return 1", "", ""]


def test_thousands_of_lines_are_fast() -> None:
    rng = random.Random(3)
    old = [f"line {rng.randrange(400)}" for _ in range(6000)]
    new = list(old)
    for _ in range(60):
        new[rng.randrange(len(new))] = f"new {rng.random()}"
    hopeless = [f"line {rng.randrange(400)}" for _ in range(6000)]
    start = time.perf_counter()
    assert sum(block.lines for block in diff(old, new)) <= 60
    diff(old, hopeless)
    assert time.perf_counter() - start < 5
