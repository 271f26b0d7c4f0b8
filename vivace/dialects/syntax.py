"""How families of models write tool calls: one description serves reading, writing and constraining them.

The calls of one answer are ``begin``, then ``before`` body ``after`` for each with ``between`` in between, then
``finish``. The body is the family's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from vivace.dialects.calls import Call
from vivace.dialects.reader import Parse, Reader
from vivace.dialects.tools import FlatTool, ToolTable

Part = tuple[str, bool]
"""Text, and whether control tokens in it mean what they say (see :meth:`Tokenizer.encode_parts`)."""


class Written(Protocol):
    """A call of the history, flat: ``text`` is the JSON of the arguments, or with ``raw`` the text of a custom tool."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def raw(self) -> bool: ...


class Rules(Protocol):
    """Rules of a grammar being made, in llguidance's Lark dialect. Each method gives an expression for a rule."""

    def literal(self, text: str) -> str:
        """Exactly this text."""
        ...

    def mark(self, text: str) -> str:
        """Marks of the family and text between them: tokens where the model has them; "" for ""."""
        ...

    def json(self, schema: object) -> str:
        """JSON that the schema describes."""
        ...

    def until(self, end: str) -> str:
        """Any text, also none, up to and with the first ``end``."""
        ...

    def free(self, tool: FlatTool, end: str) -> str:
        """The free text of a custom tool, and ``end`` after it."""
        ...

    def rule(self, expression: str) -> str:
        """A name for an expression."""
        ...


class CallSyntax:
    """What the families share; each overrides what it does differently."""

    begin: ClassVar[str] = ""
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""
    between: ClassVar[str] = ""
    finish: ClassVar[str] = ""
    marks: ClassVar[tuple[str, ...]] = ()
    """What a call begins with when it is read; with the line break before it where the family puts one."""

    opening: ClassVar[str] = ""
    """The mark that free text ends at; what ``begin``, or else ``before``, begins with. Empty where there is none."""

    tokens: ClassVar[tuple[str, ...]] = ()
    """Control tokens that must reach the parser, where the model has them."""

    separator: ClassVar[str] = "\n"
    """Between the text of an answer and its first call."""

    def calls(self, mark: str, reader: Reader, call: Call) -> Parse[bool]:
        """Read what follows ``mark``, which was read. False when it is no call; nothing was told then."""
        raise NotImplementedError

    def body(self, call: Written) -> str:
        """The text of one call between its marks."""
        raise NotImplementedError

    def body_rule(self, tool: FlatTool, rules: Rules) -> str:
        """An expression for what :meth:`body` may give for this tool, and ``after``."""
        raise NotImplementedError

    def example(self) -> str:
        """How a call looks, for a model whose chat template does not say so itself."""
        raise NotImplementedError

    def write(self, calls: Sequence[Written]) -> list[Part]:
        """The calls of one answer, as the model itself would have written them."""
        parts: list[Part] = [(self.begin, True)]
        for number, call in enumerate(calls):
            parts += [(self.between, True)] if number else []
            parts += [(self.before, True), (self.body(call), False), (self.after, True)]
        return [part for part in [*parts, (self.finish, True)] if part[0]]

    def rules(self, tools: Sequence[FlatTool], rules: Rules, parallel: bool) -> str:
        """An expression for what follows ``opening``: the rest of one call or, with ``parallel``, of several."""
        body = rules.rule(" | ".join(self.body_rule(tool, rules) for tool in tools))
        if self.begin:
            head = joined(rules.mark(self.begin.removeprefix(self.opening)), rules.mark(self.before))
        else:
            head = rules.mark(self.before.removeprefix(self.opening))
        more = joined(rules.mark(self.between), rules.mark(self.before), body)
        return joined(head, body, f"({more})*" if parallel else "", rules.mark(self.finish))

    def free_hint(self, tool: FlatTool) -> str:
        """How a custom tool is called, said in its description; empty where it is called as a function."""
        return ""

    def system(self, table: ToolTable) -> str:
        """The block of a system message that offers the tools."""
        from vivace.dialects.template import tool_json

        lines = "\n".join(tool_json(tool, self) for tool in table.tools)
        return (
            f"You can call the tools below. Each line describes one as JSON.\n<tools>\n{lines}\n</tools>\n"
            f"Write a call exactly like this, with the tool's name and its arguments as JSON:\n{self.example()}"
        )


def joined(*expressions: str) -> str:
    """One after the other; empty ones are nothing."""
    return " ".join(expression for expression in expressions if expression)
