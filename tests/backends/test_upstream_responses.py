"""Servers of the Responses API as upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.asking import PATCH, SHELL, assembled, job, read, text_of
from tests.backends.test_upstream import answer, play, quiet
from tests.fakes.upstream import FakeUpstream, Reply, Seen, error
from vivace.backends.base import CallStart, Reasoning
from vivace.backends.upstream import UpstreamBackend

USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 29,
}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **fields}


def completed(**fields: Any) -> dict[str, Any]:
    return event("completed", response={"id": "r", "status": "completed", "output": [], "usage": USAGE, **fields})


def call(index: int, kind: str, call_id: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "output_index": index,
        "item": {"type": kind, "id": f"i{index}", "call_id": call_id, "name": name, **fields},
    }


def test_everything_that_an_answer_has() -> None:
    reply = Reply(
        events=[
            event("created", response={"id": "r", "status": "in_progress"}),
            event("output_item.added", output_index=0, item={"type": "reasoning", "id": "i", "summary": []}),
            event("reasoning_text.delta", output_index=0, item_id="i", content_index=0, delta="Look."),
            event("reasoning_summary_text.delta", output_index=0, item_id="i", summary_index=0, delta="again"),
            event(
                "output_item.added",
                output_index=1,
                item={"type": "message", "id": "m", "role": "assistant", "content": []},
            ),
            event("output_text.delta", output_index=1, delta="Do"),
            event("output_text.delta", output_index=1, delta="ne"),
            event("output_item.added", **call(2, "function_call", "c1", "shell", arguments="")),
            event("function_call_arguments.delta", output_index=2, delta='{"cmd":'),
            event("function_call_arguments.delta", output_index=2, delta='"ls"}'),
            event("output_item.done", **call(2, "function_call", "c1", "shell", arguments='{"cmd":"ls"}')),
            event("output_item.added", **call(3, "custom_tool_call", "c2", "apply_patch", input="")),
            event("custom_tool_call_input.delta", output_index=3, delta="*** Begin {"),
            event("output_item.done", **call(3, "custom_tool_call", "c2", "apply_patch", input="*** Begin {")),
            event("output_item.done", **call(4, "function_call", "c3", "shell", arguments="{}")),
            {"type": "keepalive"},
            completed(),
        ]
    )
    pieces, end, fake = answer([reply], job(tools=[SHELL, PATCH]), api="responses")
    assert "".join(piece.text for piece in pieces if isinstance(piece, Reasoning)) == "Look."
    assert text_of(pieces) == "Done"
    assert assembled(pieces) == [
        ("shell", "c1", '{"cmd":"ls"}', True),
        ("apply_patch", "c2", "*** Begin {", True),
        ("shell", "c3", "{}", True),
    ]
    assert CallStart("apply_patch", "c2", raw=True) in pieces
    assert (end.reason, end.usage.input_tokens, end.usage.output_tokens) == ("stop", 20, 9)
    assert end.usage.input_tokens_details.cached_tokens == 16
    assert end.usage.output_tokens_details.reasoning_tokens == 4
    assert fake.seen[-1].path == "/v1/responses"


def incomplete(reason: str) -> dict[str, Any]:
    return event("incomplete", response={"usage": USAGE, "incomplete_details": {"reason": reason}})


def failed(code: str) -> dict[str, Any]:
    return event("failed", response={"error": {"code": code, "message": "why"}})


@pytest.mark.parametrize(
    ("last", "reason", "code"),
    [
        (completed(), "stop", "server_error"),
        (incomplete("max_output_tokens"), "length", "server_error"),
        (incomplete("content_filter"), "error", "content_filter"),
        (failed("rate_limit_exceeded"), "error", "rate_limit_exceeded"),
        ({"type": "error", "code": "context_length_exceeded", "message": "why"}, "error", "context_length_exceeded"),
        ({"type": "error", "status": 500, "error": {"code": "server_error", "message": "x"}}, "error", "server_error"),
        ({"type": "keepalive"}, "error", "server_error"),
    ],
)
def test_how_it_ends(last: dict[str, Any], reason: str, code: str) -> None:
    pieces, end, _ = answer(
        [Reply(events=[event("output_text.delta", output_index=0, delta="x"), last])], api="responses"
    )
    assert (text_of(pieces), end.reason, end.code) == ("x", reason, code)


def test_a_server_without_chat_completions_is_asked_for_responses() -> None:
    def handle(seen: Seen) -> Reply:
        if seen.path.endswith("/chat/completions"):
            return Reply(404, {"detail": "Not Found"})
        if any(tool["type"] != "function" for tool in seen.body.get("tools", ())):
            return error(400, "'type' of tool must be 'function'")
        return Reply(events=[event("output_text.delta", output_index=0, delta="hi"), completed()])

    async def do(backend: UpstreamBackend, fake: FakeUpstream) -> None:
        assert not backend.responses and (await backend.open(quiet)).takes_reference
        pieces, end = await read(backend.start(job(tools=[PATCH])))
        assert (text_of(pieces), end.reason) == ("hi", "stop")
        assert len(fake.bodies) == 3
        card = await backend.open(quiet)
        assert (backend.responses, card.takes_reference) == (True, False)
        await read(backend.start(job(tools=[PATCH])))
        assert len(fake.bodies) == 4

    play(handle, do)
