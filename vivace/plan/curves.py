"""Speeds over context and batch, up to the limit that ends each curve."""

from __future__ import annotations

from functools import partial

from msgspec import Struct, structs

from vivace.plan.constants import constants, interval
from vivace.plan.cost import cost_of
from vivace.plan.forward import decode_speed
from vivace.plan.setup import Setup, fits


class ContextPoint(Struct, frozen=True):
    context: int
    user: float
    low: float
    high: float


class BatchPoint(Struct, frozen=True):
    batch: int
    user: float
    total: float
    dollars_per_million: float | None


def over_context(setup: Setup) -> list[ContextPoint]:
    """Doubling contexts up to the model's window or to what the memory holds at this batch."""
    window = int(setup.model.window.value) if setup.model.window else 131_072
    contexts = sorted({*(1 << power for power in range(9, 22) if 1 << power < window), window, setup.context})
    found = []
    for context in contexts:
        at = structs.replace(setup, context=context)
        if fits(at):
            low, high = interval(at, partial(decode_speed, at))
            found.append(ContextPoint(context, decode_speed(at, constants(at)), low, high))
    return found


def over_batch(setup: Setup) -> list[BatchPoint]:
    """Doubling batches up to what the memory holds at this context."""
    found = []
    for power in range(15):
        at = structs.replace(setup, batch=1 << power)
        if not fits(at):
            break
        user = decode_speed(at, constants(at))
        found.append(BatchPoint(at.batch, user, user * at.batch, cost_of(at, user * at.batch).dollars_per_million))
    return found
