"""``/v1/responses`` and what belongs to it, over HTTP."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from vivace.protocol.errors import BadRequest
from vivace.protocol.events import Created
from vivace.protocol.items import InputText, Item, Message, new_id
from vivace.protocol.requests import decode_request
from vivace.server.call import Call
from vivace.server.models import etag_headers
from vivace.server.refusals import failed
from vivace.server.sse import last_event, responses_sse, stream_events

LARGEST_PAGE = 100


async def create(call: Call) -> None:
    """POST /v1/responses"""
    request = decode_request(await call.body())
    if request.stream_id is not None:
        raise BadRequest("'stream_id' names a lane of a WebSocket; over HTTP there is none.", "stream_id")
    call.belongs(request)
    stream = await call.gateway.respond(request, call.principal)
    watch = call.door.metrics.watch("responses", call.begun)
    headers = {**stream.headers, **etag_headers(call)}
    background = request.background is True
    if request.stream:
        await stream_events(call, stream, responses_sse, watch, headers, detached=background)
        return
    if background:
        for event in await stream.ready():
            if isinstance(event, Created):
                await call.json(event.response, headers=headers)
                return
        raise BadRequest("The response did not begin.", code="server_error", status=500)
    if (last := await last_event(call, stream, watch)) is None:
        return
    if last.response.status == "failed":
        raise failed(last.response.error)
    await call.json(last.response, headers=headers)


async def retrieve(call: Call) -> None:
    """GET /v1/responses/{id}, as an object or, with ``stream=true``, its events after ``starting_after``"""
    query = call.query
    if query.get("stream", "").lower() not in ("true", "1"):
        await call.json(await call.gateway.retrieve(call.response_id, call.principal))
        return
    after = _whole_number(query, "starting_after", -1)
    stream = await call.gateway.resume(call.response_id, call.principal, after)
    await stream_events(call, stream, responses_sse, call.door.metrics.watch("responses"), detached=True)


async def delete(call: Call) -> None:
    """DELETE /v1/responses/{id}"""
    await call.gateway.delete(call.response_id, call.principal)
    await call.json({"id": call.response_id, "object": "response", "deleted": True})


async def cancel(call: Call) -> None:
    """POST /v1/responses/{id}/cancel"""
    await call.json(await call.gateway.cancel(call.response_id, call.principal))


async def input_items(call: Call) -> None:
    """GET /v1/responses/{id}/input_items"""
    query = call.query
    limit = _whole_number(query, "limit", 20)
    if not 1 <= limit <= LARGEST_PAGE:
        raise BadRequest(f"'limit' has to be from 1 to {LARGEST_PAGE}.", "limit")
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise BadRequest("'order' is asc or desc.", "order")
    items = await call.gateway.input_items(call.response_id, call.principal)
    await call.json(page(identified(items, call.response_id), query.get("after"), limit, order == "desc"))


async def input_tokens(call: Call) -> None:
    """POST /v1/responses/input_tokens"""
    tokens = await call.gateway.input_tokens(decode_request(await call.body()), call.principal)
    await call.json({"object": "response.input_tokens", "input_tokens": tokens})


async def compact(call: Call) -> None:
    """POST /v1/responses/compact"""
    request = decode_request(await call.body())
    items, usage = await call.gateway.compact(request, call.principal)
    await call.json(
        {
            "id": new_id("resp"),
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [_in_parts(item) for item in items],
            "usage": usage,
        }
    )


async def probe(call: Call) -> None:
    """HEAD /v1/responses, with which Codex CLI's doctor looks whether somebody is there"""
    await call.answer(b"")


def identified(items: list[Item], response_id: str) -> list[dict[str, Any]]:
    """Items as objects, each with an id: its own, or one made of its place."""
    tail = response_id.removeprefix("resp_")
    found: list[dict[str, Any]] = [msgspec.to_builtins(item) for item in items]
    return [{**item, "id": item.get("id") or f"in_{tail}_{n}"} for n, item in enumerate(found)]


def _in_parts(item: Item) -> Item:
    """A message as OpenAI gives it back: its content in parts, also where a client sent a string."""
    if isinstance(item, Message) and isinstance(item.content, str):
        return msgspec.structs.replace(item, content=[InputText(item.content)])
    return item


def page(items: list[dict[str, Any]], after: str | None, limit: int, newest_first: bool) -> dict[str, Any]:
    """A page of OpenAI's lists, behind the item ``after``."""
    if newest_first:
        items = items[::-1]
    start = 0
    if after:
        places = [n for n, item in enumerate(items) if item["id"] == after]
        if not places:
            raise BadRequest(f"There is no item {after[:80]!r} in this response.", "after")
        start = places[0] + 1
    shown = items[start : start + limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": start + limit < len(items),
    }


def _whole_number(query: dict[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        raise BadRequest(f"'{name}' has to be a whole number.", name, "invalid_type") from None
