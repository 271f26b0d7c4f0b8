"""Grammars of custom tools, as OpenAI's API takes them, in llguidance's dialect of Lark.

llguidance reads almost all of what Lark's own documentation describes, imports from ``common`` and aliases included.
What it lacks is rewritten here (priorities of terminals, which only order a lexer's guesses) or refused in words
(look-around in regexes, templates).
"""

from __future__ import annotations

import re

from vivace.dialects.tools import FlatTool
from vivace.errors import UsageError

LONGEST = 64 * 1024
"""Characters of one tool's grammar."""
LONGEST_ANSWER = 240 * 1024
"""Characters of the grammar of a text format; the engine takes a little more."""
MOST_RULES = 500
"""llguidance follows rules on the stack, which a chain of some thousands overruns."""

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<comment>//[^\n]*)|/(?:[^/\\\n]|\\.)+/|(?P<hash>(?m:^[ \t]*#[^\n]*))')
_PRIORITY = re.compile(r"(?m)^(\s*[?!]*[A-Za-z_]\w*)\.-?\d+(\s*:)")


def lark_of(tool: FlatTool) -> str:
    """A custom tool's Lark grammar, checked. Raises :class:`UsageError` for one that cannot be used."""
    return _checked(tool, _PRIORITY.sub(r"\1\2", _TOKEN.sub(_without_comment, tool.format.definition)))


def regex_of(tool: FlatTool) -> str:
    """A custom tool's regex, as it stands between slashes, checked. Raises :class:`UsageError`."""
    from llguidance import regex_to_lark

    regex = regex_to_lark(tool.format.definition, use_ascii="")
    _checked(tool, f"start: /{regex}/")
    return regex


def answer_lark(grammar: str) -> str:
    """The Lark grammar of a whole answer, checked; it may list what may be copied, and so is longer than a tool's.

    Raises :class:`UsageError`.
    """
    text = _PRIORITY.sub(r"\1\2", _TOKEN.sub(_without_comment, grammar))
    if error := _fault(text, LONGEST_ANSWER):
        raise _unusable(f"The grammar of the text format cannot be used: {error}", "text.format")
    return text


def _checked(tool: FlatTool, grammar: str) -> str:
    if error := _fault(grammar, LONGEST):
        raise _unusable(f"The grammar of the tool {tool.public_name!r} cannot be used: {error}", "tools")
    return grammar


def _fault(grammar: str, longest: int) -> str:
    from llguidance import LLMatcher

    if len(grammar) > longest or _TOKEN.sub("", grammar).count(":") > MOST_RULES:
        return f"{longest} characters and {MOST_RULES} rules are the most."
    error = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(grammar))
    return "" if error.startswith("WARNING") else error.strip()


def _unusable(message: str, param: str) -> UsageError:
    hint = "Lark and regexes without look-around, templates and %declare are understood."
    return UsageError(message, hint=hint, code="invalid_grammar", param=param)


def _without_comment(found: re.Match[str]) -> str:
    return "" if found.lastgroup else found.group()
