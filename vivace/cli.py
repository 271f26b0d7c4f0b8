"""The command: composes the rooms. Each command does little more than hand its options to one of them.

A person waits for ``edit``, so what it does not need is imported by whoever does: the groups of other commands are
added by :func:`whole` (``app`` is that), settings are made where they are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace import __version__
from vivace.errors import VivaceError
from vivace.ui.clock import process_started
from vivace.ui.edit_command import INTERRUPTED, EditOptions, run_edit, split_arguments

if TYPE_CHECKING:
    from vivace.bench.host import Host
    from vivace.composing import ComposedGateway
    from vivace.models.catalogue import ModelInfo
    from vivace.plan.calibrate import Machine
    from vivace.resident import EditService
    from vivace.server.command import Choice, Composed
    from vivace.settings import Settings

_app = typer.Typer(
    name="vivace",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Code edits at the speed of thought, from open models on your own machine.",
)


def whole() -> typer.Typer:
    """The command line with every command."""
    if not _app.registered_groups:
        from vivace.agent_commands import add_agent_commands
        from vivace.bench.commands import bench_app
        from vivace.doctor import doctor
        from vivace.models.commands import models_app
        from vivace.plan.commands import plan_app
        from vivace.resident_command import service_app
        from vivace.server.command import serve_command
        from vivace.service.keys_command import keys_app

        _app.add_typer(models_app, name="models")
        _app.add_typer(bench_app(_open_host), name="bench")
        _app.add_typer(keys_app(_keys_place), name="keys")
        add_agent_commands(_app, _pull)
        _app.command()(serve_command(_compose_serve))
        _app.add_typer(service_app, name="service")
        _app.add_typer(plan_app(_open_machine, _model_file), name="plan")
        _app.command()(doctor)
    return _app


def __getattr__(name: str) -> object:
    if name == "app":
        return whole()
    raise AttributeError(name)


@asynccontextmanager
async def _open_host(model: str, settings: Settings) -> AsyncIterator[Host]:
    from vivace.hosting import open_host

    async with open_host(model, settings) as host:
        yield host


@asynccontextmanager
async def _compose_serve(choice: Choice, settings: Settings) -> AsyncIterator[Composed]:
    from vivace.serving import compose_serve

    async with compose_serve(choice, settings) as composed:
        yield composed


@contextmanager
def _open_machine(model: str, settings: Settings) -> Iterator[Machine]:
    from vivace.hosting import open_machine

    with open_machine(model, settings) as machine:
        yield machine


def _model_file(name: str, settings: Settings) -> Path | None:
    """The file of a catalogue model, for the planner to read its shape from."""
    from vivace.models.catalogue import load_catalogue
    from vivace.models.store import is_present, place

    info = load_catalogue(settings).get(name)
    return place(info, settings) if info and is_present(info, settings) else None


def _keys_place(settings: Settings) -> tuple[str, Path | None]:
    """Where the keys are kept, and the file whose plans they may name."""
    from vivace.service.database import default_url

    return settings.database_url or default_url(settings.state_dir), settings.tiers_file


@_app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    resume: Annotated[str, typer.Option(help="Without a command: go on with this conversation.")] = "",
    server: Annotated[str, typer.Option(help="Without a command: use the vivace server at this address.")] = "",
) -> None:
    if version:
        print(f"vivace {__version__}")
        raise typer.Exit
    if context.invoked_subcommand == "edit":
        return
    context.obj = _settings()
    if context.invoked_subcommand is None:
        from vivace.agent_commands import open_app

        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            print(context.get_help())
            raise typer.Exit(2)
        raise typer.Exit(open_app(context.obj, resume, server, _pull))


@_app.command()
def edit(
    context: typer.Context,
    arguments: Annotated[
        list[str], typer.Argument(metavar='PATH... "INSTRUCTION"', help="The files, then what to do with them.")
    ],
    model: Annotated[str, typer.Option(help="A name from 'vivace models list'.")] = "coder-0.5b",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show the diff, write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, on failure too.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same edit.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=2.0,
            help="0 takes the likeliest token; candidates after the first "
            "are sampled at 0.6 unless this says otherwise.",
        ),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, max=16, help="Attempts made at once; the best one is taken.")] = 1,
) -> None:
    """Edit files by one instruction: show the diff, ask, write."""
    options = EditOptions(
        model=model, yes=yes, dry_run=dry_run, json=as_json, seed=seed, temperature=temperature, candidates=candidates
    )
    paths, instruction = split_arguments(arguments)
    raise typer.Exit(run_edit(_edit_service, paths, instruction, options, _settings, process_started()))


def main() -> None:
    """Entry point; errors that a user can understand are told in words, with their exit code."""
    try:
        (_app if sys.argv[1:2] == ["edit"] else whole())()
    except VivaceError as error:
        print(f"vivace: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _settings() -> Settings:
    from vivace.settings import Settings

    return Settings()


def _edit_service(settings: Callable[[], Settings]) -> EditService:
    from vivace.resident import EditService
    from vivace.ui.loading import LoadingLine

    return EditService(settings, _local_service, _pull_named, LoadingLine(), _tell)


def _tell(line: str) -> None:
    print(f"vivace: {line}", file=sys.stderr, flush=True)


def _local_service(settings: Settings) -> ComposedGateway:
    from vivace.composing import compose_gateway
    from vivace.ui.loading import LoadingLine

    return compose_gateway(settings, database=False, pull=_pull, watch=LoadingLine())


def _pull_named(model: str, settings: Settings) -> None:
    from vivace.models.catalogue import find_model

    _pull(find_model(model, settings), settings)


def _pull(info: ModelInfo, settings: Settings) -> None:
    """Fetch a model that is needed and not here yet; imported when that is so."""
    from vivace.models.progress import pull_shown

    pull_shown(info, settings)
