"""Whole file or one definition? Decided from the window and the instruction, before the model is called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vivace.agent.definitions import Definition
from vivace.agent.dialect import Ask
from vivace.agent.regions import LONG_FILE, named, ranked
from vivace.agent.workspace import SourceFile
from vivace.errors import UsageError
from vivace.protocol.contracts import ModelCard, Service
from vivace.protocol.requests import ResponseRequest

GROWTH = 256
"""Tokens that an answer must have room for beyond the code that it rewrites."""
MAX_GROWTH = 1024
"""Tokens beyond half as much again as the code, after which an answer is a runaway."""
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

    ask: Ask
    prompt_tokens: int
    max_output_tokens: int


async def make_plan(service: Service, card: ModelCard, source: SourceFile, instruction: str) -> Plan:
    """Choose what the model rewrites.

    The rule: the whole file, unless the file is long (over 100 lines, or over a third of the window) and the
    instruction names exactly one definition and does not reach beyond it (a rename does); then that one. A file that
    does not fit with its answer is edited by the definition that is named, else by the likeliest one that fits.

    Raises :class:`UsageError` (``too_large``) when nothing fits or nothing can be chosen.
    """
    whole = await _fit(service, card, Ask(source, instruction))
    choice = named(source, instruction)
    long = len(source.lines) > LONG_FILE or whole is None or whole.prompt_tokens * 3 > card.context_window
    spreads = whole is not None and _SPREADS.search(instruction) is not None
    part = await _fit(service, card, Ask(source, instruction, choice)) if choice and long and not spreads else None
    if part:
        return part
    if whole:
        return whole
    for region in _likely(ranked(source, instruction), choice):
        if plan := await _fit(service, card, Ask(source, instruction, region)):
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


async def _fit(service: Service, card: ModelCard, ask: Ask) -> Plan | None:
    """The plan if prompt and answer fit into the window together."""
    if len(ask.shown) > 16 * card.context_window:  # no tokenizer packs code that tightly: skip the count
        return None
    prompt = await service.input_tokens(ask.request(card.name))
    code = await service.input_tokens(ResponseRequest(model=card.name, input=ask.block, instructions=""))
    room = card.context_window - prompt
    if room < code + GROWTH:
        return None
    return Plan(ask, prompt, min(room, code + code // 2 + MAX_GROWTH))
