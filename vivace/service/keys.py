"""API keys: made once, shown once, kept as a digest.

A key is 256 random bits, so nobody can search for the one behind a digest, and a plain SHA-256 is enough: salt and slow
hashes are for passwords, which people choose. A key is found by its digest in a dictionary: how long that takes tells
at most something of the digest, of which nobody can choose the input to match. Comparing secrets does not happen.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct, field
from sqlalchemy import Engine, bindparam, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.service.database import keys
from vivace.service.plans import KeyLimits

MARK = "vv_"
SHOWN = 11
"""How much of a key is shown and kept: the mark and 8 characters. The other 35 keep more than 200 bits secret."""

FRESH = 2.0
"""Seconds that what is known of the keys is used without asking the database again: a revoked key works so long."""

RECHECK = 0.5
"""Seconds after which an unknown key is a reason to ask again, so that a new one works at once."""


class KeyRecord(Struct, frozen=True, kw_only=True):
    """What is known of a key. Times are seconds since the epoch; ``prefix`` is how the key begins."""

    id: int
    prefix: str
    name: str
    principal: str
    created: float
    plan: str | None = None
    models: list[str] = field(default_factory=lambda: ["*"])
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent: int | None = None
    expires: float | None = None
    revoked: float | None = None
    last_used: float | None = None

    @property
    def limits(self) -> KeyLimits:
        """For :meth:`vivace.service.meters.Meters.reserve`."""
        return KeyLimits(self.prefix, self.requests_per_minute, self.tokens_per_day, self.concurrent)

    def usable(self, now: float) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def state(self, now: float) -> str:
        return "revoked" if self.revoked is not None else "active" if self.usable(now) else "expired"

    def check_model(self, model: str) -> None:
        """Raises ``model_not_allowed`` when this key is not for ``model``."""
        if not any(fnmatchcase(model, pattern) for pattern in self.models):
            raise UsageError(
                f"The key {self.name!r} is not for the model {model!r}",
                hint=f"It is for: {', '.join(self.models)}.",
                code="model_not_allowed",
                param="model",
            )


class KeyStore:
    """The keys of a database. All are held in memory, so that a request costs no query, whatever it presents."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[bytes, KeyRecord] = {}
        self._loaded = float("-inf")
        self._used: dict[int, int] = {}
        self._refreshing = asyncio.Lock()
        self._failing = False

    def create(
        self,
        name: str,
        *,
        principal: str | None = None,
        plan: str | None = None,
        models: list[str] | None = None,
        requests_per_minute: int | None = None,
        tokens_per_day: int | None = None,
        concurrent: int | None = None,
        expires: float | None = None,
    ) -> tuple[str, KeyRecord]:
        """A new key and its record. ``principal`` is ``name`` when not given. The key cannot be shown again."""
        if not name.strip() or len(name) > 255:
            raise UsageError("A key needs a name of 1 to 255 characters", code="invalid_value", param="name")
        if any(record.name == name and record.revoked is None for record in self.list()):
            raise UsageError(
                f"There is a key named {name!r} already",
                hint="Take another name, or revoke it first.",
                code="key_exists",
                param="name",
            )
        secret = MARK + secrets.token_urlsafe(32)
        row: dict[str, Any] = {
            "digest": digest(secret),
            "prefix": secret[:SHOWN],
            "name": name,
            "principal": principal or name,
            "plan": plan,
            "models": ",".join(models or ["*"]),
            "requests_per_minute": requests_per_minute,
            "tokens_per_day": tokens_per_day,
            "concurrent": concurrent,
            "created": int(time.time() * 1000),
            "expires": None if expires is None else int(expires * 1000),
        }
        with self._engine.begin() as connection:
            made = connection.execute(insert(keys).values(row)).inserted_primary_key
            assert made is not None
            record = _record(connection.execute(select(keys).where(keys.c.id == made[0])).mappings().one())
        self._loaded = float("-inf")
        return secret, record

    def list(self) -> list[KeyRecord]:
        """Every key, the newest last."""
        with self._engine.connect() as connection:
            return [_record(row) for row in connection.execute(select(keys).order_by(keys.c.id)).mappings()]

    def revoke(self, prefix_or_name: str) -> KeyRecord:
        """End a key, by its name or how it begins. Here at once, on other servers within seconds."""
        live = [record for record in self.list() if record.revoked is None]
        found = [record for record in live if record.name == prefix_or_name]
        # A whole key is longer than its shown beginning; whoever pastes one means it.
        found = found or [
            record
            for record in live
            if len(prefix_or_name) > len(MARK)
            and (record.prefix.startswith(prefix_or_name) or prefix_or_name.startswith(record.prefix))
        ]
        if len(found) != 1:
            names = [record.name for record in found or live]
            what = f"{len(found)} keys begin with" if found else "There is no live key"
            hint = did_you_mean(prefix_or_name, names) if not found and names else f"Known: {', '.join(names)}."
            raise UsageError(
                f"{what} {prefix_or_name!r}", hint=hint if names else "", code="key_not_found", param="key"
            )
        with self._engine.begin() as connection:
            connection.execute(update(keys).where(keys.c.id == found[0].id).values(revoked=int(time.time() * 1000)))
        self._loaded = float("-inf")
        return msgspec.structs.replace(found[0], revoked=time.time())

    def any_keys(self) -> bool:
        """Whether a key was ever made. Without one the service is open, and listens on loopback only.

        Revoked keys count: the end of the last key does not open the door.
        """
        with self._engine.connect() as connection:
            return bool(connection.execute(select(func.count()).select_from(keys)).scalar())

    async def authenticate(self, secret: str, now: float | None = None) -> KeyRecord | None:
        """The record of a key that may be used now, else None.

        While the database does not answer, what was known of the keys stays in force.
        """
        now = time.time() if now is None else now
        hashed = digest(secret)
        age = time.monotonic() - self._loaded
        record = self._known.get(hashed)
        # During an outage one request at a time finds out whether it is over; known keys do not wait for that.
        asked = self._failing and record is not None and self._refreshing.locked()
        if not asked and (age > FRESH or (record is None and age > RECHECK)):
            await self._refresh(RECHECK if record is None else FRESH)
            record = self._known.get(hashed)
        if record is None or not record.usable(now):
            return None
        self._used[record.id] = int(now * 1000)
        return record

    async def current(self, prefix: str, now: float | None = None) -> KeyRecord | None:
        """The record of the key that begins so, if it may still be used: for connections that outlive a request."""
        now = time.time() if now is None else now
        if time.monotonic() - self._loaded > FRESH and not self._refreshing.locked():
            await self._refresh(FRESH)
        record = next((record for record in self._known.values() if record.prefix == prefix), None)
        if record is None or not record.usable(now):
            return None
        self._used[record.id] = int(now * 1000)
        return record

    async def flush(self) -> None:
        """Write when keys were last used; done along with each refresh too."""
        async with self._refreshing:
            await self._exchange()

    async def _refresh(self, longest: float) -> None:
        async with self._refreshing:
            # Whoever waited for the lock finds that it was done.
            if time.monotonic() - self._loaded <= longest:
                return
            try:
                await self._exchange()
            except SQLAlchemyError as error:
                self._failing = True
                if not self._known:
                    raise VivaceError("The database does not answer", code="database_unavailable") from error

    async def _exchange(self) -> None:
        """Write the last uses, read the keys."""
        used, self._used = self._used, {}
        begun = time.monotonic()
        try:
            self._known = await asyncio.to_thread(self._ask, used)
        except SQLAlchemyError:
            self._used = used | self._used
            raise
        self._loaded = begun
        self._failing = False

    def _ask(self, used: dict[int, int]) -> dict[bytes, KeyRecord]:
        with self._engine.begin() as connection:
            if used:
                # Not back in time: another server may have seen the key later.
                later = keys.c.last_used.is_(None) | (keys.c.last_used < bindparam("moment"))
                touch = (
                    update(keys).where(keys.c.id == bindparam("number"), later).values(last_used=bindparam("moment"))
                )
                connection.execute(touch, [{"number": number, "moment": moment} for number, moment in used.items()])
            rows = connection.execute(select(keys)).mappings().all()
        return {bytes(row["digest"]): _record(row) for row in rows}


def digest(secret: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _record(row: Any) -> KeyRecord:
    """A row of the table as a record: times in seconds, the digest left out."""
    values = {name: value for name, value in row.items() if name != "digest"}
    for name in ("created", "expires", "revoked", "last_used"):
        values[name] = None if values[name] is None else values[name] / 1000
    return KeyRecord(**{**values, "models": values["models"].split(",")})
