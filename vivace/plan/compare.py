"""Several set-ups side by side, written as ``MODEL@DEVICE[xCOUNT][:option=value]...``."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from vivace.errors import UsageError, did_you_mean
from vivace.plan.draft import NO_DRAFT, Draft, checked, parse_acceptance
from vivace.plan.forward import Forecast, forecast
from vivace.plan.library import Library
from vivace.plan.reading import find_model
from vivace.plan.setup import Setup, make_setup
from vivace.plan.turn import Turn, Workload, planned, turn

OPTIONS = ("weights", "kv", "context", "batch", "draft", "accept", "draft-model", "engine", "count")
WIDTHS = {"4": "int4", "8": "int8", "16": "bf16"}


class Compared(Struct, frozen=True, kw_only=True):
    name: str
    forecast: Forecast
    turn: Turn


def compare(library: Library, texts: Sequence[str], work: Workload) -> list[Compared]:
    """Plan each and take it through the same turn. The context covers the turn where none is given."""
    found = []
    for text in texts:
        setup = parse(library, text, least_context=work.cached + work.delta + work.output)
        whole = forecast(setup, prompt=work.delta, cached=work.cached)
        found.append(Compared(name=text, forecast=whole, turn=turn(planned(setup, work, text), work)))
    return found


def parse(library: Library, text: str, least_context: int | None = None) -> Setup:
    """A set-up from its one-line form."""
    head, *options = text.split(":")
    if "@" not in head:
        raise UsageError(f"{text!r} names no device.", hint="MODEL@DEVICE, as in llama-3.1-70b@h100x8", param="setup")
    name, _, where = head.rpartition("@")
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in OPTIONS or not value:
            raise UsageError(f"{option!r} in {text!r} is no option.", hint=did_you_mean(key, list(OPTIONS)), param=key)
        given[key] = value
    device, count = _device_and_count(library, where)
    return make_setup(
        library,
        find_model(library, name),
        library.device(device),
        count=_whole(given["count"], "count") if "count" in given else count,
        context=_whole(given["context"], "context") if "context" in given else least_context,
        batch=_whole(given.get("batch", "1"), "batch"),
        weights=format_name(given.get("weights", "")),
        kv=format_name(given.get("kv", "bf16")),
        draft=draft_from(given.get("draft", ""), given.get("accept", ""), given.get("draft-model", "")),
        engine=given.get("engine", ""),
    )


def draft_from(kind: str, acceptance: str, model: str, weights: str = "bf16") -> Draft:
    """A draft from its options; an acceptance alone means a draft that copies."""
    if not kind and not acceptance:
        return NO_DRAFT
    kind = kind or ("model" if model else "copy")
    return checked(kind, parse_acceptance(acceptance), model=model, weights=weights)


def format_name(text: str) -> str:
    """``4``, ``8`` and ``16`` stand for the usual formats of that width."""
    return WIDTHS.get(text, text)


def _device_and_count(library: Library, where: str) -> tuple[str, int | None]:
    name, mark, count = where.rpartition("x")
    if mark and count.isdigit() and name:
        return name, int(count)
    return where, None


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} {text!r} is no whole number.", code="impossible", param=name) from None
