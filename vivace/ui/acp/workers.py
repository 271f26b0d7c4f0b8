"""Background workers in an editor: how they stand, what they offer, and taking it over after a look at it."""

from __future__ import annotations

from typing import Any

from acp import helpers as acp
from acp.schema import ToolCallLocation
from msgspec import Struct

from vivace.agent.turns.events import WorkerChanged
from vivace.errors import UsageError, VivaceError
from vivace.ui.acp.session import YES_NO, Session, permission
from vivace.ui.acp.updates import hunks, placed, standing

CONFLICT = "conflict in "
_HEADS = ("--- ", "+++ ", "@@ ", "\\")
NO_TEXT = "No text differs: what it made is there already, or the files are empty."


class Preview(Struct, frozen=True):
    """What accepting would do: ``conflicts`` in words, ``diff`` of what can be merged."""

    worker: str
    conflicts: tuple[str, ...]
    diff: str

    @property
    def brief(self) -> str:
        """Such as ``a.py, b.py (+3 -1)``."""
        if not self.diff:
            return "nothing that can be merged" if self.conflicts else "nothing that differs"
        marks = [line[:1] for inside, line in placed(self.diff) if inside]
        return f"{', '.join(self.paths) or 'no text'} (+{marks.count('+')} -{marks.count('-')})"

    @property
    def paths(self) -> list[str]:
        """Files with a text that differs."""
        heads = (
            line.removeprefix("+++ b/") for inside, line in placed(self.diff) if not inside and line[:6] == "+++ b/"
        )
        return list(dict.fromkeys(heads))

    def content(self, session: Session) -> list[Any]:
        """As the content of a tool call: in words what no diff shows (binary files, modes, links), then the hunks."""
        words = [f"Conflict in {conflict}" for conflict in self.conflicts]
        words += [line for inside, line in placed(self.diff) if not inside and line and not line.startswith(_HEADS)]
        shown: list[Any] = [acp.tool_diff_content(*parts) for parts in hunks(self.diff, session.root)]
        if not words and not shown:
            words = [NO_TEXT]
        return [*([acp.tool_content(acp.text_block("\n".join(words)))] if words else []), *shown]

    def places(self, session: Session) -> list[ToolCallLocation]:
        return [ToolCallLocation(path=str(session.root / path)) for path in self.paths]


async def preview(session: Session, worker: str) -> Preview:
    """Raises :class:`UsageError` (``unknown_worker``, ``worker_runs``)."""
    lines = (await session.open.preview_worker(worker)).split("\n")
    until = next((n for n, line in enumerate(lines) if not line.startswith(CONFLICT)), len(lines))
    conflicts = tuple(line.removeprefix(CONFLICT) for line in lines[:until])
    return Preview(worker, conflicts, "\n".join(lines[until:]))


async def show(session: Session, worker: str) -> Preview:
    """Show the diff as a tool call that is done."""
    found = await preview(session, worker)
    await session.update(
        acp.start_tool_call(
            session.updates.call("diff"),
            f"What {worker} offers: {found.brief}",
            kind="read",
            status="completed",
            content=found.content(session),
            locations=found.places(session),
        )
    )
    return found


async def accept(session: Session, worker: str) -> tuple[str, ...] | None:
    """Show what a worker made, ask, and merge what was shown; the paths that changed, None for a no.

    Raises :class:`VivaceError` (``conflict``) with the conflicts in words, before anything is asked, and
    :class:`vivace.ui.acp.session.Cancelled`.
    """
    if not session.open.idle:
        raise UsageError("A turn is running.", hint="Stop it first, or wait for its end.", code="busy")
    found = await preview(session, worker)
    if not found.conflicts and not found.diff and not session.workers[worker].offer:
        raise UsageError(f"{worker} changed no file, or it was taken over", code="nothing_to_accept")
    call = session.updates.call("accept")
    status: Any = "failed"
    await session.update(
        acp.start_tool_call(
            call,
            f"Take over from {worker}: {found.brief}",
            kind="edit",
            status="pending",
            content=found.content(session),
            locations=found.places(session),
        )
    )
    try:
        while True:
            if found.conflicts:
                raise VivaceError(
                    f"{worker} cannot be merged: {'; '.join(found.conflicts)}",
                    hint="Nothing was changed. It is taken over whole or not at all; /diff shows what can be merged.",
                    code="conflict",
                )
            if not await _agreed(session, call, found):
                return None
            shown, found = found, await preview(session, worker)
            if found == shown:
                break
            # The files changed while it was looked at: what was agreed to is not what would be done.
            title = f"Take over from {worker}, changed meanwhile: {found.brief}"
            await session.update(acp.update_tool_call(call, title=title, content=found.content(session)))
        paths = await session.open.accept_worker(worker)
        status = "completed"
    finally:
        await session.update(acp.update_tool_call(call, status=status))
    return paths


async def _agreed(session: Session, call: str, found: Preview) -> bool:
    options = [permission("proposal", key, label) for key, label in YES_NO]
    asking = session.permit(call, f"Take over from {found.worker}: {found.brief}?", options, found.content(session))
    return await session.cancellable(asking) == "y"


async def stop(session: Session, name: str) -> None:
    """End a worker or a background command. Raises :class:`UsageError` (``unknown_worker``)."""
    await (session.open.stop_job(name) if name in session.jobs else session.open.stop_worker(name))


def jobs_table(session: Session) -> str:
    """A line for each command that runs or ran in the background."""
    lines = [f"- {name}: {job.state}, {job.seconds:.0f} s: {_line(job.command)}" for name, job in session.jobs.items()]
    return "\n".join(lines) or "There are no commands in the background."


def jobs_listed(session: Session) -> list[dict[str, Any]]:
    """The same for a program; ``code`` is the exit code, null while it runs."""
    return [
        {"job": name, "command": job.command, "state": job.state, "seconds": job.seconds, "code": job.code}
        for name, job in session.jobs.items()
    ]


def table(session: Session) -> str:
    """A line for each worker."""
    lines = [f"- {name}: {standing(event)}\n  {_line(event.task)}" for name, event in session.workers.items()]
    return "\n".join(lines) or "There are no background workers."


def listed(session: Session) -> list[dict[str, Any]]:
    """The same for a program; ``files`` is the number of files that are offered, null before the end."""
    return [_figures(event) for event in session.workers.values()]


def _figures(event: WorkerChanged) -> dict[str, Any]:
    return {
        "worker": event.worker,
        "task": event.task,
        "model": event.model,
        "state": event.state,
        "steps": event.steps,
        "tokens": event.tokens,
        "seconds": event.seconds,
        "cost": event.cost,
        "files": event.offer,
        "note": event.note,
    }


def _line(text: str) -> str:
    return " ".join(text.split())
