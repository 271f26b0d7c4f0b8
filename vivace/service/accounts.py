"""Who asks and what they have bought: keys to principals, principals to plans and limits."""

from __future__ import annotations

from vivace.protocol.contracts import Principal
from vivace.protocol.errors import Refused
from vivace.service.asking import Buyer
from vivace.service.keys import KeyRecord, KeyStore
from vivace.service.tiers import TierTable


class Accounts:
    """The principals of a service. Without ``keys`` there is one, who may use everything."""

    def __init__(self, tiers: TierTable, keys: KeyStore | None = None) -> None:
        self._tiers = tiers
        self._keys = keys
        self._records: dict[str, KeyRecord] = {}

    def needs_key(self) -> bool:
        """Whether anybody has a key; until then whoever reaches the door is let in."""
        return self._keys is not None and self._keys.any_keys()

    async def authenticate(self, secret: str) -> Principal | None:
        """The principal of an API key, or None for one that opens nothing."""
        record = await self._keys.authenticate(secret) if self._keys is not None else None
        if record is None:
            return None
        self._records[record.prefix] = record
        return Principal(record.principal, record.prefix, record.plan or "")

    async def check(self, principal: Principal) -> None:
        """Raises :class:`Refused` when the key of an open connection has been revoked or has expired since."""
        if self._keys is None or not principal.key:
            return
        record = await self._keys.current(principal.key)
        if record is None:
            raise Refused("The API key is no longer valid.", 401, "invalid_api_key")
        self._records[record.prefix] = record

    def buyer(self, principal: Principal) -> Buyer:
        """The plan and the key's limits that a principal's requests are checked against."""
        plan = self._tiers.plan(principal.plan or None)
        record = self._records.get(principal.key)
        return Buyer(plan) if record is None else Buyer(plan, record.limits, record.check_model)
