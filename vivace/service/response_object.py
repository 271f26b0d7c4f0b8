"""The object of a response: as it begins, as it ends, and the sum of what its runs used."""

from __future__ import annotations

import time

import msgspec

from vivace.backends.base import End
from vivace.protocol.contracts import Final, StopReason
from vivace.protocol.items import CustomToolCall, FunctionCall, IncompleteDetails, Response, ResponseError, new_id
from vivace.protocol.usage import Usage
from vivace.service.asking import Asked


def response_of(asked: Asked) -> Response:
    """The object of a response that begins, with what the request said and the tier that serves."""
    request = asked.request
    parent = asked.parent if asked.chained else None
    return Response(
        id=new_id("resp"),
        model=request.model,
        created_at=time.time(),
        instructions=request.instructions,
        previous_response_id=parent.id if parent is not None else None,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        tool_choice=request.tool_choice or "auto",
        tools=request.tools or [],
        background=request.background or False,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        prompt_cache_key=request.prompt_cache_key,
        reasoning=request.reasoning,
        safety_identifier=request.safety_identifier,
        service_tier=asked.tier.id,
        store=request.store is not False,
        text=request.text,
        truncation=request.truncation or "disabled",
        user=request.user,
    )


def concluded(response: Response, end: End, stopped: StopReason | None, *, steered: bool) -> Final:
    """Write how it ended into ``response``; what a client that waits is told. ``stopped`` says who wanted it."""
    halted = end.reason == "aborted"
    response.usage = end.usage
    response.completed_at = time.time()
    match end.reason:
        case "stop":
            response.status = "completed"
        case "error" if end.code == "content_filter":
            response.status = "incomplete"
            response.incomplete_details = IncompleteDetails("content_filter")
        case "error":
            response.status = "failed"
            response.error = ResponseError(end.code, end.message)
        case _ if halted and steered and stopped is None and _calls(response):
            response.status = "completed"  # it ends with calls, whose outputs are waited for before the steer counts
        case _:
            reason = {"length": "max_output_tokens", "time": "max_time"}.get(end.reason, "stopped")
            response.status = "cancelled" if halted and stopped == "cancelled" else "incomplete"
            steered = halted and steered and stopped is None
            response.incomplete_details = IncompleteDetails("steered" if steered else reason)
    status = "cancelled" if halted and stopped is not None else response.status
    return Final(status if status in ("completed", "incomplete", "failed") else "cancelled", end.usage)


def _calls(response: Response) -> bool:
    """Whether the last thing said is a call, and everything is whole."""
    whole = all(getattr(item, "status", None) in (None, "completed") for item in response.output)
    return whole and bool(response.output) and isinstance(response.output[-1], FunctionCall | CustomToolCall)


def added(one: Usage, other: Usage) -> Usage:
    """The tokens of two runs that made one response."""
    total = msgspec.convert(msgspec.to_builtins(one), Usage)
    total.input_tokens += other.input_tokens
    total.output_tokens += other.output_tokens
    total.total_tokens += other.total_tokens
    total.input_tokens_details.cached_tokens += other.input_tokens_details.cached_tokens
    total.input_tokens_details.cache_write_tokens += other.input_tokens_details.cache_write_tokens
    details = total.output_tokens_details
    details.reasoning_tokens += other.output_tokens_details.reasoning_tokens
    details.accepted_prediction_tokens += other.output_tokens_details.accepted_prediction_tokens
    details.rejected_prediction_tokens += other.output_tokens_details.rejected_prediction_tokens
    return total
