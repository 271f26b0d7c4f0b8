"""The command: composes the rooms. Each command does little more than hand its options to one of them.

A person waits for ``edit`` and ``exec``, so what they do not need is imported by whoever does: the commands of the
agent are added by :func:`_with_agent`, the groups of all others by :func:`whole` (``app`` is that), and settings are
made where they are asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vivace import __version__
from vivace.agent.approvals.actions import Mode as Approving
from vivace.agent.turns.events import Mode
from vivace.errors import VivaceError
from vivace.ui.clock import process_started
from vivace.ui.edit_command import EditOptions, run_edit, split_arguments

if TYPE_CHECKING:
    from vivace.backends.base import Watch
    from vivace.bench.host import Host
    from vivace.composing import ComposedGateway
    from vivace.models.catalogue import ModelInfo
    from vivace.plan.calibrate import Machine
    from vivace.resident import EditService
    from vivace.server.command import Choice, Composed
    from vivace.settings import Settings


class _Root(TyperGroup):
    """The group of all commands. What is wrong with an option is told in its own words, not as a validator's error."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


_app = typer.Typer(
    name="vivace",
    cls=_Root,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Code edits at the speed of thought, from open models on your own machine.",
)


AGENT = ("exec", "acp", "undo", "redo", "checkpoints", "sessions")
"""The commands that :func:`_with_agent` adds."""


def needed(arguments: Sequence[str]) -> typer.Typer:
    """As much of the command line as these arguments ask for: the rest takes time to import."""
    first = arguments[0] if arguments else ""
    return _app if first == "edit" else _with_agent() if first in AGENT else whole()


def _with_agent() -> typer.Typer:
    """The command line with ``edit`` and the commands of the agent."""
    if not any(command.name == AGENT[0] for command in _app.registered_commands):
        from vivace.agent_commands import add_agent_commands
        from vivace.ui.sessions_command import add_sessions_commands
        from vivace.ui.undo_commands import add_undo_commands

        add_agent_commands(_app, _agent_service)
        add_undo_commands(_app, lambda settings: settings.state_dir)
        add_sessions_commands(_app, lambda settings: settings.state_dir)
    return _app


def whole() -> typer.Typer:
    """The command line with every command."""
    _with_agent()
    if not any(group.name == "models" for group in _app.registered_groups):
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


def _only(*names: str, help: str, **more: Any) -> Any:
    """An option of the app, which is what there is without a command."""
    return typer.Option(*names, help=f"Without a command: {help}", **more)


@_app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    resume: Annotated[str, _only(metavar="ID", help="go on with this conversation.")] = "",
    go_on: Annotated[bool, _only("--continue", help="go on with the last conversation.")] = False,
    model: Annotated[str, _only(help="the model that answers.")] = "",
    mode: Annotated[Mode, _only(help="auto, fast or deep.")] = "auto",
    candidates: Annotated[int | None, _only(min=1, max=16, help="how many answers race for an edit.")] = None,
    approvals: Annotated[Approving, _only(help="what passes without asking, see vivace exec.")] = "auto",
    server: Annotated[str, _only(help="use the vivace server at this address.")] = "",
    role: Annotated[
        list[str] | None, _only(metavar="ROLE=MODEL", help="a model as planner, builder or reviewer.")
    ] = None,
    race: Annotated[list[str] | None, _only(metavar="MODEL", help="a further model, whose answers race.")] = None,
) -> None:
    if version:
        print(f"vivace {__version__}")
        raise typer.Exit
    if any(name.upper().startswith("VIVACE_") for name in os.environ):
        from vivace.settings import unknown_variables

        for line in unknown_variables(os.environ):
            _tell(line)
    if context.invoked_subcommand is not None and (stray := _given(context)):
        raise typer.BadParameter(
            f"{stray} before {context.invoked_subcommand} is an option of the app, which is not opened then; "
            f"options of {context.invoked_subcommand} stand behind it."
        )
    if context.invoked_subcommand == "edit":
        return
    context.obj = _settings()
    if context.invoked_subcommand is None:
        from vivace.agent_commands import app_choice, open_app

        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            print(context.get_help())
            raise typer.Exit(2)
        if resume and go_on:
            raise typer.BadParameter("--resume ID and --continue are two ways to say which conversation; give one.")
        choice = app_choice(
            conversation=resume,
            model=model,
            mode=mode,
            candidates=candidates,
            approvals=approvals,
            roles=role or (),
            race=race or (),
        )
        raise typer.Exit(open_app(context.obj, server, _agent_service, choice, go_on=go_on))


def _given(context: typer.Context) -> str:
    """The first option that was said on the command line before the command."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            return parameter.opts[-1]
    return ""


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
    dialect: Annotated[
        str,
        typer.Option(
            help="The form of the answer: whole-file, search-replace, line-anchors or apply-patch; "
            "by default the one that the model writes best."
        ),
    ] = "",
) -> None:
    """Edit files by one instruction: show the diff, ask, write."""
    options = EditOptions(
        model=model,
        yes=yes,
        dry_run=dry_run,
        json=as_json,
        seed=seed,
        temperature=temperature,
        candidates=candidates,
        dialect=dialect,
    )
    paths, instruction = split_arguments(arguments)
    raise typer.Exit(run_edit(_edit_service, paths, instruction, options, _settings, process_started(), _known, _keep))


def run() -> int:
    """The command line; errors that a user can understand are told in words. Gives the exit code."""
    try:
        needed(sys.argv[1:])()
    except VivaceError as error:
        print(f"vivace: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _settings() -> Settings:
    from vivace.settings import Settings

    return Settings()


def _known(model: str) -> None:
    """Raises :class:`vivace.errors.UsageError` for what is no model's name."""
    from vivace.models.catalogue import find_model

    find_model(model, _settings())


def _keep(paths: Sequence[str], instruction: str) -> None:
    """The checkpoint before ``vivace edit`` writes."""
    from vivace.agent.checkpoints.single import take_before
    from vivace.resident import state_dir_of

    take_before(Path.cwd(), Path(state_dir_of(os.environ)), paths, f"edit {', '.join(paths)}: {instruction}"[:200])


def _edit_service(settings: Callable[[], Settings]) -> EditService:
    from vivace.ui.loading import LoadingLine

    return _service(settings, _tell, LoadingLine())


def _agent_service(settings: Settings, tell: Callable[[str], None], watch: Watch) -> EditService:
    return _service(lambda: settings, tell, watch)


def _service(settings: Callable[[], Settings], tell: Callable[[str], None], watch: Watch) -> EditService:
    """The resident service of this user, or one in this process where there is none."""
    from vivace.resident import EditService

    def local(settings: Settings) -> ComposedGateway:
        from vivace.composing import compose_gateway

        return compose_gateway(settings, database=False, pull=_pull, watch=watch)

    return EditService(settings, local, _pull_named, watch, tell)


def _tell(line: str) -> None:
    print(f"vivace: {line}", file=sys.stderr, flush=True)


def _pull_named(model: str, settings: Settings) -> None:
    from vivace.models.catalogue import find_model

    _pull(find_model(model, settings), settings)


def _pull(info: ModelInfo, settings: Settings) -> None:
    """Fetch a model that is needed and not here yet; imported when that is so."""
    from vivace.models.progress import pull_shown

    pull_shown(info, settings)
