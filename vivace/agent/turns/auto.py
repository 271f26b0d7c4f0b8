"""Fast or deep? Rules that can be told in a few words, without asking a model.

What the rules send to fast is looked at once it is there: where its candidates disagree, or a check that takes less
than half a minute fails, the deep mode goes on from it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from msgspec import Struct

from vivace.agent.repomap.files import project_files
from vivace.agent.sessions.entries import User
from vivace.agent.turns.checks import Check, Choice, affordable, find_checks, limit_of, seconds_of
from vivace.agent.turns.desk import Desk
from vivace.agent.turns.events import Mode
from vivace.agent.turns.named import named_files, obvious_files
from vivace.agent.turns.questions import is_question

LONG = 120
"""Words from which a message is more than one edit."""
MANY = 3
"""Files beyond which a change is more than one edit."""

_EXPLORES = re.compile(
    r"\b(investigate|explore|debug|diagnose|find out|figure out|look into|track down|audit|migrate|set ?up|benchmark"
    r"|profile|run|execute|install|reproduce|bisect|until (?:it|they|all|the tests?))\b"
    r"|\bmake (?:the |all )?tests? pass\b|\bwhy (?:does|do|is|are|did)\b.*\b(?:fail|crash|hang|break)"
    r"|\b(?:all|every|each) (?:files?|modules?|packages?)\b|\b(?:whole|entire) (?:project|repo|repository|code ?base)\b"
    r"|\bacross the\b|\beverywhere\b|\bthroughout\b",
    re.IGNORECASE,
)
_STEPS = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+\S", re.MULTILINE)


class Decision(Struct, frozen=True):
    """``check``: deep goes on if the fast answer turns out doubtful. ``question``: words are wanted, not an edit."""

    mode: Mode
    reason: str
    paths: list[str]
    question: bool = False
    check: bool = False


async def decide(desk: Desk, said: Sequence[User], mode: Mode) -> Decision:
    """What to do with these messages; ``mode`` is what the user has set."""
    text = "\n\n".join(user.text for user in said)
    given = list(dict.fromkeys(path for user in said for path in user.files))
    known = await asyncio.to_thread(project_files, desk.root)
    paths = list(dict.fromkeys([*given, *named_files(desk.root, text, known)]))
    asks = is_question(text)
    obvious = False
    if not paths and mode != "deep":
        paths = await asyncio.to_thread(obvious_files, desk.root, text, known)
        obvious = bool(paths)
    if mode != "auto":
        return Decision(mode, "as you set it", paths, question=asks)
    if reason := reason_for_deep(text, paths, asks=asks):
        return Decision("deep", reason, paths, question=asks)
    if asks:
        return Decision("fast", "a question" + (f" about {paths[0]}" if paths else ""), paths, question=True)
    words = f"one edit of {_listed(paths)}" + (" (the only place with that name)" if obvious else "")
    choice = await asyncio.to_thread(checks_for, desk, paths, known)
    runs = not choice.left_out or bool(choice.checks)
    return Decision("fast", f"{words}; {verification(desk, choice)}", paths, check=runs)


def reason_for_deep(text: str, paths: Sequence[str], *, asks: bool) -> str:
    """Why it is not for the fast mode, in words; empty when it may be."""
    if found := _EXPLORES.search(text):
        return f"the message says {found[0].strip().lower()!r}"
    if not paths:
        return "" if asks and _about_nothing(text) else "no file is named, and none is obvious"
    if len(paths) > MANY:
        return f"{len(paths)} files are named"
    if len(text.split()) > LONG:
        return f"the message has {len(text.split())} words"
    if len(_STEPS.findall(text)) >= 3:
        return "the message lists several steps"
    return ""


def checks_for(desk: Desk, paths: Sequence[str], known: Sequence[str]) -> Choice:
    """The checks that will be run behind a change of these files."""
    return affordable(find_checks(desk.root, paths, known), desk.measured, desk.options.quick)


def verification(desk: Desk, choice: Choice) -> str:
    """What verifying comes to, in words."""
    if choice.checks:
        details = ["guessed"] if choice.guessed else []
        details += [f"without {_names(choice.left_out)}"] if choice.left_out else []
        told = f" ({', '.join(details)})" if details else ""
        return f"verified in about {max(1, round(choice.seconds))} s{told}"
    if not choice.left_out:
        return "nothing here could verify it"
    limit = limit_of(desk.options.quick)
    if all(desk.measured.is_late(check.key, limit) for check in choice.left_out):
        return f"verifying took more than {limit:g} s when it was tried last"
    seconds = min(seconds_of(check, desk.measured) for check in choice.left_out)
    guessed = any(desk.measured.seconds(check.key) is None for check in choice.left_out)
    return f"verifying would take {seconds:.0f} s{' (guessed)' if guessed else ''}"


def _names(checks: Sequence[Check]) -> str:
    """Short ones: the programs."""
    return ", ".join(dict.fromkeys(check.key.split(" ", 1)[0] for check in checks))


def _about_nothing(text: str) -> bool:
    """A general question, not one about this project."""
    return not re.search(r"\b(this|the|our|my) (project|repo|repository|code ?base|code|app|package)\b", text, re.I)


def _listed(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"
