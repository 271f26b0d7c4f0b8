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
    """What answers for a model in a tier. ``opening`` is there while it cannot yet: wait for it first, shielded."""

    backend_id: str
    backend: Backend
    opening: asyncio.Task[ModelCard] | None = None


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
        self._opening: dict[str, asyncio.Task[ModelCard]] = {}

    def names(self) -> list[str]:
        """The models that can be asked for."""
        return list(dict.fromkeys([*self._models, *self._makeable()]))

    def listed(self) -> list[str]:
        """Those of :meth:`names` that are configured or were asked for: to tell what one offers, it is opened."""
        return [name for name in self.names() if self._models.get(name, name) in self._named]

    async def card(self, model: str) -> ModelCard:
        """What a model offers, once it is ready. Raises as :meth:`find` does."""
        return await asyncio.shield(self._opened(*self._named_for(model, None)))

    async def find(self, model: str, tier: Tier | None = None, patience: float | None = None) -> Served:
        """What answers. Raises :class:`Refused` for an unknown model, and what opening it raises.

        It is ready, unless that takes more than ``patience`` seconds; None waits as long as it takes. Whoever stops
        waiting does not stop the opening, which others wait for too.
        """
        backend_id, backend = self._named_for(model, tier)
        if backend.ready:
            return Served(backend_id, backend)
        opening = self._opened(backend_id, backend)
        await asyncio.wait((opening,), timeout=patience)
        if not opening.done():
            return Served(backend_id, backend, opening)
        if opening.cancelled():
            raise Refused("The server is going down.", 503, "server_error", headers={"retry-after": "5"})
        opening.result()
        return Served(backend_id, backend)

    def backend_id(self, model: str) -> str:
        """Which backend answers for a model where no tier says otherwise."""
        return self._models.get(model, model)

    def _named_for(self, model: str, tier: Tier | None) -> tuple[str, Backend]:
        backend_id = (tier.backend_for(model) if tier is not None else None) or self.backend_id(model)
        backend = self._named.get(backend_id)
        if backend is None:
            backend = self._make(backend_id)
            if backend is None:
                hint = did_you_mean(model, self.names()) if self.names() else "No model is being served."
                raise Refused(f"The model '{model}' does not exist here. {hint}", 404, "model_not_found", "model")
            backend = self._named.setdefault(backend_id, backend)
        return backend_id, backend

    def _opened(self, backend_id: str, backend: Backend) -> asyncio.Task[ModelCard]:
        opening = self._opening.get(backend_id)
        if opening is None or opening.done():
            opening = self._opening[backend_id] = asyncio.create_task(backend.open(self._watch))
            opening.add_done_callback(_seen)
        return opening

    def opened(self) -> dict[str, Backend]:
        return dict(self._named)

    async def close(self) -> None:
        openings = [opening for opening in self._opening.values() if not opening.done()]
        for opening in openings:
            opening.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await asyncio.gather(*(backend.close() for backend in self._named.values()))


def _seen(opening: asyncio.Task[ModelCard]) -> None:
    """Whoever waited for it may have gone; its error is nobody's then."""
    if not opening.cancelled():
        opening.exception()
