"""Is an answer an edit that may be applied? Whole, nothing lost, still parses, and changes something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from vivace.agent.applier import Patch, make_patch
from vivace.agent.asked import bad_import, leaves_the_rest, without_echo
from vivace.agent.attempt import Attempt
from vivace.agent.confined import put_back_neighbours
from vivace.agent.dialect import Ask
from vivace.agent.edit_dialects.question import HunkAsk
from vivace.agent.extras import changes_code, only_described, only_layout, without_examples
from vivace.agent.guards import import_still_used, lost_code, shrunk_or_grown
from vivace.agent.keep import put_back_kept
from vivace.agent.renames import only_renamed, renamed_by_rule, renames
from vivace.agent.syntax import compare
from vivace.agent.tools.damage import damage, lost_comments
from vivace.agent.workspace import SourceFile
from vivace.errors import UsageError

_ABOUT_SPACE = re.compile(r"white ?space|trailing|blank|format|lint|pep ?8|indent", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """``patch`` when the answer may be applied. Otherwise ``reason``; ``unchanged`` when it is no edit at all."""

    patch: Patch | None = None
    reason: str = ""
    unchanged: bool = False
    note: str = ""
    """What was left out or put back, which comments are gone, and what could not be checked."""
    rungs: tuple[str, ...] = ()
    """How each hunk was found; none where the whole was written anew."""
    told: str = ""
    """What the model is to know about its answer, with the nearest real lines."""


def judge(ask: Ask | HunkAsk, attempt: Attempt) -> Verdict:
    """Check one answer. Nothing is applied that was not closed by its mark."""
    if isinstance(ask, HunkAsk):
        return _judge_hunks(ask, attempt)
    if attempt.reply.state != "closed":
        if attempt.failure:
            return Verdict(reason=attempt.failure)
        if attempt.reply.state == "cut":
            return Verdict(reason="the model's answer breaks off before the end of its code")
        return Verdict(reason="the model returned no code", unchanged=True)
    name, before = ask.source.name, ask.source.text
    code, echo = without_echo(name, ask.shown, attempt.reply.code, ask.instruction)
    text, left_out = without_examples(name, before, ask.whole(code), ask.instruction)
    text, kept = put_back_kept(name, before, text, ask.instruction)
    text, taken = only_renamed(name, before, text, ask.instruction)
    text, beyond = put_back_neighbours(ask.source, text, ask.instruction)
    patch = make_patch(ask.source, text, keep_trailing_space=_space_is_noise(name, ask.instruction))
    if not patch.blocks:
        return Verdict(reason=taken or "the model returned the code unchanged", unchanged=True)
    no_edit = only_layout(name, before, text, ask.instruction) or only_described(name, before, text, ask.instruction)
    if no_edit:
        return Verdict(reason=no_edit, unchanged=True)
    reason = (
        lost_code(patch, ask.instruction)
        or bad_import(ask.source, patch.text, ask.instruction)
        or _strays(ask, patch)
        or changes_code(name, before, patch.text, ask.instruction)
    )
    if reason:
        return Verdict(reason=reason)
    syntax = compare(name, before, patch.text)
    if syntax.fault:
        return Verdict(reason=f"the result does not parse ({syntax.fault})")
    return Verdict(
        patch=patch, note=_joined(echo, left_out, kept, taken, beyond, *_gone(patch, ask.instruction), syntax.note)
    )


def without_model(source: SourceFile, instruction: str) -> Verdict | None:
    """What can be done where the model did not do it: a pure rename. None for anything else."""
    text = renamed_by_rule(source.name, source.text, instruction)
    if not text:
        return None
    patch = make_patch(source, text)
    if not patch.blocks or compare(source.name, source.text, text).fault:
        return None
    told = " and ".join(f"{old} to {new}" for old, new in renames(instruction).items())
    return Verdict(patch=patch, note=f"the model did not do it: renamed {told} wherever it stands, by rule")


def _judge_hunks(ask: HunkAsk, attempt: Attempt) -> Verdict:
    """Hunks say what they remove, so that nothing is put back; all other guards hold."""
    if attempt.reply.state != "closed":
        if attempt.failure:
            return Verdict(reason=attempt.failure)
        if attempt.reply.state == "cut":
            reason = "the answer ended in the middle of a hunk"
            return Verdict(reason=reason, told=f"{reason}.\n{ask.form.rules(ask.source)}")
        return Verdict(reason="the model returned no change", unchanged=True)
    try:
        applied = ask.read(attempt.reply.code)
    except UsageError as error:
        return Verdict(reason=error.message, told=_told(error), unchanged=error.code == "no_change")
    name, before = ask.source.name, ask.source.text
    text, taken = only_renamed(name, before, applied.text, ask.instruction)
    patch = make_patch(ask.source, text)
    if not patch.blocks:
        return Verdict(reason=taken or "the model returned the code unchanged", unchanged=True)
    reason = (
        damage(patch)
        or shrunk_or_grown(patch, ask.instruction)
        or import_still_used(patch)
        or bad_import(ask.source, patch.text, ask.instruction)
        or changes_code(name, before, patch.text, ask.instruction)
    )
    if reason:
        return Verdict(reason=reason, told=f"{reason}.", rungs=applied.rungs)
    found = [f"found by {rung}" for rung in dict.fromkeys(applied.rungs) if rung not in _PLAIN]
    note = _joined(*found, taken, *_gone(patch, ask.instruction), compare(name, before, patch.text).note)
    return Verdict(patch=patch, note=note, rungs=applied.rungs)


_PLAIN = ("exact", "anchor", "end of file")
_COMMENTS = 5
"""Lost comments that are told one by one."""


def _strays(ask: Ask, patch: Patch) -> str:
    """Why it goes beyond the definition that it was to change alone; imports that it brings along do."""
    region = ask.region
    if region is None or not leaves_the_rest(ask.instruction):
        return ""
    outside = any(block.i1 < region.start or block.i2 > region.end for block in patch.blocks)
    return f"the answer also changes lines outside of {region.qualname}, which were to stay" if outside else ""


def _gone(patch: Patch, instruction: str) -> list[str]:
    if renames(instruction):  # a comment that holds the name is renamed
        return []
    return [f"comment removed: {comment[:100]}" for comment in lost_comments(patch)[:_COMMENTS]]


def _told(error: UsageError) -> str:
    return f"{error.message}.\n{error.hint}".strip()


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _space_is_noise(name: str, instruction: str) -> bool:
    """Trailing blanks have a meaning in Markdown, and when the instruction speaks of such things."""
    return PurePath(name).suffix.lower() not in (".md", ".markdown") and not _ABOUT_SPACE.search(instruction)
