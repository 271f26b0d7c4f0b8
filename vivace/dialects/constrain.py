"""What a request forces an answer to be, as one grammar for the engine.

Free text is left alone as long as it is free: with tools on offer it ends where a call begins, and the call has to be
well-formed, with an offered name and arguments that its schema allows. Grammars are in llguidance's Lark dialect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from vivace.dialects.families import Family
from vivace.dialects.lark import answer_lark, lark_of, regex_of
from vivace.dialects.syntax import joined
from vivace.dialects.tools import FlatTool, ToolTable, too_deep
from vivace.protocol.options import GrammarFormat, JsonObjectFormat, JsonSchemaFormat, TextFormat

_ANY_OBJECT: dict[str, Any] = {"type": "object"}
LONGEST_SCHEMA = 128 * 1024
MOST_REFERENCES = 200
"""llguidance follows references on the stack, which a chain of some thousands overruns."""
_SPACING = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
"""JSON as models were trained to write it; with free white space small models write line breaks without end."""


class Constraint(Struct, frozen=True):
    """``text`` is the grammar, empty for none. ``notes`` say what of the request it does not enforce."""

    text: str = ""
    notes: tuple[str, ...] = ()


def constrain(
    family: Family,
    token_id: Callable[[str], int | None],
    tools: ToolTable,
    form: TextFormat | None = None,
    thinking: bool = False,
) -> Constraint:
    """The grammar of a request.

    ``token_id`` gives the model's id of a mark that is one token. ``thinking``: the prompt has opened the reasoning.
    Raises :class:`vivace.errors.UsageError` for a custom tool's grammar that cannot be used.
    """
    rules = GrammarRules(token_id, (*family.syntax.tokens, "<think>", "</think>"))
    answer = _answer(family, rules, tools, form)
    if not answer:
        return Constraint(notes=tuple(rules.notes))
    if family.thinks or thinking:
        rest = joined(rules.until("</think>"), rules.pattern(r"[ \n]{0,4}"))
        answer = f"{rest} {answer}" if thinking else f"({rules.mark('<think>')} {rest})? {answer}"
    return Constraint("\n".join([f"start: {answer}", *rules.lines, ""]), tuple(rules.notes))


def _answer(family: Family, rules: GrammarRules, tools: ToolTable, form: TextFormat | None) -> str:
    """The expression for everything but reasoning; empty where nothing is forced."""
    whole = ""
    if isinstance(form, JsonSchemaFormat):
        whole = rules.rule(rules.json(form.schema))
    elif isinstance(form, JsonObjectFormat):
        whole = rules.rule(rules.json(_ANY_OBJECT))
    elif isinstance(form, GrammarFormat):
        whole = rules.rule(f"%lark {{\n{answer_lark(form.grammar)}\n}}")
    if not tools.tools:
        return whole
    syntax = family.syntax
    if family.channels:
        rules.notes.append("Calls on harmony's channels are not constrained.")
        return whole
    opening = syntax.opening
    after = rules.rule(syntax.rules(tools.callable, rules, tools.parallel)) if tools.callable else ""
    calls = joined(rules.mark(opening), after) if after else ""
    if tools.mode == "required":
        return calls
    if whole:
        return f"({whole} | {calls})" if calls else whole
    if not opening:
        rules.notes.append("Calls have no mark in this family, so that they are free text until a call is required.")
        return ""
    text = rules.without(opening)
    return f"({text} | {joined(rules.until(opening), after)})" if after else text


class GrammarRules:
    """See :class:`vivace.dialects.syntax.Rules`. Equal expressions become one rule."""

    def __init__(self, token_id: Callable[[str], int | None], tokens: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self._token_id = token_id
        self._marks = re.compile("(" + "|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) + ")")
        self._known: dict[str, str] = {}

    def literal(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def mark(self, text: str) -> str:
        parts = []
        for part in filter(None, self._marks.split(text)):
            id = self._token_id(part) if self._marks.fullmatch(part) else None
            parts.append(self.literal(part) if id is None else f"<[{id}]>")
        return " ".join(parts)

    def json(self, schema: object) -> str:
        text, note = usable_schema("null" if too_deep(schema) else json.dumps(schema, ensure_ascii=False))
        if note and note not in self.notes:
            self.notes.append(note)
        return self.rule(f"%json {text}")

    def until(self, end: str) -> str:
        return self._until("(?s:.*)", end)

    def free(self, tool: FlatTool, end: str) -> str:
        match tool.format.syntax:
            case "text":
                return self.until(end)
            case "regex":
                return self._until(regex_of(tool), end)
            case "lark":
                return joined(self.rule(f"%lark {{\n{lark_of(tool)}\n}}"), self.mark(end))

    def without(self, mark: str) -> str:
        """Any text, also none, that does not contain the mark."""
        return self._name(f"/(?s:.*)/ & {_no(mark)}", "T")

    def pattern(self, regex: str) -> str:
        """What a regex matches."""
        return self._name(f"/{regex}/", "T")

    def rule(self, expression: str) -> str:
        return self._name(expression, "r")

    def _until(self, regex: str, end: str) -> str:
        """What a regex matches, and the first ``end`` after it.

        A lexeme ends where a token begins that is no text. An end that is all text has to be part of the lexeme, which
        is then the shortest: no lexer would stop before an end that free text could go on with.
        """
        *before, last = filter(None, self._marks.split(end))
        id = self._token_id(last) if self._marks.fullmatch(last) else None
        if id is None:
            return self._name(f"/({regex}){_quoted(end)}/", "r", "[lazy]")
        return self._name(f"/({regex}){_quoted(''.join(before))}/ & {_no(end)}", "T") + f" <[{id}]>"

    def _name(self, expression: str, prefix: str, attributes: str = "") -> str:
        name = self._known.get(expression)
        if name is None:
            name = self._known[expression] = f"{prefix}{len(self._known)}"
            self.lines.append(f"{name}{attributes}: {expression}")
        return name


@lru_cache(maxsize=512)
def usable_schema(schema: str) -> tuple[str, str]:
    """A JSON schema that llguidance takes, and what was given up for that; "" where nothing was.

    Keywords that llguidance does not implement are left out of account; a schema that it does not understand at all
    becomes that of any object.
    """
    from llguidance import LLMatcher

    if len(schema) > LONGEST_SCHEMA or schema.count("Ref") + schema.count("$ref") > MOST_REFERENCES:
        return _anything(f"It is longer than {LONGEST_SCHEMA} characters or has over {MOST_REFERENCES} references.")
    try:
        value = json.loads(schema)
    except ValueError:
        value = None
    if not isinstance(value, dict | bool):
        return _anything("It is no schema, or nested too deep.")
    value = ({} if value else {"not": {}}) if isinstance(value, bool) else value
    guidance = value.get("x-guidance")
    spaced = {**value, "x-guidance": {**_SPACING, **(guidance if isinstance(guidance, dict) else {})}}
    error = ""
    for lenient in (False, True):
        options = {**spaced["x-guidance"], **({"lenient": True} if lenient else {})}
        text = json.dumps({**spaced, "x-guidance": options}, ensure_ascii=False)
        problem = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(f"start: %json {text}"))
        if not problem or problem.startswith("WARNING"):
            return text, f"Not enforced of a schema: {error}" if lenient else ""
        error = error or _first_line(problem)
    return _anything(error)


def _anything(error: str) -> tuple[str, str]:
    text = json.dumps({**_ANY_OBJECT, "x-guidance": _SPACING})
    return text, f"A schema cannot be enforced, any object passes: {error}"


def _first_line(problem: str) -> str:
    return problem.strip().splitlines()[0].partition("schema: ")[2] or problem.strip().splitlines()[0]


def _no(mark: str) -> str:
    """Anything that does not contain the mark."""
    return f"~/(?s:.*){_quoted(mark)}(?s:.*)/"


def _quoted(text: str) -> str:
    """A text as a regex between slashes."""
    return "".join({"\n": r"\n", "/": r"\/"}.get(char) or re.escape(char) for char in text)
