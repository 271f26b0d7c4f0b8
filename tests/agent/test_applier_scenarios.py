"""Every kind of edit, byte for byte, in every dialect: a model's answer to the bytes on disk.

Each kind is one row. The answer goes the whole way: asked, read, placed, guarded, written.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.kinds import BOM, KINDS, Kind, to
from tests.agent.rendering import DIALECTS, HUNKS, Change, answer, block, source_of
from tests.agent.scripted import Script, ScriptedService
from tests.agent.tools.bench import call, context_for
from vivace.agent.edit import apply, edit, read_sources
from vivace.agent.result import EditRequest, EditResult
from vivace.errors import VivaceError


def turn(
    root: Path, dialect: str, *answers: str | Script, name: str = "f.txt", instruction: str = "do it"
) -> tuple[EditResult, ScriptedService]:
    request = EditRequest([name], instruction, "m", root=root, dialect=dialect)
    service = ScriptedService([one if isinstance(one, Script) else Script(one, chunk=61) for one in answers])
    return asyncio.run(edit(service, request, read_sources(request), lambda event: None)), service


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_kind(tmp_path: Path, kind: Kind, dialect: str) -> None:
    if dialect not in kind.dialects:
        return
    (tmp_path / kind.file).write_bytes(kind.before)
    said = answer(dialect, source_of(kind.before, kind.file), kind.changes)
    result, service = turn(tmp_path, dialect, said, name=kind.file, instruction=kind.instruction)
    assert result.status == "changed", result.files[0].reason
    assert len(service.requests) == 1, "at the first attempt"
    if dialect in HUNKS:
        assert len(result.files[0].rungs) == len(kind.changes)
        assert set(result.files[0].rungs) <= {"exact", "anchor", "end of file"}
    apply(result)
    assert (tmp_path / kind.file).read_bytes() == kind.after


def test_kinds_have_names_of_their_own() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 50


# One thing after another


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_changes_when_the_answer_repeats_what_is_there(tmp_path: Path, dialect: str) -> None:
    before = BOM + b"a  \r\nb\r\nc"
    (tmp_path / "f.txt").write_bytes(before)
    result, _ = turn(tmp_path, dialect, answer(dialect, source_of(before), [to(1, 2, "b")]))
    assert result.status == "unchanged" and result.patches == []
    apply(result)
    assert (tmp_path / "f.txt").read_bytes() == before


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_turns_on_one_file_both_land(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(b"a\r\nb\r\nc")
    for change in (to(0, 1, "A", "A2"), to(2, 3, "B")):
        apply(turn(tmp_path, dialect, answer(dialect, source_of(path.read_bytes()), [change]))[0])
    assert path.read_bytes() == b"A\r\nA2\r\nB\r\nc"


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k.name in ("mixed line ends", "no newline at the end", "a long file")]
)
def test_the_stored_diff_undoes_the_edit_to_the_byte(tmp_path: Path, kind: Kind, dialect: str) -> None:
    path = tmp_path / kind.file
    path.write_bytes(kind.before)
    result, _ = turn(tmp_path, dialect, answer(dialect, source_of(kind.before, kind.file), kind.changes))
    apply(result)
    assert path.read_bytes() == kind.after
    back = ["git", "-c", "core.autocrlf=false", "apply", "-R", "--whitespace=nowarn", "-"]
    subprocess.run(back, cwd=tmp_path, input=result.patches[0].diff.encode(), check=True, capture_output=True)
    assert path.read_bytes() == kind.before


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_diff_is_the_smallest_whatever_the_model_wrote(tmp_path: Path, dialect: str) -> None:
    before = "".join(f"line {n}\n" for n in range(30)).encode()
    (tmp_path / "f.txt").write_bytes(before)
    same = [f"line {n}" for n in range(30)]
    same[17] = "changed"
    result, _ = turn(tmp_path, dialect, answer(dialect, source_of(before), [to(5, 25, *same[5:25])]))
    assert result.lines_changed == 1 and result.patches[0].diff.count("\n-") == 1


def test_a_text_that_stands_in_two_places_is_never_guessed_at(tmp_path: Path) -> None:
    before = b"x = 1\ny\nx = 1\n"
    (tmp_path / "f.txt").write_bytes(before)
    patch = "*** Begin Patch\n*** Update File: f.txt\n@@\n-x = 1\n+x = 2\n*** End Patch"
    for dialect, said in (("search-replace", block(["x = 1"], ["x = 2"])), ("apply-patch", patch)):
        result, service = turn(tmp_path, dialect, said, said, "no")
        assert result.patches == [] and "stands in 2 places (line 1, 3" in result.files[0].reason
        assert "1\tx = 1\n2\ty" in str(service.requests[1].input) and "3\tx = 1" in str(service.requests[1].input)


# Stale: the file is not any more what the model saw

BEFORE = "".join(f"item {n}\n" for n in range(240))


@dataclass(frozen=True)
class Drift:
    """While the model answers, ``happens`` to the file."""

    name: str
    happens: Callable[[str], str]
    change: Change


def once(path: Path, data: bytes) -> Callable[[int], None]:
    """Writes the file when the first piece of the answer comes."""

    def on_chunk(n: int) -> None:
        if n == 0:
            path.write_bytes(data)

    return on_chunk


LINE = to(20, 21, "ITEM")

DRIFTS = [
    Drift("the line itself", lambda text: text.replace("item 20\n", "item twenty\n"), LINE),
    Drift("inside the range", lambda text: text.replace("item 22\n", "item x\n"), to(20, 25, "ITEM")),
    Drift("the first line of the range", lambda text: text.replace("item 20\n", "item x\n"), to(20, 25, "ITEM")),
    Drift("inside a range of 200 lines", lambda text: text.replace("item 150\n", "item x\n"), to(10, 210, "ITEM")),
    Drift("the line to insert after", lambda text: text.replace("item 19\n", "item x\n"), to(20, 20, "ITEM")),
    Drift("a twin of the line appears", lambda text: "item 20\n" + text, LINE),
    Drift("far away", lambda text: text.replace("item 200\n", "item x\n"), LINE),
    Drift("everything is indented", lambda text: "".join(f"    {line}\n" for line in text.split("\n")[:-1]), LINE),
    Drift("the line ends", lambda text: text.replace("\n", "\r\n"), LINE),
    Drift("the end", lambda text: text.removesuffix("\n"), LINE),
    Drift("all of it is gone", lambda text: "", LINE),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("drift", DRIFTS, ids=[drift.name for drift in DRIFTS])
def test_a_file_that_changed_meanwhile_is_not_written_over(tmp_path: Path, drift: Drift, dialect: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(BEFORE.encode())
    drifted = drift.happens(BEFORE).encode()
    said = answer(dialect, source_of(BEFORE.encode()), [drift.change])
    script = Script(said, chunk=61, on_chunk=once(path, drifted))
    result, _ = turn(tmp_path, dialect, script, instruction="remove and replace it")
    assert result.status == "changed"
    with pytest.raises(VivaceError) as caught:
        apply(result)
    assert caught.value.code == "changed_meanwhile" and path.read_bytes() == drifted
    assert "f.txt" in caught.value.message and caught.value.hint, "how to go on"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_change_that_was_taken_back_is_none(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(BEFORE.encode())

    def happens(n: int) -> None:
        path.write_bytes(b"something else" if n == 0 else BEFORE.encode())

    said = answer(dialect, source_of(BEFORE.encode()), [to(20, 21, "ITEM")])
    apply(turn(tmp_path, dialect, Script(said, chunk=20, on_chunk=happens))[0])
    assert path.read_text() == BEFORE.replace("item 20\n", "ITEM\n")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_without_a_change_leaves_a_file_that_changed_alone(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "f.txt"
    path.write_bytes(BEFORE.encode())
    said = answer(dialect, source_of(BEFORE.encode()), [to(20, 21, "item 20")])
    script = Script(said, chunk=61, on_chunk=once(path, b"else\n"))
    result, _ = turn(tmp_path, dialect, script)
    apply(result)
    assert result.status == "unchanged" and path.read_bytes() == b"else\n"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_asked_again_it_is_made_in_the_file_as_it_is_now(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "f.txt"
    now = BEFORE.replace("item 200\n", "item x\n")
    path.write_bytes(now.encode())
    apply(turn(tmp_path, dialect, answer(dialect, source_of(now.encode()), [to(20, 21, "ITEM")]))[0])
    assert path.read_text() == now.replace("item 20\n", "ITEM\n")


# The same of the edit tool, which is called in the middle of a conversation


@pytest.mark.parametrize(
    ("happens", "search", "code"),
    [
        (lambda text: text.replace("item 200\n", "item x\n"), "item 20\n", ""),
        (lambda text: text.replace("item 20\n", "item twenty\n"), "item 20\nitem 21\n", "no_match"),
        (lambda text: text.replace("item 22\n", "item x\n"), "item 20\nitem 21\nitem 22\nitem 23\n", "no_match"),
        (lambda text: "item 20\n" + text, "item 20\n", "many_matches"),
        (lambda text: "".join(f"\t{line}\n" for line in text.split("\n")[:-1]), "item 20\nitem 21\n", ""),
        (lambda text: text, "item 20\n", ""),
    ],
    ids=["far away", "the line itself", "inside the range", "a twin appears", "everything is indented", "nothing"],
)
def test_the_tool_refuses_what_is_stale_and_shows_the_lines(
    tmp_path: Path, happens: Callable[[str], str], search: str, code: str
) -> None:
    path = tmp_path / "f.txt"
    path.write_text(BEFORE)
    context = context_for(tmp_path)
    assert call(context, "read", path="f.txt").ok
    now = happens(BEFORE)
    path.write_text(now)
    edits = [{"search": search, "replace": search.replace("item 20", "ITEM")}]
    first = call(context, "edit", path="f.txt", edits=edits)
    if now != BEFORE:
        assert not first.ok and first.data["code"] == "stale" and path.read_text() == now
        assert "make the same call again" in first.text
        first = call(context, "edit", path="f.txt", edits=edits)
    if code:
        assert first.data["code"] == code and path.read_text() == now
    else:
        assert first.ok and path.read_text() == now.replace("item 20\n", "ITEM\n")
