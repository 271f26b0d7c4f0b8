"""The database: made and brought up to date by whoever comes first, private, and refused with the reason."""

from __future__ import annotations

import asyncio
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Engine, MetaData, Table, create_engine, insert, inspect, text

from tests.service.databases import engine, postgres, url
from vivace.errors import VivaceError
from vivace.service import database as db
from vivace.service.response_store import ResponseStore
from vivace.service.writer import Writer

__all__ = ["engine", "postgres", "url"]


def test_the_migrations_make_the_tables_that_the_code_knows(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), db.metadata) == []
    config = Config()
    config.set_main_option("script_location", str(db.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == db.NEWEST


def test_several_processes_may_open_a_new_database_at_once(url: str) -> None:
    code = f"from vivace.service.database import open_database; open_database({url!r}); print('open')"
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        out, err = child.communicate(timeout=60)
        assert out == "open\n", err


def test_a_migration_that_fails_leaves_nothing_and_is_done_the_next_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic.operations import Operations

    real = Operations.create_index

    def fails(self: Operations, name: str, *args: object, **more: object) -> None:
        if name == "usage_principal_day":
            raise KeyboardInterrupt
        real(self, name, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Operations, "create_index", fails)
    with pytest.raises(KeyboardInterrupt):
        db.open_database(url)
    looking = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    assert inspect(looking).get_table_names() == []
    looking.dispose()
    monkeypatch.setattr(Operations, "create_index", real)
    opened = db.open_database(url)
    assert "usage" in inspect(opened).get_table_names()
    opened.dispose()


def test_what_an_older_version_stored_is_still_there(engine: Engine, url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(db.MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    old = {"request": b'{"model":"m"}', "response": b"{}", "items": b"[]", "previous": None, "expires": None}
    columns = [column for column in db.responses.c if column.name not in ("events", "alive")]
    older = Table("responses", MetaData(), *(Column(column.name, column.type) for column in columns))
    with engine.begin() as connection:
        connection.execute(insert(older).values(id="resp_1", principal="ann", created=1000, **old))
    engine.dispose()

    async def main() -> None:
        opened = db.open_database(url)
        writer = Writer(opened)
        store = ResponseStore(opened, writer)
        found = await store.get("resp_1", "ann", 2.0)
        assert found is not None and (found.created, found.items, found.alive) == (1.0, b"[]", None)
        assert await store.events("resp_1", "ann", 2.0) is None
        await store.put(msgspec.structs.replace(found, events=b"[]")).wait(5)
        assert await store.events("resp_1", "ann", 2.0) == b"[]"
        assert writer.close()
        opened.dispose()

    asyncio.run(main())


def test_a_database_of_a_newer_version_is_left_alone(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(VivaceError) as error:
        db.open_database(url)
    assert error.value.code == "database_unusable"
    assert "newer" in error.value.hint


def test_the_file_is_private_and_its_folder_is_made(tmp_path: Path) -> None:
    url = db.default_url(tmp_path / "a folder" / "b")
    db.open_database(url).dispose()
    file = tmp_path / "a folder" / "b" / "service.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        "mysql://u@h/d",
        "sqlite://",
        "sqlite:////proc/no/such/place.db",
        "postgresql://u:secret@127.0.0.1:1/d",
    ],
)
def test_an_address_that_cannot_be_used_is_told_without_its_password(address: str) -> None:
    if address.startswith("postgresql"):
        pytest.importorskip("psycopg")
    with pytest.raises(VivaceError) as error:
        db.open_database(address)
    assert error.value.code == "database_unusable"
    assert "secret" not in str(error.value)
