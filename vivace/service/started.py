"""A generation whose request is still being taken in: what is wrong with it arrives as an event."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from vivace.protocol import events as ev
from vivace.protocol.contracts import Final, Principal, StopReason
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import IncompleteDetails, Response, ResponseError, new_id
from vivace.protocol.requests import ResponseRequest
from vivace.protocol.usage import Usage
from vivace.service.turn import Turn

if TYPE_CHECKING:
    from vivace.service.gateway import LocalGateway

log = logging.getLogger(__name__)


class Started:
    """See :class:`vivace.protocol.contracts.Generation`."""

    def __init__(self, gateway: LocalGateway, request: ResponseRequest, principal: Principal) -> None:
        self._request = request
        self._taking: asyncio.Task[Turn] = asyncio.create_task(gateway.respond(request, principal))

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        try:
            turn = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            if not self._taking.cancelled():
                raise
            for event in self._never("incomplete", None):
                yield event
            return
        except BadRequest as error:
            for event in self._never("failed", error):
                yield event
            return
        except Exception as error:
            log.exception("a request broke")
            broken = BadRequest(f"The server broke: {type(error).__name__}.", code="server_error", status=500)
            for event in self._never("failed", broken):
                yield event
            return
        async for event in turn:
            yield event

    async def stop(self, reason: StopReason) -> Final:
        if not self._taking.done():
            self._taking.cancel()
        try:
            turn = await asyncio.shield(self._taking)
        except asyncio.CancelledError:
            if not self._taking.cancelled():
                raise
            return Final("cancelled", Usage())
        except Exception:  # whoever reads the events is told
            return Final("failed", Usage())
        return await turn.stop(reason)

    def _never(self, status: str, error: BadRequest | None) -> list[ev.Event]:
        """The events of a response that never began."""
        response = Response(new_id("resp"), self._request.model, time.time())
        begin = ev.Created(0, msgspec.structs.replace(response))
        if error is None:
            response.status, response.incomplete_details = "incomplete", IncompleteDetails("stopped")
            return [begin, ev.Incomplete(1, response)]
        response.status, response.error = "failed", ResponseError(error.code, str(error))
        return [begin, ev.Failed(1, response)]
