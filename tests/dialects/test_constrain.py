"""Grammars: each is compiled for a real tokenizer, takes what is right and stops at what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from vivace.dialects.constrain import Constraint, constrain, usable_schema
from vivace.dialects.families import family_of
from vivace.dialects.history import WrittenCall
from vivace.dialects.tools import ToolTable
from vivace.engine.spelling import Spelling
from vivace.errors import UsageError
from vivace.models.tokenizer import Tokenizer
from vivace.models.vocabulary import load_vocabulary
from vivace.protocol.options import JsonObjectFormat, JsonSchemaFormat
from vivace.settings import Settings

pytestmark = pytest.mark.model

MODELS = ["coder-0.5b", "smollm2-135m"]
PATCH = """
start: open change+ close
open: "*** Begin Patch" LF
close: "*** End Patch" LF?      // the last line may lack its end }

change: made | gone | edited
made: "*** Add File: " NAME LF ("+" /[^\\n]*/ LF -> line)+
gone.2: "*** Delete File: " NAME LF
edited: "*** Update File: " NAME LF ("*** Move to: " NAME LF)? part+
part: "@@" (" " /[^\\n]+/)? LF (("+" | "-" | " ") /[^\\n]*/ LF)+
NAME.1: /[^\\n]+/

%import common.LF
"""
GOOD = "*** Begin Patch\n*** Add File: a.py\n+x = '</tool-call>'\n+\n*** Delete File: b\n*** End Patch"
UPDATE = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ def f():\n a\n-b\n+c\n*** End Patch\n"
RUN = {
    "type": "function",
    "name": "run",
    "parameters": {
        "type": "object",
        "properties": {
            "cmd": {"type": "string"},
            "n": {"type": "integer"},
            "how": {"enum": ["a", "b"], "type": "string"},
        },
        "required": ["cmd"],
        "additionalProperties": False,
    },
}
TOOLS: list[dict[str, Any]] = [
    RUN,
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": PATCH}},
    {
        "type": "custom",
        "name": "version",
        "format": {"type": "grammar", "syntax": "regex", "definition": r"v\d+(\.\d+)*/x"},
    },
    {"type": "custom", "name": "js"},
    {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "look"}]},
]


class Judge:
    """A tokenizer as the engine's grammars see it."""

    def __init__(self, path: Path) -> None:
        tokenizer = self.tokenizer = Tokenizer.load(path, Settings())
        spelling = Spelling(load_vocabulary(path, Settings()))

        class Wrapped:
            eos_token_id = max(tokenizer.eos_ids)
            bos_token_id = tokenizer.bos_id
            tokens = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]  # noqa: RUF012
            special_token_ids = sorted(spelling.special)

            def __call__(self, text: bytes) -> list[int]:
                return tokenizer.encode(text.decode(errors="replace"))

        self.lexicon = LLTokenizer(TokenizerWrapper(Wrapped()))

    def takes(self, constraint: Constraint, text: str) -> str:
        """ "whole", "so far" or where it was stopped."""
        matcher = LLMatcher(self.lexicon, constraint.text)
        assert not matcher.is_error(), matcher.get_error()
        ids = self.tokenizer.encode(text)
        taken = matcher.try_consume_tokens(ids)
        if taken < len(ids):
            return f"stopped after {self.tokenizer.decode(ids[:taken])[-20:]!r}"
        return "whole" if matcher.is_accepting() else "so far"


@pytest.fixture(scope="module")
def judge(model_file: Callable[[str], Path]) -> Callable[[str], Judge]:
    return cache(lambda name: Judge(model_file(name)))


def grammar(judge: Judge, family: str, choice: Any = "auto", **options: Any) -> Constraint:
    table = ToolTable.of(options.pop("tools", TOOLS), choice, options.pop("parallel", True))
    return constrain(family_of(options.pop("template", None), family), judge.tokenizer.special_id, table, **options)


def written(family: str, *calls: WrittenCall) -> str:
    return "".join(text for text, _ in family_of(None, family).syntax.write(calls))


