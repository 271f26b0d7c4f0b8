"""Tools of a request, flat and back: real shapes, hostile shapes, names that models mangle."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.dialects.jsontext import CustomInputDecoder, StringDecoder
from vivace.dialects.tools import LONGEST_NAME, TextFormat, ToolTable
from vivace.errors import UsageError
from vivace.protocol.items import AdditionalTools, CustomToolCall, FunctionCall, Message

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
RUN = {"type": "function", "name": "run", "description": "Runs.", "strict": False, "parameters": {"type": "object"}}
DEEP: dict[str, Any] = {}
for _ in range(100):
    DEEP = {"items": [DEEP]}
SPACE = {"type": "namespace", "name": "agents"}
TOOLS: list[dict[str, Any]] = [
    RUN,
    {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "agents",
        "tools": [{"type": "function", "name": "spawn"}, {"type": "custom", "name": "js"}],
    },
    *({"type": kind} for kind in ("web_search", "image_generation", "file_search", "mcp", "tool_search")),
]


def test_every_kind_is_offered_or_left_out() -> None:
    table = ToolTable.of(TOOLS)
    assert [tool.name for tool in table.tools] == ["run", "apply_patch", "agents__spawn", "agents__js"]
    patch, spawn = table.tools[1], table.tools[2]
    assert patch.kind == "custom" and patch.format == TextFormat("lark", 'start: "a"')
    assert patch.parameters["required"] == ["input"]
    assert (spawn.public_name, spawn.namespace, spawn.kind) == ("spawn", "agents", "function")
    assert table.tools[3].kind == "custom" and table.tools[3].format.syntax == "text"
    assert table.mode == "auto" and table.parallel and table.callable == table.tools


def test_chat_completions_nests_the_same_tools() -> None:
    function = {"name": "run", "description": "Runs.", "parameters": {"type": "object"}}
    nested = [{"type": "function", "function": function}]
    assert ToolTable.of(nested).tools == ToolTable.of([RUN]).tools
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    (custom,) = ToolTable.of([{"type": "custom", "custom": {"name": "x", "format": grammar}}]).tools
    assert custom.format == TextFormat("regex", "a+")


def test_tools_in_the_input_count() -> None:
    table = ToolTable.of([], items=[Message("user", "x"), AdditionalTools(tools=TOOLS[:3])])
    assert table.tools == ToolTable.of(TOOLS).tools and table.digest == ToolTable.of(TOOLS).digest


def test_a_tool_that_is_defined_again_is_one_tool() -> None:
    again = [AdditionalTools(tools=[{**RUN, "description": "Runs again."}, *TOOLS[2:3]])] * 2
    table = ToolTable.of(TOOLS, items=again)
    assert [tool.name for tool in table.tools] == [tool.name for tool in ToolTable.of(TOOLS).tools]
    assert table.tools[0].description == "Runs again."


def test_the_digest_is_of_the_tools_alone() -> None:
    digest = ToolTable.of(TOOLS).digest
    assert digest == ToolTable.of(json.loads(json.dumps(TOOLS)), "required", False).digest != ""
    assert digest != ToolTable.of([*TOOLS[:1], *TOOLS[2:]]).digest
    assert ToolTable.of([]).digest == ToolTable().digest == ""


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("run", "run"),
        ("functions.run", "run"),
        ("Run", "run"),
        ("apply-patch", "apply_patch"),
        ("agents.spawn", "agents__spawn"),
        ("agents/spawn", "agents__spawn"),
        ("functions.agents.spawn", "agents__spawn"),
        ("spawn", "agents__spawn"),
    ],
)
def test_mangled_names_find_their_tool(name: str, tool: str) -> None:
    assert ToolTable.of(TOOLS).restore(name).name == tool


def test_ambiguous_and_unknown_names_stand_for_themselves() -> None:
    spaces = [{"type": "namespace", "name": space, "tools": [RUN]} for space in ("a", "b")]
    table = ToolTable.of(spaces)
    assert table.find("run") is None and table.find("") is None and table.find("a.run") is table.tools[0]
    unknown = table.restore("no.such")
    assert (unknown.name, unknown.public_name, unknown.namespace) == ("no.such", "no.such", None)


def test_names_that_collide_or_are_too_long_come_back() -> None:
    tools = [
        {"type": "function", "name": "a__b"},
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": name} for name in ("b", "é b")]},
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "x" * 90 + end} for end in "12"]},
    ]
    table = ToolTable.of(tools)
    names = [tool.name for tool in table.tools]
    assert len(set(names)) == 5 and all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    for tool in table.tools:
        assert table.restore(tool.name) is tool
        assert table.flat_name(tool.public_name, tool.namespace) == tool.name
    assert names == [tool.name for tool in ToolTable.of(tools).tools]


def test_calls_of_the_history_are_written_as_they_were_emitted() -> None:
    table = ToolTable.of(TOOLS)
    odd = '{"a":  1,"a":2 }'
    assert table.flatten_call(FunctionCall("c", "spawn", odd, "agents")) == ("agents__spawn", odd)
    name, arguments = table.flatten_call(CustomToolCall("c", "apply_patch", 'x\n"é'))
    assert name == "apply_patch" and json.loads(arguments) == {"input": 'x\n"é'}
    assert ToolTable().flatten_call(FunctionCall("c", "spawn", "{}", "agents"))[0] == "agents__spawn"


@pytest.mark.parametrize(
    ("choice", "mode", "allowed"),
    [
        (None, "auto", ()),
        ("none", "none", ()),
        ("required", "required", ()),
        ({"type": "function", "name": "run"}, "required", ("run",)),
        ({"type": "function", "function": {"name": "run"}}, "required", ("run",)),
        ({"type": "custom", "name": "apply_patch"}, "required", ("apply_patch",)),
        ({"type": "function", "name": "spawn", "namespace": "agents"}, "required", ("agents__spawn",)),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [RUN, {"type": "mcp"}, SPACE]},
            "auto",
            ("run", "agents__spawn", "agents__js"),
        ),
        ({"type": "allowed_tools", "mode": "required", "tools": [RUN]}, "required", ("run",)),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, "none", ()),
        ({"type": "web_search"}, "auto", ()),
    ],
)  # fmt: skip
def test_choices(choice: Any, mode: str, allowed: tuple[str, ...]) -> None:
    table = ToolTable.of(TOOLS, choice)
    assert (table.mode, table.allowed) == (mode, allowed)
    wanted = () if mode == "none" else allowed or tuple(tool.name for tool in table.tools)
    assert tuple(tool.name for tool in table.callable) == wanted


@pytest.mark.parametrize(
    "choice",
    ["some", 3, {"name": "run"}, {"type": "function", "name": "rum"}, {"type": "allowed_tools"},
     {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}],
)  # fmt: skip
def test_choices_that_cannot_be(choice: Any) -> None:
    with pytest.raises(UsageError) as caught:
        ToolTable.of(TOOLS, choice)
    assert caught.value.param == "tool_choice"
    with pytest.raises(UsageError):
        ToolTable.of([], "required")


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ("x", "tools[1]"),
        ({}, "tools[1].type"),
        ({"type": 3}, "tools[1].type"),
        ({"type": "function"}, "tools[1].name"),
        ({"type": "function", "name": " "}, "tools[1].name"),
        ({"type": "function", "function": {"name": 3}}, "tools[1].function.name"),
        ({"type": "function", "name": "a", "parameters": []}, "tools[1].parameters"),
        ({"type": "function", "name": "a", "parameters": DEEP}, "tools[1].parameters"),
        ({"type": "function", "name": "a", "description": 1}, "tools[1].description"),
        ({"type": "custom", "name": "a", "format": 1}, "tools[1].format"),
        ({"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "gbnf"}}, "tools[1].format"),
        ({"type": "custom", "name": "a", "format": {**GRAMMAR, "definition": ""}}, "tools[1].format.definition"),
        ({"type": "namespace", "name": "a"}, "tools[1].tools"),
        ({"type": "namespace", "name": "a", "tools": [RUN, {"type": "function"}]}, "tools[1].tools[1].name"),
        ({"type": "namespace", "name": "a", "tools": [{**SPACE, "tools": []}]}, "tools[1].tools[0].tools"),
    ],
)  # fmt: skip
def test_malformed_tools_are_named(tool: Any, param: str) -> None:
    with pytest.raises(UsageError) as caught:
        ToolTable.of([RUN, tool])
    assert caught.value.param == param


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["type", "name", "tools", "format", "function", "custom", "parameters", "syntax", "definition", "mode"]
    ), inner | st.sampled_from(["function", "custom", "namespace", "grammar", "lark", "allowed_tools"]), max_size=5),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(JSON, max_size=4), JSON)
def test_any_json_is_a_table_or_a_usage_error(tools: list[Any], choice: Any) -> None:
    try:
        table = ToolTable.of(tools, choice)
    except UsageError as error:
        assert error.param
        return
    for tool in table.tools:
        assert len(tool.name) <= LONGEST_NAME and table.restore(tool.name) is tool


texts = st.text(st.characters() | st.sampled_from('"\\/bfnrtu0😀\ud83d\ude00\x00é'), max_size=20)


def plain(text: str) -> str:
    """What UTF-8 can say of a decoded string."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@settings(max_examples=500, deadline=None)
