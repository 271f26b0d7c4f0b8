"""The service's database: SQLite in the user's state folder by default, PostgreSQL by URL.

Tables are defined here; :func:`open_database` brings an older database up to date with the migrations in this package.
Times are milliseconds since the epoch, money is millionths of the currency: whole numbers, the same in both databases.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, ProgrammingError

from vivace.errors import VivaceError

MIGRATIONS = Path(__file__).with_name("migrations")
NEWEST = "0002"
"""The newest migration; a database that has it is not looked at any further."""

_MIGRATION_LOCK = 0x76697661  # "viva": the advisory lock of whoever migrates a PostgreSQL database.

# SQLite counts up by itself only in a column declared INTEGER.
_Count = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData()

usage = Table(
    "usage",
    metadata,
    Column("id", _Count, primary_key=True, autoincrement=True),
    Column("response", String(128), nullable=False, unique=True),
    Column("server", String(32), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("key", String(32), nullable=False),
    Column("model", String(255), nullable=False),
    Column("family", String(255), nullable=False),
    Column("tier", String(64), nullable=False),
    Column("backend", String(255), nullable=False),
    Column("status", String(32), nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("accepted_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("credits", Boolean, nullable=False),
    Column("ttft_ms", BigInteger),
    Column("queue_ms", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=False),
    Column("day", String(10), nullable=False),
    Index("usage_ended", "ended"),
    Index("usage_created", "created"),
    Index("usage_principal_day", "principal", "day"),
)

responses = Table(
    "responses",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("principal", String(255), nullable=False),
    Column("previous", String(128)),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("request", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("items", LargeBinary, nullable=False),
    Column("events", LargeBinary),
    Column("alive", BigInteger),
    Index("responses_expires", "expires"),
    Index("responses_previous", "previous"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", _Count, primary_key=True, autoincrement=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("prefix", String(32), nullable=False),
    Column("name", String(255), nullable=False),
    Column("principal", String(255), nullable=False),
    Column("plan", String(64)),
    Column("models", String(4096), nullable=False),
    Column("requests_per_minute", BigInteger),
    Column("tokens_per_day", BigInteger),
    Column("concurrent", BigInteger),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("last_used", BigInteger),
)

credits = Table(
    "credits",
    metadata,
    Column("principal", String(255), primary_key=True),
    Column("balance", BigInteger, nullable=False),
    Column("opted_in", Boolean, nullable=False),
)


def default_url(state_dir: Path) -> str:
    """The URL of the SQLite file in ``state_dir``."""
    return URL.create("sqlite", database=str(state_dir / "service.db")).render_as_string(hide_password=False)


def open_database(url: str) -> Engine:
    """The database at ``url``, with every migration. Safe while other processes do the same.

    Raises VivaceError ``database_unusable``, without the password of the URL.
    """
    address = _address(url)
    try:
        return _migrated(address)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        hint = "Install it: pip install 'vivace[postgres]'." if "psycopg" in str(error) else ""
        raise _unusable(address, f"its driver is not installed ({error})", hint) from error
    except (OperationalError, ProgrammingError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise _unusable(address, reason, "Check the address, the server and the permissions.") from error


def _address(url: str) -> URL:
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise VivaceError(
            "The database address is not a URL such as sqlite:////path/to/file or postgresql://user@host/name",
            code="database_unusable",
        ) from error
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")
    if address.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise _unusable(address, f"{address.drivername!r} is not supported", "Use sqlite or postgresql.")
    if address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:"):
        raise _unusable(address, "it has no file", "Name one: sqlite:////path/to/file.")
    return address


def _migrated(address: URL) -> Engine:
    if address.get_backend_name() == "sqlite":
        assert address.database is not None
        file = Path(address.database)
        file.parent.mkdir(parents=True, exist_ok=True)
        # What people asked and got is in it: nobody else reads it.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
        engine = create_engine(address)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    else:
        # The driver's own default is to wait for two minutes.
        patience = {} if "connect_timeout" in address.query else {"connect_timeout": 5}
        engine = create_engine(address, pool_pre_ping=True, pool_size=4, max_overflow=4, connect_args=patience)
    try:
        if _revision(engine) != NEWEST:
            with _alone(engine):
                if _revision(engine) != NEWEST:
                    _upgrade(engine, address)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    # The driver begins no transaction before a CREATE TABLE; a migration that is cut off has to leave nothing.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout = 10000")
    cursor.execute("PRAGMA journal_mode = WAL")
    # A commit is in the operating system's hands when it returns: the end of this process cannot lose it, a power cut
    # can. FULL would wait for the disk each time.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()


def _revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not engine.dialect.has_table(connection, "alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)


@contextlib.contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    """One process at a time migrates a database."""
    if engine.dialect.name == "sqlite":
        from filelock import FileLock

        with FileLock(f"{engine.url.database}.lock"):
            yield
    else:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _MIGRATION_LOCK})
            connection.commit()
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _MIGRATION_LOCK})
                connection.commit()


def _upgrade(engine: Engine, address: URL) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise _unusable(address, str(error), "A newer vivace made it; use that one.") from error


def _unusable(address: URL, reason: str, hint: str) -> VivaceError:
    shown = address.render_as_string(hide_password=True)
    return VivaceError(f"Cannot use the database {shown}: {reason}", hint=hint, code="database_unusable")
