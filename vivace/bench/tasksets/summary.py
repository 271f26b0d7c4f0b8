"""Rates with their uncertainty, and times by their middle and their tail."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from vivace.bench.stats import quantile

if TYPE_CHECKING:
    from vivace.bench.tasksets.record import Record

REASONS = 20
"""Reasons beyond the most frequent ones are summed up as ``others``."""


class Share(Struct, frozen=True):
    """``count`` of ``of``, in percent, with the 95 % Wilson score interval."""

    count: int
    of: int
    percent: float
    low: float
    high: float


class Summary(Struct, frozen=True, kw_only=True):
    """One kind of task, or all of them."""

    pass_rate: Share
    applied_rate: Share
    first_round: Share
    """Passed without a second round."""
    median_seconds: float | None
    """To green: of the turns whose result passes."""
    p90_seconds: float | None
    median_turn_seconds: float | None
    """Of all turns."""
    p90_turn_seconds: float | None
    total_seconds: float
    ttft: float | None
    """Median, seconds."""
    tok_s: float | None
    """Median, tokens per second while decoding."""
    changed_lines_ratio: float | None
    """Median over what passes: lines changed over those that the reference changes."""
    wrong_place: Share
    """Of the applied ones: something outside of what the task is about was changed."""
    wrong: int
    """Applied, and the tests fail."""
    unchanged: int
    refused: int
    errors: int
    output_tokens: int
    reasons: dict[str, int]
    """Why nothing was written, most frequent first; names and numbers are left out."""


def share(count: int, of: int) -> Share:
    """Wilson's interval (E. B. Wilson, JASA 22, 1927) at z = 1.96: honest for small samples and rates near 0 or 1.

    Several seeds of a task are no independent samples: the interval is then narrower than it should be, and the
    comparison of two runs, which resamples whole tasks, is the one to go by.
    """
    if not of:
        return Share(0, 0, 0.0, 0.0, 100.0)
    z, p = 1.96, count / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return Share(count, of, *(round(100 * value, 1) for value in (p, low, high)))


def summarise(records: Sequence[Record]) -> dict[str, Summary]:
    """By kind, and ``all``."""
    kinds = dict.fromkeys(record.kind for record in records)
    by_kind = {kind: _one([record for record in records if record.kind == kind]) for kind in kinds}
    return {**by_kind, "all": _one(records)}


def rows(summary: Mapping[str, Summary]) -> list[tuple[str, Summary]]:
    """What is worth a row of its own: ``all`` says nothing more where there is one kind."""
    return [(kind, one) for kind, one in summary.items() if kind != "all" or len(summary) > 2]


def _one(records: Sequence[Record]) -> Summary:
    applied = [record for record in records if record.applied]
    green = [record for record in records if record.passed]
    turns = [record.seconds for record in records]
    return Summary(
        pass_rate=share(len(green), len(records)),
        applied_rate=share(len(applied), len(records)),
        first_round=share(sum(not record.second_round for record in green), len(records)),
        median_seconds=_quantile([record.seconds for record in green], 0.5),
        p90_seconds=_quantile([record.seconds for record in green], 0.9),
        median_turn_seconds=_quantile(turns, 0.5),
        p90_turn_seconds=_quantile(turns, 0.9),
        total_seconds=round(sum(turns), 1),
        ttft=_quantile([record.ttft for record in records if record.ttft is not None], 0.5),
        tok_s=_quantile([record.tok_s for record in records if record.tok_s is not None], 0.5, 1),
        changed_lines_ratio=_quantile(
            [record.changed_lines_ratio for record in green if record.changed_lines_ratio is not None], 0.5, 2
        ),
        wrong_place=share(sum(bool(record.wrong_place) for record in applied), len(applied)),
        wrong=sum(not record.passed for record in applied),
        unchanged=sum(record.status == "unchanged" for record in records),
        refused=sum(record.status == "refused" for record in records),
        errors=sum(record.status == "error" for record in records),
        output_tokens=sum(record.output_tokens for record in records),
        reasons=reasons([record.reason for record in records if not record.applied]),
    )


def reasons(told: Sequence[str]) -> dict[str, int]:
    """How often each reason was given; what stands in quotes, brackets or digits differs by task and is left out."""
    counts = Counter(_plain(reason) for reason in told)
    most = dict(counts.most_common(REASONS))
    if rest := sum(counts.values()) - sum(most.values()):
        most["others"] = rest
    return most


def _plain(reason: str) -> str:
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", "'...'", reason.split("\n", 1)[0])
    text = re.sub(r"\([^()]*\)", "(...)", text)
    return re.sub(r"\d[\d,.]*", "#", text).strip() or "no reason given"


def _quantile(values: Sequence[float], share: float, digits: int = 3) -> float | None:
    return round(quantile(values, share), digits) if values else None
