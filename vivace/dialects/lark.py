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


def _checked(tool: FlatTool, grammar: str) -> str:
    from llguidance import LLMatcher

    if len(grammar) > LONGEST or _TOKEN.sub("", grammar).count(":") > MOST_RULES:
        error = f"{LONGEST} characters and {MOST_RULES} rules are the most."
    else:
        error = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(grammar))
    if error and not error.startswith("WARNING"):
        raise UsageError(
            f"The grammar of the tool {tool.public_name!r} cannot be used: {error.strip()}",
            hint="Lark and regexes without look-around, templates and %declare are understood.",
            code="invalid_grammar",
            param="tools",
        )
    return grammar


def _without_comment(found: re.Match[str]) -> str:
    return "" if found.lastgroup else found.group()
