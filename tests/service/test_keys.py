"""API keys on real databases, and the command that makes them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from typer.testing import CliRunner

from tests.service.databases import engine, postgres, url
from vivace.errors import UsageError, VivaceError
from vivace.service import database as db
from vivace.service import keys as keys_module
from vivace.service.keys import MARK, SHOWN, KeyStore, digest
from vivace.service.keys_command import keys_app
from vivace.settings import Settings

__all__ = ["engine", "postgres", "url"]


def test_a_key_is_shown_once_and_kept_as_a_digest(engine: Engine) -> None:
    store = KeyStore(engine)
    assert not store.any_keys()
    secret, record = store.create("laptop")
    other, _ = store.create("ci", principal="team", plan="pro", models=["coder-*", "tiny"], requests_per_minute=5)
    assert re.fullmatch(r"vv_[A-Za-z0-9_-]{43}", secret)
    assert secret != other
    assert (record.prefix, record.name, record.principal, record.plan) == (secret[:SHOWN], "laptop", "laptop", None)
    assert store.any_keys()
    laptop, ci = store.list()
    assert laptop == record
    assert (ci.principal, ci.plan, ci.models, ci.limits.requests_per_minute) == ("team", "pro", ["coder-*", "tiny"], 5)
    assert ci.limits.id == ci.prefix
    ci.check_model("coder-0.5b")
    with pytest.raises(UsageError) as error:
        ci.check_model("big")
    assert (error.value.code, error.value.param) == ("model_not_allowed", "model")
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(select(db.keys))]
    assert secret[SHOWN:] not in repr(rows)
    assert digest(secret) in [bytes(row[1]) for row in rows]


def test_only_a_live_key_is_let_in(engine: Engine) -> None:
    async def main() -> None:
        store = KeyStore(engine)
        assert await store.authenticate("vv_nothing") is None
        secret, record = store.create("laptop", expires=time.time() + 3600)
        assert await store.authenticate(secret) == record
        for wrong in ("", "vv_", secret[:-1], secret + "x", secret.upper(), "\udcff", record.prefix):
            assert await store.authenticate(wrong) is None
        assert await store.authenticate(secret, time.time() + 3601) is None
        assert store.list()[0].state(time.time() + 3601) == "expired"
        revoked = store.revoke("laptop")
        assert revoked.revoked is not None
        assert await store.authenticate(secret) is None
        assert store.list()[0].state(time.time()) == "revoked"
        # The door does not open when the last key has gone.
        assert store.any_keys()

    asyncio.run(main())


def test_what_another_process_changes_is_seen_soon(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        server, command = KeyStore(engine), KeyStore(engine)
        secret, _ = command.create("laptop")
        assert await server.authenticate(secret) is not None
        fresh, _ = command.create("fresh")
        command.revoke("laptop")
        monkeypatch.setattr(keys_module, "RECHECK", 0.0)
        assert await server.authenticate(fresh) is not None
        assert await server.authenticate(secret) is None
        command.revoke("fresh")
        assert await server.authenticate(fresh) is not None
        monkeypatch.setattr(keys_module, "FRESH", 0.0)
        assert await server.authenticate(fresh) is None

    asyncio.run(main())


def test_asking_costs_no_query_each(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = KeyStore(engine)
        secret, _ = store.create("laptop")
        queries = 0
        real = store._ask

        def counted(used: dict[int, int]) -> object:
            nonlocal queries
            queries += 1
            return real(used)

        monkeypatch.setattr(store, "_ask", counted)
        monkeypatch.setattr(keys_module, "FRESH", 60.0)
        monkeypatch.setattr(keys_module, "RECHECK", 60.0)
        found = await asyncio.gather(*(store.authenticate(secret) for _ in range(50)))
        assert all(record is not None for record in found)
        assert queries == 1
        begun = time.perf_counter()
        for number in range(2000):
            await store.authenticate(secret)
            assert await store.authenticate(f"vv_{number}") is None
        assert (time.perf_counter() - begun) / 4000 < 100e-6  # about 1 on an idle machine
        assert queries == 1

    asyncio.run(main())


def test_when_a_key_was_used_is_written_along(engine: Engine) -> None:
    async def main() -> None:
        store = KeyStore(engine)
        secret, _ = store.create("laptop")
        now = time.time()
        await store.authenticate(secret, now + 5)
        await store.flush()
        other = KeyStore(engine)
        await other.authenticate(secret, now + 1)
        await other.flush()
        assert store.list()[0].last_used == pytest.approx(now + 5, abs=0.01)

    asyncio.run(main())


def test_a_database_that_goes_away_leaves_the_known_keys_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        engine = db.open_database(f"sqlite:///{tmp_path}/service.db")
        store = KeyStore(engine)
        secret, _ = store.create("laptop")
        assert await store.authenticate(secret) is not None
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE keys RENAME TO gone")
        monkeypatch.setattr(keys_module, "FRESH", 0.0)
        assert await store.authenticate(secret) is not None
        assert await store.authenticate("vv_other") is None
        with pytest.raises(VivaceError) as error:
            await KeyStore(engine).authenticate(secret)
        assert error.value.code == "database_unavailable"
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE gone RENAME TO keys")
        await store.flush()
        assert store.list()[0].last_used is not None
        engine.dispose()

    asyncio.run(main())


def test_revoking_needs_one_live_key(engine: Engine) -> None:
    store = KeyStore(engine)
    with pytest.raises(UsageError) as none:
        store.revoke("laptop")
    assert none.value.code == "key_not_found"
    secret, record = store.create("laptop")
    other, _ = store.create("desktop")
    with pytest.raises(UsageError) as near:
        store.revoke("laptpo")
    assert "laptop" in near.value.hint
    with pytest.raises(UsageError, match="no live key"):
        store.revoke(MARK)
    with pytest.raises(UsageError, match="named 'laptop' already"):
        store.create("laptop")
    with pytest.raises(UsageError):
        store.create(" ")
    assert store.revoke(record.prefix).name == "laptop"
    assert store.revoke(other).name == "desktop"
    with pytest.raises(UsageError):
        store.revoke(secret)
    # A name is free again when its key is revoked.
    store.create("laptop")


# ---- the command


class Command:
    def __init__(self, folder: Path) -> None:
        self.tiers = folder / "tiers.toml"
        self.tiers.write_text('[[plan]]\nid = "pro"\n', encoding="utf-8")
        self.url = f"sqlite:///{folder}/service.db"
        self._app = keys_app(lambda settings: (self.url, self.tiers))
        self._runner = CliRunner()

    def __call__(self, *arguments: str) -> str:
        result = self._runner.invoke(self._app, list(arguments), obj=Settings())
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_keys_are_made_listed_and_revoked_by_the_command(command: Command) -> None:
    made = command(
        "create", "laptop", "--principal", "ann", "--plan", "pro", "--models", "coder-*, tiny",
        "--requests-per-minute", "60", "--tokens-per-day", "1000000", "--concurrent", "4", "--expires", "30d",
    )  # fmt: skip
    secret = made.splitlines()[0]
    assert secret.startswith(MARK)
    as_json = json.loads(command("create", "ci", "--json"))
    assert as_json["key"].startswith(as_json["prefix"])
    listed = json.loads(command("list", "--json"))
    assert [key["name"] for key in listed] == ["laptop", "ci"]
    assert listed[0]["models"] == ["coder-*", "tiny"]
    assert listed[0]["expires"] - listed[0]["created"] == pytest.approx(30 * 86400, abs=5)
    assert listed[0]["state"] == "active"
    shown = command("list")
    assert secret[:SHOWN] in shown
    assert secret[SHOWN:] not in shown + json.dumps(listed)
    assert "Revoked" in command("revoke", secret[:SHOWN])
    assert json.loads(command("list", "--json"))[0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "a", "--plan", "prp"], "no plan 'prp'"),
        (["create", "a", "--expires", "soon"], "'soon' is not a time"),
        (["create", "a", "--expires", "0d"], "'0d' is not a time"),
        (["revoke", "nobody"], "no live key 'nobody'"),
        (["credits", "ann", "--add", "much"], "'much' is not an amount"),
        (["credits", "ann", "--add", "0.0000001"], "is not an amount"),
    ],
)
def test_the_command_says_what_is_wrong(command: Command, arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        command(*arguments)


def test_a_plan_without_a_file_of_plans_says_where_they_are_read_from(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path}/service.db"
    app = keys_app(lambda settings: (where, None))
    result = CliRunner().invoke(app, ["create", "a", "--plan", "team"], obj=Settings())
    assert isinstance(result.exception, UsageError) and result.exception.code == "plan_not_found"
    assert "VIVACE_TIERS_FILE" in result.exception.hint
    assert not (tmp_path / "service.db").exists()


def test_credits_are_added_and_switched_on(command: Command) -> None:
    assert command("credits", "ann", "--add", "12.50") == "ann: 12.500000 USD, not used (switch on with --use).\n"
    assert command("credits", "ann", "--add", "-0.000001", "--use") == "ann: 12.499999 USD, used beyond the plan.\n"
    assert command("credits", "ann") == "ann: 12.499999 USD, used beyond the plan.\n"
    assert "not used" in command("credits", "ann", "--no-use")
