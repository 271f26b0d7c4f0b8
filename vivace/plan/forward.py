"""Forward: from a set-up to its speeds, its memory, its cost, each with an interval and the bound that binds."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from vivace.errors import UsageError
from vivace.plan.constants import Constants, constants, interval, is_calibrated
from vivace.plan.cost import Cost, cost_of
from vivace.plan.model import active_parameters, total_parameters
from vivace.plan.occupancy import group_sizes, slowest_work
from vivace.plan.setup import Memory, Setup, memory
from vivace.plan.step import PassTime, kv_bytes_per_token, pass_time, stage_times, step_time
from vivace.plan.traffic import distinct_experts


class Estimate(Struct, frozen=True):
    """A value with its 90 % interval."""

    value: float
    low: float
    high: float


class Decode(Struct, frozen=True, kw_only=True):
    user: Estimate
    """Tokens per second that one sequence sees."""
    total: Estimate
    """Tokens per second over all sequences."""
    step: PassTime
    """One step with its draft, of one group of sequences."""
    bound: str
    gain: float
    """Tokens a step emits."""
    speedup: float
    """Against the same set-up without draft."""
    occupancy: float
    stages: int
    group: int
    """Sequences that travel together."""
    experts: float
    """Distinct experts of a layer that one step reads; 0 for a dense model."""


class Prefill(Struct, frozen=True, kw_only=True):
    tokens: int
    cached: int
    ttft: Estimate
    """Seconds to the first token: the new tokens and one step. Queues, network and tokeniser are not in it."""
    rate: float
    """New tokens per second."""
    bound: str


class Forecast(Struct, frozen=True, kw_only=True):
    """Everything that ``vivace plan MODEL --on DEVICE`` shows."""

    model: str
    device: str
    count: int
    context: int
    batch: int
    weights: str
    dense_weights: str
    kv: str
    engine: str
    calibration: str
    calibrated: bool
    parameters: int
    active: int
    kv_bytes_per_token: float
    memory: Memory
    decode: Decode
    prefill: Prefill
    cost: Cost
    notes: list[str]


def decode_speed(setup: Setup, k: Constants) -> float:
    """Tokens per second of one user."""
    sizes = group_sizes(setup.batch, setup.stages)
    step = step_time(setup, k, sequences=max(sizes), context=setup.context).total
    return setup.draft.gain / max(step, _waiting(setup, k, sizes))


def total_speed(setup: Setup, k: Constants) -> float:
    return setup.batch * decode_speed(setup, k)


def prefill_time(setup: Setup, k: Constants, tokens: int, cached: int) -> PassTime:
    """All passes over ``tokens`` new ones behind ``cached``; in a pipeline the chunks follow each other.

    The time of a chunk grows smoothly with what is before it, so that long prompts are integrated over a few chunks.
    """
    chunk = max(1, int(k["chunk"]))
    last = tokens % chunk or min(chunk, tokens)
    full = (tokens - last) // chunk
    time = _chunk(setup, k, last, cached + tokens - last, first=full == 0, logits=1)
    if full:
        time = time.plus(_chunk(setup, k, chunk, cached, first=True))
    for index, weight in _sampled(full - 1):
        time = time.plus(_chunk(setup, k, chunk, cached + (index + 1) * chunk), weight)
    return time


def _chunk(setup: Setup, k: Constants, rows: int, before: float, *, first: bool = False, logits: int = 0) -> PassTime:
    """One chunk of a prompt. In a pipeline all but the first add one stage: the others work on other chunks."""
    whole = pass_time(setup, k, sequences=1, rows=rows, context=before, logits=logits)
    if setup.stages == 1 or first:
        return whole
    share = max(stage_times(setup, k, sequences=1, rows=rows, context=before)) / whole.total
    return PassTime().plus(whole, min(1.0, share))


def _sampled(count: int) -> list[tuple[float, float]]:
    """Indices from 0 to ``count`` - 1 with weights that sum to ``count``: all of few, the Gauss points of many."""
    if count <= 5:
        return [(float(index), 1.0) for index in range(count)]
    middle, half = (count - 1) / 2, count / 2
    points = ((0.0, 8 / 9), (-(0.6**0.5), 5 / 9), (0.6**0.5, 5 / 9))
    return [(middle + half * at, half * weight) for at, weight in points]


def ttft(setup: Setup, k: Constants, tokens: int, cached: int) -> float:
    """Seconds from the prompt's arrival to its first token."""
    return prefill_time(setup, k, tokens, cached).total


