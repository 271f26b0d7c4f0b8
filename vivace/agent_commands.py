"""The commands of the agent: its terminal app, ``vivace exec`` and ``vivace acp``, on a service here or elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from vivace.agent.turns.events import Mode
from vivace.ui.contract import Approving, Choice

if TYPE_CHECKING:
    from vivace.agent.turns.limits import Limits
    from vivace.backends.base import Watch
    from vivace.protocol.contracts import Service
    from vivace.settings import Settings
    from vivace.ui.agents import Agents

Tell = Callable[[str], None]
Local = Callable[["Settings", Tell, "Watch"], "Service"]
"""The service of this machine. It is told where to say what a user should know of it, and what watches a loading."""

DEFAULT_MODEL = "coder-0.5b"

MODEL = typer.Option(
    help=f"A name from 'vivace models list' ({DEFAULT_MODEL}), or one that the server has (that one, else its first)."
)
SERVER = typer.Option(help="Use the vivace server at this address; its key is VIVACE_API_KEY.")
ROLE = typer.Option("--role", metavar="ROLE=MODEL", help="A model as planner, builder or reviewer of deep turns.")
RACE = typer.Option("--race", metavar="MODEL", help="A further model, whose answers race with those of the first.")
MODE = typer.Option(help="auto decides by itself and says why; fast is one call; deep plans, runs and checks.")
APPROVALS = typer.Option(
    help="What passes without asking: reading, and the rest is refused (read-only); reading (ask); also edits and "
    "commands in the sandbox (auto); everything but what destroys (full)."
)
CANDIDATES = typer.Option(min=1, max=16, help="Attempts made at once; the best one that verifies is taken.")


def add_agent_commands(app: typer.Typer, local: Local) -> None:
    """Add ``exec`` and ``acp``, on the service that ``local`` gives where no server is named."""

    @app.command("exec")
    def run(
        context: typer.Context,
        task: Annotated[str, typer.Argument(help="What to do; - reads it from standard input.")],
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = "",
        candidates: Annotated[int | None, CANDIDATES] = None,
        race: Annotated[list[str] | None, RACE] = None,
        approvals: Annotated[Approving, APPROVALS] = "auto",
        resume: Annotated[str, typer.Option(metavar="ID", help="Go on with this conversation.")] = "",
        go_on: Annotated[bool, typer.Option("--continue", help="Go on with the last conversation.")] = False,
        roles: Annotated[list[str] | None, ROLE] = None,
        max_steps: Annotated[int | None, typer.Option(min=1, help="End after so many answers of models (200).")] = None,
        max_tokens: Annotated[
            int | None, typer.Option(min=1, help="End after so many tokens, input that was cached not counted.")
        ] = None,
        max_cost: Annotated[
            float | None, typer.Option(min=0, help="End once this is spent, in the currency of the models' prices.")
        ] = None,
        max_seconds: Annotated[float | None, typer.Option(min=0, help="End after this time.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print the events as JSON lines.")] = False,
        server: Annotated[str, SERVER] = "",
    ) -> None:
        """Have the agent work on a task in this folder, and end."""
        from vivace.ui.exec_command import ExecOptions, run_exec
        from vivace.ui.loading import LoadingLine

        if resume and go_on:
            raise typer.BadParameter("--resume ID and --continue are two ways to say which conversation; give one.")
        choice = Choice(
            root=Path.cwd(),
            model=model,
            mode=mode,
            candidates=candidates,
            race_models=tuple(race or ()),
            conversation=resume,
            approvals=approvals,
            workers=False,
            limits=_limits(max_steps, max_tokens, max_cost, max_seconds),
            roles=_roles(roles),
        )
        options = ExecOptions(json=as_json, go_on=go_on)
        raise typer.Exit(run_exec(house(context.obj, server, local, LoadingLine()), task, choice, options))

    @app.command("acp")
    def acp(
        context: typer.Context,
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = "",
        approvals: Annotated[Approving, APPROVALS] = "auto",
        roles: Annotated[list[str] | None, ROLE] = None,
        race: Annotated[list[str] | None, RACE] = None,
        server: Annotated[str, SERVER] = "",
    ) -> None:
        """Serve the agent to an editor over standard input and output (Agent Client Protocol)."""
        from vivace.ui.acp.server import serve_acp

        agents = house(context.obj, server, local)
        choice = Choice(
            root=Path.cwd(),
            model=model,
            mode=mode,
            approvals=approvals,
            roles=_roles(roles),
            race_models=tuple(race or ()),
        )
        raise typer.Exit(serve_acp(agents, asyncio.run(agents.settled(choice))))


def open_app(settings: Settings, server: str, local: Local, choice: Choice, *, go_on: bool = False) -> int:
    """The terminal app in this folder; the exit code. ``go_on`` is with the last conversation.

    Raises :class:`vivace.errors.VivaceError` for a model or conversation that is not there: then no app is opened.
    """
    from vivace.ui.app.run import run_app
    from vivace.ui.loading import LoadingLine

    # What it writes to stderr while the app has the screen, the app says in the line of its meters.
    agents = house(settings, server, local, LoadingLine())
    if choice.conversation or go_on:
        found = agents.read(choice.root, choice.conversation).id
        choice = msgspec.structs.replace(choice, conversation=found)
    return run_app(agents, asyncio.run(agents.settled(choice)))


def app_choice(
    *,
    conversation: str,
    model: str,
    mode: Mode,
    candidates: int | None,
    approvals: Approving,
    roles: Sequence[str],
    race: Sequence[str],
) -> Choice:
    """What the app is opened with. Exits with 2 for bad roles."""
    return Choice(
        root=Path.cwd(),
        model=model,
        mode=mode,
        candidates=candidates,
        conversation=conversation,
        approvals=approvals,
        propose=True,
        roles=_roles(roles),
        race_models=tuple(race),
    )


def house(settings: Settings, server: str, local: Local, watch: Watch = lambda stage, share: None) -> Agents:
    """Where the faces get their conversations from. Nothing is loaded before the first one asks for it."""
    from vivace.agent.turns.options import AgentOptions
    from vivace.ui.agents import Agents

    def make() -> Service:
        if not server:
            return local(settings, agents.tell, watch)
        from vivace.client.service import RemoteService

        return RemoteService(server, os.environ.get("VIVACE_API_KEY", ""))

    def known(model: str) -> None:
        from vivace.models.catalogue import find_model

        find_model(model, settings)

    options = AgentOptions(
        state_dir=settings.state_dir,
        cache_dir=settings.cache_dir,
        keep_edits=settings.keep_edits,
        mcp_folder=settings.config_dir,
    )
    if server:
        agents = Agents(make, options, listed=_listed, default=DEFAULT_MODEL)
    else:
        agents = Agents(make, options, models=lambda: _models(settings), known=known, default=DEFAULT_MODEL)
    return agents


async def _listed(service: Any) -> list[str]:
    from vivace.client.models import models_of

    return await models_of(service)


def _roles(given: Sequence[str] | None) -> dict[str, str]:
    """Exits with 2 for what is no role or names no model."""
    from vivace.agent.turns.options import roles_of
    from vivace.errors import UsageError

    try:
        return roles_of(given or ())
    except UsageError as error:
        raise typer.BadParameter(str(error), param_hint="--role") from None


def _limits(steps: int | None, tokens: int | None, cost: float | None, seconds: float | None) -> Limits | None:
    """None where none was set: the agent has its own."""
    from vivace.agent.turns.limits import Limits

    given = {"steps": steps, "tokens": tokens, "cost": cost, "seconds": seconds}
    wanted = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(Limits(), **wanted) if wanted else None


def _models(settings: Settings) -> list[str]:
    from vivace.models.catalogue import load_catalogue
    from vivace.models.store import is_present

    return [name for name, info in load_catalogue(settings).items() if is_present(info, settings)]
