"""What every single measurement works with: the engine in tokens, fresh prompts, and timed streams."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from vivace.bench.contenders import Player
from vivace.bench.host import Finish, Host, TokenEngine, TokenStream
from vivace.bench.peers import PeerPlayer
from vivace.bench.record import Figure
from vivace.bench.stats import median, number
from vivace.bench.tasks import Task
from vivace.errors import VivaceError

VIVACE = "vivace"


@dataclass
class Trace:
    """A stream as it came: when each piece arrived (seconds after the start) and how many tokens it had."""

    arrivals: list[tuple[float, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish: Finish | None = None
    seconds: float = 0.0

    @property
    def ttft(self) -> float:
        return self.arrivals[0][0] if self.arrivals else self.seconds

    @property
    def rate(self) -> float:
        """Tokens per second after the first piece."""
        times = self.arrivals
        if len(times) < 2:
            return 0.0
        return sum(count for _, count in times[1:]) / (times[-1][0] - times[0][0])

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces that followed each other."""
        times = [at for at, _ in self.arrivals]
        return [b - a for a, b in itertools.pairwise(times)]


async def follow(stream: TokenStream, began: float, heard: Callable[[Trace], None] = lambda trace: None) -> Trace:
    """Read a stream to its end. ``heard`` is called after each piece. Raises where the engine reports an error."""
    trace = Trace()
    async for progress in stream:
        if progress.tokens:
            trace.arrivals.append((time.perf_counter() - began, len(progress.tokens)))
            trace.tokens += progress.tokens
        if progress.finish is not None:
            trace.finish = progress.finish
            if progress.finish.reason == "error":
                raise VivaceError("The engine refused a measurement's request.", code="engine")
        heard(trace)
    trace.seconds = time.perf_counter() - began
    return trace


class Lab:
    """Shared by all measurements of one run. ``samples`` is how often each is repeated, unless it says otherwise."""

    def __init__(
        self, host: Host, players: Sequence[Player], tasks: Sequence[Task], samples: int, say: Callable[[str], None]
    ) -> None:
        self.host = host
        self.players = players
        self.tasks = tasks
        self.samples = samples
        self.say = say
        self._engine: TokenEngine | None = None
        words = [task.before or task.instruction for task in tasks] or ["def f(x):\n    return x\n"]
        self._stock = [token for word in words for token in host.texts.encode(word)]
        self._random = random.Random(20)

    @property
    def plain_peers(self) -> list[PeerPlayer]:
        """The variants of peers that decode token by token."""
        return [player for player in self.players if isinstance(player, PeerPlayer) and player.plain]

    def fresh(self, count: int) -> list[int]:
        """``count`` tokens that no cache knows: ordinary ones in random order, so that nothing can be copied."""
        return self._random.choices(self._stock, k=count)

    def moment(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    async def engine(self) -> TokenEngine:
        """The engine process that measurements share; started at first use and warm when returned."""
        if self._engine is None:
            self._engine = self.host.token_engine()
            await self._engine.open()
            await self.ask(self.fresh(64), 8)
        return self._engine

    async def ask(self, tokens: list[int], max_tokens: int, *, draft: bool = False) -> Trace:
        """A lone greedy request, plain unless ``draft``."""
        engine = await self.engine()
        began = time.perf_counter()
        return await follow(engine.ask(tokens, max_tokens=max_tokens, draft=draft), began)

    @asynccontextmanager
    async def own_engine(self) -> AsyncIterator[TokenEngine]:
        """A new engine process, closed afterwards."""
        engine = self.host.token_engine()
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()

    def figure(
        self,
        measure: str,
        name: str,
        unit: str,
        samples: Sequence[float],
        contender: str = VIVACE,
        **about: float | int | str,
    ) -> Figure:
        """A figure, told as it is made."""
        conditions = " ".join(f"{key}={value}" for key, value in about.items())
        self.say(f"{measure:11} {contender:28} {name} {conditions}: {number(median(samples))} {unit}")
        return Figure(
            measure=measure, name=name, contender=contender, unit=unit, samples=list(samples), about=dict(about)
        )

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
            self._engine = None
