"""The commands of the agent: its terminal app, ``vivace exec`` and ``vivace acp``, on a service here or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.agent.turns.events import Mode
from vivace.ui.contract import Approving, Choice

if TYPE_CHECKING:
    from vivace.composing import Pull
    from vivace.protocol.contracts import Service
    from vivace.settings import Settings
    from vivace.ui.agents import Agents

DEFAULT_MODEL = "coder-0.5b"

MODEL = typer.Option(help="A name from 'vivace models list', or one that the server has.")
SERVER = typer.Option(help="Use the vivace server at this address; its key is VIVACE_API_KEY.")
MODE = typer.Option(help="auto decides by itself and says why; fast is one call; deep plans, runs and checks.")


def add_agent_commands(app: typer.Typer, pull: Pull) -> None:
    """Add ``exec`` and ``acp``. ``pull`` fetches a model that is not here yet."""

    @app.command("exec")
    def run(
        context: typer.Context,
        task: Annotated[str, typer.Argument(help="What to do; - reads it from standard input.")],
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = DEFAULT_MODEL,
        candidates: Annotated[
            int | None, typer.Option(min=1, max=16, help="Attempts made at once; the best one that verifies is taken.")
        ] = None,
        approvals: Annotated[
            Approving, typer.Option(help="What runs without asking: nothing new, what is harmless, or everything.")
        ] = "auto",
        as_json: Annotated[bool, typer.Option("--json", help="Print the events as JSON lines.")] = False,
        server: Annotated[str, SERVER] = "",
    ) -> None:
        """Have the agent work on a task in this folder, and end."""
        from vivace.ui.exec_command import ExecOptions, run_exec

        choice = Choice(root=Path.cwd(), model=model, mode=mode, candidates=candidates, approvals=approvals)
        raise typer.Exit(run_exec(house(context.obj, server, pull), task, choice, ExecOptions(json=as_json)))

    @app.command("acp")
    def acp(
        context: typer.Context,
        mode: Annotated[Mode, MODE] = "auto",
        model: Annotated[str, MODEL] = DEFAULT_MODEL,
        server: Annotated[str, SERVER] = "",
    ) -> None:
        """Serve the agent to an editor over standard input and output (Agent Client Protocol)."""
        from vivace.ui.acp.server import serve_acp

        choice = Choice(root=Path.cwd(), model=model, mode=mode)
        raise typer.Exit(serve_acp(house(context.obj, server, pull), choice))


def open_app(settings: Settings, conversation: str, server: str, pull: Pull) -> int:
    """The terminal app in this folder; the exit code."""
    from vivace.ui.app.run import run_app

    choice = Choice(root=Path.cwd(), model=DEFAULT_MODEL, conversation=conversation, propose=True)
    return run_app(house(settings, server, pull), choice)


def house(settings: Settings, server: str, pull: Pull) -> Agents:
    """Where the faces get their conversations from. Nothing is loaded before the first one asks for it."""
    from vivace.agent.turns.options import AgentOptions
    from vivace.ui.agents import Agents

    options = AgentOptions(state_dir=settings.state_dir, cache_dir=settings.cache_dir)
    return Agents(_maker(settings, server, pull), options, models=lambda: _models(settings))


def _maker(settings: Settings, server: str, pull: Pull) -> Callable[[], Service]:
    def remote() -> Service:
        from vivace.client.service import RemoteService

        return RemoteService(server, os.environ.get("VIVACE_API_KEY", ""))

    def local() -> Service:
        from vivace.composing import compose_gateway

        return compose_gateway(settings, database=False, pull=pull)

    return remote if server else local


def _models(settings: Settings) -> list[str]:
    from vivace.models.catalogue import load_catalogue
    from vivace.models.store import is_present

    return [name for name, info in load_catalogue(settings).items() if is_present(info, settings)]
