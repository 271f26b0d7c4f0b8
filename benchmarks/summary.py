"""Rates with their uncertainty, and times by their middle and their tail."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct


class Record(Struct, omit_defaults=False):
    """One task, once. Times are wall seconds of the whole turn with the model loaded: read, ask, check, write."""

    id: str
    kind: str
    status: str
    """``changed``, ``unchanged``, ``refused``, or ``error`` when the turn itself failed."""
    applied: bool
    """A valid diff was made and written."""
    passed: bool = False
    grade: str = ""
    untouched: bool | None = None
    reason: str = ""
    """Why nothing was applied; of an applied edit, what could not be checked."""
    asked: str = "whole"
    """``whole`` file or ``region``."""
    resampled: bool = False
    """A second round was needed."""
    seconds: float = 0.0
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    draft_accepted: float | None = None
    lines_changed: int = 0


class Share(Struct, frozen=True):
    """``count`` of ``of``, with the 95 % Wilson score interval."""

    count: int
    of: int
    percent: float
    low: float
    high: float


class Summary(Struct, frozen=True):
    """One kind of task, or all."""

    passed: Share
    applied: Share
    first_round: Share
    """Passed without a second round."""
    unchanged: int
    refused: int
    errors: int
    wrong: int
    """Applied, and the tests fail."""
    untouched: Share | None
    """Of the applied ones: nothing outside the task's region was changed. Only where tests look at it."""
    seconds_median: float
    seconds_p90: float
    ttft_median: float | None
    output_tokens: int
    lines_changed_median: float


def share(count: int, of: int) -> Share:
    """Wilson's interval (E. B. Wilson, JASA 22, 1927) at z = 1.96: honest for small samples and rates near 0 or 1."""
    if not of:
        return Share(0, 0, 0.0, 0.0, 100.0)
    z, p = 1.96, count / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Share(count, of, *(round(100 * value, 1) for value in (p, low, high)))


def quantile(values: Sequence[float], q: float) -> float:
    """Linear between the closest ranks; 0 for nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (at - low), 3)


def summarise(records: Sequence[Record]) -> dict[str, Summary]:
    """By kind, and ``all`` when there are several."""
    kinds = dict.fromkeys(record.kind for record in records)
    by_kind = {kind: _one([record for record in records if record.kind == kind]) for kind in kinds}
    return by_kind if len(by_kind) < 2 else {**by_kind, "all": _one(records)}


def _one(records: Sequence[Record]) -> Summary:
    applied = [record for record in records if record.applied]
    looked = [record for record in applied if record.untouched is not None]
    seconds = [record.seconds for record in records]
    ttft = [record.ttft_s for record in records if record.ttft_s is not None]
    return Summary(
        passed=share(sum(record.passed for record in records), len(records)),
        applied=share(len(applied), len(records)),
        first_round=share(sum(record.passed and not record.resampled for record in records), len(records)),
        unchanged=sum(record.status == "unchanged" for record in records),
        refused=sum(record.status == "refused" for record in records),
        errors=sum(record.status == "error" for record in records),
        wrong=sum(not record.passed for record in applied),
        untouched=share(sum(bool(record.untouched) for record in looked), len(looked)) if looked else None,
        seconds_median=quantile(seconds, 0.5),
        seconds_p90=quantile(seconds, 0.9),
        ttft_median=quantile(ttft, 0.5) if ttft else None,
        output_tokens=sum(record.output_tokens for record in records),
        lines_changed_median=quantile([record.lines_changed for record in applied], 0.5),
    )
