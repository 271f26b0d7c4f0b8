"""One turn of an agent: where its seconds and its money go.

    turn = calls x (round trip + TTFT(new tokens) + output / speed + tools) + host

The default work is that of coding agents as measured by a third party: half of the inputs are longer than 96,300
tokens, nearly all of them seen before, and half of the outputs are longer than 213 tokens.
"""

from __future__ import annotations

from msgspec import Struct

from vivace.errors import UsageError
from vivace.plan.constants import constants
from vivace.plan.cost import hourly_price
from vivace.plan.device import Price
from vivace.plan.forward import decode_speed, ttft
from vivace.plan.setup import Setup


class Workload(Struct, frozen=True, kw_only=True):
    """What one turn asks for. Tokens are those of one call of the model."""

    calls: int = 1
    """Calls of the model in the turn, each with its own round trip."""
    rtt: float = 0.08
    """Seconds there and back for one call."""
    cached: int = 94_300
    """Input that the model's server has seen before."""
    delta: int = 2_000
    """Input that is new."""
    output: int = 213
    tools: float = 0.3
    """Seconds of tools after each call."""
    host: float = 0.0
    """Seconds of everything else in the turn."""

    def __post_init__(self) -> None:
        for name in ("rtt", "cached", "tools", "host"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name} {getattr(self, name)} is negative.", code="impossible", param=name)
        for name in ("calls", "delta", "output"):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"--{name} {getattr(self, name)} is below 1, the least there is.", code="impossible", param=name
                )


SPEECH = Workload(rtt=0.05, cached=2_000, delta=50, output=35, tools=0.0)
SPEECH_WINDOW = (0.4, 0.5)
"""Seconds of a spoken dialogue that are left to the model: a pause above 0.8 s is felt, and hearing and speaking take
the rest."""


class Runner(Struct, frozen=True, kw_only=True):
    """Whatever answers a call: a planned set-up, a hosted tier, or bare numbers."""

    name: str
    tok_s: float
    first: float
    """Seconds to the first token of this work's new input."""
    dollars_call: float | None
    """Money of one call of this work; None where no price is known."""
    note: str = ""


class Turn(Struct, frozen=True, kw_only=True):
    """Seconds of one turn by what they are spent on, and its money."""

    runner: str
    tok_s: float
    network: float
    first: float
    decode: float
    tools: float
    host: float
    dollars: float | None
    tokens: int
    note: str = ""

    @property
    def seconds(self) -> float:
        return self.network + self.first + self.decode + self.tools + self.host

    @property
    def decode_share(self) -> float:
        return self.decode / self.seconds

    @property
    def tool_share(self) -> float:
        return self.tools / self.seconds


def turn(runner: Runner, work: Workload) -> Turn:
    return Turn(
        runner=runner.name,
        tok_s=runner.tok_s,
        network=work.calls * work.rtt,
        first=work.calls * runner.first,
        decode=work.calls * work.output / runner.tok_s,
        tools=work.calls * work.tools,
        host=work.host,
        dollars=None if runner.dollars_call is None else work.calls * runner.dollars_call,
        tokens=work.calls * work.output,
        note=runner.note,
    )


def planned(setup: Setup, work: Workload, name: str = "") -> Runner:
    """A planned set-up as a runner. A call pays for the devices alone in prefill, shared in decode."""
    k = constants(setup)
    first, speed = ttft(setup, k, work.delta, work.cached), decode_speed(setup, k)
    hourly, _ = hourly_price(setup)
    busy = first / max(1, setup.stages) + work.output / speed / setup.batch
    return Runner(
        name=name or f"{setup.model.name} on {setup.count} x {setup.device.name}",
        tok_s=speed,
        first=first,
        dollars_call=hourly / 3600 * busy if hourly else None,
    )


def hosted(price: Price, work: Workload, first: float) -> Runner:
    """A hosted tier. Its time to first token has to be given: not all that decode faster start faster."""
    cached = (price.cached or price.input).value
    money = (work.cached * cached + work.delta * price.input.value + work.output * price.output.value) / 1e6
    note = "" if price.cached else "cached input is billed as new input: no price for it is known"
    return Runner(name=price.title, tok_s=price.tok_s.value, first=first, dollars_call=money, note=note)


def bare(tok_s: float, first: float, dollars_million: float | None, work: Workload) -> Runner:
    """A speed that somebody claims or measured."""
    if tok_s <= 0:
        raise UsageError(f"--tok-s {tok_s:g} has to be above 0.", code="impossible", param="tok-s")
    return Runner(
        name=f"{tok_s:g} tok/s",
        tok_s=tok_s,
        first=first,
        dollars_call=None if dollars_million is None else work.output * dollars_million / 1e6,
    )


class Speech(Struct, frozen=True, kw_only=True):
    """What fits into the window of a spoken dialogue."""

    window: float
    left: float
    """Seconds for decoding after network and first token; negative where not even that fits."""
    tokens: int
    """Tokens that are there when the window closes."""
    sentence: bool
    """Whether a sentence of 35 tokens is among them."""


def speech(runner: Runner, work: Workload = SPEECH) -> list[Speech]:
    """For the shorter and the longer window."""
    found = []
    for window in SPEECH_WINDOW:
        left = window - work.rtt - runner.first
        tokens = max(0, 1 + int(left * runner.tok_s)) if left >= 0 else 0
        found.append(Speech(window=window, left=left, tokens=tokens, sentence=tokens >= SPEECH.output))
    return found
