"""Which family a model belongs to: how it writes calls and reasoning. Told by its chat template, or named."""

from __future__ import annotations

from msgspec import Struct

from vivace.dialects.harmony import HarmonyParser
from vivace.dialects.output import OutputParser, Sink
from vivace.dialects.syntax import CallSyntax
from vivace.dialects.syntaxes import DeepSeek, Hermes, Llama, Mistral
from vivace.dialects.tools import ToolTable
from vivace.dialects.xmlcalls import QwenXml

Parser = OutputParser | HarmonyParser


class Family(Struct, frozen=True):
    """``signs`` are texts of a chat template, any of which tells the family."""

    name: str
    syntax: CallSyntax
    signs: tuple[str, ...]
    thinks: bool = False
    """It may begin an answer with reasoning."""
    channels: bool = False
    """It writes to channels, each message with a head of its own."""

    def parser(self, table: ToolTable, sink: Sink, *, opened: bool = False, printed: bool = True) -> Parser | None:
        """A parser for one answer; see :class:`OutputParser`. None where any text is just text."""
        if self.channels:
            return HarmonyParser(table, sink)
        if not (table.callable or self.thinks or opened):
            return None
        return OutputParser(self.syntax, table, sink, thinks=self.thinks, opened=opened, printed=printed)


FAMILIES = (
    # The order counts: later signs also stand in templates of earlier families.
    Family("harmony", Hermes(), ("<|channel|>",), channels=True),
    Family("qwen-xml", QwenXml(), ("<function=",)),
    Family("hermes", Hermes(), ("<tool_call>",)),
    Family("mistral", Mistral(), ("[TOOL_CALLS]",)),
    Family("deepseek", DeepSeek(), ("<｜tool▁calls▁begin｜>",)),
    Family("llama", Llama(), ("<|python_tag|>", "<|start_header_id|>")),
)


def family_of(template: str | None, name: str = "") -> Family:
    """The family called ``name``, else the one that the template shows, else Hermes, which most models understand."""
    by_name = {family.name: family for family in FAMILIES}
    found = by_name.get(name)
    if found is None and template:
        found = next((family for family in FAMILIES if any(sign in template for sign in family.signs)), None)
    found = found or by_name["hermes"]
    thinks = bool(template) and "<think>" in str(template)
    return Family(found.name, found.syntax, found.signs, thinks or found.thinks, found.channels)
