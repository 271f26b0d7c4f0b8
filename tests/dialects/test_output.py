"""Model text to calls, reasoning and text: every family, any split, nothing leaked, nothing invented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vivace.dialects.families import FAMILIES, family_of
from vivace.dialects.output import OutputParser
from vivace.dialects.tools import ToolTable

RUN = {
    "type": "function",
    "name": "run",
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "object"}},
    },
}
PATCH = {"type": "custom", "name": "patch"}
SPACE = {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "look"}]}
TABLE = ToolTable.of([RUN, PATCH, SPACE])

Told = list[tuple[str, str]]


class Recorder:
    """What was told, neighbours of one kind joined."""

    def __init__(self) -> None:
        self.told: Told = []

    def _add(self, kind: str, text: str) -> None:
        assert text, "an empty piece"
        if self.told and self.told[-1][0] == kind:
            text = self.told.pop()[1] + text
        self.told.append((kind, text))

    def text(self, text: str) -> None:
        self._add("text", text)

    def reasoning(self, text: str) -> None:
        self._add("reasoning", text)

    def call(self, name: str, raw: bool) -> None:
        self.told.append(("raw call" if raw else "call", name))

    def argument(self, text: str) -> None:
        self._add("argument", text)

    def call_end(self) -> None:
        self.told.append(("end", ""))


def parse(family: str, pieces: Sequence[str], table: ToolTable = TABLE, **options: Any) -> Told:
    recorder = Recorder()
    found = family_of(None, family)
    if found.channels:
        parser: Any = found.parser(table, recorder)
    else:
        parser = OutputParser(found.syntax, table, recorder, **options)
    for piece in pieces:
        parser.feed(piece)
    parser.finish()
    return recorder.told


def call(name: str, arguments: str, raw: bool = False) -> Told:
    return [("raw call" if raw else "call", name), *([("argument", arguments)] if arguments else []), ("end", "")]


ARGS = '{"cmd": "ls </tool_call> \\"x\\"", "n": 3}'
NESTED = '{"deep": {"a": [1, {"b": "}"}]}}'
SAMPLES: dict[str, tuple[str, str, Told]] = {
    "hermes": (
        "hermes",
        f'Let me see.\n<tool_call>\n{{"name": "run", "arguments": {ARGS}}}\n</tool_call>',
        [("text", "Let me see."), *call("run", ARGS)],
    ),
    "hermes two": (
        "hermes",
        f'<tool_call>\n{{"name": "run", "arguments": {ARGS}}}\n</tool_call>\n'
        f'<tool_call>{{"arguments":{NESTED},"id":[1],"name":"run"}}</tool_call>\nDone.',
        [*call("run", ARGS), *call("run", NESTED), ("text", "Done.")],
    ),
    "hermes, namespaced in other words": (
        "hermes",
        '<tool_call>{"name": "mcp.look", "arguments": {}}</tool_call><tool_call>{"name": "look"}</tool_call>',
        [*call("mcp__look", "{}"), *call("mcp__look", "{}")],
    ),
    "hermes, not offered": (
        "hermes",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        call("other", "{}"),
    ),
    "hermes, arguments as a string": (
        "hermes",
        '<tool_call>{"name": "run", "arguments": "{\\"cmd\\": \\"l\\\\ns\\"}"}</tool_call>',
        call("run", '{"cmd": "l\\ns"}'),
    ),
    "hermes, one bracket too few": (
        "hermes",
        '<tool_call>{"name": "run", "arguments": {"n": 1}\n</tool_call>ok',
        [*call("run", '{"n": 1}'), ("text", "ok")],
    ),
    "hermes, one bracket too many": (
        "hermes",
        '<tool_call>{"name": "run", "arguments": {"n": 1}}}</tool_call>',
        call("run", '{"n": 1}'),
    ),
    "free text": (
        "hermes",
        "Now:\n<tool_call>patch\n*** Begin\n+a </tool_call> b\n\n*** End\n\n</tool_call>",
        [("text", "Now:"), *call("patch", "*** Begin\n+a </tool_call> b\n\n*** End\n", raw=True)],
    ),
    "a function, called like free text": (
        "hermes",
        f"<tool_call>run\n{ARGS}\n</tool_call>\nok",
        [*call("run", ARGS), ("text", "ok")],
    ),
    "no free text": ("hermes", "<tool_call>patch\n\n</tool_call>", call("patch", "", raw=True)),
    "custom tool as a function": (
        "hermes",
        '<tool_call>{"name": "patch", "arguments": {"input": "a\\n\\u00e9\\ud83d\\ude00\\"b"}}</tool_call>',
        call("patch", 'a\né😀"b', raw=True),
    ),
    "custom tool as a string": (
        "hermes",
        '<tool_call>{"name": "patch", "arguments": "a\\nb"}</tool_call>',
        call("patch", "a\nb", raw=True),
    ),
    "qwen xml": (
        "qwen-xml",
        "I look.\n<tool_call>\n<function=run>\n<parameter=cmd>\nls\n\t\"a\" <b>\n</parameter>\n<parameter=n>\n3\n"
        "</parameter>\n<parameter=deep>\n{\"a\": [1]}\n</parameter>\n</function>\n</tool_call>\nMore",
        [
            ("text", "I look."),
            *call("run", '{"cmd": "ls\\n\\t\\"a\\" <b>", "n": 3, "deep": {"a": [1]}}'),
            ("text", "More"),
        ],
    ),
    "qwen xml without its frame": ("qwen-xml", "<function=mcp__look>\n</function>", call("mcp__look", "{}")),
    "qwen xml, no number": (
        "qwen-xml",
        "<tool_call>\n<function=run>\n<parameter=n>\nmany\n</parameter>\n</function>\n</tool_call>",
        call("run", '{"n": "many"}'),
    ),
    "qwen xml, free text": (
        "qwen-xml",
        "<tool_call>\n<function=patch>\n<parameter=input>\n*** a\n\"b\\n\n</parameter>\n</function>\n</tool_call>",
        call("patch", '*** a\n"b\\n', raw=True),
    ),
    "llama": ("llama", f'{{"name": "run", "parameters": {ARGS}}}', call("run", ARGS)),
    "llama, marked, two": (
        "llama",
        f'<|python_tag|>{{"name": "run", "parameters": {ARGS}}}; {{"name": "look", "parameters": {{}}}}',
        [*call("run", ARGS), *call("mcp__look", "{}")],
    ),
    "mistral": (
        "mistral",
        f'[TOOL_CALLS][{{"name": "run", "arguments": {ARGS}}}, {{"name": "run", "arguments": {NESTED}}}]',
        [*call("run", ARGS), *call("run", NESTED)],
    ),
    "mistral, new": (
        "mistral",
        f"Well.[TOOL_CALLS]run[CALL_ID]a1B[ARGS]{ARGS}[TOOL_CALLS]look{{}}",
        [("text", "Well."), *call("run", ARGS), *call("mcp__look", "{}")],
    ),
    "deepseek": (
        "deepseek",
        f"Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n```json\n{ARGS}\n```<｜tool▁call▁end｜>\n"
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{{}}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("text", "Hm."), *call("run", ARGS), *call("mcp__look", "{}")],
    ),
    "deepseek, new": (
        "deepseek",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>run<｜tool▁sep｜>{ARGS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        call("run", ARGS),
    ),
    "harmony": (
        "harmony",
        "<|channel|>analysis<|message|>Think <b>.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
        f"<|end|><|start|>assistant<|channel|>commentary to=functions.run <|constrain|>json<|message|>{ARGS}<|call|>",
        [("reasoning", "Think <b>."), ("text", "I look."), *call("run", ARGS)],
    ),
    "harmony, answer": (
        "harmony",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>The <|answer|>.<|return|>",
        [("reasoning", "a"), ("text", "The <|answer|>.")],
    ),
    "harmony, recipient first, mark unseen": (
        "harmony",
        f"<|start|>assistant to=functions.run<|channel|>commentary json<|message|>{ARGS}",
        call("run", ARGS),
    ),
    "harmony, free text": (
        "harmony",
        "<|channel|>commentary to=functions.patch<|message|>*** a\nb<|call|>",
        call("patch", "*** a\nb", raw=True),
    ),
    "printed in a fence": (
        "hermes",
        f'```json\n{{"name": "run", "arguments": {ARGS}}}\n```\nDone.',
        [*call("run", ARGS), ("text", "Done.")],
    ),
    "printed bare, twice": (
        "hermes",
        f' {{"name": "run", "arguments": {ARGS}}}\n{{"name": "look", "arguments": {{}}}}',
        [*call("run", ARGS), *call("mcp__look", "{}")],
    ),
}  # fmt: skip

PLAIN = {
    "a mark in prose": ("hermes", "Write <tool_call> before it.\n<tool_call\n"),
    "half a mark": ("hermes", "a\n<tool_ca"),
    "no call in the mark": ("hermes", '<tool_call>{"x": 1}</tool_call> <tool_call>[1]'),
    "not offered, printed": ("hermes", '```json\n{"name": "nothing", "arguments": {}}\n```'),
    "printed, no arguments": ("hermes", '{"name": "run", "version": "1"}\n'),
    "printed, after text": ("hermes", 'So:\n```json\n{"name": "run", "arguments": {}}\n```\n'),
    "code": ("hermes", "```python\ndef f():\n    return {'name': 1}\n```\n\n"),
    "code at once": ("hermes", "{\n  int x;\n}\n"),
    "blanks": ("hermes", "  \n "),
    "an element": ("qwen-xml", "a <function=> b <function=f\ng> <tool_call> c"),
    "brackets": ("mistral", "x [TOOL_CALLS] is a mark, [TOOL_CALLS"),
    "python": ("llama", "<|python_tag|>print(1)"),
    "thought in prose": ("hermes", "The <think> mark</think>"),
    "markless harmony": ("harmony", "just text <|chan"),
}


@pytest.mark.parametrize(("family", "text", "told"), SAMPLES.values(), ids=SAMPLES)
def test_samples(family: str, text: str, told: Told) -> None:
    assert parse(family, [text]) == told
    assert parse(family, list(text)) == told


@pytest.mark.parametrize(("family", "text"), PLAIN.values(), ids=PLAIN)
def test_what_merely_looks_like_a_mark_comes_out_unchanged(family: str, text: str) -> None:
    assert parse(family, [text]) == [("text", text)]
    assert parse(family, list(text)) == [("text", text)]


FRAGMENTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "\n", '{"name": "run", "arguments": ', "{", "}", '"', "\\", '{"cmd": "a"}',
     "patch\n", "<function=run>", "<parameter=cmd>", "\n</parameter>", "</function>", "[TOOL_CALLS]", "[", "]", ",",
     "run", "[ARGS]", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json", "```",
     "<|python_tag|>", ";", "<think>", "</think>", "<|channel|>", "analysis", "final", "<|message|>",
     " to=functions.run", "<|end|>", "<|start|>", "<|call|>", "text ", "é", "<", "|"],
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([f.name for f in FAMILIES]), st.lists(FRAGMENTS, max_size=12), st.data())
def test_any_split_gives_the_same(family: str, fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for opened in (False, True):
        options = {"thinks": True, "opened": opened}
        whole = parse(family, [text], **options)
        assert parse(family, pieces, **options) == whole == parse(family, list(text), **options)
        assert _balanced(whole)


def _balanced(told: Told) -> bool:
    """Every end closes a call, and only ended calls are followed by another one's end."""
    opened = False
    for kind, _ in told:
        if kind in ("call", "raw call"):
            opened = True
        elif kind == "end":
            if not opened:
                return False
            opened = False
    return True


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([f.name for f in FAMILIES]), st.text(st.sampled_from("ab{}[]\"'`\n <>|/é漢"), max_size=40))
@example("hermes", "``")
@example("hermes", "{")
def test_text_without_marks_comes_out_identical(family: str, text: str) -> None:
    assert parse(family, list(text), thinks=True) == ([("text", text)] if text else [])


