"""A workspace, the real gateway over a paced backend that acts by a function, and an agent that notes its events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from vivace.agent.turns.agent import Agent
from vivace.agent.turns.events import Event, TurnBegan, TurnEnded
from vivace.agent.turns.options import AgentOptions
from vivace.backends.base import Job
from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import NOTHING, Chooser, Rule, Scene, Script, Step
from vivace.composing import compose_gateway
from vivace.protocol.items import FunctionCallOutput, Message, item_text
from vivace.settings import Settings

T = TypeVar("T")
E = TypeVar("E", bound=Event)
Act = Callable[["Seen"], list[Step]]


class Seen:
    """What the model is shown with one request."""

    def __init__(self, job: Job) -> None:
        scene = Scene(job)
        self.items = job.items
        self.user = scene.user or ""
        """The last message of the user since the last answer."""
        self.output = scene.output or ""
        self.compacts = "getting too long" in self.user
        self.sampling = (job.request.temperature, job.request.seed)
        self.instructions = job.request.instructions or ""
        self.tools = [tool.name for tool in job.tools.tools]

    @property
    def text(self) -> str:
        return "\n".join(item_text(item) for item in self.items)

    @property
    def users(self) -> list[str]:
        return [item.text for item in self.items if isinstance(item, Message) and item.role == "user"]

    @property
    def outputs(self) -> list[str]:
        return [item_text(item) for item in self.items if isinstance(item, FunctionCallOutput)]


class _Actor(Chooser):
    def __init__(self, act: Act) -> None:
        super().__init__(Script())
        self.act = act
        self.seen: list[Seen] = []

    def choose(self, job: Job) -> tuple[Rule, list[Step]]:
        if job.prefill_only:
            return NOTHING, []
        seen = Seen(job)
        self.seen.append(seen)
        steps = self.act(seen)
        return Rule(steps=steps), steps


class ActingBackend(PacedBackend):
    """A model that does what ``act`` says of what it is shown."""

    def __init__(self, act: Act, pace: Pace | None = None, window: int = 32_768, name: str = "acting") -> None:
        super().__init__(name, pace=pace or Pace(tok_s=100_000, ttft=0.0), window=window)
        self.actor = _Actor(act)
        self._chooser = self.actor


class Stage:
    """``events`` in order; ``clock`` gives the time of each."""

    def __init__(self, agent: Agent, backend: ActingBackend) -> None:
        self.agent = agent
        self.backend = backend
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = lambda event: None
        agent._listener = self._told

    def _told(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def seen(self) -> list[Seen]:
        return self.backend.actor.seen

    async def until(self, kind: type[E], seconds: float = 10.0, count: int = 1) -> E:
        """The ``count``-th event of that kind."""
        deadline = time.perf_counter() + seconds
        while len(self.of(kind)) < count:
            assert time.perf_counter() < deadline, f"no {kind.__name__}: {self.events[-6:]}"
            await asyncio.sleep(0.002)
        return self.of(kind)[count - 1]

    async def turn(self, text: str, **how: Any) -> TurnEnded:
        """Say something and wait for the end of its turn."""
        ended = len(self.of(TurnEnded))
        self.agent.say(text, **how)
        return await self.until(TurnEnded, count=ended + 1, seconds=30.0)

    @property
    def modes(self) -> list[str]:
        return [event.mode for event in self.of(TurnBegan)]


def options(base: Path, **changes: Any) -> AgentOptions:
    given: dict[str, Any] = {
        "state_dir": base / "state",
        "cache_dir": base / "cache",
        "sandbox": False,
        "approvals": "full",
        "mcp": False,
    }
    return AgentOptions(**{**given, **changes})


@contextlib.asynccontextmanager
async def stage(
    base: Path,
    act: Act,
    *,
    mode: str = "deep",
    pace: Pace | None = None,
    window: int = 32_768,
    resume: bool = False,
    name: str = "acting",
    others: dict[str, Act] | None = None,
    **changes: Any,
) -> AsyncIterator[Stage]:
    """A stage in ``base``: the workspace is ``base/work``."""
    root = base / "work"
    root.mkdir(exist_ok=True)
    backend = ActingBackend(act, pace, window, name)
    more = {other: ActingBackend(acts, pace, window, other) for other, acts in (others or {}).items()}
    settings = Settings(state_dir=base / "service", cache_dir=base / "cache")
    gateway = compose_gateway(settings, backends={name: backend, **more}, catalogue=False, database=False)
    given = options(base, **changes)
    if resume:
        agent = Agent.open("", gateway, root, model=name, mode=mode, options=given)  # type: ignore[arg-type]
    else:
        agent = Agent(gateway, root, model=name, mode=mode, options=given)  # type: ignore[arg-type]
    scene = Stage(agent, backend)
    await gateway.begin()
    try:
        await agent.begin()
        yield scene
    finally:
        await agent.close()
        await gateway.close()


def play(work: Callable[[], Awaitable[T]], seconds: float = 120.0) -> T:
    """Run it in a loop of its own, in at most so long."""

    async def run() -> T:
        return await asyncio.wait_for(work(), seconds)

    return asyncio.run(run())


def call(name: str, **arguments: Any) -> Step:
    return Step(call=name, arguments=arguments)


def say(text: str) -> Step:
    return Step(text=text)


def whole(text: str, language: str = "python") -> Step:
    """An answer of the fast mode."""
    return Step(text=f"```{language}\n{text}```")
