"""``vivace bench blind``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.errors import UsageError
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.bench.commands import HostFactory


def blind_command(open_host: HostFactory) -> Callable[..., None]:
    """The command; ``open_host`` opens everything for a judge model by name."""

    def blind(
        context: typer.Context,
        results: Annotated[list[Path], typer.Argument(help="Two results of 'vivace bench tasks', or more.")],
        tasks: Annotated[list[Path], typer.Option(help="A task file that they were run on; may be repeated.")],
        verdicts: Annotated[Path, typer.Option(help="Where verdicts are kept; a session goes on from there.")] = Path(
            "verdicts.jsonl"
        ),
        judge: Annotated[str, typer.Option(help="A model that decides instead of you.")] = "",
        name: Annotated[str, typer.Option("--as", help="Under which name your verdicts are kept.")] = "person",
        limit: Annotated[int | None, typer.Option(min=1, help="Ask for so many at most.")] = None,
        seed: Annotated[int, typer.Option(help="Shuffles the pairs and their sides.")] = 0,
        ratings: Annotated[bool, typer.Option("--ratings", help="Only show what the verdicts come to.")] = False,
    ) -> None:
        """Judge anonymous, shuffled results of the same tasks, and rate who made them."""
        from vivace.bench.blind.session import Session, run_model, run_person

        session = Session.of(results, tasks, verdicts, judge or name, limit=limit, seed=seed)
        if ratings:
            print(session.report())
            return
        if not judge:
            if not sys.stdin.isatty():
                raise UsageError("There is no terminal to ask on.", hint="--judge MODEL has a model decide.")
            run_person(session, _key)
            return
        settings: Settings = context.obj

        async def go() -> None:
            async with open_host(judge, settings) as host:
                await run_model(session, host.service, judge)

        asyncio.run(go())

    return blind


def _key() -> str:
    """One key; Ctrl-C and Ctrl-D end the session, as ``q`` does."""
    try:
        return typer.getchar()
    except (KeyboardInterrupt, EOFError):
        return "q"
