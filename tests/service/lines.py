"""A real gateway on the paced backend, and short ways to talk to it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from vivace.backends.base import Job, Run
from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import script_of
from vivace.protocol import events as ev
from vivace.protocol.contracts import Principal
from vivace.protocol.items import Response
from vivace.protocol.requests import ResponseRequest, decode_frame, decode_request
from vivace.service.database import open_database
from vivace.service.gateway import LocalGateway
from vivace.service.keeping import Keeper
from vivace.service.lanes import Lanes
from vivace.service.ledger import Ledger
from vivace.service.queue import FairQueue
from vivace.service.registry import Backends
from vivace.service.response_store import ResponseStore
from vivace.service.sealing import Sealer
from vivace.service.tiers import TierTable
from vivace.service.writer import Writer

T = TypeVar("T")
ME = Principal()
SHELL = {
    "type": "function",
    "name": "shell",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
TEAM = {"type": "namespace", "name": "team", "description": "", "tools": [{**SHELL, "name": "spawn"}]}
ENDS = (ev.Completed, ev.Incomplete, ev.Failed)
STEERS = (ev.SteerAccepted, ev.SteerPending, ev.SteerFailed)


class Watched(PacedBackend):
    """The paced backend, which also keeps the jobs that it was given, and what they gave back."""

    def __init__(self, rules: list[dict[str, Any]] | None = None, name: str = "paced", **pace: Any) -> None:
        super().__init__(name, script_of({"rules": rules or []}), Pace(**{"tok_s": 2000.0, "ttft": 0.0, **pace}))
        self.jobs: list[Job] = []
        self.made: list[Run] = []

    def start(self, job: Job) -> Any:
        run = super().start(job)
        self.jobs.append(job)
        self.made.append(run)
        return run


def gateway(
    backend: PacedBackend | None = None,
    *,
    rules: list[dict[str, Any]] | None = None,
    slots: int = 64,
    key: bytes = b"k" * 32,
    pace: dict[str, Any] | None = None,
    **parts: Any,
) -> LocalGateway:
    """A gateway whose one model is called ``paced``, answered by ``backend`` or by a script of ``rules``."""
    answering = backend or Watched(rules, **(pace or {}))
    tiers = parts.pop("tiers", None) or TierTable.load(None)
    queue = FairQueue({"paced": slots}, tiers.tiers.values())
    return LocalGateway(Backends({"paced": answering}), sealer=Sealer(key), tiers=tiers, queue=queue, **parts)


class Database:
    """A SQLite file with what a gateway writes to it."""

    def __init__(self, folder: Path) -> None:
        self.engine = open_database(f"sqlite:///{folder}/service.db")
        self.writer = Writer(self.engine)
        self.ledger = Ledger(self.engine, self.writer)
        self.keeper = Keeper(ResponseStore(self.engine, self.writer))

    def gateway(
        self, backend: PacedBackend | None = None, *, retention: float | None = None, **parts: Any
    ) -> LocalGateway:
        """A new gateway on it, as after a restart."""
        keeper = Keeper(self.keeper.store, retention=retention)
        return gateway(backend, ledger=self.ledger, keeper=keeper, **parts)

    def close(self) -> None:
        assert self.writer.close()
        self.engine.dispose()


def request(given: Any = "hello", **fields: Any) -> ResponseRequest:
    """A request as it comes over HTTP."""
    return decode_request(json.dumps({"model": "paced", "input": given, **fields}))


async def answer(
    service: LocalGateway, given: Any = "hello", principal: Principal = ME, **fields: Any
) -> tuple[Response, list[ev.Event]]:
    """Ask, and read to the end; the events are checked."""
    turn = await service.respond(request(given, **fields), principal)
    events = [event async for event in turn]
    check(events)
    return last(events), events


def last(events: list[ev.Event]) -> Response:
    event = next(event for event in reversed(events) if isinstance(event, ENDS))
    return event.response


class Client:
    """One connection: what was received, whole and by response."""

    def __init__(self, service: LocalGateway, principal: Principal = ME) -> None:
        self.line: Lanes = service.connect(principal)
        self.events: list[ev.Event] = []

    def send(self, kind: str = "create", **fields: Any) -> None:
        self.line.submit(decode_frame(json.dumps({"type": f"response.{kind}", **fields})))

    def create(self, given: Any = "hello", **fields: Any) -> None:
        self.send(model="paced", input=given, **fields)

    async def until(self, found: Callable[[ev.Event], bool], seconds: float = 5.0) -> ev.Event:
        """The first event from the beginning on for which it holds."""
        at = 0
        async with asyncio.timeout(seconds):
            while True:
                for event in self.events[at:]:
                    if found(event):
                        return event
                at = len(self.events)
                self.events += await self.line.ready()

    async def of(self, kind: type[T], number: int = 1) -> T:
        """The event of a kind that is the ``number``-th of it."""
        count = 0

        def hit(event: ev.Event) -> bool:
            nonlocal count
            count += isinstance(event, kind)
            return count == number and isinstance(event, kind)

        found = await self.until(hit)
        assert isinstance(found, kind)
        return found

    async def end(self, number: int = 1) -> Response:
        """The response that ended as the ``number``-th."""
        found = await self.of(ENDS, number)  # type: ignore[arg-type]
        return found.response  # type: ignore[no-any-return, attr-defined]

    async def ask(self, given: Any = "hello", **fields: Any) -> Response:
        """Ask and wait for the end."""
        before = sum(isinstance(event, ENDS) for event in self.events)
        self.create(given, **fields)
        return await self.end(before + 1)

    def by_response(self) -> dict[str, list[ev.Event]]:
        """Events in order, by the response that they number."""
        runs: dict[str, list[ev.Event]] = {}
        items: dict[str, str] = {}
        current: dict[str | None, str] = {}
        for event in self.events:
            if isinstance(event, ev.ErrorEvent | ev.RateLimits):
                continue
            if isinstance(event, STEERS):
                name = event.steer.previous_response_id
            elif isinstance(event, ev.Created):
                name = current[event.stream_id] = event.response.id
            else:
                name = current[event.stream_id]
            runs.setdefault(name, []).append(event)
            if isinstance(event, ev.ItemAdded):
                items[event.item.id] = name  # type: ignore[union-attr, index]
        return runs


def check(events: list[ev.Event], *, ended: bool = True) -> None:
    """The rules that hold for the events of any response."""
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))
    assert isinstance(events[0], ev.Created)
    plain = [event for event in events if not isinstance(event, STEERS)]
    ends = [n for n, event in enumerate(plain) if isinstance(event, ENDS)]
    assert ends == ([len(plain) - 1] if ended else [])
    added: dict[int, Any] = {}
    done: dict[int, Any] = {}
    text: dict[int, str] = defaultdict(str)
    for event in plain:
        match event:
            case ev.ItemAdded():
                assert event.output_index == len(added)
                # One item at a time: those before are done, or broke off.
                added[event.output_index] = event.item
            case ev.ItemDone():
                assert event.output_index == len(added) - 1
                assert event.output_index not in done
                assert event.item.id == added[event.output_index].id  # type: ignore[union-attr]
                done[event.output_index] = event.item
            case ev.TextDelta() | ev.ReasoningTextDelta() | ev.ArgumentsDelta() | ev.CustomInputDelta():
                assert event.output_index == len(added) - 1
                assert event.output_index not in done
                assert event.delta
                text[event.output_index] += event.delta
            case ev.TextDone() | ev.ReasoningTextDone():
                assert event.text == text[event.output_index]
            case ev.ArgumentsDone():
                assert event.arguments == text[event.output_index]
            case ev.CustomInputDone():
                assert event.input == text[event.output_index]
    if ended:
        final = plain[-1].response  # type: ignore[union-attr]
        assert final.output == list(done.values())
        assert final.id == events[0].response.id
        assert final.usage is not None


def run(work: Callable[[], Awaitable[T]], seconds: float = 20.0) -> T:
    """Run on a loop, and see that nothing is left behind on it."""

    async def watched() -> T:
        async with asyncio.timeout(seconds):
            result = await work()
        for _ in range(3):
            await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, left
        return result

    return asyncio.run(watched())


async def freed(service: LocalGateway) -> None:
    """Assert that nothing runs, waits or is reserved any more."""
    assert not service.turns
    assert service.queue.running("paced") == 0
    assert service.queue.waiting("paced") == 0
    for scope in [*service.meters._principals.values(), *service.meters._keys.values()]:
        assert scope.running == 0
        assert (scope.held.fresh, scope.held.output) == (0, 0)
