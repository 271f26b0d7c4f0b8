"""``vivace keys``: create, list, revoke, and credits."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.errors import UsageError
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.service.keys import KeyRecord, KeyStore

Where = Callable[[Settings], tuple[str, Path | None]]
"""Says where the keys are: the database's URL and the tiers file."""

_SPAN = re.compile(r"(\d+)([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def keys_app(where: Where) -> typer.Typer:
    """The command group, on the database and tiers that ``where`` names."""
    app = typer.Typer(no_args_is_help=True, help="The API keys of the service: create, list and revoke them.")

    @app.callback()
    def settings(context: typer.Context) -> None:
        if not isinstance(context.obj, Settings):
            context.obj = Settings()

    @app.command("create")
    def create(
        context: typer.Context,
        name: Annotated[
            str, typer.Argument(help="What the key is for; also its principal unless --principal is given.")
        ],
        principal: Annotated[
            str | None, typer.Option(help="Whose use it counts as; several keys may share one.")
        ] = None,
        plan: Annotated[str | None, typer.Option(help="A plan of the tiers file; without it the default plan.")] = None,
        models: Annotated[str, typer.Option(help="The models it may use: globs, with commas between them.")] = "*",
        requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Requests in any 60 s.")] = None,
        tokens_per_day: Annotated[int | None, typer.Option(min=1, help="Input and output tokens in any 24 h.")] = None,
        concurrent: Annotated[int | None, typer.Option(min=1, help="Responses running at a time.")] = None,
        expires: Annotated[str | None, typer.Option(help="When it ends by itself: 30d, 12h, 8w.")] = None,
        as_json: AsJson = False,
    ) -> None:
        """Create an API key and print it. It is not kept, and cannot be shown again."""
        store = _store(context.obj, where, plan)
        secret, record = store.create(
            name,
            principal=principal,
            plan=plan,
            models=[pattern.strip() for pattern in models.split(",") if pattern.strip()],
            requests_per_minute=requests_per_minute,
            tokens_per_day=tokens_per_day,
            concurrent=concurrent,
            expires=None if expires is None else time.time() + _seconds(expires),
        )
        if as_json:
            print(json.dumps({"key": secret, **_as_dict(record)}, indent=2))
            return
        print(secret)
        typer.echo("Keep it now: it is not stored and cannot be shown again.", err=True)

    @app.command("list")
    def list_keys(context: typer.Context, as_json: AsJson = False) -> None:
        """List the keys, by how they begin."""
        records = _store(context.obj, where).list()
        if as_json:
            print(json.dumps([_as_dict(record) for record in records], indent=2))
            return
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for column in ("key", "name", "principal", "plan", "models", "limits", "last used", "state"):
            # How a key begins is what 'revoke' takes: it has to be readable in any terminal.
            table.add_column(column, no_wrap=column == "key", overflow="fold")
        now = time.time()
        for record in records:
            table.add_row(
                f"{record.prefix}...",
                record.name,
                record.principal,
                record.plan or "-",
                ",".join(record.models),
                _limits(record),
                _date(record.last_used),
                record.state(now)
                + (f" until {_date(record.expires)}" if record.expires and record.usable(now) else ""),
            )
        Console().print(table)

    @app.command("revoke")
    def revoke(
        context: typer.Context,
        key: Annotated[str, typer.Argument(help="The name of a key, or how it begins.")],
    ) -> None:
        """End a key. A running service refuses it within seconds; responses that run are finished."""
        record = _store(context.obj, where).revoke(key)
        print(f"Revoked {record.prefix}... ({record.name}).")

    @app.command("credits")
    def show_credits(
        context: typer.Context,
        principal: Annotated[str, typer.Argument(help="Whose credits: a principal, not a key.")],
        add: Annotated[str, typer.Option(help="Add so much of the currency; below 0 takes away.")] = "0",
        use: Annotated[
            bool | None, typer.Option("--use/--no-use", help="Whether they pay for what the plan's windows refuse.")
        ] = None,
    ) -> None:
        """Show, add and switch on the credits that pay beyond a plan's windows."""
        from vivace.service.database import open_database
        from vivace.service.ledger import grant_credits
        from vivace.service.tiers import TierTable

        url, tiers = where(context.obj)
        account = grant_credits(open_database(url), principal, _millionths(add), use)
        balance = Decimal(account.balance) / 1_000_000
        state = "used beyond the plan" if account.opted_in else "not used (switch on with --use)"
        print(f"{principal}: {balance:,.6f} {TierTable.load(tiers).currency}, {state}.")

    return app


def _store(settings: Settings, where: Where, plan: str | None = None) -> KeyStore:
    from vivace.service.database import open_database
    from vivace.service.keys import KeyStore
    from vivace.service.tiers import TierTable

    url, tiers = where(settings)
    if plan is not None:
        try:
            TierTable.load(tiers).plan(plan)
        except UsageError as error:
            if error.code != "plan_not_found" or tiers is not None:
                raise
            raise UsageError(
                error.message,
                hint="Plans are read from the file that VIVACE_TIERS_FILE names, and it is not set.",
                code=error.code,
                param=error.param,
            ) from None
    return KeyStore(open_database(url))


def _seconds(span: str) -> int:
    found = _SPAN.fullmatch(span)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"{span!r} is not a time", hint="Write 12h, 30d or 8w.", code="invalid_value", param="expires")
    return int(found[1]) * _SECONDS[found[2]]


def _millionths(amount: str) -> int:
    try:
        value = Decimal(amount) * 1_000_000
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value != value.to_integral_value() or abs(value) > 10**15:
        raise UsageError(f"{amount!r} is not an amount", hint="Write 12.50.", code="invalid_value", param="add")
    return int(value)


def _limits(record: KeyRecord) -> str:
    parts = [
        f"{record.requests_per_minute:,} req/min" if record.requests_per_minute else "",
        f"{record.tokens_per_day:,} tok/day" if record.tokens_per_day else "",
        f"{record.concurrent} at a time" if record.concurrent else "",
    ]
    return ", ".join(part for part in parts if part) or "-"


def _date(moment: float | None) -> str:
    return "-" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _as_dict(record: KeyRecord) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(record)
    return {**found, "state": record.state(time.time())}
