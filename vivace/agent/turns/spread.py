"""Candidates of one edit over several models of a service: in turn, and the first of each model greedy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vivace.agent.edit import RESAMPLE_SEED, SEED_STEP
from vivace.protocol.contracts import Generation, ModelCard, Principal, Service
from vivace.protocol.requests import ResponseRequest


class Spread:
    """``service``, as :func:`vivace.agent.edit.edit` asks it for the candidates of a request with this ``seed``.

    The first model of ``team`` is the one that the edit was planned for: it counts the tokens.
    """

    def __init__(self, service: Service, team: Sequence[ModelCard], seed: int, *, greedy: bool = True) -> None:
        self.service = service
        self.team = list(team)
        self.first = seed * SEED_STEP
        self.greedy = greedy

    async def open(self, model: str) -> ModelCard:
        return await self.service.open(model)

    async def input_tokens(self, request: ResponseRequest) -> int:
        return await self.service.input_tokens(request)

    def start(self, request: ResponseRequest, principal: Principal) -> Generation:
        return self.service.start(self._assigned(request), principal)

    async def close(self) -> None:
        """The service is not ours to close."""

    def _assigned(self, request: ResponseRequest) -> ResponseRequest:
        number = ((request.seed or 0) - self.first) % RESAMPLE_SEED
        card = self.team[number % len(self.team)]
        changes: dict[str, object] = {"model": card.name}
        again = (request.seed or 0) - self.first >= RESAMPLE_SEED
        if 0 < number < len(self.team) and self.greedy and not again:
            changes |= {"temperature": 0.0, "top_p": None}
        if not card.takes_reference:
            changes["prediction"] = None
        if not card.grammars:
            changes["text"] = None
        return msgspec.structs.replace(request, **changes)
