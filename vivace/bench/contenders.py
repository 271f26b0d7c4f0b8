"""Who is measured: vivace behind its Service, a peer behind its worker process. One shape for both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vivace.bench.host import Host
from vivace.bench.record import Contender
from vivace.errors import VivaceError
from vivace.protocol import events as ev
from vivace.protocol.contracts import Principal
from vivace.protocol.items import Usage
from vivace.protocol.requests import Prediction, ResponseRequest

BENCH = Principal("bench")


@dataclass(frozen=True)
class Question:
    """One prompt, in words and in tokens; each engine takes what it takes in normal use.

    ``draft`` is the text that the answer will mostly be, for engines that take a prediction.
    """

    instructions: str
    user: str
    tokens: list[int]
    max_tokens: int
    draft: str = ""


@dataclass
class Answer:
    """What came back, on the client's clock (seconds after the prompt was handed over)."""

    text: str = ""
    ending: str = ""
    """``stop``, ``length`` or why it failed."""
    arrivals: list[float] = field(default_factory=list)
    """When each piece of output came."""
    first_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None


class Player(Protocol):
    """A contender that can be asked."""

    card: Contender

    async def open(self) -> None:
        """Start it and have it answer one short question, so that it is warm."""
        ...

    async def answer(self, question: Question) -> Answer: ...

    async def close(self) -> None: ...


class ServicePlayer:
    """vivace in its normal use: words in, words out, the file as prediction."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.card = Contender(name="vivace", engine="vivace")

    async def open(self) -> None:
        began = time.perf_counter()
        card = await self.host.service.open(self.host.facts.name)
        self.card.start_seconds = time.perf_counter() - began
        self.card.detail = card.detail
        await self.answer(Question("", "Say hello.", [], 8))

    async def answer(self, question: Question) -> Answer:
        request = ResponseRequest(
            model=self.host.facts.name,
            input=question.user,
            instructions=question.instructions or None,
            max_output_tokens=question.max_tokens,
            temperature=0.0,
            prediction=Prediction(question.draft) if question.draft else None,
        )
        answer = Answer()
        pieces: list[str] = []
        began = time.perf_counter()
        async for event in self.host.service.start(request, BENCH):
            match event:
                case ev.TextDelta(delta=delta):
                    answer.arrivals.append(time.perf_counter() - began)
                    pieces.append(delta)
                case ev.Completed(response=response):
                    answer.ending = "stop"
                    _count(answer, response.usage)
                case ev.Incomplete(response=response):
                    why = response.incomplete_details
                    answer.ending = "length" if why and why.reason == "max_output_tokens" else "limit"
                    _count(answer, response.usage)
                case ev.Failed(response=response):
                    answer.ending = response.error.message if response.error else "failed"
                case _:
                    pass
        answer.text = "".join(pieces)
        answer.first_tokens = len(self.host.texts.encode(pieces[0])) if pieces else 0
        return answer

    async def close(self) -> None:
        """The service belongs to whoever made it."""


def _count(answer: Answer, usage: Usage | None) -> None:
    if usage is None:
        return
    answer.prompt_tokens = usage.input_tokens
    answer.output_tokens = usage.output_tokens
    answer.cached_tokens = usage.input_tokens_details.cached_tokens
    answer.accepted = usage.output_tokens_details.accepted_prediction_tokens
    answer.drafted = answer.accepted + usage.output_tokens_details.rejected_prediction_tokens


def question_of(host: Host, instructions: str, user: str, max_tokens: int, draft: str = "") -> Question:
    """The question with its prompt rendered to tokens once, for every engine alike."""
    return Question(instructions, user, host.texts.prompt(instructions, user), max_tokens, draft)


async def open_all(players: Sequence[Player]) -> tuple[list[Player], list[str]]:
    """Start the players one after the other; those that cannot start are left out, each with a line that says why."""
    ready: list[Player] = []
    refused: list[str] = []
    for player in players:
        try:
            await player.open()
            ready.append(player)
        except VivaceError as error:
            refused.append(f"{player.card.name}: {error.message}")
    return ready, refused
