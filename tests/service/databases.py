"""Real databases for the tests of this room: SQLite files, and a PostgreSQL server of their own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from vivace.service.database import open_database


class PostgresServer:
    """A server in a temporary folder, on a Unix socket only."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self.programs = programs
        self.folder = folder
        self.user = user
        self._run("initdb", "-D", str(folder / "data"), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c max_connections=40"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def url(self, name: str) -> str:
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"d{uuid.uuid4().hex}"
        engine = create_engine(self.url("postgres").replace("://", "+psycopg://"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self.url(name)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user,
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A running server. Skips where PostgreSQL's server programs or its driver are not installed."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    where = found[-1] if found else shutil.which("initdb")
    if where is None:
        pytest.skip("PostgreSQL's server programs (initdb, pg_ctl) are not installed")
    user = None
    if os.geteuid() == 0:
        # The server refuses to run as root.
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = next((name for name in ("postgres", "nobody") if name in names), None)
        if user is None:
            pytest.skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
    folder = Path(tempfile.mkdtemp(prefix="vivace-pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)
    server = PostgresServer(Path(where).parent, folder, user)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/state/service.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An empty database with its tables."""
    engine = open_database(url)
    yield engine
    engine.dispose()