RIGHT = [
    WrittenCall("run", '{"cmd": "ls \\"é\\" </tool-call>"}'),
    WrittenCall("run", '{"cmd": "ls", "n": -3, "how": "b"}'),
    WrittenCall("mcp__look", '{"any": [1, {"x": null}]}'),
    WrittenCall("js", "let a = '<x>';\n\nf()", raw=True),
]
RAW = [
    WrittenCall("apply_patch", GOOD, raw=True),
    WrittenCall("apply_patch", UPDATE, raw=True),
    WrittenCall("version", "v1.22/x", raw=True),
]
WRONG = [
    WrittenCall("ran", "{}"),
    WrittenCall("run", "{}"),
    WrittenCall("run", '{"cmd": 1}'),
    WrittenCall("run", '{"cmd": "ls", "n": "x"}'),
    WrittenCall("run", '{"cmd": "ls", "how": "c"}'),
    WrittenCall("run", '{"cmd": "ls", "x": 1}'),
]
WRONG_RAW = [
    WrittenCall("apply_patch", GOOD.replace("Begin", "begin"), raw=True),
    WrittenCall("apply_patch", GOOD.replace("+x", "x"), raw=True),
    WrittenCall("apply_patch", GOOD[:-3], raw=True),
    WrittenCall("version", "v1.22.", raw=True),
]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("family", ["hermes", "qwen-xml", "mistral", "deepseek", "llama"])
def test_calls_must_be_well_formed(name: str, family: str, judge: Callable[[str], Judge]) -> None:
    one = judge(name)
    free = family in ("hermes", "qwen-xml")
    forced = grammar(one, family, "required")
    for call in RIGHT + (RAW if free else []):
        if call.name == "mcp__look" and family == "qwen-xml":
            continue  # A tool without parameters takes none in this form.
        text = written(family, call)
        assert one.takes(forced, text) == "whole", text
        assert one.takes(forced, text[:-1]) != "whole"
        assert one.takes(forced, written(family, call, RIGHT[0])) == "whole"
        assert one.takes(grammar(one, family, "required", parallel=False), written(family, call, call)) != "whole"
    for call in WRONG + (WRONG_RAW if free else []):
        if call.text == '{"cmd": 1}' and family == "qwen-xml":
            continue  # Any text is a string in this form.
        assert one.takes(forced, written(family, call)).startswith("stopped"), call
    assert one.takes(forced, "Let me").startswith("stopped") or family == "llama"
    assert not forced.notes


@pytest.mark.parametrize("family", ["hermes", "qwen-xml", "mistral", "deepseek"])
def test_text_is_free_until_a_call_begins(family: str, judge: Callable[[str], Judge]) -> None:
    one = judge("coder-0.5b")
    free, none = grammar(one, family), grammar(one, family, "none")
    syntax = family_of(None, family).syntax
    for text in ("", "Any <b> text\n```json\n{}\n```", "a <tool> b [TOOL"):
        assert one.takes(free, text) == one.takes(none, text) == "whole"
    said = "Let me look." + syntax.separator
    call = written(family, RIGHT[0])
    assert one.takes(free, said + call) == "whole" and one.takes(free, said + call[: len(call) // 2]) == "so far"
    assert one.takes(none, said + call).startswith("stopped")
    assert one.takes(free, said + written(family, WRONG[0])).startswith("stopped")
    named = grammar(one, family, {"type": "custom", "name": "js"})
    assert one.takes(named, written(family, RIGHT[3])) == "whole" and one.takes(named, call).startswith("stopped")
    some = grammar(one, family, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "js"}]})
    assert one.takes(some, said) == one.takes(some, said + written(family, RIGHT[3])) == "whole"
    assert one.takes(some, said + call).startswith("stopped")


def test_a_family_without_marks_says_that_its_calls_are_free(judge: Callable[[str], Judge]) -> None:
    found = grammar(judge("coder-0.5b"), "llama")
    assert not found.text and "no mark" in found.notes[-1]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize("name", MODELS)
def test_an_answer_of_a_form(name: str, judge: Callable[[str], Judge]) -> None:
    one = judge(name)
    found = grammar(one, "hermes", tools=[], form=JsonSchemaFormat("x", SCHEMA))
    assert one.takes(found, '{"a": 3}') == "whole"
    assert [one.takes(found, text)[:7] for text in ('{"a": "3"}', "Sure", "\n")] == ["stopped"] * 3
    anything = grammar(one, "hermes", tools=[], form=JsonObjectFormat())
    assert one.takes(anything, '{"x": [1, "a"]}') == "whole" and one.takes(anything, "[1]").startswith("stopped")
    both = grammar(one, "hermes", form=JsonSchemaFormat("x", SCHEMA))
    assert one.takes(both, '{"a": 3}') == one.takes(both, written("hermes", RIGHT[0])) == "whole"
    assert one.takes(both, "Sure").startswith("stopped")
    assert grammar(one, "hermes", tools=[]) == Constraint()


