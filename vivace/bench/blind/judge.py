"""A model as the judge. It is asked twice, with the two results in either order, so that a liking for a place counts
for nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from vivace.bench.blind.pairs import Pair
from vivace.bench.blind.verdicts import Won
from vivace.protocol.contracts import Principal, Service
from vivace.protocol.events import Completed, Failed, Incomplete, TextDelta
from vivace.protocol.options import JsonSchemaFormat, TextOptions
from vivace.protocol.requests import ResponseRequest

INSTRUCTIONS = (
    "You compare two changes of code that were made for the same instruction. The better one does what the "
    "instruction asks, is correct, and changes nothing else. Where both are right, the smaller and clearer one is "
    'better. Reply with JSON: {"better": "1"}, {"better": "2"}, or {"better": "tie"} where neither is better.'
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"better": {"type": "string", "enum": ["1", "2", "tie"]}},
    "required": ["better"],
    "additionalProperties": False,
}


class Said(Struct, frozen=True):
    """``won`` is ``skip`` where the model could not be asked or understood."""

    won: Won
    note: str = ""


class _Answer(Struct, frozen=True):
    better: str


class ModelJudge:
    """Sees the instruction and two diffs: no names, no tests, no figures."""

    def __init__(self, service: Service, model: str) -> None:
        self._service = service
        self.model = model

    async def decide(self, pair: Pair) -> Said:
        there, back = await self._ask(pair), await self._ask(pair.swapped())
        if there.won == "skip" or back.won == "skip":
            return Said("skip", there.note or back.note)
        turned: dict[Won, Won] = {"first": "second", "second": "first"}
        if there.won != turned.get(back.won, back.won):
            return Said("tie", "the order decided")
        return there

    async def _ask(self, pair: Pair) -> Said:
        request = ResponseRequest(
            model=self.model,
            instructions=INSTRUCTIONS,
            input=question(pair),
            text=TextOptions(format=JsonSchemaFormat(name="verdict", schema=SCHEMA, strict=True)),
            temperature=0.0,
            max_output_tokens=64,
            store=False,
        )
        text, failure = "", "the answer did not end"
        generation = self._service.start(request, Principal())
        try:
            async for event in generation:
                if isinstance(event, TextDelta):
                    text += event.delta
                elif isinstance(event, Completed):
                    failure = ""
                elif isinstance(event, Failed | Incomplete):
                    error = event.response.error
                    failure = error.message if error is not None else "the answer was cut"
        finally:
            await generation.stop("cancelled")
        return read(text) if not failure else Said("skip", failure)


def question(pair: Pair) -> str:
    """What the judge is asked."""
    parts = [f"Instruction:\n{pair.instruction.strip()}"]
    for number, side in enumerate((pair.first, pair.second), 1):
        parts.append(f"Change {number}:\n```diff\n{side.diff or '(nothing was changed)'}\n```")
    return "\n\n".join(parts)


def read(text: str) -> Said:
    """The verdict in an answer; ``skip`` for what is none."""
    try:
        better = msgspec.json.decode(text[text.find("{") : text.rfind("}") + 1], type=_Answer).better
    except msgspec.DecodeError:
        return Said("skip", f"no verdict in the answer: {text[:80]!r}")
    known: dict[str, Won] = {"1": "first", "2": "second", "tie": "tie"}
    return Said(known[better]) if better in known else Said("skip", f"no verdict: {better!r}")
