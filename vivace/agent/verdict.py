"""Is an answer an edit that may be applied? Whole, nothing lost, still parses, and changes something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from vivace.agent.applier import Patch, make_patch
from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.extras import only_layout, without_examples
from vivace.agent.guards import lost_code
from vivace.agent.keep import put_back_kept
from vivace.agent.syntax import compare

_ABOUT_SPACE = re.compile(r"white ?space|trailing|blank|format|lint|pep ?8|indent", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """``patch`` when the answer may be applied. Otherwise ``reason``; ``unchanged`` when it is no edit at all."""

    patch: Patch | None = None
    reason: str = ""
    unchanged: bool = False
    note: str = ""
    """What was left out or put back, and what could not be checked."""


def judge(ask: Ask, attempt: Attempt) -> Verdict:
    """Check one answer. Nothing is applied that was not closed by its fence."""
    if attempt.reply.state != "closed":
        if attempt.failure:
            return Verdict(reason=attempt.failure)
        if attempt.reply.state == "cut":
            return Verdict(reason="the answer ended before its closing fence")
        return Verdict(reason="the model returned no code", unchanged=True)
    name, before = ask.source.name, ask.source.text
    text, left_out = without_examples(name, before, ask.whole(attempt.reply.code), ask.instruction)
    text, kept = put_back_kept(name, before, text, ask.instruction)
    patch = make_patch(ask.source, text, keep_trailing_space=_space_is_noise(name, ask.instruction))
    if not patch.blocks:
        return Verdict(reason="the model returned the code unchanged", unchanged=True)
    if reason := only_layout(name, before, text, ask.instruction):
        return Verdict(reason=reason, unchanged=True)
    if reason := lost_code(patch, ask.instruction):
        return Verdict(reason=reason)
    syntax = compare(name, before, patch.text)
    if syntax.fault:
        return Verdict(reason=f"the result does not parse ({syntax.fault})")
    return Verdict(patch=patch, note="; ".join(note for note in (left_out, kept, syntax.note) if note))


def _space_is_noise(name: str, instruction: str) -> bool:
    """Trailing blanks have a meaning in Markdown, and when the instruction speaks of such things."""
    return PurePath(name).suffix.lower() not in (".md", ".markdown") and not _ABOUT_SPACE.search(instruction)
