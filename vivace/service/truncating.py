"""``truncation: auto``: a conversation that is longer than the window goes on without its beginning.

As in OpenAI's Responses API, items are dropped from the beginning of the conversation until the rest fits.
Instructions, messages of the developer and tools that were added stay, and so does the latest item; an output goes with
its call.

Cuts lie at places that depend only on what was said before them, about an eighth of a window apart and where a user
begins to speak if there is such a place. So the next turns of a conversation begin at the same item, and find their
prompt in KV memory; cut to the last token that fits, each turn would begin elsewhere and be read anew.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from vivace.backends.base import Backend, End, Job
from vivace.errors import VivaceError
from vivace.protocol import items as it
from vivace.protocol.items import Item, Usage, item_text

ROOM = 1024
"""Tokens of the window that are left for the answer, unless the request wants less; at most a quarter of the window."""
STEPS = 8
"""Cuts to a window."""
CHARACTERS_PER_TOKEN = 3
AROUND = 32
"""Tokens around an item in a prompt, at most: its role and its marks."""
TIGHTER = 0.8
"""How much is tried next where a server refuses what was counted to fit. Servers without a tokenizer to ask are only
estimated."""
TRIES = 6

TOO_LONG = "context_length_exceeded"


class Fitting:
    """The longest ends of a job's conversation that may fit. The backend is open.

    ``fit`` is what to try now; None where nothing more can go.
    """

    def __init__(self, job: Job, backend: Backend) -> None:
        self.fit: Job | None = job
        self._job = job
        self._backend = backend
        self._window = 0
        self._last = _last_cut(job.items)
        self._cut = 0

    async def first(self) -> None:
        """The job itself where it fits, else without what does not."""
        self._window = (await self._backend.open(lambda stage, share: None)).context_window
        budget = self._window - min(self._job.request.max_output_tokens or ROOM, ROOM, self._window // 4)
        if _most_tokens(self._job) <= budget:
            return
        tokens = await self._backend.count(self._job)
        if tokens > budget:
            await self._shorten(budget, tokens)

    async def tighter(self) -> None:
        """A shorter one than the last, which was refused."""
        if self.fit is None or self._cut >= self._last:
            self.fit = None
        else:
            tokens = await self._backend.count(self.fit)
            await self._shorten(int(tokens * TIGHTER), tokens)

    async def _shorten(self, budget: int, tokens: int) -> None:
        """Take the first cut with which it fits, or the last one where none does; now it has so many ``tokens``."""
        items, after = self._job.items, self._cut
        # Characters before each item, for a guess: counting is as much work as reading the prompt.
        before = list(accumulate((len(item_text(item)) + AROUND for item in items), initial=0))
        per_token = (before[-1] - before[after]) / max(1, tokens)
        enough = before[after] + (tokens - budget) * per_token
        step = max(1, self._window * CHARACTERS_PER_TOKEN // STEPS)
        cuts = [cut for cut in _places(items, step) if after < cut < self._last]
        place = await self._fits(cuts, budget, bisect_left(cuts, enough, key=before.__getitem__))
        if place == len(cuts):
            # None of them: item by item behind the last.
            cuts = list(range((cuts[-1] if cuts else after) + 1, self._last + 1))
            place = await self._fits(cuts, budget, bisect_left(cuts, enough, key=before.__getitem__))
            place = min(place, len(cuts) - 1)
        if cuts:
            self._cut = cuts[place]
            self.fit = self._from(self._cut)

    async def _fits(self, cuts: Sequence[int], budget: int, guess: int) -> int:
        """The place of the first cut with which it fits, looked for around ``guess``; behind them where none does."""
        low, high, stride = 0, len(cuts), 1
        place = min(guess, high - 1)
        while low < high:
            if await self._backend.count(self._from(cuts[place])) <= budget:
                high = place
                place = max(low, high - stride)
            else:
                low = place + 1
                place = min(high - 1, place + stride)
            stride *= 2
            await asyncio.sleep(0)  # an engine in this process counts in one go; others want to go on too
        return low

    def _from(self, cut: int) -> Job:
        items = without(self._job.items, cut)
        return msgspec.structs.replace(self._job, items=items, continuation=None, known=0)


async def truncated(
    job: Job,
    backend: Backend,
    stream: Callable[[Job], Awaitable[End]],
    patiently: Callable[[Coroutine[Any, Any, object]], Awaitable[bool]],
    told: Callable[[], bool],
) -> End:
    """``stream`` of as much of the job as fits; of less where a server refuses it and nothing was ``told`` yet.

    ``patiently`` waits for what is counted, and says False where nobody wants the answer any more.
    """
    fitting, end = Fitting(job, backend), End("aborted", Usage())
    for attempt in range(TRIES):
        if not await patiently(fitting.tighter() if attempt else fitting.first()):
            return End("aborted", Usage())
        if fitting.fit is None:
            break
        try:
            end = await stream(fitting.fit)
        except VivaceError as error:
            if error.code != TOO_LONG:
                raise
            end = End("error", Usage(), str(error), code=TOO_LONG)
        if fitting.fit is not job:
            # The next turn has the whole conversation before it again.
            end = msgspec.structs.replace(end, continuation=None)
        if end.reason != "error" or end.code != TOO_LONG or told():
            break
    return end


def without(items: Sequence[Item], cut: int) -> list[Item]:
    """The conversation without what comes before ``cut``, but for what the developer said and added."""
    gone = {item.call_id for item in items[:cut] if isinstance(item, it.FunctionCall | it.CustomToolCall)}
    return [item for n, item in enumerate(items) if (n >= cut and not _answers_one_of(gone, item)) or _stays(item)]


def _last_cut(items: Sequence[Item]) -> int:
    """The place of the latest item, or of the first of the calls that it and the outputs before it belong to."""
    missing: set[str] = set()
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if isinstance(item, it.FunctionCallOutput | it.CustomToolCallOutput):
            missing.add(item.call_id)
        elif isinstance(item, it.FunctionCall | it.CustomToolCall):
            missing.discard(item.call_id)
        if not missing and not _stays(item):
            return place
    return 0


def _places(items: Sequence[Item], step: int) -> list[int]:
    """Where the conversation may be cut: one place in every ``step`` characters, the first at which a user speaks."""
    places: dict[int, int] = {}
    spoken: set[int] = set()
    at = 0
    for n, item in enumerate(items):
        if not _stays(item):
            part = at // step
            places.setdefault(part, n)
            if part not in spoken and isinstance(item, it.Message) and item.role == "user":
                spoken.add(part)
                places[part] = n
            at += len(item_text(item)) + AROUND
    return list(places.values())


def _stays(item: Item) -> bool:
    return isinstance(item, it.AdditionalTools) or (
        isinstance(item, it.Message) and item.role in ("system", "developer")
    )


def _answers_one_of(calls: set[str], item: Item) -> bool:
    return isinstance(item, it.FunctionCallOutput | it.CustomToolCallOutput) and item.call_id in calls


def _most_tokens(job: Job) -> int:
    """No prompt has more tokens than this: one for each byte, and what stands around. Counting takes much longer."""
    if any(_pictures(item) for item in job.items):
        return 1 << 62
    tools = sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in job.tools.tools)
    said = sum(len(item_text(item).encode("utf-8", "replace")) for item in job.items)
    return said + 4 * tools + AROUND * (len(job.items) + len(job.tools.tools)) + 1024


def _pictures(item: Item) -> bool:
    content = getattr(item, "content", None) or getattr(item, "output", None)
    return isinstance(content, list) and any(isinstance(part, it.InputImage | it.InputFile) for part in content)
