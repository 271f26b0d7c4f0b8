"""Which models a server has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from vivace.client.http import refusal
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from vivace.client.service import RemoteService


class _Model(Struct):
    id: str


class _List(Struct):
    data: list[_Model]


async def models_of(service: RemoteService) -> list[str]:
    """The names in its ``/v1/models``, in the server's order.

    Raises :class:`VivaceError`: ``service_gone`` and what the server refuses with, ``service_error`` for an answer that
    is no list and ``no_models`` for one without a model.
    """
    answer = await service.http.call("GET", "/v1/models")
    if answer.status != 200:
        raise refusal(answer)
    try:
        names = [model.id for model in msgspec.json.decode(answer.body, type=_List).data]
    except msgspec.DecodeError as error:
        raise VivaceError(f"The service gave an answer that cannot be read: {error}", code="service_error") from error
    if not names:
        raise VivaceError(f"The server at {service.address.shown} has no model.", code="no_models")
    return names