@pytest.mark.parametrize(("family", "text", "told"), SAMPLES.values(), ids=SAMPLES)
def test_an_unfinished_call_has_no_end_and_leaks_no_mark(family: str, text: str, told: Told) -> None:
    ends = [kind for kind, _ in told].count("end")
    for length in range(len(text)):
        cut = parse(family, [text[:length]])
        seen = [one for one in cut if one[0] == "end"]
        assert len(seen) <= ends and _balanced(cut)
        for kind, said in cut:
            if kind == "argument" and (family != "harmony" or seen):
                assert any(said in whole or whole in said for k, whole in told if k == "argument") or len(seen) < ends
        if len(seen) == ends and ends:
            # All ends are there: so are all arguments, whole.
            assert [one for one in cut if one[0] == "argument"] == [one for one in told if one[0] == "argument"]


@pytest.mark.parametrize("family", ["hermes", "qwen-xml", "llama", "mistral", "deepseek"])
def test_what_a_family_writes_it_reads(family: str) -> None:
    from vivace.dialects.history import WrittenCall

    syntax = family_of(None, family).syntax
    calls = [WrittenCall("run", ARGS), WrittenCall("patch", '*** a\n "b" \\ é\n', raw=True), WrittenCall("run", NESTED)]
    text = "".join(part for part, _ in syntax.write(calls))
    told = parse(family, list("Hm." + syntax.separator + text if family != "llama" else text))
    said = [] if family == "llama" else [("text", "Hm.")]
    expected = [*said, *(one for c in calls for one in call(c.name, c.text, c.raw))]
    assert [(k, json.dumps(json.loads(t)) if t.startswith("{") else t) for k, t in told] == expected


