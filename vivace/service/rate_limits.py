"""Where the meters stand, as clients read it: OpenAI's headers and Codex CLI's event."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

TOKEN_METERS = ("tokens", "input_tokens", "output_tokens")


class MeterState(Struct, frozen=True):
    """One meter. ``of`` is ``plan`` or ``key``; ``seconds`` is the window, 0 for ``concurrent``.

    ``reserved`` is held by running responses. ``resets_in`` is in seconds, until nothing of today's use counts.
    """

    name: str
    meter: str
    of: str
    seconds: int
    limit: int
    used: int
    reserved: int = 0
    resets_in: float = 0.0

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used - self.reserved)

    @property
    def share(self) -> float:
        """How much of it is used, from 0 to 1; what is reserved does not count, as most of it comes back."""
        return min(1.0, self.used / self.limit) if self.limit else 1.0


def limit_headers(states: list[MeterState]) -> dict[str, str]:
    """``x-ratelimit-*`` of the requests meter and of the token meter that are the nearest to their limits."""
    headers = {}
    for kind, meters in (("requests", ("requests",)), ("tokens", TOKEN_METERS)):
        of_kind = [state for state in states if state.meter in meters]
        if of_kind:
            tightest = min(of_kind, key=lambda state: state.remaining / state.limit if state.limit else 0.0)
            headers[f"x-ratelimit-limit-{kind}"] = str(tightest.limit)
            headers[f"x-ratelimit-remaining-{kind}"] = str(tightest.remaining)
            headers[f"x-ratelimit-reset-{kind}"] = duration_text(tightest.resets_in)
    return headers


def codex_event(plan: str, states: list[MeterState], now: float) -> dict[str, Any] | None:
    """Codex CLI's ``codex.rate_limits``: the plan's shortest window as primary, its longest as secondary.

    Of several meters of one window, the fullest. None when the plan has no windows.
    """
    windows = [state for state in states if state.of == "plan" and state.seconds > 0]
    lengths = sorted({state.seconds for state in windows})
    if not lengths:
        return None

    def entry(seconds: int) -> dict[str, Any]:
        fullest = max((state for state in windows if state.seconds == seconds), key=lambda state: state.share)
        return {
            "used_percent": round(100 * fullest.share),
            "window_minutes": max(1, seconds // 60),
            "reset_at": int(now + fullest.resets_in),
        }

    secondary = entry(lengths[-1]) if len(lengths) > 1 else None
    limits = {"primary": entry(lengths[0]), "secondary": secondary}
    return {"type": "codex.rate_limits", "plan_type": plan, "rate_limits": limits}


def duration_text(seconds: float) -> str:
    """As OpenAI writes the time to a reset: ``6ms``, ``1s``, ``2m3s``, ``1h0m0s``. Rounded up, so that it is enough."""
    if seconds < 1:
        return f"{-int(-seconds * 1000 // 1)}ms" if seconds * 1000 <= 999 else "1s"
    whole = -int(-seconds // 1)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
