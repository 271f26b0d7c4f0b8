"""A coding agent's conversation, made up: what Codex CLI's look like from the server, of any size and no content.

A developer prompt of some 6 KB, 15 tools of some 20 KB that are sent with every request, and a history of calls and
their outputs. Each conversation has a name in its first message, so that no two share a prefix.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

Json = dict[str, Any]

CALLS = 24
OUTPUT_CHARACTERS = 1200
"""Of a tool's output between two calls; about 300 tokens."""
PROMPT_CHARACTERS = 6000
TOOLS_CHARACTERS = 20_000
LAST = "every test passed"
"""Ends the last output: the agent answers with text instead of a call."""

SCRIPT = f"""
[[rules]]
when = {{ output = "{LAST}" }}
steps = [{{ text = "All the places are changed and every test is green, as you asked. Nothing else was touched." }}]

[[rules]]
steps = [
    {{ text = "I look at the next place." }},
    {{ call = "exec_command", arguments = {{ cmd = "sed -n 120,160p src/inventory/orders.py" }} }},
]
"""
"""What the paced backend answers to it."""

_VOCABULARY = (
    "account array async balance branch buffer cache call catalog check client column config count cursor customer "
    "default delete entry error event export field file filter format function graph handle header index input insert "
    "invoice item key label layer line list lookup map merge message method model module name node number object order "
    "output page parse path point price product query queue range read record region report request result return row "
    "schema search section server shape size source stage state status stock store stream string table target test "
    "text time token total tree type unit update user value version view window worker write"
)
_WORDS = _VOCABULARY.split()


class Conversation:
    """Named, with ``characters`` of text in all its messages and tools; see :meth:`body` for what is sent."""

    def __init__(self, name: str, characters: int, model: str, *, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self.model = model
        self.tools = make_tools(random.Random(seed))
        self.items: list[Json] = [
            message("developer", f"Conversation {name}.\n\n{self._prose(PROMPT_CHARACTERS)}"),
            message("user", "Rename the field `price` to `unit_price` in the whole repository, and run the tests."),
        ]
        self.outputs = 0
        left = characters - TOOLS_CHARACTERS - PROMPT_CHARACTERS
        while left > 0:
            size = min(left, 4 * OUTPUT_CHARACTERS)
            call_id = f"call_{self.outputs:04}"
            call = {"type": "function_call", "name": "exec_command", "call_id": call_id, "arguments": '{"cmd":"ls"}'}
            self.items += [call, self._output(call_id, size)]
            left -= size

    def body(self, items: list[Json] | None = None, previous: str | None = None, **more: Any) -> Json:
        """A request as Codex CLI makes it: with the whole conversation, or with ``items`` behind ``previous``."""
        continued = {} if previous is None else {"previous_response_id": previous}
        return {
            "model": self.model,
            "input": self.items if items is None else items,
            "tools": self.tools,
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            **continued,
            **more,
        }

    def answer(self, items: list[Json], *, last: bool = False, word: str = "") -> list[Json]:
        """Take in what the agent said; gives what it is told next: the outputs of its calls, or a user's message.

        With ``word`` the calls have next to no output, and the user says it.
        """
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        if word:
            told = [*(_call_output(call_id, "done") for call_id in calls), message("user", word)]
        elif calls:
            told = [self._output(call_id, OUTPUT_CHARACTERS, LAST if last else "") for call_id in calls]
        else:
            told = [message("user", f"Go on. The last command said:\n{self._code(OUTPUT_CHARACTERS)}")]
        self.items += [*items, *told]
        return told

    def _output(self, call_id: str, size: int, end: str = "") -> Json:
        self.outputs += 1
        return _call_output(call_id, f"{self._code(size)}{end}")

    def _prose(self, size: int) -> str:
        return prose(self._chance, size)

    def _code(self, size: int) -> str:
        chance, lines, length = self._chance, [], 0
        while length < size:
            a, b, c = chance.choices(_WORDS, k=3)
            indent = "    " * chance.randrange(3)
            lines.append(f"{indent}{a}_{b} = {c}.{b}({a}, {chance.randrange(100)})  # {prose(chance, 30)}\n")
            length += len(lines[-1])
        return "".join(lines)


def _call_output(call_id: str, output: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def message(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def prose(chance: random.Random, size: int) -> str:
    """About ``size`` characters of words."""
    return " ".join(chance.choices(_WORDS, k=max(1, size // 6)))


def make_tools(chance: random.Random) -> list[Json]:
    """13 functions, one with free text, one namespace."""
    functions = [_function(f"{chance.choice(_WORDS)}_{number}", chance) for number in range(12)]
    edit = {"type": "custom", "name": "apply_patch", "description": prose(chance, 900), "format": {"type": "text"}}
    team = {
        "type": "namespace",
        "name": "team",
        "description": prose(chance, 200),
        "tools": [_function("spawn", chance), _function("wait", chance)],
    }
    return [_function("exec_command", chance, "cmd"), *functions, edit, team]


def _function(name: str, chance: random.Random, first: str = "path") -> Json:
    words = [first, *chance.sample(_WORDS, 3)]
    properties = {word: {"type": "string", "description": prose(chance, 150)} for word in words}
    return {
        "type": "function",
        "name": name,
        "description": prose(chance, 350),
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": [first],
            "additionalProperties": False,
        },
    }


def encode(value: Json) -> bytes:
    return msgspec.json.encode(value)
