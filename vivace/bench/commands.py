"""``vivace bench speed``, ``table`` and ``plot``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.bench.blind.command import blind_command
from vivace.bench.tasksets.command import tasks_command
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.bench.host import Host

HostFactory = Callable[[str, Settings], "AbstractAsyncContextManager[Host]"]
"""Opens everything for a model by name; leaving the context closes its service."""

Results = Annotated[Path, typer.Argument(help="A JSON document that 'vivace bench speed' wrote.")]


def bench_app(open_host: HostFactory) -> typer.Typer:
    """The ``bench`` group; ``open_host`` comes from the command that composes the rooms."""
    app = typer.Typer(no_args_is_help=True, help="Measure this machine, vivace and its peers; make tables and plots.")

    @app.callback()
    def _settings(context: typer.Context) -> None:
        if not isinstance(context.obj, Settings):
            context.obj = Settings()

    @app.command()
    def speed(
        context: typer.Context,
        model: Annotated[str, typer.Option(help="A name from 'vivace models list'.")] = "coder-0.5b",
        only: Annotated[list[str] | None, typer.Option(help="Only this part; may be repeated. See --parts.")] = None,
        parts: Annotated[bool, typer.Option("--parts", help="List the parts and end.")] = False,
        rounds: Annotated[int, typer.Option(min=1, help="Rounds of whole turns.")] = 5,
        samples: Annotated[int, typer.Option(min=1, help="Repetitions of each single measurement.")] = 5,
        slow: Annotated[float, typer.Option(help="Turns above so many seconds are run in two rounds only.")] = 30.0,
        task: Annotated[list[str] | None, typer.Option(help="Only this task; may be repeated.")] = None,
        data: Annotated[Path, typer.Option(help="The folder of the tasks' texts.")] = Path("benchmarks/data/speed"),
        long_edit: Annotated[Path | None, typer.Option(help="A file of long edits to take tasks from.")] = None,
        long_edits: Annotated[int, typer.Option(min=1, help="How many of them.")] = 2,
        peers: Annotated[Path | None, typer.Option(help="A folder of peers, such as benchmarks/peers.")] = None,
        peer: Annotated[list[str] | None, typer.Option(help="Only peers whose name begins so.")] = None,
        peers_data: Annotated[
            Path, typer.Option(help="Where the peers' setup put their environment and models.")
        ] = Path("build/peers"),
        llama_server: Annotated[Path | None, typer.Option(help="A llama-server binary, as another peer.")] = None,
        vllm: Annotated[str, typer.Option(help="Address of a vLLM server that has the model, as another peer.")] = "",
        out: Annotated[Path, typer.Option(help="Where the document goes.")] = Path("benchmarks/results/speed.json"),
    ) -> None:
        """Measure the machine's bounds, whole turns beside peers, and single figures; write them as JSON."""
        from vivace.bench.job import Job, run_job
        from vivace.bench.speed import PARTS, Plan, chosen_parts

        if parts:
            print("\n".join(PARTS))
            return
        job = Job(
            plan=Plan(chosen_parts(only or []), rounds, samples, slow),
            data=data,
            tasks=task or [],
            long_edit=long_edit,
            long_edits=long_edits,
            peers=peers,
            only_peers=peer or [],
            peers_data=peers_data,
            llama_server=str(llama_server or ""),
            vllm=vllm,
            out=out,
        )
        settings: Settings = context.obj

        async def go() -> None:
            async with open_host(model, settings) as host:
                await run_job(host, job)

        asyncio.run(go())

    @app.command()
    def table(results: Results) -> None:
        """Print a document's tables as Markdown."""
        from vivace.bench.record import load
        from vivace.bench.table import markdown

        print(markdown(load(results)), end="")

    @app.command()
    def plot(
        results: Results,
        folder: Annotated[Path | None, typer.Option(help="Where the files go; beside the document otherwise.")] = None,
    ) -> None:
        """Draw a document's plots as SVG and PNG."""
        from vivace.bench.plots import draw_all
        from vivace.bench.record import load

        for path in draw_all(load(results), folder or results.parent, results.stem):
            print(path)

    app.command("tasks")(tasks_command(open_host))
    app.command("blind")(blind_command(open_host))
    return app
