"""The gateway, composed of its parts as the settings say: for ``vivace serve`` and for the resident service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vivace.backends.base import Backend, Job, Run, Watch
from vivace.backends.local import LocalBackend
from vivace.errors import VivaceError
from vivace.models.catalogue import ModelInfo, load_catalogue
from vivace.models.store import is_present, model_path
from vivace.protocol.contracts import ModelCard
from vivace.service.accounts import Accounts
from vivace.service.chains import Chains
from vivace.service.gateway import LocalGateway
from vivace.service.keeping import Keeper
from vivace.service.meters import Meters
from vivace.service.queue import FairQueue
from vivace.service.registry import Backends
from vivace.service.sealing import Sealer
from vivace.service.tiers import TierTable
from vivace.service.upkeep import Upkeep
from vivace.settings import Settings

PATIENCE = 5.0
"""Seconds that a start waits for the database to take what a killed server left."""

Pull = Callable[[ModelInfo, Settings], None]
"""Fetches a model; runs in a thread."""


class CatalogueBackend:
    """A catalogue model: its file is looked up, or fetched where there is a ``pull``, when it is first opened."""

    def __init__(self, info: ModelInfo, settings: Settings, pull: Pull | None = None) -> None:
        self.info = info
        self.settings = settings
        self.pull = pull
        self._local: LocalBackend | None = None

    @property
    def ready(self) -> bool:
        return self._local is not None and self._local.ready

    async def open(self, watch: Watch) -> ModelCard:
        """Raises :class:`VivaceError`, among others ``model_not_pulled`` and ``model_checksum``."""
        if self._local is None:
            if self.pull is not None and not is_present(self.info, self.settings):
                await asyncio.to_thread(self.pull, self.info, self.settings)
            path = await asyncio.to_thread(model_path, self.info, self.settings)
            self._local = LocalBackend(self.info, path, self.settings)
        return await self._local.open(watch)

    async def count(self, job: Job) -> int:
        return await self._opened.count(job)

    def start(self, job: Job) -> Run:
        return self._opened.start(job)

    async def close(self) -> None:
        if self._local is not None:
            await self._local.close()

    @property
    def _opened(self) -> LocalBackend:
        if self._local is None:
            raise VivaceError("The model is not open.", code="engine")
        return self._local


class ComposedGateway(LocalGateway):
    """The gateway with what has to run beside it.

    :meth:`begin` counts what the ledger knows of earlier use, before the first request, and looks after stored
    responses from then on; :meth:`close` also ends the database's writer.
    """

    kept: _Database | None = None
    _beside: tuple[asyncio.Task[None], ...] = ()

    async def begin(self) -> None:
        kept = self.kept
        if kept is not None and not self._beside:
            if kept.writer.recovered is not None:
                with contextlib.suppress(VivaceError):  # the database is away; what it is owed waits
                    await kept.writer.recovered.wait(PATIENCE)
            await kept.follower.load()
            work = (kept.follower.run(), Upkeep(self.keeper).run())
            self._beside = tuple(asyncio.create_task(each) for each in work)

    async def close(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await super().close()
        if self.kept is not None:
            await self.kept.close()


def compose_gateway(
    settings: Settings,
    *,
    backends: Mapping[str, Backend] | None = None,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
    folder: Path = Path(),
    models: Mapping[str, str] | None = None,
    catalogue: bool = True,
    pull: Pull | None = None,
    database: bool = True,
    capacity: Mapping[str, int] | None = None,
    chains: Chains | None = None,
    watch: Watch = lambda stage, share: None,
) -> ComposedGateway:
    """A gateway with these backends, and with the models of the catalogue where ``catalogue`` is set.

    ``backends`` are made already; ``tables`` are the ``[backends.NAME]`` tables of a configuration file in ``folder``.
    ``models`` maps public names to backends that are called otherwise. Models of the catalogue are listed when their
    file is here; one that is asked for by name is fetched by ``pull``, and refused without it. ``capacity`` is how many
    responses a backend runs at a time. With ``database`` use, responses and keys are kept in the settings' database;
    without it they end with the process, and there are no keys. ``watch`` is told what loading does.

    Raises :class:`VivaceError` for what the files and the database have wrong.
    """
    from vivace.backends.configured import backend_from_config

    named = dict(backends or {})
    for name, table in (tables or {}).items():
        named[name] = backend_from_config(table, name, folder=folder)
    known = load_catalogue(settings) if catalogue else {}

    def make(name: str) -> Backend | None:
        return CatalogueBackend(known[name], settings, pull) if name in known else None

    def makeable() -> list[str]:
        return [name for name, info in known.items() if is_present(info, settings)]

    tiers = TierTable.load(settings.tiers_file)
    meters = Meters(tiers.window_lengths, tiers.family)
    kept = _Database(settings, meters) if database else None
    gateway = ComposedGateway(
        Backends(named, models, make, makeable, watch),
        sealer=Sealer.of_file(settings.state_dir / "sealing.key"),
        tiers=tiers,
        accounts=Accounts(tiers, kept.keys if kept is not None else None),
        meters=meters,
        queue=FairQueue(capacity or {}, tiers.tiers.values()),
        ledger=kept.ledger if kept is not None else None,
        keeper=Keeper(kept.store if kept is not None else None, retention=settings.response_days * 86400 or None),
        chains=chains,
    )
    gateway.kept = kept
    return gateway


class _Database:
    """What is kept beyond the process, and the thread that writes it."""

    def __init__(self, settings: Settings, meters: Meters) -> None:
        from vivace.service.database import default_url, open_database
        from vivace.service.follow import Follower
        from vivace.service.journal import Journal
        from vivace.service.keys import KeyStore
        from vivace.service.ledger import Ledger
        from vivace.service.response_store import ResponseStore
        from vivace.service.writer import Writer

        self.engine = open_database(settings.database_url or default_url(settings.state_dir))
        self.writer = Writer(self.engine, Journal(settings.state_dir / "journal"))
        self.keys = KeyStore(self.engine)
        self.ledger = Ledger(self.engine, self.writer)
        self.store = ResponseStore(self.engine, self.writer)
        self.follower = Follower(self.ledger, meters)
        self.writer.recover()

    async def close(self) -> None:
        with contextlib.suppress(VivaceError):
            await self.keys.flush()
        await asyncio.to_thread(self.writer.close)
        self.engine.dispose()
