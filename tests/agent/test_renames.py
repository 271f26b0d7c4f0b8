"""A pure rename: which instructions are one, and that nothing else comes of it, whatever the model answers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.scripted import Script, ScriptedService
from tests.tasks import task_rows
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.edit import edit, read_sources
from vivace.agent.renames import only_renamed, renamed, renamed_by_rule, renames
from vivace.agent.reply import Reply
from vivace.agent.result import EditRequest
from vivace.agent.verdict import judge
from vivace.agent.workspace import SourceFile


@pytest.mark.parametrize(
    ("instruction", "pairs"),
    [
        ("Rename insort_right to insort_after everywhere.", {"insort_right": "insort_after"}),
        ("please rename the method _unify to _merge", {"_unify": "_merge"}),
        ("Rename `a` to `b`, and update all its callers.", {"a": "b"}),
        ("Rename the CSS variable --main-color to --text-color everywhere.", {"--main-color": "--text-color"}),
        ("Rename foo to bar, baz to qux and a.b to a.c in the file", {"foo": "bar", "baz": "qux", "b": "c"}),
        ("Rename Stack.push to Stack.add. Change nothing else.", {"push": "add"}),
        ("Rename Stack::push to add", {"push": "add"}),
        ("Rename x to y; keep everything else as it is", {"x": "y"}),
        ("Rename the counter variable to total in the class Foo", {"counter": "total"}),
        ("Rename the parameter x of f to y", {"x": "y"}),
        ("The function foo should be called bar everywhere", {"foo": "bar"}),
        ("Change the name of foo() to bar()", {"foo": "bar"}),
        ("rename foo -> bar", {"foo": "bar"}),
        ("Rename the class 'Foo' to 'Bar', including in comments", {"Foo": "Bar"}),
        ("Rename a.py to b.py", {"a.py": "b.py"}),
        ("Rename foo to bar and add a docstring", {}),
        ("Rename foo to bar in f and make it faster", {}),
        ("Rename foo to bar. Then sort the list.", {}),
        ("Rename a to b", {"a": "b"}),
        ("Rename a function to compute_area", {}),
        ("Rename the function to compute_area", {}),
        ("Rename variables to snake_case", {}),
        ("Rename foo to something better", {}),
        ("Rename it to foo", {}),
        ("Rename foo to foo", {}),
        ("Rename a to b and a to c", {}),
        ("Fix the bug in rename_all", {}),
        ("", {}),
    ],
)
def test_what_is_a_pure_rename(instruction: str, pairs: dict[str, str]) -> None:
    assert renames(instruction) == pairs


BEFORE = '''def left(a):
    if a:
        return 1
    return 2


def left_most(a):
    """As left."""
    return left(a) + left(0)


x = left
'''
ASKED = "Rename left to start everywhere."


def test_the_neighbours_the_branches_and_the_blank_lines_stay() -> None:
    right = re.sub(r"\bleft\b", "start", BEFORE)
    assert renamed("a.py", BEFORE, ASKED) == right
    assert only_renamed("a.py", BEFORE, right, ASKED) == (right, "")
    wild = right.replace("left_most", "start_most").replace("return 1", "return 3").replace("\n\n\n", "\n\n")
    text, note = only_renamed("a.py", BEFORE, wild, ASKED)
    assert text == right and note == "put back 4 lines that the rename of left does not ask to change"


def test_what_was_dropped_comes_back_with_the_new_name() -> None:
    right = re.sub(r"\bleft\b", "start", BEFORE)
    text, note = only_renamed("a.py", BEFORE, right[: right.index("def left_most")], ASKED)
    assert text == right and "put back" in note


def test_what_the_answer_left_is_told() -> None:
    text, note = only_renamed("a.py", BEFORE, BEFORE.replace("def left(", "def start("), ASKED)
    assert text == BEFORE.replace("def left(", "def start(") and note == "left still stands in 3 lines"
    # One of two on a line: a parameter is renamed, its caller's variable is not.
    call = "f(x=x)\n"
    assert only_renamed("a.py", call, "f(y=x)\n", "Rename x to y in f") == ("f(y=x)\n", "x still stands in 1 line")


def test_an_answer_that_renames_nothing_is_no_edit() -> None:
    for answer in (BEFORE, BEFORE.replace("return 1", "return 3"), ""):
        text, note = only_renamed("a.py", BEFORE, answer, ASKED)
        assert text == BEFORE and "nowhere" in note
    ask = Ask(SourceFile(Path("a.py"), "a.py", BEFORE.encode()), ASKED)
    verdict = judge(ask, Attempt(reply=Reply("closed", BEFORE.replace("return 1", "return 3"))))
    assert verdict.unchanged and verdict.reason == "the answer renames left nowhere"


def test_a_comment_that_holds_the_name_is_not_told_to_be_gone() -> None:
    before = "# left is it\ndef left(a):\n    return a\n"
    ask = Ask(SourceFile(Path("a.py"), "a.py", before.encode()), ASKED)
    verdict = judge(
        ask, Attempt(reply=Reply("closed", before.replace("left", "start").replace("return a", "return 1")))
    )
    assert verdict.patch is not None and verdict.patch.text == before.replace("left", "start")
    assert verdict.note == "put back 1 line that the rename of left does not ask to change"


def test_a_name_that_is_not_there() -> None:
    after = BEFORE.replace("x = left", "y = left")
    assert only_renamed("a.py", BEFORE, after, "Rename no_such to other") == (BEFORE, "no_such does not stand in a.py")
    # A word of plain English may be no name at all.
    assert only_renamed("a.py", BEFORE, after, "Rename counters to ticks") == (after, "")


@pytest.mark.parametrize(
    ("name", "before", "instruction", "right"),
    [
        ("a.css", "a{--m:1;--m-dark:2;color:var(--m)}\n", "Rename --m to --t", "a{--t:1;--m-dark:2;color:var(--t)}\n"),
        ("a.css", ".m{}\n.m-x{}\nm{}\ndiv.m{}\n", "Rename .m to .t", ".t{}\n.m-x{}\nm{}\ndiv.t{}\n"),
        ("a.yaml", "web:\n  x: 1\nweb-2:\n  on: web\n", "Rename web to app", "app:\n  x: 1\nweb-2:\n  on: app\n"),
        ("a.py", "a_b = a-b\n", "Rename a to c", "a_b = c-b\n"),
        ("a.js", "let $a = a, a1 = 2;\n", "Rename a to c", "let $a = c, a1 = 2;\n"),
        ("a.sh", "a=1\necho $a ${a}x\n", "Rename $a to $c", "c=1\necho $c ${c}x\n"),
        ("a.php", "<?php $a = a(1);\n", "Rename $a to $c", "<?php $c = a(1);\n"),
        ("a.rb", "@a = a\n", "Rename @a to @c", "@c = a\n"),
        ("a.py", "a, b = b, a\n", "Rename a to b and b to a", "b, a = a, b\n"),
        ("a.go", "func A() { A2(); A() }\n", "Rename A to B", "func B() { A2(); B() }\n"),
    ],
)
def test_names_are_whole_words_of_the_language(name: str, before: str, instruction: str, right: str) -> None:
    assert renamed(name, before, instruction) == right
    assert only_renamed(name, before, right, instruction) == (right, "")


LINES = st.lists(
    st.sampled_from(
        ["def old(x):", "    return old + new", "new", "", "", "    if x:", "oldest", "y = 1", "old", "# old, old"]
    ),
    min_size=1,
    max_size=15,
)


@given(LINES, st.data())
def test_whatever_comes_only_names_change(before: list[str], data: st.DataObject) -> None:
    after = [re.sub(r"\bold\b", "new", line) if data.draw(st.booleans()) else line for line in before]
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(after)))
        after[at : at + data.draw(st.integers(0, 3))] = data.draw(LINES)
    one, other = ("\n".join(lines) + "\n" for lines in (before, after))
    text, _ = only_renamed("a.py", one, other, "Rename `old` to `new` everywhere.")
    assert len(text.split("\n")) == len(one.split("\n"))
    for was, now in zip(one.split("\n"), text.split("\n"), strict=True):
        known = re.split(r"\b(old|new)\b", was)
        assert re.fullmatch("".join("(old|new)" if part == "old" else re.escape(part) for part in known), now)


@given(LINES, st.data())
def test_a_right_answer_is_taken_as_it_is(before: list[str], data: st.DataObject) -> None:
    after = [re.sub(r"\bold\b", "new", line) if data.draw(st.booleans()) else line for line in before]
    one, other = ("\n".join(lines) + "\n" for lines in (before, after))
    text, note = only_renamed("a.py", one, other, "Rename old to new")
    assert text == other and "put back" not in note


def test_a_rename_is_drafted_with_the_new_names() -> None:
    source = SourceFile(Path("a.py"), "a.py", BEFORE.encode())
    drafted = Ask(source, ASKED).request("m").prediction
    assert drafted is not None and drafted.content == f"```python\n{renamed('a.py', BEFORE, ASKED)}```"
    plain = Ask(source, "fix it").request("m").prediction
    assert plain is not None and plain.content == f"```python\n{BEFORE}```"


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_task_is_taken_for_a_rename_that_it_is_not(name: str) -> None:
    for task in task_rows(name):
        found = only_renamed(task["path"], task["before"], task["reference"], task["instruction"])
        assert found == (task["reference"], ""), task["id"]


@pytest.mark.parametrize(
    ("text", "instruction", "after"),
    [
        ("def load():\n    return load\n", "rename load to read", "def read():\n    return read\n"),
        ("def load(read):\n    return read\n", "rename load to read", ""),
        ("def save():\n    pass\n", "rename `load` to `read`", ""),
        ("def load():\n    pass\n", "rename load to read and make it faster", ""),
        ("def load():\n    pass\n", "make load faster", ""),
    ],
)
def test_what_is_renamed_by_rule(text: str, instruction: str, after: str) -> None:
    assert renamed_by_rule("a.py", text, instruction) == after


def test_a_rename_that_the_model_does_not_do_is_done_by_rule_and_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def load():\n    return 1\n\n\nx = load()\n")
    request = EditRequest(["a.py"], "Rename load to read_all.", "m", root=tmp_path)
    cut = Script("```python\ndef read_all", end="incomplete")
    for answer in (Script.file((tmp_path / "a.py").read_text()), Script("No."), cut):
        service = ScriptedService([answer])
        result = asyncio.run(edit(service, request, read_sources(request), lambda event: None))
        assert result.status == "changed" and len(service.requests) == 1
        assert result.patches[0].text == "def read_all():\n    return 1\n\n\nx = read_all()\n"
        assert "by rule" in result.files[0].reason and "load to read_all" in result.files[0].reason
