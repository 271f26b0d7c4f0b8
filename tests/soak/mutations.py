"""Requests as real clients send them, and what may become of them on the way: seeded, so that a failure comes again."""

from __future__ import annotations

import copy
import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = Any

SAMPLES = Path(__file__).parents[3] / "shared" / "reference" / "samples" / "sample_server_events.json"
MODEL = "paced"

_TOOLS: list[Json] = [
    {
        "type": "function",
        "name": "exec_command",
        "description": "Run a command.",
        "strict": False,
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    },
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    },
    {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "spawn", "parameters": {}}]},
    {"type": "web_search"},
]
_CONVERSATION: list[Json] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files, häppily 🙂."}]},
    {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "opaque"},
    {"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": '{"cmd":"ls"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a.py"}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "There is one."}]},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin Patch"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
    {"type": "message", "role": "user", "content": "And now?"},
]
_RESPONSE: Json = {
    "model": MODEL,
    "input": _CONVERSATION,
    "instructions": "Be short.",
    "tools": _TOOLS,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "out", "schema": {"type": "object"}}},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "session",
    "client_metadata": {"turn": "1"},
    "max_output_tokens": 50,
    "temperature": 0.5,
    "metadata": {"a": "b"},
    "context_management": [{"type": "compaction", "compact_threshold": 100_000}],
    "prediction": {"type": "content", "content": "said before"},
    "stop": ["END"],
    "service_tier": "auto",
}
_CHAT: Json = {
    "model": MODEL,
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "List the files."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    "stream_options": {"include_usage": True},
    "max_tokens": 20,
    "temperature": 0.2,
    "stop": ["END"],
    "n": 1,
}
_MESSAGES: Json = {
    "model": MODEL,
    "max_tokens": 100,
    "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"c": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]},
    ],
    "tools": [{"name": "Bash", "description": "Run.", "input_schema": {"type": "object", "properties": {}}}],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "metadata": {"user_id": "u"},
}
_COMPLETION: Json = {
    "model": MODEL,
    "prompt": "def add(a, b):\n    return ",
    "suffix": "\n\nprint(add(1, 2))",
    "max_tokens": 20,
    "stop": ["\n"],
    "logprobs": 0,
    "seed": 1,
}


def bodies() -> list[tuple[str, Json]]:
    """Each HTTP route that takes a body, with good ones."""
    return [
        ("/v1/responses", _RESPONSE),
        ("/v1/responses", {**_RESPONSE, "stream": True}),
        ("/v1/responses", {"model": MODEL, "input": "Hello.", "stream": True}),
        ("/v1/responses/input_tokens", _RESPONSE),
        ("/v1/responses/compact", {"model": MODEL, "input": _CONVERSATION}),
        ("/v1/chat/completions", _CHAT),
        ("/v1/chat/completions", {**_CHAT, "stream": True}),
        ("/v1/completions", _COMPLETION),
        ("/v1/completions", {**_COMPLETION, "stream": True}),
        ("/v1/messages", _MESSAGES),
        ("/v1/messages", {**_MESSAGES, "stream": True}),
        ("/v1/messages/count_tokens", _MESSAGES),
    ]


def frames() -> list[Json]:
    """A client's WebSocket frames; and a server's, where the samples are there, which a confused proxy might send."""
    asked = {"type": "response.create", **_RESPONSE}
    made: list[Json] = [
        asked,
        asked,
        {**asked, "stream_id": "a"},
        {"type": "response.create", "model": MODEL, "input": "Hello.", "stream_id": "b-1"},
        {"type": "response.create", "model": MODEL, "input": _CONVERSATION, "tools": _TOOLS, "generate": False},
        {"type": "response.create", "model": MODEL, "input": [], "previous_response_id": "resp_gone"},
        {"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop that.", "preempt": True},
        {"type": "response.cancel", "response_id": "resp_1"},
        {"type": "response.inject", "response_id": "resp_1", "input": _CONVERSATION[4:5]},
        {"type": "response.append", "input": []},
    ]
    if SAMPLES.exists():
        made += [sample["event"] for sample in json.loads(SAMPLES.read_text("utf-8"))]
    return made


def deep(depth: int, array: bool) -> bytes:
    return b"[" * depth + b"]" * depth if array else b'{"a":' * depth + b"1" + b"}" * depth


_ODD: tuple[Callable[[random.Random], bytes], ...] = (
    lambda chance: b"null",
    lambda chance: b"true",
    lambda chance: b'""',
    lambda chance: b"[]",
    lambda chance: b"{}",
    lambda chance: str(chance.choice((0, -1, 1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**30))).encode(),
    lambda chance: chance.choice((b"1e308", b"-1e308", b"1e999", b"0.1", b"-0.0", b"1e-400", b"9" * 5000)),
    lambda chance: chance.choice((b"NaN", b"Infinity", b"-Infinity", b"undefined", b"'a'", b"0x10", b"01")),
    lambda chance: json.dumps("x" * chance.choice((1, 300, 100_000))).encode(),
    lambda chance: chance.choice((rb'"\ud800"', rb'"\udfff\ud800"', rb'"\u0000"', b'"\x00"', b'"\xff\xfe"', rb'"\x"')),
    lambda chance: deep(chance.choice((5, 100, 1000, 20_000)), chance.random() < 0.5),
    lambda chance: b"[" + b"[]," * chance.choice((10, 5000)) + b"{}]",
    lambda chance: b'{"type":' + chance.choice((b'"message"', b'"input_image"', b'"nobody"', b"1", b"null")) + b"}",
    lambda chance: json.dumps([chance.choice((1, "a", None, [], {})) for _ in range(chance.randrange(4))]).encode(),
    lambda chance: json.dumps(
        chance.choice(("auto", "none", "required", "../../etc", "paced", "response.create"))
    ).encode(),
)
_HOLE = "\ue000hole\ue000"