def test_reasoning_comes_before_what_is_forced(judge: Callable[[str], Judge]) -> None:
    one = judge("coder-0.5b")
    form = JsonSchemaFormat("x", SCHEMA)
    thinks = grammar(one, "hermes", tools=[], form=form, template="<think>")
    assert one.takes(thinks, '<think>\nany {"a": 1} <tool>\n</think>\n\n{"a": 3}') == "whole"
    assert one.takes(thinks, '{"a": 3}') == "whole" and one.takes(thinks, "<think>x</think>x").startswith("stopped")
    opened = grammar(one, "hermes", tools=[], form=form, thinking=True)
    assert one.takes(opened, 'any\n</think>\n\n{"a": 3}') == "whole" and one.takes(opened, '{"a": 3}') == "so far"
    called = grammar(one, "hermes", "required", thinking=True)
    assert one.takes(called, "any\n</think>\n\n" + written("hermes", RIGHT[0])) == "whole"


def test_what_a_schema_cannot_enforce_is_said(judge: Callable[[str], Judge]) -> None:
    one = judge("coder-0.5b")
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}
    found = grammar(one, "hermes", tools=[], form=JsonSchemaFormat("x", odd))
    assert "uniqueItems" in found.notes[0] and one.takes(found, '{"a": [1, 1]}') == "whole"
    assert one.takes(found, "{}").startswith("stopped")
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"properties": {"a": deep}}
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(5000)}
    many = {"$ref": "#/$defs/a0", "$defs": {**chain, "a5000": {}}}
    for broken in ({"$ref": "http://nowhere/x"}, {"type": "objekt"}, {"properties": 3}, deep, many):
        found = grammar(one, "hermes", tools=[], form=JsonSchemaFormat("x", broken))
        assert "cannot be enforced" in found.notes[0] and one.takes(found, '{"b": 1}') == "whole"
        assert one.takes(found, "3").startswith("stopped")


def test_separators_of_a_schema_are_those_of_templates() -> None:
    text, note = usable_schema(json.dumps({"type": "object", "x-guidance": {"item_separator": ","}}))
    assert json.loads(text)["x-guidance"] == {
        "item_separator": ",",
        "key_separator": ": ",
        "whitespace_flexible": False,
    }
    assert not note and json.loads(usable_schema("true")[0])["x-guidance"]["key_separator"] == ": "


@pytest.mark.parametrize(
    "form",
    [("lark", "start: /a(?=b)/"), ("lark", "start: x"), ("lark", "begin: \"a\""), ("lark", "start: {"), ("regex", "(a"),
     ("lark", "start: A0\n" + "".join(f'A{n}: "x" A{n + 1}\n' for n in range(4000)) + 'A4000: "y"'),
     ("lark", 'start: "a" }\nx: "b"'), ("lark", 'start: "' + "a" * 70_000 + '"'), ("lark", "start: " + "(" * 3000)],
)  # fmt: skip
def test_grammars_that_cannot_be_used_are_refused_in_words(
    form: tuple[str, str], judge: Callable[[str], Judge]
) -> None:
    custom = {"type": "grammar", "syntax": form[0], "definition": form[1]}
    with pytest.raises(UsageError, match="grammar of the tool 'x'") as caught:
        grammar(judge("coder-0.5b"), "hermes", tools=[{"type": "custom", "name": "x", "format": custom}])
    assert caught.value.code == "invalid_grammar" and caught.value.param == "tools"


def test_comments_are_left_out_and_strings_are_not(judge: Callable[[str], Judge]) -> None:
    one = judge("coder-0.5b")
    definition = 'start: A "//" B // not "this\n  // nor }\nA: /[ab]+\\/x/\nB.3: "\\"#//"i\n'
    custom = {"type": "grammar", "syntax": "lark", "definition": definition}
    found = grammar(one, "hermes", "required", tools=[{"type": "custom", "name": "x", "format": custom}])
    assert one.takes(found, written("hermes", WrittenCall("x", 'ab/x//"#//', raw=True))) == "whole"