def forecast(setup: Setup, *, prompt: int | None = None, cached: int = 0) -> Forecast:
    """Plan ``setup``; ``prompt`` new tokens behind ``cached`` ones for the time to first token."""
    k = constants(setup)
    new = prompt if prompt is not None else max(1, setup.context - cached)
    _check_prompt(setup, new, cached)
    sizes = group_sizes(setup.batch, setup.stages)
    step = step_time(setup, k, sequences=max(sizes), context=setup.context)
    plain = pass_time(setup, k, sequences=max(sizes), rows=1, context=setup.context).total
    speed = decode_speed(setup, k)
    shape = setup.model.shape
    rows = max(sizes) * (setup.draft.tokens + 1)
    first = prefill_time(setup, k, new, cached)
    full = min(1.0, _waiting(setup, k, sizes) / step.total) if setup.stages > 1 else 1.0
    return Forecast(
        model=setup.model.name,
        device=setup.device.name,
        count=setup.count,
        context=setup.context,
        batch=setup.batch,
        weights=setup.weights,
        dense_weights=setup.dense_weights,
        kv=setup.kv,
        engine=setup.engine or setup.calibration.engine,
        calibration=setup.calibration.name,
        calibrated=is_calibrated(setup),
        parameters=total_parameters(shape),
        active=active_parameters(shape),
        kv_bytes_per_token=kv_bytes_per_token(setup),
        memory=memory(setup),
        decode=Decode(
            user=_estimate(setup, k, lambda moved: decode_speed(setup, moved)),
            total=_estimate(setup, k, lambda moved: total_speed(setup, moved)),
            step=step,
            bound="pipeline" if setup.stages > 1 and full > 0.999 else step.bound,
            gain=setup.draft.gain,
            speedup=setup.draft.gain * plain / step.total,
            occupancy=full,
            stages=setup.stages,
            group=max(sizes),
            experts=distinct_experts(shape.experts, shape.experts_per_token or 0, rows) if shape.experts else 0.0,
        ),
        prefill=Prefill(
            tokens=new,
            cached=cached,
            ttft=_estimate(setup, k, lambda moved: ttft(setup, moved, new, cached)),
            rate=new / first.total,
            bound=first.bound,
        ),
        cost=cost_of(setup, speed * setup.batch),
        notes=_notes(setup),
    )


def _check_prompt(setup: Setup, new: int, cached: int) -> None:
    """Raises :class:`UsageError` that says which limit a prompt breaks, and by how much."""
    if new < 1:
        raise UsageError(f"--prompt {new} is below 1, the least there is.", code="impossible", param="prompt")
    if cached < 0:
        raise UsageError(f"--cached {cached} is negative.", code="impossible", param="cached")
    window = int(setup.model.window.value) if setup.model.window else 0
    if window and new + cached > window:
        raise UsageError(
            f"{new:,} new tokens behind {cached:,} are {new + cached - window:,} over the window of "
            f"{setup.model.name}, {window:,}.",
            code="context_too_long",
            param="prompt",
        )


def _estimate(setup: Setup, k: Constants, value: Callable[[Constants], float]) -> Estimate:
    return Estimate(value(k), *interval(setup, value))


def _waiting(setup: Setup, k: Constants, sizes: list[int]) -> float:
    """Work of all groups at the slowest stage between two passes of the same group; 0 without a pipeline."""
    if setup.stages == 1:
        return 0.0
    rows = setup.draft.tokens + 1
    times = {
        size: stage_times(setup, k, sequences=size, rows=rows, context=setup.context) for size in sorted(set(sizes))
    }
    return slowest_work(times, sizes)


def _notes(setup: Setup) -> list[str]:
    told = []
    c, d = setup.calibration, setup.device
    if d.name not in c.devices:
        told.append(f"{d.name} was not measured: the constants are those of {c.title}, with a wider interval.")
    if setup.engine not in ("", c.engine):
        told.append(f"the engine {setup.engine} was not measured; the constants are those of {c.engine}.")
    for name in dict.fromkeys((setup.weights, setup.dense_weights)):
        if name not in c.formats:
            stand = next((each for each in setup.formats[name].efficiency if each in c.weights), "none")
            told.append(f"{name} weights were not measured; {stand} stands for them.")
    told += [text for text in (setup.model.note, d.note, c.note) if text]
    return told
