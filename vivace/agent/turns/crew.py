"""Background workers: each in a copy of the dirty workspace, with caps and a stop of its own; results are offered.

Depth 1: a worker has no workers. Nothing that a worker does reaches the user's files before its result is accepted, and
that is a three-way merge of all of it or nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from vivace.agent.tools.base import Assignment
from vivace.agent.turns.events import Event, Meters, Mode, Noted, TurnEnded, WorkerChanged, WorkerState
from vivace.agent.turns.landing import land
from vivace.agent.turns.limits import Limits
from vivace.agent.turns.threeway import Merge, merge_all, preview
from vivace.agent.turns.worktree import FileChange, Worktree
from vivace.errors import UsageError, VivaceError, did_you_mean

if TYPE_CHECKING:
    from vivace.agent.turns.agent import Agent
    from vivace.agent.turns.desk import Desk

T = TypeVar("T")
OVER = ("done", "failed", "stopped")
SHOWN = 4000
"""Characters of a worker's last words that are kept."""
LAST_WORDS = 1500
"""Characters of them that the model is told."""
BRIEF = 200
"""Characters of a task in a list."""
TICK = 1.0
"""Seconds between two looks at the meters."""


class Worker(Struct):
    """What there is to see of one. ``changes`` is the result; ``ref`` holds it in git, too."""

    id: str
    task: str
    model: str
    state: WorkerState = "waiting"
    steps: int = 0
    tokens: int = 0
    cost: float | None = None
    began: float = 0.0
    seconds: float = 0.0
    said: str = ""
    note: str = ""
    ref: str = ""
    accepted: bool = False
    role: str = ""
    changes: list[FileChange] = msgspec.field(default_factory=list)


