"""The measured figures of a turn in words; what was not measured is not told."""

from __future__ import annotations

from vivace.agent.turns.events import Meters


def figures(meters: Meters) -> list[str]:
    """First token, speed, share of the draft, cost; none that is guessed."""
    told = []
    if meters.ttft is not None:
        told.append(f"first token {seconds(meters.ttft)}")
    if meters.tokens_per_second is not None:
        told.append(f"{meters.tokens_per_second:,.0f} tok/s")
    if meters.copied is not None:
        told.append(f"{meters.copied:.0%} copied")
    if meters.cost:
        told.append(f"cost {meters.cost:.4f}")
    return told


def seconds(value: float) -> str:
    """Milliseconds below one second."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def tokens(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{count / 1000:,.1f}k"
