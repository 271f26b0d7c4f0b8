"""Keeps the meters in step with the ledger: what was used before this start, and what other servers let pass."""

from __future__ import annotations

import asyncio
import logging
import time

from sqlalchemy.exc import SQLAlchemyError

from vivace.service.ledger import Ledger
from vivace.service.meters import KEY_LENGTHS, Account, Meters

LATE = 1024
"""Ids are given before the commit, so a lower one may appear after a higher one; so far back new ones are looked for.
That is eight servers in the middle of a full batch."""

log = logging.getLogger(__name__)


class Follower:
    """Feeds ``meters`` from ``ledger``. :meth:`load` first, then :meth:`run`, on the loop that uses the meters."""

    def __init__(self, ledger: Ledger, meters: Meters, interval: float = 1.0) -> None:
        self.ledger = ledger
        self.meters = meters
        self.interval = interval
        self._newest = 0
        self._seen: set[int] = set()

    async def load(self, now: float | None = None) -> None:
        """Count everything that is still in a window."""
        now = time.time() if now is None else now
        self._newest = await self.ledger.newest()
        for seconds in {*self.meters.lengths, *KEY_LENGTHS}:
            for use in await self.ledger.used_within(seconds, now, self._newest):
                self.meters.count(use, seconds)
        recent = await self.ledger.since(self._newest - LATE, others=False)
        self._seen = {number for number, _, _ in recent if number <= self._newest}
        self._take(await self.ledger.accounts())

    async def step(self) -> None:
        """Count what other servers have written since, and take over the credits as they stand."""
        newest = await self.ledger.newest()
        for number, asked, used in await self.ledger.since(self._newest - LATE, others=True):
            if number not in self._seen:
                self._seen.add(number)
                self.meters.count(asked)
                self.meters.count(used)
        self._newest = newest
        self._seen = {number for number in self._seen if number > self._newest - LATE}
        self._take(await self.ledger.accounts())

    async def run(self) -> None:
        """Every ``interval`` seconds, until cancelled. A database that does not answer is waited for."""
        steps = 0
        while True:
            await asyncio.sleep(self.interval)
            try:
                await self.step()
            except SQLAlchemyError as error:
                log.warning("Cannot read what other servers used: %s", error)
            steps += 1
            if steps % 60 == 0:
                self.meters.sweep(time.time())

    def _take(self, accounts: dict[str, Account]) -> None:
        """What running responses hold of an account is known here only."""
        for principal, account in accounts.items():
            known = self.meters.credits.setdefault(principal, account)
            known.balance, known.opted_in = account.balance, account.opted_in
