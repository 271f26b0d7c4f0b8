"""A service that answers by script: chunks, pauses, failures and limits, without a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Literal

from vivace.errors import VivaceError
from vivace.protocol.contracts import Final, ModelCard, Principal, StopReason
from vivace.protocol.events import Completed, Created, Event, Failed, Incomplete, TextDelta
from vivace.protocol.items import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    Usage,
)
from vivace.protocol.requests import ResponseRequest


@dataclass
class Script:
    """One answer. ``pause`` seconds pass before each chunk; ``end`` says how it ends (``lost``: it just stops)."""

    text: str = ""
    chunk: int = 7
    pause: float = 0.0
    end: Literal["completed", "incomplete", "failed", "lost", "hang"] = "completed"
    accepted: int = 0
    on_chunk: Callable[[int], None] | None = None

    @classmethod
    def file(cls, text: str, language: str = "python", **options: object) -> Script:
        """A well-formed answer with a whole file."""
        return cls(f"```{language}\n{text}```", **options)  # type: ignore[arg-type]


class ScriptedGeneration:
    def __init__(self, script: Script, request: ResponseRequest) -> None:
        self.script, self.request = script, request
        self.stopped: list[StopReason] = []
        self.sent = 0
        self._over = asyncio.Event()

    def usage(self) -> Usage:
        return Usage(
            input_tokens=10,
            input_tokens_details=InputTokensDetails(),
            output_tokens=self.sent,
            output_tokens_details=OutputTokensDetails(accepted_prediction_tokens=min(self.script.accepted, self.sent)),
            total_tokens=10 + self.sent,
        )

    async def __aiter__(self) -> AsyncIterator[Event]:
        script = self.script
        response = Response(id="resp_1", model=self.request.model, created_at=time.time())
        yield Created(0, response)
        for n, at in enumerate(range(0, len(script.text), script.chunk)):
            await asyncio.sleep(script.pause)
            if self._over.is_set():
                return
            if script.on_chunk:
                script.on_chunk(n)
            self.sent += 1
            yield TextDelta(n + 1, "msg_1", 0, 0, script.text[at : at + script.chunk])
        response.usage = self.usage()
        if script.end == "hang":
            await self._over.wait()
        elif script.end == "completed":
            yield Completed(99, response)
        elif script.end == "incomplete":
            response.incomplete_details = IncompleteDetails("max_output_tokens")
            yield Incomplete(99, response)
        elif script.end == "failed":
            response.error = ResponseError("engine_crashed", "the engine ended unexpectedly")
            yield Failed(99, response)

    async def stop(self, reason: StopReason) -> Final:
        self.stopped.append(reason)
        self._over.set()
        return Final("cancelled", self.usage())


@dataclass
class ScriptedService:
    """Answers request ``n`` with script ``n``, and the last one for ever."""

    scripts: list[Script]
    window: int = 32_768
    characters_per_token: int = 4
    open_error: VivaceError | None = None
    closed: int = 0
    requests: list[ResponseRequest] = field(default_factory=list)
    generations: list[ScriptedGeneration] = field(default_factory=list)

    async def open(self, model: str) -> ModelCard:
        if self.open_error:
            raise self.open_error
        return ModelCard(name=model, context_window=self.window, dialect="chatml", takes_reference=True)

    async def input_tokens(self, request: ResponseRequest) -> int:
        assert isinstance(request.input, str)
        return (len(request.input) + len(request.instructions or "")) // self.characters_per_token + 8

    def start(self, request: ResponseRequest, principal: Principal) -> ScriptedGeneration:
        script = self.scripts[min(len(self.requests), len(self.scripts) - 1)]
        self.requests.append(request)
        self.generations.append(ScriptedGeneration(script, request))
        return self.generations[-1]

    async def close(self) -> None:
        self.closed += 1
