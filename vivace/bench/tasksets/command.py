"""``vivace bench tasks``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vivace.errors import UsageError
from vivace.settings import Settings

if TYPE_CHECKING:
    from vivace.bench.commands import HostFactory
    from vivace.protocol.contracts import Service


def tasks_command(open_host: HostFactory) -> Callable[..., None]:
    """The command; ``open_host`` opens everything for a model by name."""

    def tasks(
        context: typer.Context,
        files: Annotated[
            list[Path] | None, typer.Argument(metavar="FILE...", help="Task files; with --table or --plot, results.")
        ] = None,
        model: Annotated[str, typer.Option(help="A name from 'vivace models list'.")] = "coder-0.5b",
        mode: Annotated[str, typer.Option(help="How the agent works: fast, deep or auto.")] = "fast",
        candidates: Annotated[
            int | None,
            typer.Option(
                min=1, max=16, help="Attempts made at once on each task; by default 1 in fast, else the agent's own."
            ),
        ] = None,
        limit: Annotated[
            int | None, typer.Option(min=1, help="So many tasks in all, spread evenly over the files.")
        ] = None,
        seed: Annotated[list[int] | None, typer.Option(help="May be repeated: each task once a seed.")] = None,
        parallel: Annotated[int, typer.Option(min=1, help="Turns in flight at once; 1 for timings.")] = 1,
        json: Annotated[
            Path | None, typer.Option(metavar="OUT", help="Where the result goes; a killed run goes on from there.")
        ] = None,
        server: Annotated[str, typer.Option(help="Address of a running 'vivace serve' that answers instead.")] = "",
        key: Annotated[str, typer.Option(envvar="VIVACE_API_KEY", help="The API key for --server.")] = "",
        compare: Annotated[
            tuple[Path, Path] | None, typer.Option(metavar="A B", help="Compare two results pair by pair, and end.")
        ] = None,
        plot: Annotated[
            Path | None, typer.Option(metavar="STEM", help="Draw pass rate against wall time of results, and end.")
        ] = None,
        table: Annotated[bool, typer.Option("--table", help="Print results as a Markdown table, and end.")] = False,
    ) -> None:
        """Run an agent on task sets in the sandbox: what passes, how long it takes, what is changed."""
        from vivace.bench.tasksets import reports
        from vivace.bench.tasksets.job import Job, run_job
        from vivace.bench.tasksets.record import Options
        from vivace.client.service import RemoteService

        given = files or []
        if compare is not None:
            if given or plot or table:
                raise UsageError("--compare takes two results and nothing else.", param="compare")
            reports.show_comparison(*compare, json)
            return
        if not given:
            raise UsageError("Name one or more files.", hint="docs/bench-tasks.md tells what they hold.", param="file")
        if plot is not None or table:
            reports.show(given, table=table, plot=plot)
            return
        options = Options(
            model=model,
            mode=mode,
            candidates=1 if candidates is None and mode == "fast" else candidates,
            seeds=tuple(dict.fromkeys(seed or [0])),
            limit=limit,
            parallel=parallel,
        )
        job = Job(files=given, options=options, out=json, remote=bool(server))
        settings: Settings = context.obj

        @asynccontextmanager
        async def open_service() -> AsyncIterator[Service]:
            if server:
                remote = RemoteService(server, key)
                try:
                    yield remote
                finally:
                    await remote.close()
                return
            async with open_host(model, settings) as host:
                yield host.service

        job.check()
        try:
            asyncio.run(run_job(open_service, job))
        except KeyboardInterrupt:
            job.interrupted()
            raise

    return tasks
