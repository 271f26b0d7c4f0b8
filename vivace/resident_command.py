"""``vivace service status`` and ``vivace service stop``: the resident services of this user."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vivace.client.resident import Status

STOP_TIMEOUT = 15.0
"""Seconds until one that was told to end must be gone."""

service_app = typer.Typer(
    no_args_is_help=True, help="The resident service, which keeps models loaded between two edits."
)


@service_app.command("status")
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False) -> None:
    """Show the resident services that run: version, models, and when they end."""
    found = asyncio.run(_all())
    if as_json:
        import msgspec

        told = [{"socket": str(path), **msgspec.structs.asdict(state)} for path, state in found]
        print(json.dumps(told, indent=2))
    elif not found:
        print("No resident service runs; the next 'vivace edit' starts one.")
    for path, state in [] if as_json else found:
        models = ", ".join(state.models) or "no model"
        print(
            f"version {state.version}, process {state.pid}: {models} loaded, {state.running} running, up for "
            f"{state.uptime / 60:.0f} min, ends after {state.idle_limit / 60:g} idle min\n  {path}"
        )


@service_app.command("stop")
def stop() -> None:
    """End the resident services of this user; running edits may finish, for some seconds."""
    found = asyncio.run(_end_all())
    print("\n".join(f"ended process {state.pid}" for state in found) or "No resident service runs.")


async def _all() -> list[tuple[Path, Status]]:
    from vivace.client.resident import ResidentService
    from vivace.errors import VivaceError

    states = []
    for path in _sockets():
        service = ResidentService(path)
        with contextlib.suppress(VivaceError):  # nobody listens there any more
            states.append((path, await service.status()))
        await service.close()
    return states


async def _end_all() -> list[Status]:
    from vivace.client.resident import ResidentService
    from vivace.errors import VivaceError

    ended = []
    for path, state in await _all():
        service = ResidentService(path)
        await service.end()
        await service.close()
        until = time.monotonic() + STOP_TIMEOUT
        while path.exists() and time.monotonic() < until:
            await asyncio.sleep(0.05)
        if path.exists():
            raise VivaceError(
                f"The resident service (process {state.pid}) has not ended after {STOP_TIMEOUT:g} s.",
                hint=f"Its log: {path.with_suffix('.log')}",
                code="resident_failed",
            )
        ended.append(state)
    return ended


def _sockets() -> list[Path]:
    """Of all versions and settings that keep their state in the same folder."""
    import os

    from vivace.resident import place_of

    folder = place_of(os.environ).socket.parent
    return sorted(path for path in folder.glob("resident-*.sock") if path.stat().st_uid == os.getuid())
