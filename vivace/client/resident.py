"""A user's own resident service: what it offers beside the protocol. It loads models, tells how far that is, and ends.

``POST /resident/open?model=NAME`` answers with lines of JSON: a :class:`Stage` each time that loading comes further,
and at the end an :class:`Opened` or a :class:`Refusal`, which carries an error of this machine whole.
``GET /resident/status`` gives :class:`Status`, ``POST /resident/stop`` ends the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from vivace.client.address import Address
from vivace.client.http import refusal
from vivace.client.line import Line
from vivace.client.service import RemoteService
from vivace.errors import VivaceError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.requests import ResponseRequest

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

Watch = Callable[[str, float], None]
Revive = Callable[[], Awaitable[Path | None]]
"""Starts another resident where one has ended, and gives its socket; None where that cannot be."""


class Stage(Struct, tag="loading"):
    """What loading does and how far it is, 0 to 1."""

    stage: str
    share: float


class Opened(Struct, tag="opened"):
    card: ModelCard


class Refusal(Struct, tag="refused"):
    """The fields of a :class:`VivaceError`."""

    message: str
    hint: str
    code: str
    param: str | None
    exit_code: int

    @classmethod
    def of(cls, error: VivaceError) -> Refusal:
        return cls(error.message, error.hint, error.code, error.param, error.exit_code)

    def error(self) -> VivaceError:
        return VivaceError(self.message, hint=self.hint, code=self.code, param=self.param, exit_code=self.exit_code)


class Status(Struct):
    """A resident service. Times are seconds; it ends when nobody was connected for ``idle_limit``."""

    version: str
    pid: int
    uptime: float
    idle_limit: float
    models: list[str] = field(default_factory=list)
    """That are loaded."""
    running: int = 0
    """Responses that run now."""


_said = msgspec.json.Decoder(Stage | Opened | Refusal).decode


class _RevivedLine(Line):
    """A line that is opened to another resident when its own has ended."""

    def __init__(self, address: Address, revived: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(address, {})
        self._revived = revived

    async def _connect(self) -> ClientConnection:
        try:
            return await super()._connect()
        except VivaceError as error:
            if error.code != "service_gone" or not await self._revived():
                raise
        return await super()._connect()


class ResidentService(RemoteService):
    """The service on a resident's socket. ``watch`` is told what loading does."""

    def __init__(self, socket: Path, watch: Watch = lambda stage, share: None) -> None:
        super().__init__(f"unix:{socket}")
        self.line = _RevivedLine(self.address, self._revived)
        self.watch = watch
        self.fresh = False
        """It was started for this very client, and has opened no model yet."""
        self.revive: Revive | None = None
        """For a client that outlives it; without one its end is an error."""

    async def open(self, model: str) -> ModelCard:
        """Raises what loading the model raised over there, as it was."""
        self.line.prepare()
        lines = self.http.lines("POST", f"/resident/open?model={quote(model, safe='')}")
        async with contextlib.aclosing(lines):
            async for line in lines:
                match _said(line):
                    case Stage(stage, share):
                        self.watch(stage, share)
                    case Opened(card):
                        return card
                    case Refusal() as told:
                        raise told.error()
        raise VivaceError("The resident service ended while it loaded the model.", code="service_gone")

    async def input_tokens(self, request: ResponseRequest) -> int:
        try:
            return await super().input_tokens(request)
        except VivaceError as error:
            if error.code != "service_gone" or not await self._revived():
                raise
        return await super().input_tokens(request)

    async def _revived(self) -> bool:
        """Whether another one answers in its place now."""
        socket = await self.revive() if self.revive is not None else None
        if socket is None:
            return False
        self.address = self.line.address = self.http.address = Address.parse(f"unix:{socket}")
        return True

    async def status(self) -> Status:
        answer = await self.http.call("GET", "/resident/status")
        if answer.status != 200:
            raise refusal(answer)
        return msgspec.json.decode(answer.body, type=Status)

    async def end(self) -> None:
        """Ask it to end; it does when what runs has ended, or a few seconds later."""
        answer = await self.http.call("POST", "/resident/stop")
        if answer.status != 200:
            raise refusal(answer)
