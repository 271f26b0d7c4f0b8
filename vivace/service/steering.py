"""User messages that are put into a running response.

The response ends after its open item (``incomplete``, reason ``steered``; or normally, if it was at its end) and a
successor with the same settings follows by itself. Where it ends with tool calls, the messages wait for the client's
next request, which brings the outputs, and go in before them. As OpenAI's WebSocket mode has it; ``preempt`` is an
extension.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
from msgspec import Struct

from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.items import Item, items_of
from vivace.protocol.requests import ResponseRequest, SteerFrame
from vivace.service.turn import Turn

MOST_PENDING = 16
"""Steers that may wait for one response."""


class _Waiting(Struct):
    id: str
    items: list[Item]


class Steers:
    """The steers of one connection; they end with it."""

    def __init__(self, deliver: Callable[[list[ev.Event]], None]) -> None:
        self._deliver = deliver
        self._waiting: dict[str, list[_Waiting]] = {}
        """By the response that they are for, running or ended with tool calls."""

    def take(self, frame: SteerFrame, turn: Turn | None, ended: bool) -> None:
        """Accept a steer for ``turn``, or say why not."""
        steer = ev.Steer(frame.previous_response_id, f"steer_{uuid.uuid4().hex}")
        lane = turn.asked.request.stream_id if turn is not None else frame.stream_id
        refusal = self._refusal(frame, turn, ended)
        if refusal is not None or turn is None:
            code, message = refusal or ("response_not_found", "")
            given = msgspec.structs.replace(steer, input=frame.input)
            body = ev.ErrorBody(message, "invalid_request_error", code)
            self._deliver([ev.SteerFailed(0, given, body, stream_id=lane)])
            return
        self._waiting.setdefault(turn.response_id, []).append(_Waiting(steer.id or "", items_of(frame.input)))
        self._deliver([ev.SteerAccepted(turn.next_number(), steer, stream_id=lane)])
        turn.steer(frame.preempt)

    def successor(self, turn: Turn) -> ResponseRequest | None:
        """The request that follows an ended turn by itself, if there is one; tells of steers that have to wait."""
        waiting = self._waiting.get(turn.response_id)
        if not waiting:
            return None
        if turn.response.status in ("failed", "cancelled"):
            del self._waiting[turn.response_id]
            self._give_back(turn, waiting)
            return None
        if turn.calls:
            for one in waiting:
                self._deliver([self._pending(turn, one)])
            return None
        del self._waiting[turn.response_id]
        items = [item for one in waiting for item in one.items]
        return msgspec.structs.replace(
            turn.asked.request, previous_response_id=turn.response_id, input=items, prediction=None
        )

    def joined(self, request: ResponseRequest) -> ResponseRequest:
        """A request with the steers in front that waited for it."""
        waiting = self._waiting.pop(request.previous_response_id or "", None)
        if not waiting:
            return request
        steered = [item for one in waiting for item in one.items]
        given = items_of(request.input) if isinstance(request.input, str) else request.input
        return msgspec.structs.replace(request, input=[*steered, *given])

    def _refusal(self, frame: SteerFrame, turn: Turn | None, ended: bool) -> tuple[str, str] | None:
        given = items_of(frame.input) if isinstance(frame.input, str) else frame.input
        if not given or not all(isinstance(item, it.Message) and item.role == "user" for item in given):
            return "invalid_input", "A steer is one or more user messages."
        if turn is None:
            if ended:
                return "response_already_completed", "The response has ended."
            return "response_not_found", f"No response '{frame.previous_response_id}' runs on this connection."
        if turn.asked.compacts or turn.asked.job.prefill_only:
            return "steering_not_supported", "A response that compacts or prepares cannot be steered."
        if turn.ended.is_set():
            return "response_not_active", "The response is no longer accepting steering input."
        if len(self._waiting.get(turn.response_id, ())) >= MOST_PENDING:
            return "too_many_pending_steers", f"{MOST_PENDING} steers wait for the response already."
        return None

    def _pending(self, turn: Turn, one: _Waiting) -> ev.SteerPending:
        required = [
            ev.RequiredInput("custom_tool_call_output", call.call_id)
            if isinstance(call, it.CustomToolCall)
            else ev.RequiredInput("function_call_output", call.call_id, call.name)
            for call in turn.calls
        ]
        steer = ev.Steer(turn.response_id, one.id)
        return ev.SteerPending(turn.next_number(), steer, required, stream_id=turn.asked.request.stream_id)

    def _give_back(self, turn: Turn, waiting: list[_Waiting]) -> None:
        for one in waiting:
            steer = ev.Steer(turn.response_id, one.id, one.items)
            body = ev.ErrorBody("The response failed.", "invalid_request_error", "successor_creation_failed")
            failed = ev.SteerFailed(turn.next_number(), steer, body, stream_id=turn.asked.request.stream_id)
            self._deliver([failed])