def test_free_text_with_the_closing_mark_in_it_survives() -> None:
    from vivace.dialects.history import WrittenCall

    hostile = "a\n</tool_call>\nb"
    text = "".join(
        part for part, _ in family_of(None, "hermes").syntax.write([WrittenCall("patch", hostile, raw=True)])
    )
    assert parse("hermes", list(text)) == call("patch", hostile, raw=True)


@pytest.mark.parametrize(
    ("template", "name", "family", "thinks"),
    [
        (None, "", "hermes", False),
        ("{{ messages }}", "whole-file", "hermes", False),
        ("<tool_call> <think>", "", "hermes", True),
        ("<tool_call> <function=", "", "qwen-xml", False),
        ("<|start_header_id|> <|python_tag|>", "", "llama", False),
        ("[TOOL_CALLS]", "", "mistral", False),
        ("<｜tool▁calls▁begin｜> <think>", "", "deepseek", True),
        ("<|channel|> <tool_call>", "", "harmony", False),
        ("<tool_call>", "llama", "llama", False),
    ],
)
def test_the_template_tells_the_family_where_no_name_does(
    template: str | None, name: str, family: str, thinks: bool
) -> None:
    found = family_of(template, name)
    assert (found.name, found.thinks) == (family, thinks)
    needs = found.parser(ToolTable(), Recorder())
    assert (needs is None) == (not thinks and family != "harmony")
    assert found.parser(TABLE, Recorder()) is not None


