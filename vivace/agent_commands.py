"""The commands of the agent: its terminal app, ``vivace exec`` and ``vivace acp``, on a service here or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

MODEL = typer.Option(help="A name from 'vivace models list', or one that the server has.")
SERVER = typer.Option(help="Use the vivace server at this address; its key is VIVACE_API_KEY.")
ROLE = typer.Option("--role", metavar="ROLE=MODEL", help="A model as planner, builder or reviewer of deep turns.")
RACE = typer.Option("--race", metavar="MODEL", help="A further model, whose answers race with those of the first.")
MODE = typer.Option(help="auto decides by itself and says why; fast is one call; deep plans, runs and checks.")


def add_agent_commands(app: typer.Typer, local: Local) -> None:
    """Add ``exec`` and ``acp``, on the service that ``local`` gives where no server is named."""

    @app.command("exec")
    def run(
        context: typer.Context,
        task: Annotated[str, typer.Argument(help="What to do; - reads it from standard input.")],
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = DEFAULT_MODEL,
        candidates: Annotated[
            int | None, typer.Option(min=1, max=16, help="Attempts made at once; the best one that verifies is taken.")
        ] = None,
        race: Annotated[list[str] | None, RACE] = None,
        approvals: Annotated[
            Approving, typer.Option(help="What runs without asking: nothing new, what is harmless, or everything.")
        ] = "auto",
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

        choice = Choice(
            root=Path.cwd(),
            model=model,
            mode=mode,
            candidates=candidates,
            race_models=tuple(race or ()),
            approvals=approvals,
            workers=False,
            limits=_limits(max_steps, max_tokens, max_cost, max_seconds),
            roles=_roles(roles),
        )
        raise typer.Exit(
            run_exec(house(context.obj, server, local, LoadingLine()), task, choice, ExecOptions(json=as_json))
        )

    @app.command("acp")
    def acp(
        context: typer.Context,
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = DEFAULT_MODEL,
        roles: Annotated[list[str] | None, ROLE] = None,
        race: Annotated[list[str] | None, RACE] = None,
        server: Annotated[str, SERVER] = "",
    ) -> None:
        """Serve the agent to an editor over standard input and output (Agent Client Protocol)."""
        from vivace.ui.acp.server import serve_acp

        choice = Choice(root=Path.cwd(), model=model, mode=mode, roles=_roles(roles), race_models=tuple(race or ()))
        raise typer.Exit(serve_acp(house(context.obj, server, local), choice))


def open_app(
    settings: Settings,
    conversation: str,
    server: str,
    local: Local,
    roles: Sequence[str] = (),
    race: Sequence[str] = (),
) -> int:
    """The terminal app in this folder; the exit code."""
    from vivace.ui.app.run import run_app
    from vivace.ui.loading import LoadingLine

    choice = Choice(
        root=Path.cwd(),
        model=DEFAULT_MODEL,
        conversation=conversation,
        propose=True,
        roles=_roles(roles),
        race_models=tuple(race),
    )
    # What it writes to stderr while the app has the screen, the app says in the line of its meters.
    return run_app(house(settings, server, local, LoadingLine()), choice)


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

    options = AgentOptions(state_dir=settings.state_dir, cache_dir=settings.cache_dir)
    agents = Agents(make, options, models=lambda: _models(settings), known=None if server else known)
    return agents


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
