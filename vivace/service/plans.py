"""Plans: which models and tiers a principal may use, and how much of them in which time."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct, field

from vivace.errors import UsageError, VivaceError

Meter = Literal["requests", "input_tokens", "output_tokens", "tokens"]
"""What a window counts; ``tokens`` is input and output together."""


MINUTE = 60
DAY = 86400


class Window(Struct, frozen=True, forbid_unknown_fields=True):
    """At most ``limit`` of ``meter`` in any ``seconds``, for each model family on its own.

    The window rolls: what was used leaves it ``seconds`` later. ``family`` restricts it to one family.
    """

    meter: Meter
    seconds: int
    limit: int
    family: str | None = None

    @property
    def name(self) -> str:
        """Such as ``input_tokens/5h``: the name that a refusal tells."""
        return f"{self.meter}/{span_text(self.seconds)}"


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs to a plan. ``models`` are globs; ``tiers`` are ids, or ``*`` for all.

    ``concurrent`` is how many responses of one principal and model family may be unfinished at a time.
    ``cached_percent`` is how much of a cached input token counts as input (100 counts it fully, 0 not at all).
    With ``overflow_to_credits``, a request beyond a window is paid from the principal's credits, where the principal
    opted in and has some; it then does not count in the windows.
    """

    id: str
    models: list[str] = field(default_factory=lambda: ["*"])
    tiers: list[str] = field(default_factory=lambda: ["*"])
    default_tier: str = "default"
    windows: list[Window] = field(default_factory=list, name="window")
    concurrent: int | None = None
    cached_percent: int = 100
    overflow_to_credits: bool = False

    def allows_tier(self, tier: str) -> bool:
        return "*" in self.tiers or tier in self.tiers

    def check_model(self, model: str) -> None:
        """Raises ``model_not_allowed`` when the plan does not include ``model``."""
        if not any(fnmatchcase(model, pattern) for pattern in self.models):
            raise UsageError(
                f"The plan {self.id!r} does not include the model {model!r}",
                hint=f"It includes: {', '.join(self.models)}.",
                code="model_not_allowed",
                param="model",
            )

    def windows_of(self, family: str) -> list[Window]:
        return [window for window in self.windows if window.family in (None, family)]


class KeyLimits(Struct, frozen=True):
    """What one API key may use, besides its principal's plan and over all models. ``id`` is the key's shown prefix."""

    id: str
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent: int | None = None

    @property
    def windows(self) -> list[Window]:
        limits: list[tuple[Meter, int, int | None]] = [
            ("requests", MINUTE, self.requests_per_minute),
            ("tokens", DAY, self.tokens_per_day),
        ]
        return [Window(meter, seconds, limit) for meter, seconds, limit in limits if limit is not None]


OPEN = Plan(id="open")
"""The plan of whoever has none: everything, without limits."""


class QuotaExceeded(VivaceError):
    """A limit is used up. The text names the meter; the service answers 429 with ``headers``.

    ``meter`` is its name (``input_tokens/5h/qwen``), ``limit`` and ``used`` are in its unit, ``used`` counts what
    running responses have reserved. ``resets_in`` is in seconds, until this request fits when nothing else is asked.
    ``retry_after`` is whole seconds, at least 1.
    """

    def __init__(
        self, message: str, *, meter: str, limit: int, used: int, resets_in: float, headers: dict[str, str]
    ) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.meter = meter
        self.limit = limit
        self.used = used
        self.resets_in = resets_in
        self.retry_after = max(1, -int(-resets_in // 1))
        self.headers = {"retry-after": str(self.retry_after), **headers}


def span_text(seconds: int) -> str:
    """A length of time in its largest whole unit: ``5h``, ``7d``, ``90s``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