@given(texts, st.booleans(), st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_strings_decode_as_json_does_whatever_the_pieces(text: str, ascii: bool, sizes: list[int]) -> None:
    quoted = json.dumps(text, ensure_ascii=ascii)
    decoder = StringDecoder()
    said = "".join(map(decoder.feed, cut(quoted[1:] + ", 1", sizes)))
    assert decoder.closed and decoder.rest == ", 1" and said + decoder.finish() == plain(json.loads(quoted))


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('a"\\ud83e\n')), st.lists(st.integers(1, 3), min_size=1))
def test_broken_strings_decode_the_same_in_any_pieces(text: str, sizes: list[int]) -> None:
    whole, pieces = StringDecoder(), StringDecoder()
    said = whole.feed(text)
    assert "".join(map(pieces.feed, cut(text, sizes))) == said and pieces.finish() == whole.finish()
    assert (pieces.closed, pieces.rest) == (whole.closed, whole.rest)
    said.encode()


@settings(max_examples=300, deadline=None)
@given(texts, st.sampled_from(["input", 'a"\\']), st.sampled_from([None, 1]), st.lists(st.integers(1, 5), min_size=1))
def test_custom_input_comes_out_of_its_object(text: str, key: str, indent: int | None, sizes: list[int]) -> None:
    arguments = json.dumps({key: text}, indent=indent)
    decoder = CustomInputDecoder()
    assert "".join(map(decoder.feed, cut(arguments, sizes))) + decoder.finish() == plain(text)


@pytest.mark.parametrize("arguments", ["*** Begin", '{"input": 3}', '["x"]', '{"a"; "x"}', "", "{"])
def test_arguments_that_hold_no_text_come_out_as_they_are(arguments: str) -> None:
    decoder = CustomInputDecoder()
    assert "".join(map(decoder.feed, arguments)) + decoder.finish() == arguments


def test_custom_input_streams() -> None:
    decoder = CustomInputDecoder()
    pieces = ['{"inp', 'ut": "', "a\\", "nb", 'c"', "}"]
    assert [decoder.feed(piece) for piece in pieces] == ["", "", "a", "\nb", "c", ""]


def cut(text: str, sizes: list[int]) -> list[str]:
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces
