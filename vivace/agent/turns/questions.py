"""Does a message ask for words, or for an edit? By its form; in doubt for words, which change nothing."""

from __future__ import annotations

import re

_GREETS = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|so|and|but|well|thanks|thank you|please|now|great|quick question)\b[\s,.!:;-]*)+",
    re.IGNORECASE,
)
_STRONG = (
    r"add|fix|change|rename|remove|delete|replace|refactor|implement|convert|move|extract|inline|document|rewrite"
    r"|update|correct|simplify|optimi[sz]e|translate|insert|drop|wrap|split|merge|speed up|clean|repair"
)
"""Verbs that are said of code only."""
_WEAK = "write|make|use|sort|format|handle|support|return|raise|turn|let|set|create|put|do|give"
"""Verbs that are said of an answer, too ("make it short")."""
_EDITS = re.compile(rf"\b(?:{_STRONG}|{_WEAK})\b", re.IGNORECASE)
_EDITS_FIRST = re.compile(rf"^(?:just\s+|then\s+)?(?:{_STRONG}|{_WEAK})\b", re.IGNORECASE)
_SAYS = (
    "explain|describe|summari[sz]e|tell me|tell us|show me|walk me through|help me understand|remind me|outline"
    "|elaborate|clarify|list|review|compare"
)
"""Requests for words."""
_SAYS_FIRST = re.compile(rf"^(?:{_SAYS})\b", re.IGNORECASE)
_INTO_CODE = re.compile(
    r"\b(?:in|into|as|with) (?:a|an|the|its|their|some) (?:\w+ )?"
    r"(?:comments?|docstrings?|readme|changelog|docs?|header)\b|\balphabetically\b",
    re.IGNORECASE,
)
"""Where an explanation is wanted in a file."""
_REQUESTS = re.compile(
    r"^(?:can|could|would|will|won't|can't) (?:you|we)\s+(?:please\s+|kindly\s+|also\s+|just\s+|maybe\s+|quickly\s+)*",
    re.IGNORECASE,
)
_MIND = re.compile(r"^(?:mind|be (?:able|willing) to)\s+(?:to\s+)?(?P<verb>.*)", re.IGNORECASE | re.DOTALL)
_SAYING = re.compile(r"^(?:explaining|describing|summari[sz]ing|telling|showing|listing|reviewing)\b", re.IGNORECASE)
_ASKS = re.compile(
    r"^(?:what|whats|why|how|where|which|who|whose|is|are|was|were|does|did|has|have|had|am|isn't|aren't|doesn't|didn't"
    r"|should(?! be\b)|would|could|can|may|might|must|any (?:idea|thoughts?|reason|chance))\b"
    r"|^do (?:you|we|i|they|these|those|any|all)\b"
    r"|^when (?:is|are|was|were|does|do|did|will|should|would|can|has|have)\b"
    r"|^i (?:wonder|want to know|would like to know|(?:do not|don't) (?:understand|get|see))\b|^i'd like to know\b"
    rf"|^find (?:out )?(?:where|which|what|why|how|who)\b|^(?:{_SAYS})\b",
    re.IGNORECASE,
)
_LEADS = re.compile(r"^(?:and |then |so |now |please |also |just |next,? )+", re.IGNORECASE)
_STRONG_FIRST = re.compile(rf"^(?:{_STRONG})\b", re.IGNORECASE)
_THEN = re.compile(rf",\s*(?:and |so )?(?:then|so|and please|please)\s+(?:please )?(?:{_STRONG})\b", re.IGNORECASE)


def is_question(text: str) -> bool:
    """It asks for words. A request put as a question ("can you add ...?") asks for an edit, and so does a question
    with an order behind it ("why is it slow? Fix it.")."""
    body = _GREETS.sub("", text.strip())
    sentences = _sentences(body)
    if not sentences:
        return False
    first = sentences[0]
    if any(_orders(sentence) for sentence in sentences[1:]) or (not first.endswith("?") and _THEN.search(first)):
        return False
    if (request := _REQUESTS.match(body)) is not None:
        return _wants_words(first[request.end() :])
    if _SAYS_FIRST.search(body) and _INTO_CODE.search(first):
        return False
    if _ASKS.search(body):
        return True
    return first.endswith("?") and not _EDITS_FIRST.search(first)


def _wants_words(asked: str) -> bool:
    """What follows "can you": a request for words, if it is none for an edit."""
    mind = _MIND.match(asked)
    if mind is not None:
        asked = mind["verb"]
        if asked.split(" ", 1)[0].endswith("ing"):
            return bool(_SAYING.search(asked))
    if _SAYS_FIRST.search(asked):
        return not _INTO_CODE.search(asked)
    return not _EDITS.search(asked)


def _orders(sentence: str) -> bool:
    """A sentence behind the first that orders an edit."""
    return not sentence.endswith("?") and bool(_STRONG_FIRST.search(_LEADS.sub("", sentence)))


def _sentences(text: str) -> list[str]:
    """Sentences end at a mark with space behind it, so that ``app.py`` is no end; and with the line."""
    return [part.strip() for part in re.split(r"(?<=[.!?;:])\s+|\n+", text) if part.strip()]
