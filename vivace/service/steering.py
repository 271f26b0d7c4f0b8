"""User messages that are put into a running response.

The response ends after its open item (``incomplete``, reason ``steered``; or normally, if it was at its end) and a
successor with the same settings follows by itself. Where it ends with tool calls, the messages wait for the client's
next request, which brings the outputs, and go in before them. As OpenAI's WebSocket mode has it; ``preempt`` is an
extension. A message that cannot go in is given back: none is lost while the connection lives.
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


class Waiting(Struct):
    """One accepted steer: its event's words, with the input as the client wrote it, and its messages."""

    steer: ev.Steer
    items: list[Item]


class Steers:
    """The steers of one connection; they end with it."""

    def __init__(self, deliver: Callable[[list[ev.Event]], None]) -> None:
        self._deliver = deliver
        self._waiting: dict[str, list[Waiting]] = {}
        """By the response that they are for, running or ended with tool calls."""

    def take(self, frame: SteerFrame, turn: Turn | None, ended: bool) -> None:
        """Accept a steer for ``turn``, or say why not; ``ended`` tells that there was such a response."""
        steer = ev.Steer(frame.previous_response_id, f"steer_{uuid.uuid4().hex}", frame.input)
        lane = turn.asked.request.stream_id if turn is not None else frame.stream_id
        refusal = self._refusal(frame, turn, ended)
        if refusal is not None or turn is None:
            code, message = refusal or ("response_not_found", "")
            # Behind its last event a response has no numbers left.
            number = turn.next_number() if turn is not None and not turn.ended.is_set() else 0
            self._deliver([_failed(number, steer, code, message, lane)])
            return
        self._waiting.setdefault(turn.response_id, []).append(Waiting(steer, items_of(frame.input)))
        self._deliver([ev.SteerAccepted(turn.next_number(), _named(steer), stream_id=lane)])
        turn.steer(frame.preempt)

    def successor(self, turn: Turn) -> tuple[ResponseRequest, list[Waiting]] | None:
        """The request that follows an ended turn by itself, if there is one, and the steers in it.

        Tells of steers that have to wait, and gives back those of a response that failed or was stopped.
        """
        waiting = self._waiting.get(turn.response_id)
        if not waiting:
            return None
        if turn.response.status in ("failed", "cancelled") or turn.stopped is not None:
            del self._waiting[turn.response_id]
            how = "failed" if turn.response.status == "failed" else "was stopped"
            self.give_back(turn, waiting, f"The response {how}.")
            return None
        if turn.calls:
            required = [_required(call) for call in turn.calls]
            lane = turn.asked.request.stream_id
            for one in waiting:
                self._deliver([ev.SteerPending(turn.next_number(), _named(one.steer), required, stream_id=lane)])
            return None
        del self._waiting[turn.response_id]
        items = [item for one in waiting for item in one.items]
        request = msgspec.structs.replace(turn.asked.request, previous_response_id=turn.response_id, input=items)
        return request, waiting

    def join(self, request: ResponseRequest) -> tuple[ResponseRequest, list[Waiting]]:
        """A request with the steers in front that waited for it, and those; :meth:`put_back` if it is refused."""
        waiting = self._waiting.pop(request.previous_response_id or "", [])
        if not waiting:
            return request, []
        steered = [item for one in waiting for item in one.items]
        given = items_of(request.input) if isinstance(request.input, str) else request.input
        return msgspec.structs.replace(request, input=[*steered, *given]), waiting

    def put_back(self, response_id: str, waiting: list[Waiting]) -> None:
        """Steers whose request was refused wait for the next one."""
        if waiting:
            self._waiting[response_id] = [*waiting, *self._waiting.get(response_id, [])]

    def give_back(self, turn: Turn, waiting: list[Waiting], why: str) -> None:
        """Say that steers came to nothing, with what they said."""
        for one in waiting:
            lane, number = turn.asked.request.stream_id, turn.next_number()
            self._deliver([_failed(number, one.steer, "successor_creation_failed", why, lane)])

    def _refusal(self, frame: SteerFrame, turn: Turn | None, ended: bool) -> tuple[str, str] | None:
        given = items_of(frame.input) if isinstance(frame.input, str) and frame.input else frame.input
        if not given or not all(isinstance(item, it.Message) and item.role == "user" for item in given):
            return "invalid_input", "A steer is one or more user messages."
        if turn is None:
            if ended:
                return "response_already_completed", "The response has ended."
            return "response_not_found", f"No response '{frame.previous_response_id}' runs on this connection."
        if turn.asked.compacts or turn.asked.job.prefill_only or turn.asked.request.context_management:
            return "steering_not_supported", "A response that compacts or prepares cannot be steered."
        if turn.ended.is_set() or turn.stopped is not None:
            return "response_not_active", "The response is no longer accepting steering input."
        if len(self._waiting.get(turn.response_id, ())) >= MOST_PENDING:
            return "too_many_pending_steers", f"{MOST_PENDING} steers wait for the response already."
        return None


def _named(steer: ev.Steer) -> ev.Steer:
    return ev.Steer(steer.previous_response_id, steer.id)


def _failed(number: int, steer: ev.Steer, code: str, message: str, lane: str | None) -> ev.SteerFailed:
    return ev.SteerFailed(number, steer, ev.ErrorBody(message, "invalid_request_error", code), stream_id=lane)


def _required(call: it.FunctionCall | it.CustomToolCall) -> ev.RequiredInput:
    if isinstance(call, it.CustomToolCall):
        return ev.RequiredInput("custom_tool_call_output", call.call_id)
    return ev.RequiredInput("function_call_output", call.call_id, call.name)
