"""Hunks: how answers are read and placed, what is refused, and what is asked next when nothing could be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.agent.rendering import DIALECTS, HUNKS, Change, answer, block, source_of
from tests.agent.scripted import Script, ScriptedService
from vivace.agent.edit import apply, edit, read_sources
from vivace.agent.edit_dialects.line_anchors import anchors
from vivace.agent.edit_dialects.question import HunkAsk
from vivace.agent.linediff import diff
from vivace.agent.plan import dialect_of
from vivace.agent.result import Began, EditEvent, EditRequest, EditResult, Lines
from vivace.edit_dialect import edit_dialect
from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import ModelInfo, shipped, to_toml
from vivace.protocol.contracts import ModelCard
from vivace.protocol.options import GrammarFormat

PARTS = [f"def part_{n}(x):\n    total = x + {n}\n    return total\n" for n in range(8)]
CODE = "import os\n\n\n" + "\n\n".join(part + "\n" for part in PARTS).rstrip("\n") + "\n"
MENDED = CODE.replace("x + 3", "x + 30")


class Service(ScriptedService):
    """A scripted service whose card says what the model is."""

    card = ModelCard("m", 32_768, "whole-file", takes_reference=True)

    async def open(self, model: str) -> ModelCard:
        return msgspec.structs.replace(self.card, name=model)


def turn(
    root: Path,
    scripts: Sequence[str | Script],
    dialect: str = "search-replace",
    instruction: str = "add thirty in part_3",
    *,
    text: str = CODE,
    name: str = "a.py",
    events: list[EditEvent] | None = None,
    **options: object,
) -> tuple[EditResult, Service]:
    if not (root / name).exists():
        (root / name).write_text(text)
    request = EditRequest([name], instruction, "m", root=root, dialect=dialect, **options)  # type: ignore[arg-type]
    service = Service([one if isinstance(one, Script) else Script(one) for one in scripts])
    heard = events if events is not None else []
    return asyncio.run(edit(service, request, read_sources(request), heard.append)), service


def prompts(service: Service) -> list[str]:
    assert all(isinstance(request.input, str) for request in service.requests)
    return [str(request.input) for request in service.requests]


MISS = block(["    total = x + 33", "    return totals"], ["    total = x + 30", "    return total"])
HIT = block(["    total = x + 3"], ["    total = x + 30"])


# What is asked next


def test_a_miss_is_told_once_with_the_nearest_real_lines(tmp_path: Path) -> None:
    events: list[EditEvent] = []
    result, service = turn(tmp_path, [MISS, HIT], events=events)
    first, second = prompts(service)
    assert second.startswith(first) and "the search text is not in the file" in second
    near = CODE.split("\n").index("    total = x + 3") + 1
    assert f"{near}\t    total = x + 3\n{near + 1}\t    return total" in second
    assert [request.temperature for request in service.requests] == [0.0, 0.0]
    assert result.files[0].asked == ["search-replace", "search-replace, told"]
    assert result.files[0].rungs == ("exact",) and result.files[0].patch is not None
    assert result.files[0].patch.text == MENDED
    assert "not in the file" in [event.retry for event in events if isinstance(event, Began)][1]


def test_then_the_whole_function_that_was_meant_then_the_whole_file_and_no_more(tmp_path: Path) -> None:
    function = "```python\ndef part_3(x):\n    total = x + 30\n    return total\n```"
    result, service = turn(tmp_path, [MISS, MISS, function])
    assert result.files[0].asked == ["search-replace", "search-replace, told", "whole function"]
    assert prompts(service)[2].startswith("`part_3` of a.py") and result.files[0].patch is not None
    assert result.files[0].patch.text == MENDED and result.files[0].rungs == ()

    broken = "```python\ndef part_3(x:\n```"
    result, service = turn(tmp_path, [MISS, MISS, broken, f"```python\n{MENDED}```"])
    assert result.files[0].asked[3] == "whole file" == result.files[0].dialect
    assert result.status == "changed" and prompts(service)[3].startswith(f"a.py:\n```python\n{CODE}```")

    result, service = turn(tmp_path, [MISS, MISS, broken, broken, HIT])
    assert result.status == "refused" and len(service.requests) == 4
    assert "not in the file" in result.files[0].reason and "does not parse" in result.files[0].reason
    apply(result)
    assert (tmp_path / "a.py").read_text() == CODE


def test_hunks_in_several_functions_fall_back_to_the_whole_file(tmp_path: Path) -> None:
    both = MISS + block(["    total = x + 55"], ["    total = x + 50"])
    result, _ = turn(tmp_path, [both, both, f"```python\n{MENDED}```"], instruction="mend it")
    assert result.files[0].asked == ["search-replace", "search-replace, told", "whole file"]


@pytest.mark.parametrize("dialect", HUNKS)
def test_no_change_is_not_argued_with(tmp_path: Path, dialect: str) -> None:
    result, _ = turn(tmp_path, ["There is nothing to do.", f"```python\n{CODE}```"], dialect, "mend it")
    assert result.files[0].asked == [dialect, "whole file"] and result.status == "unchanged"


@pytest.mark.parametrize("dialect", HUNKS)
@pytest.mark.parametrize("end", ["completed", "incomplete"])
def test_complaint_9_an_answer_that_is_cut_is_never_applied(tmp_path: Path, dialect: str, end: str) -> None:
    whole = answer(dialect, source_of(CODE.encode(), "a.py"), [Change(4, 5, ("    total = x - 1",)), Change(8, 9)])
    assert turn(tmp_path, [whole], dialect, "remove it")[0].status == "changed"
    for cut in range(1, len(whole) - 1, 5):
        text = whole[:cut] if not whole[:cut].endswith((" REPLACE", "@@ end")) else whole[: cut - 2]
        script = Script(text, end=end)  # type: ignore[arg-type]
        result, _ = turn(tmp_path, [script, "no", "no", "no"], dialect, "remove it")
        if end == "completed" and result.status == "changed":
            # What was closed before the end that the model chose is whole; nothing of the rest is there.
            assert dialect in ("search-replace", "line-anchors") and result.lines_changed <= 2
        else:
            assert result.status in ("refused", "unchanged")


def test_a_limit_that_cuts_is_not_told_but_another_form_is_tried(tmp_path: Path) -> None:
    cut = Script(HIT + HIT[:30], end="incomplete")
    result, _ = turn(tmp_path, [cut, "```python\ndef part_3(x):\n    total = x + 30\n    return total\n```"])
    assert result.files[0].asked == ["search-replace", "whole function"] and result.status == "changed"


def test_a_service_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    with pytest.raises(VivaceError) as caught:
        turn(tmp_path, [Script(HIT[:40], end="failed")])
    assert caught.value.code == "generation_failed"


def test_candidates_race_in_every_form(tmp_path: Path) -> None:
    wide = block(["    total = x + 3", "    return total"], ["    y = x + 30", "    return y"])
    result, service = turn(tmp_path, [MISS, wide, HIT], candidates=3)
    assert len(service.requests) == 3 and result.lines_changed == 1
    assert [request.temperature for request in service.requests] == [0.0, 0.6, 0.6]


# Who is asked how


@pytest.mark.parametrize(
    ("name", "parameters", "dialect"),
    [
        ("coder-0.5b", 494_032_768, "whole-file"),
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct", 0, "whole-file"),
        ("gemma-3-270m", 0, "whole-file"),
        ("qwen2.5-coder:7b", 0, "search-replace"),
        ("Qwen3-Coder-30B-A3B", 0, "search-replace"),
        ("llama-3.2-3b", 0, "search-replace"),
        ("gpt-5.3-codex", 0, "apply-patch"),
        ("openai/gpt-4.1-mini", 0, "apply-patch"),
        ("gpt-oss-20b", 0, "apply-patch"),
        ("o4-mini", 0, "apply-patch"),
        ("claude-opus-5", 0, "search-replace"),
        ("deepseek-v4", 0, "search-replace"),
    ],
)
def test_family_and_size_tell_the_dialect(name: str, parameters: int, dialect: str) -> None:
    assert edit_dialect(name, parameters) == dialect


def test_the_catalogue_says_it_and_what_it_does_not_say_follows_from_the_size() -> None:
    said = {name: info.dialect for name, info in shipped().items()}
    small = ("smollm2-135m", "coder-0.5b", "coder-1.5b")
    assert all(said[name] == "whole-file" for name in small)
    assert all(said[name] == "search-replace" for name in ("coder-3b", "coder-7b", "coder-30b-a3b"))
    added = ModelInfo("mine", "qwen2", 7_000_000_000, 4096, "MIT")
    assert added.dialect == "search-replace" and 'dialect = "search-replace"' in to_toml({"mine": added})


def test_the_card_decides_unless_the_user_does(tmp_path: Path) -> None:
    card = ModelCard("m", 1000, "line-anchors", takes_reference=True)
    assert dialect_of(card) == "line-anchors" and dialect_of(card, "apply-patch") == "apply-patch"
    assert dialect_of(msgspec.structs.replace(card, dialect="paced")) == "whole-file"
    with pytest.raises(UsageError) as caught:
        turn(tmp_path, [HIT], "serch-replace")
    assert "search-replace" in caught.value.hint and caught.value.param == "dialect"


def test_an_empty_file_is_written_whole_in_every_dialect(tmp_path: Path) -> None:
    for dialect in DIALECTS:
        result, _ = turn(tmp_path, ["```\nx = 1\n```"], dialect, "write it", text="\n", name="e.py")
        assert result.files[0].asked == ["whole file"] and result.status == "changed"


def test_only_a_backend_that_keeps_to_grammars_gets_one(tmp_path: Path) -> None:
    plain = ModelCard("m", 32_768, "search-replace", takes_reference=True)
    ask = HunkAsk(source_of(CODE.encode(), "a.py"), "do it", "search-replace")
    request = ask.request(plain)
    assert request.text is None and request.prediction is None
    request = ask.request(msgspec.structs.replace(plain, grammars=True))
    assert request.text is not None and isinstance(request.text.format, GrammarFormat)
    assert "part_7" in request.text.format.grammar
    assert request.prediction is not None and request.prediction.content == CODE
    patch = HunkAsk(ask.source, "do it", "apply-patch").request(msgspec.structs.replace(plain, grammars=True))
    assert patch.text is None


def test_a_file_that_leaves_no_room_for_hunks_is_asked_for_by_function(tmp_path: Path) -> None:
    long = "\n\n".join(f"def task_{n}(x):\n    return x + {n}\n" for n in range(200))
    (tmp_path / "a.py").write_text(long)
    request = EditRequest(["a.py"], "task_7 must add 70", "m", root=tmp_path, dialect="search-replace")
    service = Service([Script("```python\ndef task_7(x):\n    return x + 70\n```")], characters_per_token=4)
    service.card = ModelCard("m", 2600, "whole-file", takes_reference=True)
    result = asyncio.run(edit(service, request, read_sources(request), lambda event: None))
    assert result.files[0].asked == ["whole function"] and result.status == "changed"


# How answers are read


EXACT = {
    "search-replace": [
        HIT,
        f"Sure:\n\n```python\n{HIT}```\nDone.",
        HIT.replace("\n", "\r\n"),
        HIT[:-1],
        f"a.py\n{HIT}",
    ],
    "line-anchors": [
        "@@ replace {a}\n    total = x + 30\n@@ end",
        "@@ replace {a} to {a}\n{a}|    total = x + 30\n@@ end\n",
        "```\n@@ replace {a}..{a}\n    total = x + 30\n@@ end\n```",
        "@@ insert before {a}\n    total = x + 30\n@@ delete {a} to {a}\n",
    ],
    "apply-patch": [
        "*** Begin Patch\n*** Update File: a.py\n@@ def part_3(x):\n-    total = x + 3\n+    total = x + 30\n"
        "*** End Patch",
        "*** Begin Patch\n*** Update File: ./a.py\n@@ def part_3\n-    total = x + 3\n+    total = x + 30\n"
        "     return total\n\n*** End Patch\nDone, I changed it.",
        "```\n*** Begin Patch\n*** Update File: a.py\n@@\n def part_3(x):\n-    total = x + 3\n+    total = x + 30\n"
        "*** End Patch\n```",
    ],
}


@pytest.mark.parametrize(("dialect", "said"), [(d, s) for d, all_said in EXACT.items() for s in all_said])
def test_what_models_put_around_hunks_does_no_harm(tmp_path: Path, dialect: str, said: str) -> None:
    lines = CODE.split("\n")[:-1]
    named = dict(zip(lines, anchors(lines), strict=True))
    result, service = turn(tmp_path, [said.replace("{a}", named["    total = x + 3"])], dialect)
    assert result.files[0].patch is not None, result.files[0].reason
    assert result.files[0].patch.text == MENDED and len(service.requests) == 1


CLASSES = "".join(
    f"class {name}:\n    def run(self):\n        return 1\n\n    def end(self):\n        return 1\n\n\n"
    for name in "AB"
)


@pytest.mark.parametrize(
    ("hunk", "line"),
    [
        ("@@ class B:\n@@     def run(self):\n-        return 1\n+        return 2\n", 10),
        ("@@ class A\n@@ def end(self)\n-        return 1\n+        return 2\n", 5),
        ("@@ class B:\n     def run(self):\n-        return 1\n+        return 2\n", 10),
        ("@@ -9,3 +9,3 @@ class B:\n     def run(self):\n-        return 1\n+        return 2\n", 10),
        ("@@\n-        return 1\n+        return 2\n*** End of File\n", 13),
    ],
)
def test_heads_and_the_end_of_the_file_tell_which_of_several_places_is_meant(hunk: str, line: int) -> None:
    text = CLASSES.rstrip("\n") + "\n"
    said = f"*** Begin Patch\n*** Update File: a.py\n{hunk}*** End Patch\n"
    lines = HunkAsk(source_of(text.encode(), "a.py"), "do it", "apply-patch").read(said).text.split("\n")
    assert [n for n, one in enumerate(lines) if one.endswith("return 2")] == [line]


def test_text_after_the_end_of_a_patch_ends_the_generation(tmp_path: Path) -> None:
    _, service = turn(tmp_path, [EXACT["apply-patch"][0] + "\n" + "I did it. " * 60], "apply-patch")
    assert service.generations[0].stopped == ["cancelled"]


@pytest.mark.parametrize(
    ("dialect", "said", "why"),
    [
        ("search-replace", block(["    return total"], ["    return 1"]), "stands in 8 places"),
        ("search-replace", block([], ["x"]), "no line by which its place could be found"),
        ("search-replace", block(["  "], ["x"]), "the search text is empty"),
        ("search-replace", block(["otal = x + 3"], ["y"]), "not in the file"),
        ("search-replace", HIT[:15] + HIT, "a block begins inside another"),
        ("search-replace", HIT.replace("=======\n", ""), "no second part"),
        ("search-replace", HIT + block(["    total = x + 3", "    return total"], ["    pass"]), "change line"),
        ("search-replace", HIT + MISS, "hunk 2 of 2"),
        ("line-anchors", "@@ delete aaa to aaa\n", "no line has the anchor 'aaa'"),
        ("line-anchors", "@@ delete {b} to {a}\n", "before it begins"),
        ("line-anchors", "@@ append {a}\nx\n@@ end\n", "there is no command"),
        ("line-anchors", "@@ delete {a} to {b}\n@@ replace {b}\n    pass\n@@ end\n", "change line"),
        ("apply-patch", "*** Begin Patch\n*** Update File: b.py\n@@\n-a\n*** End Patch", "for another file ('b.py')"),
        ("apply-patch", "*** Begin Patch\n*** Delete File: a.py\n*** End Patch", "more than to update the file"),
        ("apply-patch", "*** Begin Patch\n*** Add File: c.py\n+x\n*** End Patch", "more than to update the file"),
        (
            "apply-patch",
            "*** Begin Patch\n*** Update File: a.py\n*** Move to: z.py\n@@\n-import os\n+import re\n*** End Patch",
            "more than to update the file (Move to",
        ),
        ("apply-patch", "*** Begin Patch\n@@\n-a\n*** End Patch", "does not say which file"),
        ("apply-patch", "*** Begin Patch\n*** Update File: a.py\n@@ class No\n-a\n+b\n*** End Patch", "stands nowhere"),
        ("apply-patch", "*** Begin Patch\n*** Update File: a.py\n@@ def part_\n-a\n+b\n*** End Patch", "in 8 places"),
        ("apply-patch", "*** Begin Patch\n*** Update File: a.py\n@@\n+x\n*** End Patch", "no line by which"),
        ("apply-patch", "*** Begin Patch\n*** Update File: a.py\nno mark\n*** End Patch", "begins with none of"),
        (
            "apply-patch",
            "*** Begin Patch\n*** Update File: a.py\n@@\n-import os\n+import re\n*** End of File\n*** End Patch",
            "not in the file",
        ),
    ],
)
def test_what_cannot_be_meant_in_one_way_is_refused_and_told(tmp_path: Path, dialect: str, said: str, why: str) -> None:
    lines = CODE.split("\n")[:-1]
    named = dict(zip(lines, anchors(lines), strict=True))
    said = said.replace("{a}", named["    total = x + 3"]).replace("{b}", named["    total = x + 5"])
    result, service = turn(tmp_path, [said, "no", "no", "no"], dialect)
    assert why in result.files[0].reason and result.status != "changed"
    assert why in prompts(service)[1] and result.files[0].asked[1] == f"{dialect}, told"


@pytest.mark.parametrize("dialect", HUNKS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_diff_that_is_written_as_hunks_comes_back_as_its_text(dialect: str, data: st.DataObject) -> None:
    line = st.sampled_from(["a", "b", "  a", "", "c d", "=======", "@@ x", "+y", "*** z", "é"])
    old, new = data.draw(st.lists(line, min_size=1, max_size=12)), data.draw(st.lists(line, max_size=12))
    assume(old != new and any(line.strip() for line in old))
    source = source_of("".join(line + "\n" for line in old).encode())
    changes = [Change(i1, i2, tuple(new[j1:j2])) for i1, i2, j1, j2 in diff(old, new)]
    try:
        said = answer(dialect, source, changes)
    except AssertionError:
        assume(False)
    applied = HunkAsk(source, "do it", dialect).read(said)  # type: ignore[arg-type]
    assert applied.text == "".join(line + "\n" for line in new)
    assert len(applied.rungs) == len(changes)


@given(st.lists(st.text("ab \t", max_size=3), max_size=40))
def test_anchors_are_one_for_each_line_and_stay_when_others_change(lines: list[str]) -> None:
    named = anchors(lines)
    assert len(set(named)) == len(lines) and all(len(anchor) == 3 for anchor in named)
    assert anchors([*lines, "something else"])[: len(lines)] == named


@pytest.mark.parametrize(
    ("search", "new", "rung"),
    [
        (["def f( x ):   ", "\treturn  x"], ["def f( x ):   ", "\treturn  y"], "exact"),
        (["return  x"], ["return  y"], "part of a line"),
        (["def f( x ):", "\treturn  x"], ["def f( x ):", "\treturn  y"], "trailing space"),
        (["    def f( x ):", "    \treturn  x"], ["    def f( x ):", "    \treturn  y"], "indentation"),
        (["s = '-' # \"a\""], ["s = '-' # \"b\""], "punctuation"),
    ],
)
def test_each_rung_is_reported(tmp_path: Path, search: list[str], new: list[str], rung: str) -> None:
    text = "def f( x ):   \n\treturn  x\n\n\ns = '—' # “a”\n"
    (tmp_path / "f.txt").write_text(text)
    result, _ = turn(tmp_path, [block(search, new)], name="f.txt")
    assert result.files[0].rungs == (rung,) and result.lines_changed == 1
    found = f"found by {rung}"
    assert (found in result.files[0].reason) == (rung != "exact")


# Guards


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("first", "last", "new", "why"),
    [
        (5, 6, ("    return (total",), "not parse"),
        (4, 6, ("    # ... rest of the code ...",), "leaves code out"),
        (4, 5, tuple("    total = call_it(x)" for _ in range(40)), "repeat"),
        (4, 5, tuple(f"    total_{n} = x + {n}" for n in range(400)), "would grow"),
        (0, 1, (), "import of os would be lost"),
    ],
)
def test_guards_hold_in_every_dialect(
    tmp_path: Path, dialect: str, first: int, last: int, new: tuple[str, ...], why: str
) -> None:
    text = CODE + "\n\nprint(os.sep)\n"
    (tmp_path / "a.py").write_text(text)
    said = answer(dialect, source_of(text.encode(), "a.py"), [Change(first, last, new)])
    result, _ = turn(tmp_path, [said], dialect, "mend it", text=text)
    assert result.patches == [] and why in result.files[0].reason
    apply(result)
    assert (tmp_path / "a.py").read_text() == text


def test_complaint_23_lines_that_are_there_already_are_not_put_in_again(tmp_path: Path) -> None:
    text = CODE + "# The last line of the module.\n"
    (tmp_path / "a.py").write_text(text)
    for dialect in HUNKS:
        change = Change(text.count("\n"), text.count("\n"), ("# The last line of the module.",))
        said = answer(dialect, source_of(text.encode(), "a.py"), [change])
        assert "are there already" in turn(tmp_path, [said], dialect, text=text)[0].files[0].reason


@pytest.mark.parametrize("dialect", DIALECTS)
def test_complaint_25_comments_that_are_gone_are_told(tmp_path: Path, dialect: str) -> None:
    text = "x = 1\n# Why: the reason.\ny = 2\n"
    (tmp_path / "a.py").write_text(text)
    said = answer(dialect, source_of(text.encode(), "a.py"), [Change(1, 3, ("y = 3",))])
    result, _ = turn(tmp_path, [said], dialect, "y is 3", text=text)
    assert result.status == "changed" and "comment removed: # Why: the reason." in result.files[0].reason


def test_the_file_as_it_will_be_is_shown_while_hunks_arrive(tmp_path: Path) -> None:
    events: list[EditEvent] = []
    said = block(["import os"], ["import re"]) + HIT
    turn(tmp_path, [said], events=events)
    shown = [line for event in events if isinstance(event, Lines) for line in event.lines]
    mended = MENDED.replace("import os", "import re").split("\n")
    assert shown == mended[: len(shown)] and shown[-1] == "    total = x + 30"


# What small models are asked stays as it is, to the byte

WHOLE = json.loads(Path(__file__).with_name("whole_requests.json").read_text("utf-8"))


@pytest.mark.parametrize("case", WHOLE, ids=[case["name"] for case in WHOLE])
def test_the_requests_for_small_models_are_what_they_were(tmp_path: Path, case: dict[str, object]) -> None:
    (tmp_path / "a.py").write_text(str(case["file"]))
    answers = [Script(text) for text in case["answers"]]  # type: ignore[attr-defined]
    service = Service(answers)
    service.card = ModelCard("coder-0.5b", 32_768, "whole-file", takes_reference=True, tools=True, grammars=True)
    request = EditRequest(
        ["a.py"], str(case["instruction"]), "coder-0.5b", root=tmp_path, candidates=int(str(case["candidates"]))
    )
    asyncio.run(edit(service, request, read_sources(request), lambda event: None))
    made = [json.loads(msgspec.json.encode(request)) for request in service.requests]
    if case["instruction"] == "rename task_7 to seventh":  # only the draft knows of it, and that changes no output
        drafts = {one.pop("prediction")["content"] for one in made}
        assert drafts == {f"```python\n{case['file']}```".replace("task_7(", "seventh(")}
        made = [{**one, "prediction": wanted["prediction"]} for one, wanted in zip(made, case["requests"], strict=True)]  # type: ignore[call-overload]
    assert made == case["requests"]