class Crew:
    """The workers of one conversation; they end with it, not with its turns."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._clock: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def limits(self) -> Limits:
        """Of each worker. Whoever bounds the cost of a turn means that of what it sets going, too."""
        options = self.desk.options
        if options.worker_limits.cost is not None:
            return options.worker_limits
        return msgspec.structs.replace(options.worker_limits, cost=options.limits.cost)

    def workers(self) -> list[Worker]:
        return list(self._workers.values())

    async def start(self, task: str, paths: tuple[str, ...] = (), role: str = "") -> str:
        """Raises :class:`UsageError` (``too_many_workers``, ``empty_task``, ``unknown_role``)."""
        options = self.desk.options
        if not task.strip():
            raise UsageError("The task is empty.", code="empty_task", param="task")
        if role and role not in options.roles:
            raise UsageError(
                f"there is no role {role!r}",
                hint=did_you_mean(role, list(options.roles)) if options.roles else "No role is set up.",
                code="unknown_role",
                param="role",
            )
        running = [worker.id for worker in self._workers.values() if worker.state not in OVER]
        if len(running) >= options.max_workers:
            raise UsageError(
                f"{len(running)} workers run already ({', '.join(running)})",
                hint="Wait for one of them or stop it.",
                code="too_many_workers",
            )
        name = f"worker-{len(self._workers) + 1}"
        model = options.roles.get(role) or self.desk.models.of("deep")
        worker = self._workers[name] = Worker(name, task.strip(), model, began=time.monotonic(), role=role)
        self._tell(worker)
        self._tasks[name] = asyncio.create_task(self._run(worker, paths))
        if self._clock is None or self._clock.done():
            self._clock = asyncio.create_task(self._tick())
        return name

    async def delegated(self, assignment: Assignment) -> str:
        """For the ``delegate`` tool."""
        name = await self.start(assignment.task, assignment.paths, assignment.role)
        return (
            f"{name} works on it in a copy of the workspace. You are told when it has ended, and the user is offered "
            f"its result. Ask for it by: workers(do='list' | 'wait' | 'diff' | 'stop', worker='{name}')."
        )

    async def stop(self, name: str) -> None:
        """End one; its work so far is kept as its result."""
        self._get(name)
        task = self._tasks[name]
        if not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def wait(self, name: str) -> Worker:
        """Until it has ended."""
        worker = self._get(name)
        await asyncio.wait([self._tasks[name]])
        return worker

    async def wait_for(self, name: str, seconds: float) -> None:
        """Until it has ended, or ``seconds`` are over."""
        self._get(name)
        await asyncio.wait([self._tasks[name]], timeout=seconds)

    def told(self, name: str = "") -> str:
        """How one stands, or all of them, in words for the model."""
        workers = [self._get(name)] if name else list(self._workers.values())
        return "\n".join(map(self._words, workers)) or "no workers"

    async def preview(self, name: str) -> str:
        return preview(await self._merges(name))

    async def accept(self, name: str) -> tuple[str, ...]:
        """Merge the result into the user's files, behind a checkpoint: all of it, or :class:`VivaceError`."""
        worker = self._get(name)
        paths = tuple(merge.path for merge in self._clean(worker, await self._merges(name)))
        await self.desk.files.take(f"accept {name}", "turn", touching=paths)

        def work() -> tuple[str, ...]:
            # Merged anew: a checkpoint of a large workspace takes its time, and somebody may have saved meanwhile.
            merges = self._clean(worker, merge_all(self.desk.root, worker.changes))
            land(self.desk.root, merges)
            return tuple(merge.path for merge in merges)

        paths = await self.desk.files.do(work)
        worker.accepted = True
        self._tell(worker)
        return paths

    def _clean(self, worker: Worker, merges: list[Merge]) -> list[Merge]:
        """Those without a conflict, or :class:`VivaceError` that names every conflict."""
        conflicts = [f"{merge.path} ({merge.conflict})" for merge in merges if merge.conflict]
        if conflicts:
            raise VivaceError(
                f"{worker.id} cannot be merged: {', '.join(conflicts)}",
                hint=f"Nothing was changed.{f' Its work is in {worker.ref}.' if worker.ref else ''}",
                code="conflict",
            )
        return merges

    async def close(self) -> None:
        self._closing = True
        if self._clock is not None:
            self._clock.cancel()
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _run(self, worker: Worker, paths: tuple[str, ...]) -> None:
        folder = (
            self.desk.options.state_dir / "crew" / f"{self.desk.conversation.id}-{worker.id}-{secrets.token_hex(2)}"
        )
        tree = Worktree(worker.id, self.desk.root, folder)
        try:
            await tree.make()
            worker.state = "running"
            self._tell(worker)
            await self._work(worker, tree.root, paths)
        except asyncio.CancelledError:
            worker.state = "stopped"
            worker.note = "ended with the conversation" if self._closing else "stopped by the user"
        except Exception as error:  # whatever it was: a worker that nobody ends would run for ever
            worker.state, worker.note = "failed", _reason(error)
        finally:
            await self._end(worker, tree)

    async def _end(self, worker: Worker, tree: Worktree) -> None:
        """Keep its work, and tell everybody, whatever goes wrong and whoever is impatient."""
        notes = [worker.note]
        try:
            worker.changes = await _to_its_end(tree.finish())
            worker.ref = tree.ref
            if tree.left_out:
                notes.append(f"not offered, as the project ignores it or it is no file: {_listed(tree.left_out)}")
        except Exception as error:
            worker.state = "failed" if worker.state == "done" else worker.state
            notes.append(f"its copy is left in {tree.root} ({_reason(error)})")
        worker.note = "; ".join(filter(None, notes))
        worker.seconds = time.monotonic() - worker.began
        self._tell(worker)
        self.desk.news.append(f"A background worker has ended. {self._words(worker)}")

    async def _work(self, worker: Worker, root: Path, paths: tuple[str, ...]) -> None:
        from vivace.agent.turns.agent import Agent

        roles = self.desk.options.roles
        if worker.role:  # the one that was asked for builds
            roles = {role: model for role, model in roles.items() if role not in ("builder", worker.role)}
        options = msgspec.structs.replace(
            self.desk.options,
            worker=True,
            roles=roles,
            # Nobody is there to ask; the copy, and where there is one the sandbox, bound what it may do.
            approvals="auto" if self.desk.options.approvals == "ask" else self.desk.options.approvals,
            propose=False,
            limits=self.limits,
            state_dir=root.parent / "state",
        )
        ended: list[TurnEnded] = []

        def told(event: Event) -> None:
            self._follow(worker, event)
            if isinstance(event, TurnEnded):
                ended.append(event)

        mode: Mode = "deep"
        agent: Agent = Agent(self.desk.service, root, model=worker.model, mode=mode, options=options, on_event=told)
        try:
            await agent.begin()
            agent.say(worker.task, files=paths)
            await agent.wait_idle()
        finally:
            await agent.close()
        last = ended[-1] if ended else None
        if last is None or last.status == "failed":
            raise VivaceError(last.reason if last is not None else "it ended without a turn", code="worker_failed")
        worker.state = "done"
        worker.note = last.reason

    def _follow(self, worker: Worker, event: Event) -> None:
        if isinstance(event, Meters):
            worker.steps = event.steps
            worker.tokens = event.input_tokens - event.cached_tokens + event.output_tokens
            worker.cost = event.cost
            self._tell(worker)
        elif isinstance(event, Noted) and event.level == "info":
            return
        text = getattr(event, "text", "")
        if type(event).__name__ == "Said" and text:
            worker.said = (worker.said + text)[-SHOWN:]
        event.worker = worker.id
        self.desk.emit(event)

    def _tell(self, worker: Worker) -> None:
        over = worker.state in OVER
        limits = self.limits
        self.desk.emit(
            WorkerChanged(
                worker=worker.id,
                task=worker.task,
                model=worker.model,
                state=worker.state,
                steps=worker.steps,
                tokens=worker.tokens,
                cost=worker.cost,
                seconds=worker.seconds or time.monotonic() - worker.began,
                most_steps=limits.steps,
                most_tokens=limits.tokens,
                most_cost=limits.cost,
                most_seconds=limits.seconds,
                offer=len(worker.changes) if over and not worker.accepted else None,
                note="accepted" if worker.accepted else worker.note,
            )
        )

    async def _tick(self) -> None:
        """The meters of the workers that run, each second, also while a model or a command says nothing."""
        while any(worker.state not in OVER for worker in self._workers.values()):
            await asyncio.sleep(TICK)
            for worker in self._workers.values():
                if worker.state == "running":
                    self._tell(worker)

    def _words(self, worker: Worker) -> str:
        limits = self.limits
        seconds = worker.seconds or time.monotonic() - worker.began
        used = [
            _of(worker.steps, limits.steps, "steps"),
            _of(worker.tokens, limits.tokens, "tokens"),
            _of(round(seconds), limits.seconds, "s"),
        ]
        text = f"{worker.id}: {worker.state}, {', '.join(used)}. Task: {worker.task[:BRIEF]}"
        if worker.note:
            text += f"\nNote: {worker.note}"
        if worker.state in OVER:
            paths = [change.path for change in worker.changes]
            offers = "accepted by the user" if worker.accepted else f"offered to the user: {_listed(paths)}"
            text += f"\nFiles {offers}" if paths else "\nIt changed no file."
            if worker.said.strip():
                text += f"\nIts last words: {worker.said.strip()[-LAST_WORDS:]}"
        return text

    async def _merges(self, name: str) -> list[Merge]:
        worker = self._get(name)
        if worker.state not in OVER:
            raise UsageError(f"{name} is not done yet", hint="Wait for it, or stop it.", code="worker_runs")
        return await asyncio.to_thread(merge_all, self.desk.root, worker.changes)

    def _get(self, name: str) -> Worker:
        if name not in self._workers:
            hint = did_you_mean(name, list(self._workers)) if self._workers else "No worker was started."
            raise UsageError(f"there is no worker {name!r}", hint=hint, code="unknown_worker", param="worker")
        return self._workers[name]


def _of(used: int, most: float | None, what: str) -> str:
    return f"{used:,} {what}" if most is None else f"{used:,} of {most:,.0f} {what}"


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")


def _reason(error: Exception) -> str:
    """For the note of a worker; a defect is told as one."""
    if isinstance(error, VivaceError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"internal error: {type(error).__name__}: {error}"


async def _to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Its result, also for a task that is cancelled meanwhile, which then ends a little later."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()
