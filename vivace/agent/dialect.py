"""What a small model is asked and how its answer is read: a whole file, function or class, in one code fence.

Other models answer in hunks: :mod:`vivace.agent.edit_dialects`.

Prompts are short, since every token of them is prefilled. The file comes before the instruction, so that the next
instruction on the same file finds its beginning in the prefix cache; and the other way round does harm (see below).

There are two manners of asking, and each is right for a model that the other is wrong for. The careful one ends with
the form of the answer: coder-1.5b then passes 27 of 57 tasks, and 19 without. But coder-0.5b follows what it read last
and hands 55 % of the files back unchanged; with the instruction as the last word, the free manner, it is a quarter, and
it passes 31 % in place of 18 %. (With the instruction before the file nearly three quarters come back unchanged.) An
unchanged answer is cheap, all of it being draft, so the careful question comes first and its failure tells which kind
of model it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vivace.agent.definitions import Definition
from vivace.agent.languages import language_of
from vivace.agent.regions import cut_out, put_back, surroundings
from vivace.agent.renames import renamed
from vivace.agent.reply import ReplyParser, fence_for
from vivace.agent.workspace import SourceFile
from vivace.protocol.requests import Prediction, ResponseRequest

Manner = Literal["careful", "free"]

SYSTEM: dict[Manner, str] = {
    "careful": "You are an expert programmer. You apply an instruction to a file and reply with the complete updated "
    "file in one code block.",
    "free": "You are an expert programmer. Change only what is asked for.",
}


@dataclass(frozen=True)
class Ask:
    """One question to the model. ``region`` is ``None`` for the whole file."""

    source: SourceFile
    instruction: str
    region: Definition | None = None
    manner: Manner = "careful"
    rules: str = ""
    """What the project wants of every edit."""

    @property
    def kind(self) -> Literal["whole", "region"]:
        return "region" if self.region else "whole"

    @property
    def shown(self) -> str:
        """The code that the model rewrites, ending in a newline."""
        if self.region:
            return cut_out(self.source, self.region)
        text = self.source.text
        return text if text.endswith("\n") or not text else text + "\n"

    @property
    def fence(self) -> str:
        return fence_for(self.shown)

    @property
    def block(self) -> str:
        """The code in its fence: how it is shown, and what the answer will mostly be."""
        return f"{self.fence}{language_of(self.source.name, self.source.text)}\n{self.shown}{self.fence}"

    @property
    def prompt(self) -> str:
        what = self.source.name
        if self.region:
            lean = surroundings(self.source, self.region)
            around = f" (elsewhere in the file: {', '.join(f'`{line}`' for line in lean)})" if lean else ""
            what = f"`{self.region.qualname}` of {what}{around}"
        lines = [f"{what}:", self.block, "", self.instruction.strip()]
        opening = self.block.split("\n", 1)[0]
        closing = f", closed by {self.fence}" if len(self.fence) > 3 else ""
        if self.manner == "careful":
            end = f"`{self.region.name}`" if self.region else "file"
            lines += ["", f"Reply with the whole updated {end} in one {opening} block{closing}."]
        elif closing:  # the usual fence goes without saying
            lines += ["", f"Use one {opening} block{closing}."]
        return "\n".join(lines)

    def request(self, model: str, *, takes_reference: bool = True) -> ResponseRequest:
        """The request without its sampling settings. The answer to a rename is drafted with the new names."""
        draft = renamed(self.source.name, self.block, self.instruction) if takes_reference and self.shown else ""
        return ResponseRequest(
            model=model,
            input=self.prompt,
            instructions=f"{SYSTEM[self.manner]}\n\n{self.rules}".rstrip(),
            prediction=Prediction(draft) if draft else None,
        )

    def parser(self) -> ReplyParser:
        return ReplyParser(self.fence, self.shown)

    def whole(self, code: str) -> str:
        """The text of the whole file that the answer's code stands for."""
        if self.region:
            return put_back(self.source, self.region, code, unused="import" in self.instruction.lower())
        return _settle(self.source.text, code)


def _settle(old: str, new: str) -> str:
    """Blank lines at both ends stay as they were: models drop or add them without being asked."""
    bare = new.strip("\n")
    if not bare:
        return "" if old.strip("\n") else old
    head = old[: len(old) - len(old.lstrip("\n"))]
    return head + bare + (old[len(old.rstrip("\n")) :] or "\n")
