"""What has to be done for stored responses while nobody asks for them: those that run are vouched for, old ones go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sqlalchemy.exc import SQLAlchemyError

from vivace.errors import VivaceError
from vivace.service.keeping import LEASE, Keeper

PURGE_EVERY = 3600.0

log = logging.getLogger(__name__)


class Upkeep:
    """Purges at its start and every ``purge_every`` seconds. Both wait for the database in threads of their own."""

    def __init__(self, keeper: Keeper, purge_every: float = PURGE_EVERY, vouch_every: float = LEASE / 3) -> None:
        self.keeper = keeper
        self.purge_every = purge_every
        self.vouch_every = vouch_every

    async def run(self) -> None:
        """Until cancelled. A database that does not answer is asked again the next time."""
        await asyncio.gather(_often(self._purge, self.purge_every), _often(self.keeper.vouch, self.vouch_every))

    async def _purge(self) -> None:
        count = await self.keeper.purge()
        if count:
            log.info("%d stored responses were old and are deleted", count)


async def _often(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        try:
            await work()
        except (SQLAlchemyError, VivaceError) as error:
            log.warning("stored responses were not looked after: %s", error)
        await asyncio.sleep(seconds)
