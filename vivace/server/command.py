"""``vivace serve``: compose, listen, say where and how to use it, serve.

Exit codes: 0 when it ended as told (or the check went well), 1 when it could not serve (or the check failed), 2 for
options that cannot be.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from vivace import loops
from vivace.errors import UsageError, VivaceError, did_you_mean
from vivace.protocol.contracts import Gateway, ModelCard, Principal
from vivace.server.options import MIB, Authenticator, ServerOptions
from vivace.settings import Settings


class Choice(Struct, frozen=True, kw_only=True):
    """What is to be served, as the command line says it. What it does not say is the composer's to know."""

    backends: tuple[str, ...] = ()
    """``paced``, ``local``, names out of the configuration, or addresses of other servers (``http://host:port/v1``)."""
    model: str | None = None
    """The model that comes first."""
    config: Path | None = None
    database: str | None = None
    script: Path | None = None
    tok_s: float | None = None
    ttft_ms: float | None = None


class Composed(Struct, frozen=True):
    """What a server stands in front of. Without ``authenticate`` nobody has a key and none is asked for."""

    gateway: Gateway
    authenticate: Authenticator | None = None
    refused: str = ""
    """Which plan keeps models from those who have no key, and which models, in words."""


Compose = Callable[[Choice, Settings], AbstractAsyncContextManager[Composed]]
"""Makes the gateway, and frees what it holds at the end."""


def serve_command(compose: Compose) -> Callable[..., None]:
    """The function behind ``vivace serve``; ``compose`` knows the rooms."""

    def serve(
        context: typer.Context,
        host: Annotated[
            str, typer.Option(help="Where to listen. Beyond this machine only once there are keys.")
        ] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
        uds: Annotated[Path | None, typer.Option(help="Listen on this Unix socket instead.")] = None,
        backend: Annotated[
            list[str] | None, typer.Option(help="paced, local, a configured name, or a server's address; repeatable.")
        ] = None,
        model: Annotated[str | None, typer.Option(help="The model that comes first in lists and settings.")] = None,
        config: Annotated[Path | None, typer.Option(help="The TOML file of backends, tiers and plans.")] = None,
        database: Annotated[
            str | None, typer.Option(help="The URL of the database: keys, ledger, stored responses.")
        ] = None,
        script: Annotated[Path | None, typer.Option(help="What the paced backend says.")] = None,
        tok_s: Annotated[float | None, typer.Option(help="Tokens a second of the paced backend.")] = None,
        ttft_ms: Annotated[float | None, typer.Option(help="Milliseconds to its first token.")] = None,
        websockets: Annotated[bool, typer.Option(help="Offer WebSockets.")] = True,
        max_mib: Annotated[int, typer.Option(min=1, help="The largest body or message, in MiB.")] = 64,
        drain_seconds: Annotated[
            float, typer.Option(min=0, help="How long running responses may go on at the end.")
        ] = 30,
        idle_seconds: Annotated[
            float | None, typer.Option(min=0, help="End when nobody has been connected for so long.")
        ] = None,
        connection_seconds: Annotated[
            float | None, typer.Option(min=1, help="The age at which a WebSocket is closed, between two responses.")
        ] = None,
        allow_origin: Annotated[list[str] | None, typer.Option(help="A web page's origin that may call.")] = None,
        allow_host: Annotated[list[str] | None, typer.Option(help="A name to answer to without keys.")] = None,
        public_metrics: Annotated[
            bool, typer.Option("--public-metrics", help="Answer /metrics without a key.")
        ] = False,
        check: Annotated[bool, typer.Option("--check", help="Run a turn through itself each way, and end.")] = False,
    ) -> None:
        """Serve models: Responses over HTTP and WebSocket, Chat Completions, Completions, Messages."""
        options = ServerOptions(
            host=host,
            port=port,
            uds=uds,
            websockets=websockets,
            max_message_bytes=max_mib * MIB,
            drain_seconds=drain_seconds,
            idle_seconds=idle_seconds,
            connection_seconds=connection_seconds,
            allow_origins=tuple(allow_origin or ()),
            allow_hosts=tuple(allow_host or ()),
            public_metrics=public_metrics,
        )
        choice = Choice(
            backends=tuple(backend or ()),
            model=model,
            config=config,
            database=database,
            script=script,
            tok_s=tok_s,
            ttft_ms=ttft_ms,
        )
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        run = run_check if check else run_server
        raise typer.Exit(loops.run(run(compose, choice, options, context.obj)))

    return serve


async def run_server(compose: Compose, choice: Choice, options: ServerOptions, settings: Settings) -> int:
    """Serve until told to stop; the exit code."""
    from vivace.server.app import build_door
    from vivace.server.host import Host, address, bind, remove_unix
    from vivace.server.settings_text import settings_text

    async with compose(choice, settings) as composed:
        door = build_door(composed.gateway, composed.authenticate, options)
        listener = bind(options)
        where = address(listener)
        cards = await first(composed, choice.model)
        print(f"vivace serves {', '.join(card.name for card in cards)} at {where}", flush=True)
        if options.uds is None:
            keys = composed.authenticate is not None
            print(f"\n{settings_text(where, cards, keys=keys, websockets=options.websockets)}", flush=True)
        host = Host(door)
        loops.settle()
        try:
            await host.run_on(listener)
        finally:
            remove_unix(options.uds)
    return 0


async def run_check(compose: Compose, choice: Choice, options: ServerOptions, settings: Settings) -> int:
    """Serve on a free port, run a turn each way, and end; 0 when both went well."""
    from vivace.server.app import build_door
    from vivace.server.check import check_turns
    from vivace.server.host import Host, address, bind

    options = structs.replace(options, host="127.0.0.1", port=0, uds=None, drain_seconds=1.0)
    async with compose(choice, settings) as composed:
        secret = secrets.token_urlsafe(32)

        async def only_this_check(given: str) -> Principal | None:
            return Principal() if secrets.compare_digest(given.encode(), secret.encode()) else None

        listener = bind(options)
        host = Host(build_door(composed.gateway, only_this_check, options))
        serving = asyncio.ensure_future(host.run_on(listener))
        try:
            model = (await first(composed, choice.model))[0].name
            turns = await check_turns(address(listener), model, secret, options.websockets)
        finally:
            host.stop()
            await serving
    print(f"model      {model}")
    for turn in turns:
        print(turn)
    return 1 if any(turn.fault for turn in turns) else 0


async def first(composed: Composed, model: str | None) -> list[ModelCard]:
    """The models that are served, ``model`` first. Raises :class:`VivaceError` when it is not among them."""
    cards = await composed.gateway.models(Principal())
    names = [card.name for card in cards]
    if composed.refused and (not cards or (model is not None and model not in names)):
        raise UsageError(
            composed.refused,
            hint="Add them to the plan's models in the tiers file, or make another plan its default_plan.",
            code="no_model",
            param="model",
        )
    if not cards:
        raise VivaceError(
            "There is no model to serve",
            hint="Choose one with --backend, or pull one: vivace models list.",
            code="no_model",
        )
    if model is None:
        return cards
    if model not in names:
        raise UsageError(f"The model {model!r} is not served", hint=did_you_mean(model, names), param="model")
    return sorted(cards, key=lambda card: card.name != model)