@pytest.mark.parametrize("opened", [False, True])
def test_reasoning_comes_first_and_alone(opened: bool) -> None:
    text = ("" if opened else "<think>") + "\nFirst <tool_call>x</tool_call>\nthen.\n</think>\n\nThe answer."
    told = [("reasoning", "First <tool_call>x</tool_call>\nthen."), ("text", "The answer.")]
    for pieces in ([text], list(text)):
        assert parse("hermes", pieces, thinks=True, opened=opened) == told
        assert parse("hermes", pieces, ToolTable(), thinks=True, opened=opened) == told
    cut = parse("hermes", list(text[: text.index("then")]), thinks=True, opened=opened)
    assert cut == [("reasoning", "First <tool_call>x</tool_call>\n")]


def test_a_call_right_after_reasoning() -> None:
    text = '<think>\nx\n</think>\n\n<tool_call>\n{"name": "run", "arguments": {}}\n</tool_call>'
    assert parse("hermes", list(text), thinks=True) == [("reasoning", "x"), *call("run", "{}")]


def test_reasoning_is_known_while_it_comes() -> None:
    recorder = Recorder()
    parser = OutputParser(family_of(None, "hermes").syntax, TABLE, recorder, thinks=True)
    states = []
    for piece in ["<think>", "a", "\n</think>", "b"]:
        parser.feed(piece)
        states.append((parser.watched, parser.reasoning))
    assert states == [(True, True), (True, True), (True, False), (False, False)]


def test_nothing_is_held_back_that_can_be_no_mark() -> None:
    recorder = Recorder()
    parser = OutputParser(family_of(None, "hermes").syntax, TABLE, recorder)
    told = []
    for piece in [
        "One ",
        "two\n",
        "three <too",
        "ls> <tool",
        '_call>{"name": "run", "arg',
        'uments": {"cmd": "a',
        "b\\",
        'n"}',
    ]:
        parser.feed(piece)
        told.append(list(recorder.told))
        recorder.told.clear()
    assert told == [
        [("text", "One ")],
        [("text", "two")],
        [("text", "\nthree ")],
        [("text", "<tools> ")],
        [("call", "run")],
        [("argument", '{"cmd": "a')],
        [("argument", "b")],
        [("argument", '\\n"}')],
    ]


def test_other_json_is_not_held_back() -> None:
    recorder = Recorder()
    parser = OutputParser(family_of(None, "hermes").syntax, TABLE, recorder)
    parser.feed('{"result": [1, 2')
    assert recorder.told == [("text", '{"result": [1, 2')]
    parser.feed(', 3], "name": "run", "arguments": {}}')
    parser.finish()
    assert recorder.told == [("text", '{"result": [1, 2, 3], "name": "run", "arguments": {}}')]


@pytest.mark.parametrize("table", [ToolTable(), ToolTable.of([RUN], "none")])
def test_where_nothing_may_be_called_calls_are_text(table: ToolTable) -> None:
    body = f'{{"name": "run", "arguments": {ARGS}}}'
    for text in (body, f"<tool_call>\n{body}\n</tool_call>"):
        assert parse("hermes", list(text), table) == [("text", text)]


def test_only_tools_that_may_be_called_are_taken_from_printed_calls() -> None:
    table = ToolTable.of([RUN, PATCH], {"type": "custom", "name": "patch"})
    text = f'{{"name": "run", "arguments": {ARGS}}}'
    assert parse("hermes", list(text), table) == [("text", text)]
    assert parse("hermes", ['{"name": "patch", "arguments": {"input": "x"}}'], table) == call("patch", "x", raw=True)
