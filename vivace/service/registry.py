"""Which backend answers for which model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct

from vivace.backends.base import Backend, Watch
from vivace.errors import did_you_mean
from vivace.protocol.contracts import ModelCard
from vivace.protocol.errors import Refused
from vivace.service.tiers import Tier

Make = Callable[[str], Backend | None]
"""A backend for a model that was not configured, such as a catalogue model whose file is here, or None."""


class Served(Struct, frozen=True):
    """What answers for a model in a tier."""

    backend_id: str
    backend: Backend
    card: ModelCard


class Backends:
    """Every backend of a service, opened when first asked for.

    ``named`` are the configured backends by id, ``models`` the public model names by backend id where they differ from
    it. ``makeable`` lists the models that ``make`` can make.
    """

    def __init__(
        self,
        named: Mapping[str, Backend],
        models: Mapping[str, str] | None = None,
        make: Make = lambda name: None,
        makeable: Callable[[], list[str]] = list,
        watch: Watch = lambda stage, share: None,
    ) -> None:
        self._named = dict(named)
        self._models = {**{name: name for name in named}, **(models or {})}
        self._make = make
        self._makeable = makeable
        self._watch = watch
        self._locks: dict[str, asyncio.Lock] = {}

    def names(self) -> list[str]:
        """The models that can be asked for."""
        return list(dict.fromkeys([*self._models, *self._makeable()]))

    async def find(self, model: str, tier: Tier | None = None) -> Served:
        """What answers, ready to. Raises :class:`Refused` for an unknown model, and what opening it raises."""
        backend_id = (tier.backend_for(model) if tier is not None else None) or self._models.get(model, model)
        backend = self._named.get(backend_id)
        if backend is None:
            backend = self._make(backend_id)
            if backend is None:
                hint = did_you_mean(model, self.names()) if self.names() else "No model is being served."
                raise Refused(f"The model '{model}' does not exist here. {hint}", 404, "model_not_found", "model")
            backend = self._named.setdefault(backend_id, backend)
        async with self._locks.setdefault(backend_id, asyncio.Lock()):
            card = await backend.open(self._watch)
        return Served(backend_id, backend, card)

    def opened(self) -> dict[str, Backend]:
        return dict(self._named)

    async def close(self) -> None:
        await asyncio.gather(*(backend.close() for backend in self._named.values()))
