"""Short ways to make jobs and read runs."""

from __future__ import annotations

from typing import Any

from vivace.backends.base import CallEnd, CallStart, CallText, End, Job, Piece, Run, Text
from vivace.dialects.tools import ToolTable
from vivace.protocol.items import Item, items_of
from vivace.protocol.requests import ResponseRequest

SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" /(.|\\n)*/'},
}
TEAM = {"type": "namespace", "name": "team", "description": "", "tools": [{**SHELL, "name": "spawn"}]}


def job(given: str | list[Any] = "hello there", tools: list[dict[str, Any]] | None = None, **fields: Any) -> Job:
    """A job for this input; ``fields`` go to the request, and those that are a job's own to the job."""
    own = {name: fields.pop(name) for name in list(fields) if name in Job.__struct_fields__}
    items: list[Item] = items_of(given)
    choice = fields.pop("tool_choice", "auto")
    table = ToolTable.of(tools or [], choice, fields.get("parallel_tool_calls", True), items)
    request = ResponseRequest(model="m", input=items, **fields)
    return Job(request=request, items=items, tools=table, **own)


async def read(run: Run) -> tuple[list[Piece], End]:
    """Everything of a run."""
    pieces: list[Piece] = [piece async for piece in run]
    end = pieces.pop()
    assert isinstance(end, End)
    return pieces, end


def text_of(pieces: list[Piece]) -> str:
    """The text of the answer."""
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))


def assembled(pieces: list[Piece]) -> list[tuple[str, str, str, bool]]:
    """Name, id, text and whether it was ended, of each call; a call inside another fails."""
    calls: list[tuple[str, str, str, bool]] = []
    is_open = False
    for piece in pieces:
        match piece:
            case CallStart():
                assert not is_open
                calls.append((piece.name, piece.call_id, "", False))
                is_open = True
            case CallText():
                assert is_open
                assert piece.text
                name, call_id, text, _ = calls[-1]
                calls[-1] = (name, call_id, text + piece.text, False)
            case CallEnd():
                assert is_open
                calls[-1] = (*calls[-1][:3], True)
                is_open = False
    return calls
