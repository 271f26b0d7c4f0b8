"""The Service contract over a connection: requests go out as they are, events come back as they were made."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from vivace.client.address import Address
from vivace.client.generation import RemoteGeneration
from vivace.client.http import Answer, Http, refusal
from vivace.client.line import Line
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard, Price, Principal
from vivace.protocol.items import encode
from vivace.protocol.requests import ResponseRequest

T = TypeVar("T")


class _Entry(Struct):
    """A model as ``/v1/models`` lists it; all but ``id`` and ``owned_by`` are vivace's own words or vLLM's."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None
    dialect: str = ""
    takes_reference: bool = False
    detail: str = ""
    tools: bool = False
    grammars: bool = False
    reasoning: bool = False
    tiers: tuple[str, ...] = ()
    price: Price | None = None
    free_slots: int | None = None

    def card(self, server: str) -> ModelCard:
        """Raises :class:`VivaceError` for a ``server`` that does not state the window."""
        if self.max_model_len is None:
            raise VivaceError(
                f"The service at {server} does not say how long the window of {self.id} is.",
                hint="It has to state max_model_len in /v1/models.",
                code="service_error",
            )
        return ModelCard(
            name=self.id,
            context_window=self.max_model_len,
            dialect=self.dialect,
            takes_reference=self.takes_reference,
            detail=self.detail,
            tools=self.tools,
            grammars=self.grammars,
            reasoning=self.reasoning,
            owned_by=self.owned_by,
            tiers=self.tiers,
            price=self.price,
            free_slots=self.free_slots,
        )


class _Counted(Struct):
    input_tokens: int


class RemoteService:
    """See :class:`vivace.protocol.contracts.Service`.

    ``address`` is that of a server that speaks the Responses API with a WebSocket: ``http://HOST:PORT``,
    ``https://HOST`` or ``unix:/PATH``. Nothing is connected before it is needed. Who asks is for the server to say, by
    ``key`` or by the socket, so the principal of a request is not sent.
    """

    def __init__(self, address: str, key: str = "") -> None:
        self.address = Address.parse(address)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.http = Http(self.address, headers)
        self.line = Line(self.address, headers)

    async def open(self, model: str) -> ModelCard:
        self.line.prepare()
        answer = await self.http.call("GET", f"/v1/models/{quote(model)}")
        return _read(answer, _Entry).card(self.address.shown)

    async def input_tokens(self, request: ResponseRequest) -> int:
        return _read(await self.http.call("POST", "/v1/responses/input_tokens", encode(request)), _Counted).input_tokens

    def start(self, request: ResponseRequest, principal: Principal) -> RemoteGeneration:
        return self.line.begin(request)

    async def close(self) -> None:
        await self.line.close()
        await self.http.close()


def _read(answer: Answer, kind: type[T]) -> T:
    if answer.status != 200:
        raise refusal(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise VivaceError(f"The service gave an answer that cannot be read: {error}", code="service_error") from error
