"""In which form, and whole file or one definition? Decided from model, window and instruction before any call.

And what is asked next when no answer could be used: see :func:`following`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import cast, get_args

from vivace.agent.definitions import Definition
from vivace.agent.dialect import Ask
from vivace.agent.edit_dialects.question import HunkAsk, hunk_dialect
from vivace.agent.regions import LONG_FILE, named, ranked
from vivace.agent.workspace import SourceFile
from vivace.edit_dialect import EditDialect
from vivace.errors import UsageError, did_you_mean
from vivace.protocol.contracts import ModelCard, Service
from vivace.protocol.requests import ResponseRequest

GROWTH = 256
"""Tokens that an answer must have room for beyond the code that it rewrites."""
MAX_GROWTH = 1024
"""Tokens beyond half as much again as the code, after which an answer is a runaway."""
HUNKS = 4096
"""Tokens after which an answer in hunks is a runaway, whatever the file; of a short one it is so sooner."""
MAX_TRIES = 8
"""Definitions that are measured against the window before giving up."""


_SPREADS = re.compile(
    r"\brenam|\beverywhere\b|\bthroughout\b|\bcallers?\b|\bcall sites?\b"
    r"|\b(all|every|each) (uses?|calls?|occurrences?)\b",
    re.IGNORECASE,
)
"""An instruction that reaches beyond the definition that it names."""


@dataclass(frozen=True)
class Plan:
    """What is asked, and the bound of the answer in tokens."""

    ask: Ask | HunkAsk
    prompt_tokens: int
    max_output_tokens: int
    again: bool = False
    """The same question a second time, after answers to it that could not be used."""
    fallback: bool = False
    """Another form is tried than the one that the model writes best."""


def check_dialect(name: str) -> None:
    """Raises :class:`UsageError` for a dialect that does not exist."""
    known = get_args(EditDialect)
    if name not in known:
        hint = did_you_mean(name, list(known))
        raise UsageError(f"There is no dialect {name!r}", hint=hint, param="dialect")


def dialect_of(card: ModelCard, wanted: str = "") -> EditDialect:
    """The form of the answers: the one that is ``wanted``, else the model's own, else whole files."""
    found = wanted or card.dialect
    return cast(EditDialect, found) if found in get_args(EditDialect) else "whole-file"


def question(
    card: ModelCard, source: SourceFile, instruction: str, dialect: str = "", rules: str = ""
) -> Ask | HunkAsk:
    """What is asked about a file that fits the window as a whole."""
    hunks = hunk_dialect(source, dialect_of(card, dialect))
    return HunkAsk(source, instruction, hunks, rules=rules) if hunks else Ask(source, instruction, rules=rules)


async def make_plan(
    service: Service, card: ModelCard, source: SourceFile, instruction: str, dialect: str = "", rules: str = ""
) -> Plan:
    """Choose what the model is asked.

    For hunks, where the model writes them and the file fits the window. Else for what it rewrites, and the rule is: the
    whole file, unless the file is long (over 100 lines, or over a third of the window) and the instruction names
    exactly one definition and does not reach beyond it (a rename does); then that one. A file that does not fit with
    its answer is edited by the definition that is named, else by the likeliest one that fits.

    Raises :class:`UsageError` (``too_large``) when nothing fits or nothing can be chosen.
    """
    first = question(card, source, instruction, dialect, rules)
    ask = Ask(source, instruction, rules=rules)
    if isinstance(first, HunkAsk) and (plan := await _fit(service, card, first)):
        return plan
    whole = await _fit(service, card, ask)
    choice = named(source, instruction)
    long = len(source.lines) > LONG_FILE or whole is None or whole.prompt_tokens * 3 > card.context_window
    spreads = whole is not None and _SPREADS.search(instruction) is not None
    part = await _fit(service, card, replace(ask, region=choice)) if choice and long and not spreads else None
    if part:
        return part
    if whole:
        return whole
    for region in _likely(ranked(source, instruction), choice):
        if plan := await _fit(service, card, replace(ask, region=region)):
            return plan
    raise UsageError(
        f"{source.name}: too long for {card.name} (a window of {card.context_window:,} tokens), and the instruction "
        "does not tell which function or class of it to edit",
        hint="Name the function or class in the instruction, in backticks.",
        code="too_large",
        param="path",
    )


def _likely(candidates: list[Definition], choice: Definition | None) -> list[Definition]:
    # A named class that is too long itself: look inside it first.
    inside = [d for d in candidates if choice and choice.start <= d.start and d.end <= choice.end and d != choice]
    return (inside or candidates)[:MAX_TRIES]


async def following(service: Service, card: ModelCard, plan: Plan, status: str, told: str, answer: str) -> Plan | None:
    """What to ask next, when no answer to ``plan`` could be used; None at the end of the ladder.

    ``status`` is how the round ended, ``told`` what was wrong with its first answer, ``answer`` that one's text.

    A model that writes whole files is asked once more: in the free manner what came back unchanged, all anew what was
    refused. One that writes hunks is told once what was wrong with them, with the nearest real lines; then it is asked
    for the whole function that it meant, then for the whole file.
    """
    ask = plan.ask
    if isinstance(ask, HunkAsk):
        tells = status == "refused" and told and not ask.told
        if tells and (more := await _fit(service, card, replace(ask, told=told))):
            return more
        region = ask.meant(answer) or named(ask.source, ask.instruction)
        small = region is not None and (region.end - region.start) * 3 < len(ask.source.lines) * 2
        if small and (part := await _fit(service, card, Ask(ask.source, ask.instruction, region, rules=ask.rules))):
            return replace(part, fallback=True)
    elif not plan.fallback:
        if plan.again:
            return None
        return freely(plan) if status == "unchanged" else replace(plan, again=True)
    elif ask.region is None:
        return None
    whole = await _fit(service, card, Ask(ask.source, ask.instruction, rules=ask.rules))
    return replace(whole, fallback=True) if whole else None


def freely(plan: Plan) -> Plan:
    """The second question of a model that writes whole code and gave it back unchanged; others are asked as before."""
    return replace(plan, again=True, ask=replace(plan.ask, manner="free")) if isinstance(plan.ask, Ask) else plan


async def _fit(service: Service, card: ModelCard, ask: Ask | HunkAsk) -> Plan | None:
    """The plan if prompt and answer fit into the window together."""
    if len(ask.shown) > 16 * card.context_window:  # no tokenizer packs code that tightly: skip the count
        return None
    if isinstance(ask, HunkAsk):
        prompt = await service.input_tokens(ask.request(card))
        room = card.context_window - prompt
        return Plan(ask, prompt, min(room, prompt + MAX_GROWTH, HUNKS)) if room >= MAX_GROWTH else None
    prompt = await service.input_tokens(ask.request(card.name))
    code = await service.input_tokens(ResponseRequest(model=card.name, input=ask.block, instructions=""))
    room = card.context_window - prompt
    if room < code + GROWTH:
        return None
    return Plan(ask, prompt, min(room, code + code // 2 + MAX_GROWTH))
