"""Speculative decoding, by the acceptance of each position of the draft.

One acceptance for all positions does not describe measured series: over one to five drafted tokens of DeepSeek-R1 the
same fit falls from 0.92 to 0.71 (NVIDIA TensorRT-LLM, tech blog 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from vivace.errors import UsageError

DraftKind = Literal["none", "mtp", "model", "copy"]


class Draft(Struct, frozen=True):
    """``acceptance[i]``: probability that the tokens up to position i of the draft are all accepted; never rising.

    ``mtp`` drafts with the model's own extra layer, ``model`` with a smaller model, ``copy`` from a text that is
    there already (a reference, the prompt) at no cost but the rows to verify.
    """

    kind: DraftKind = "none"
    acceptance: tuple[float, ...] = ()
    model: str = ""
    weights: str = "bf16"
    """Format of the draft layers or the draft model."""

    @property
    def tokens(self) -> int:
        """Drafted tokens of a step."""
        return len(self.acceptance)

    @property
    def gain(self) -> float:
        """E: tokens that a step emits on average, 1 + the sum of the acceptances."""
        return 1.0 + sum(self.acceptance)


NO_DRAFT = Draft()


def from_rate(rate: float, tokens: int) -> tuple[float, ...]:
    """Acceptances of a draft whose tokens are accepted independently with one probability: a, a^2, a^3 ..."""
    return tuple(rate**position for position in range(1, tokens + 1))


def from_gains(gains: Sequence[float]) -> tuple[float, ...]:
    """Acceptances from measured tokens per step with one, two, three ... drafted tokens."""
    return tuple(after - before for before, after in zip([1.0, *gains], gains, strict=False))


def checked(kind: str, acceptance: Sequence[float], *, model: str = "", weights: str = "bf16") -> Draft:
    """A draft from a user's words. Raises :class:`UsageError` for acceptances that cannot be."""
    kinds: dict[str, DraftKind] = {"none": "none", "mtp": "mtp", "model": "model", "copy": "copy"}
    if kind not in kinds:
        raise UsageError(f"There is no draft {kind!r}.", hint=f"Known: {', '.join(kinds)}.", param="draft")
    if kind != "none" and not acceptance:
        raise UsageError(
            "A draft needs the acceptance of each position; no rate is assumed.",
            hint="--accept 0.92,0.66,0.24 or --accept 0.8x5 (five tokens, each accepted with 0.8 after the last).",
            param="accept",
        )
    previous = 1.0
    for position, value in enumerate(acceptance, 1):
        if not 0 <= value <= previous:
            raise UsageError(
                f"Acceptance {value:g} at position {position} has to lie between 0 and {previous:g}: a position "
                "counts as accepted only where all before it are.",
                param="accept",
            )
        previous = value
    if kind == "model" and not model:
        raise UsageError("A draft by a model needs its name.", hint="--draft-model NAME", param="draft-model")
    return Draft(kinds[kind], tuple(acceptance), model, weights) if kind != "none" else NO_DRAFT


def parse_acceptance(text: str) -> tuple[float, ...]:
    """``0.92,0.66`` as it stands, ``0.8x5`` as five positions of one rate."""
    try:
        if "x" in text:
            rate, count = text.split("x")
            return from_rate(float(rate), int(count))
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(
            f"Acceptance {text!r} is not a list of numbers.", hint="0.92,0.66,0.24 or 0.8x5", param="accept"
        ) from None
