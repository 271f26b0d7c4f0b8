"""A question that is answered by hunks: the file, the instruction, and then the form of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from vivace.agent.definitions import Definition, definitions
from vivace.agent.edit_dialects import apply_patch, line_anchors, search_replace
from vivace.agent.edit_dialects.hunks import Applied, Preview, apply_hunks, place
from vivace.agent.edit_dialects.reading import HunkParser, Reader, read
from vivace.agent.languages import language_of
from vivace.agent.reply import fence_for
from vivace.agent.tools.blocks import nearest
from vivace.agent.workspace import SourceFile
from vivace.edit_dialect import EditDialect
from vivace.errors import UsageError
from vivace.protocol.contracts import ModelCard
from vivace.protocol.options import GrammarFormat, TextOptions
from vivace.protocol.requests import Prediction, ResponseRequest

HunkDialect = Literal["search-replace", "line-anchors", "apply-patch"]


class Form(Protocol):
    """What a dialect's module gives."""

    SYSTEM: str
    PARTS: bool
    """A single line may be found inside a longer one."""

    def shown(self, source: SourceFile) -> tuple[str, str]: ...
    def rules(self, source: SourceFile) -> str: ...
    def grammar(self, source: SourceFile) -> str: ...
    def reader(self, source: SourceFile) -> Reader: ...


FORMS: dict[HunkDialect, Form] = {
    "search-replace": search_replace,
    "line-anchors": line_anchors,
    "apply-patch": apply_patch,
}


@dataclass(frozen=True)
class HunkAsk:
    """One question to the model. ``told`` is what was wrong with an earlier answer to it."""

    source: SourceFile
    instruction: str
    dialect: HunkDialect
    told: str = ""

    region: Definition | None = None
    """None: the whole file is shown."""
    rules: str = ""
    """What the project wants of every edit."""

    @property
    def form(self) -> Form:
        return FORMS[self.dialect]

    @property
    def shown(self) -> str:
        """The code that may be changed, ending in a newline."""
        return "".join(line + "\n" for line in self.source.lines)

    @property
    def block(self) -> str:
        """The code in its fence, as it is shown."""
        _, text = self.form.shown(self.source)
        text = text if text.endswith("\n") else text + "\n"
        fence = fence_for(text)
        return f"{fence}{language_of(self.source.name, self.source.text)}\n{text}{fence}"

    @property
    def prompt(self) -> str:
        heading, _ = self.form.shown(self.source)
        parts = [f"{heading}\n{self.block}", self.instruction.strip(), self.form.rules(self.source)]
        if self.told:
            parts.append(f"An earlier answer could not be used: {self.told}\n\nAnswer anew, with every change.")
        return "\n\n".join(parts)

    def request(self, card: ModelCard) -> ResponseRequest:
        """The request without its sampling settings.

        Where the backend keeps to grammars, it gets one, and the file as the draft of what is copied. An upstream gets
        neither: it bills the predicted tokens that do not come, which here are most.
        """
        grammar = self.form.grammar(self.source) if card.grammars else ""
        return ResponseRequest(
            model=card.name,
            input=self.prompt,
            instructions=f"{self.form.SYSTEM}\n\n{self.rules}".rstrip(),
            text=TextOptions(format=GrammarFormat(grammar)) if grammar else None,
            prediction=Prediction(self.shown) if card.grammars and card.takes_reference else None,
        )

    def parser(self) -> HunkParser:
        return HunkParser(self.form.reader(self.source), Preview(self.source, parts=self.form.PARTS))

    def read(self, answer: str) -> Applied:
        """The text of the whole file that an answer stands for. Raises :class:`UsageError`, as :func:`apply_hunks`."""
        hunks = read(self.form.reader(self.source), answer, self.form.rules(self.source))
        if not hunks:
            raise UsageError("the model returned no change", code="no_change")
        return apply_hunks(self.source, hunks, parts=self.form.PARTS)

    def meant(self, answer: str) -> Definition | None:
        """The one definition in which all hunks of an answer stand, or nearly do; the smallest one that holds them."""
        source, reader = self.source, self.form.reader(self.source)
        for line in answer.split("\n"):
            reader.line(line)
        spans = []
        for hunk in reader.hunks:
            try:
                found = place(source.name, source.lines, hunk, parts=self.form.PARTS)
                spans.append((found.first, found.last))
            except UsageError:
                if hunk.old and (near := nearest(source.lines, hunk.old)) is not None:
                    spans.append((near, near + 1))
        known = definitions(language_of(source.name, source.text), source.text) or []
        holding = [d for d in known if spans and all(d.start <= first and last <= d.end for first, last in spans)]
        return min(holding, key=lambda d: d.end - d.start, default=None)


def hunk_dialect(source: SourceFile, dialect: EditDialect | Literal[""]) -> HunkDialect | None:
    """The dialect of a question about this file; None where the whole file is to be written.

    An empty file has nothing to look for.
    """
    return dialect if dialect and dialect != "whole-file" and source.text.strip() else None
