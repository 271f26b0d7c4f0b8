"""A bigger model chooses between candidates that it knows by number only, in an order of chance."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from vivace.agent.turns.answer import Answer, listen
from vivace.agent.turns.prompts import JUDGE
from vivace.protocol.contracts import Service
from vivace.protocol.requests import ResponseRequest

MOST_SHOWN = 6000
"""Characters of a diff that the judge sees."""


async def best_of(service: Service, model: str, instruction: str, diffs: Sequence[str], seed: int) -> int | None:
    """The index of the diff that the judge takes; None when its answer names none of them."""
    order = list(range(len(diffs)))
    random.Random(seed).shuffle(order)
    shown = "\n\n".join(f"Change {n}:\n```diff\n{diffs[k][:MOST_SHOWN]}```" for n, k in enumerate(order, 1))
    request = ResponseRequest(
        model=model,
        input=f"Instruction: {instruction.strip()}\n\n{shown}\n\nWhich change is best? Answer 1 to {len(order)}.",
        instructions=JUDGE,
        temperature=0.0,
        max_output_tokens=400,
        store=False,
    )
    answer = Answer()
    await listen(service, request, answer, lambda text: None, lambda text: None)
    numbers = [int(number) for number in re.findall(r"\b\d+\b", answer.text)]
    chosen = next((number for number in reversed(numbers) if 1 <= number <= len(order)), None)
    return order[chosen - 1] if chosen is not None else None