def nodes(value: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document but the document itself."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from nodes(inner, (*path, key))


def _parent(value: Json, path: tuple[Any, ...]) -> Json:
    for key in path[:-1]:
        value = value[key]
    return value


def swapped(chance: random.Random, value: Json) -> bytes:
    """Values replaced by others of any type, in a few places."""
    value = copy.deepcopy(value)
    holes: list[bytes] = []
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        path = chance.choice(list(nodes(value)))
        _parent(value, path)[path[-1]] = f"{_HOLE}{len(holes)}"
        holes.append(chance.choice(_ODD)(chance))
    data = json.dumps(value, ensure_ascii=False).encode()
    for number, odd in enumerate(holes):
        data = data.replace(json.dumps(f"{_HOLE}{number}", ensure_ascii=False).encode(), odd)
    return data


_TEXTS = (
    "", " ", "\n", "\0", "x" * 70_000, "\u202e\ufeff", "e\u0301" * 500, "\U0001f642", "<tool_call>{",
    "<|im_start|>system", "[" * 500, "auto", "none", "required", "function", "custom", "message", "developer", "system",
    "user", "tool", "grammar", "json_object", "response.create", "paced", "call_1", "resp_1", "start: start",
    "{{ 1 // 0 }}", "../..", "%s%n", "null",
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 7, 2**31, 2**53, 2**63 - 1, 10**9, 0.0, 1e-9, 0.999, 1.5, -0.5, 1e300)


def varied(chance: random.Random, value: Json) -> bytes:
    """Values replaced by others of the same type: what is said is odd, its form is right."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 4))):
        path = chance.choice(list(nodes(value)))
        parent, key = _parent(value, path), path[-1]
        match parent[key]:
            case bool():
                parent[key] = not parent[key]
            case str() if key not in ("type", "model") or chance.random() < 0.1:
                parent[key] = chance.choice(_TEXTS)
            case int() | float():
                parent[key] = chance.choice(_NUMBERS)
            case list() as found:
                parent[key] = chance.choice((found[::-1], found * 3, found[1:], [*found, *found[:1]]))
            case dict() as found:
                parent[key] = {**found, chance.choice(_TEXTS): chance.choice(_TEXTS)}
    return json.dumps(value, ensure_ascii=False).encode()


def rearranged(chance: random.Random, value: Json) -> bytes:
    """Keys left out, renamed, doubled; elements left out and repeated."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 2, 3))):
        path = chance.choice(list(nodes(value)))
        parent, key = _parent(value, path), path[-1]
        if isinstance(parent, list):
            if chance.random() < 0.5:
                del parent[key]
            else:
                parent += [copy.deepcopy(parent[key])] * chance.choice((1, 3, 100))
        elif chance.random() < 0.6:
            del parent[key]
        else:
            parent[f"{key}{chance.choice(('', 's', '_', chr(0), ' '))}"] = parent.pop(key)
        if not list(nodes(value)):
            break
    data = json.dumps(value).encode()
    return data if chance.random() < 0.8 else data[:-1] + b"," + data[1:]


def flipped(chance: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def torn(chance: random.Random, data: bytes) -> bytes:
    """Cut short, with a piece missing, a piece doubled, or bytes put in."""
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return chance.choice(
        (data[:a], data[a:], data[:a] + data[b:], data[:b] + data[a:], data[:a] + chance.randbytes(9) + data[a:])
    )


def encoded(chance: random.Random, data: bytes) -> bytes:
    """In another encoding than UTF-8, or packed without a word."""
    text = data.decode()
    return chance.choice(
        (
            lambda: text.encode("utf-16"),
            lambda: text.encode("utf-32-be"),
            lambda: text.encode("utf-8-sig"),
            lambda: text.encode("latin-1", "replace"),
            lambda: text.encode("cp037", "replace"),
            lambda: gzip.compress(data),
            lambda: zlib.compress(data),
            lambda: data.replace(b" ", b"\x00"),
        )
    )()


def mutated(chance: random.Random, value: Json) -> bytes:
    """One of everything that may happen to a document on its way."""
    data = json.dumps(value, ensure_ascii=False).encode()
    match chance.choices(range(8), (20, 15, 10, 10, 4, 4, 34, 3))[0]:
        case 0:
            return swapped(chance, value)
        case 1:
            return rearranged(chance, value)
        case 2:
            return flipped(chance, data)
        case 3:
            return torn(chance, data)
        case 4:
            return encoded(chance, data)
        case 6:
            return varied(chance, value)
        case 5:
            return chance.choice((b"", b" ", b"null", b"[]", b"1", b'"a"', b"{", b"}", chance.randbytes(50)))
        case _:
            return deep(chance.choice((2000, 30_000)), chance.random() < 0.5)
