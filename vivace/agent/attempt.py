"""One answer of the model: streamed, timed, parsed, and always stopped when it is not wanted any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vivace.agent.reply import AnswerParser, Reply
from vivace.protocol.contracts import Principal, Service, StopReason
from vivace.protocol.events import Completed, Failed, Incomplete, TextDelta
from vivace.protocol.items import Usage
from vivace.protocol.requests import ResponseRequest


@dataclass
class Attempt:
    """How it went. Times are ``time.perf_counter`` seconds; ``first`` and ``last`` are 0 before any text came."""

    reply: Reply = field(default_factory=lambda: Reply("none", ""))
    usage: Usage = field(default_factory=Usage)
    started: float = 0.0
    first: float = 0.0
    last: float = 0.0
    failure: str = ""
    """Why there is no whole answer: the model's error, or the limit that cut it."""
    lost: bool = False
    """The service failed; asking again is no use."""
    length: int = 0
    """Characters so far."""
    most: int | None = None
    """Characters after which it is given up; others may set it while it runs."""

    @property
    def runs_on(self) -> bool:
        """It is longer than it may become."""
        return self.most is not None and self.length > self.most

    @property
    def ttft(self) -> float | None:
        """Seconds from the request to the first text."""
        return self.first - self.started if self.first else None


async def ask(
    service: Service,
    request: ResponseRequest,
    attempt: Attempt,
    parser: AnswerParser,
    on_lines: Callable[[list[str]], None],
) -> None:
    """Run one request to the closing mark of its code, and fill ``attempt``.

    Text after the closing mark ends the generation. When the task is cancelled, the generation is stopped first; the
    cancel message ``lost_race`` is passed on as the reason.
    """
    attempt.started = time.perf_counter()
    generation = service.start(request, Principal())
    ended = False
    try:
        async for event in generation:
            if isinstance(event, TextDelta):
                attempt.last = time.perf_counter()
                attempt.first = attempt.first or attempt.last
                attempt.length += len(event.delta)
                if attempt.runs_on:
                    break
                if parser.closed and event.delta.strip():
                    break  # the code is whole; what follows is talk
                if lines := parser.feed(event.delta):
                    on_lines(lines)
            elif isinstance(event, Completed | Incomplete | Failed):
                ended = True
                attempt.usage = event.response.usage or attempt.usage
                _explain(attempt, event)
        if not ended:
            attempt.usage = (await generation.stop("cancelled")).usage
            if not parser.closed and attempt.runs_on:
                attempt.failure = "the answer ran on, far beyond all others"
            else:
                attempt.failure = "" if parser.closed else "the connection ended before the answer did"
                attempt.lost = not parser.closed
    except BaseException as error:
        attempt.usage = (await generation.stop(_reason(error))).usage
        raise
    attempt.reply = parser.finish(complete=not attempt.failure)


def _explain(attempt: Attempt, event: Completed | Incomplete | Failed) -> None:
    if isinstance(event, Failed):
        error = event.response.error
        attempt.failure = f"the model failed: {error.message if error else 'no reason given'}"
        attempt.lost = True
    elif isinstance(event, Incomplete):
        details = event.response.incomplete_details
        attempt.failure = f"the answer was cut ({details.reason if details else 'no reason given'})"


def _reason(error: BaseException) -> StopReason:
    lost_race = isinstance(error, asyncio.CancelledError) and "lost_race" in error.args
    return "lost_race" if lost_race else "cancelled"
