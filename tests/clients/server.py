"""``python -m tests.clients.server --record FILE serve ...``: ``vivace serve`` with a record of what its clients do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from tests.clients.recording import Record, RecordedGateway
from vivace.errors import VivaceError
from vivace.server.command import Choice, Compose, Composed, serve_command
from vivace.serving import compose_serve
from vivace.settings import Settings


def recorded(record: Path) -> Compose:
    """What ``vivace serve`` composes, with the record around it."""

    @asynccontextmanager
    async def compose(choice: Choice, settings: Settings) -> AsyncIterator[Composed]:
        async with compose_serve(choice, settings) as composed:
            yield Composed(RecordedGateway(composed.gateway, Record(record)), composed.authenticate)

    return compose


def main(arguments: list[str]) -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.callback()
    def root(context: typer.Context, record: Annotated[Path, typer.Option(help="The file of the record.")]) -> None:
        context.obj = Settings()

    app.command("serve")(serve_command(recorded(Path(arguments[arguments.index("--record") + 1]))))
    try:
        app(arguments)
    except VivaceError as error:
        sys.exit(f"vivace: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
