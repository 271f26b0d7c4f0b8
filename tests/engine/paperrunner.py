"""A runner without a model: what it "computes" is written down in its KV memory and read back from there.

The next token is a hash of the whole context as it stands in the blocks, so any mistake in block tables, prefix reuse,
trimming or slicing changes the output. ``oracle`` gives the same answer from a plain list of tokens.
"""

from __future__ import annotations

import zlib
from array import array

import numpy as np

from vivace.engine.kv import BLOCK
from vivace.engine.runner import AbortFlag, Likeliest, Rows, Span

VOCAB = 50


def oracle(context: list[int]) -> int:
    """The token after ``context``. Mostly copies what followed the same three tokens before, so that drafts pay."""
    tail = context[-3:]
    for at in range(len(context) - 4, -1, -1):
        if context[at : at + 3] == tail and zlib.crc32(array("i", context[-5:]).tobytes()) % 8:
            return context[at + 3]
    return zlib.crc32(array("i", context).tobytes()) % VOCAB


def continuation(prompt: list[int], length: int) -> list[int]:
    context = list(prompt)
    for _ in range(length):
        context.append(oracle(context))
    return context[len(prompt) :]


class PaperRunner:
    """See the module. ``widths`` records the rows of every pass."""

    detail = "paper"

    def __init__(self, kv_blocks: int) -> None:
        self.kv_blocks = kv_blocks
        self.memory = np.full((kv_blocks, BLOCK), -1, dtype=np.int32)
        self.widths: list[int] = []

    def forward(self, spans: list[Span], abort: AbortFlag) -> list[Rows] | None:
        self.widths.append(sum(len(span.tokens) for span in spans))
        if abort:
            return None
        results: list[Rows] = []
        for span in spans:
            for offset, token in enumerate(span.tokens):
                position = span.start + offset
                self.memory[span.blocks[position // BLOCK], position % BLOCK] = token
            rows = []
            for row in range(len(span.tokens) - span.outputs, len(span.tokens)):
                length = span.start + row + 1
                table = span.blocks[: -(-length // BLOCK)]
                context = self.memory[table].reshape(-1)[:length].tolist()
                assert -1 not in context
                rows.append(oracle(context))
            logits = np.zeros((len(rows), VOCAB), dtype=np.float32)
            logits[np.arange(len(rows)), rows] = 5.0
            if span.logits:
                results.append(logits)
            elif span.temperature:
                weights = np.exp((logits - 5.0) / span.temperature).sum(axis=1)
                results.append(
                    Likeliest(np.array(rows, np.int32), 1 / weights, span.temperature, lambda i, a=logits: a[i])
                )
            else:
                results.append(np.array(rows, dtype=np.int32))
        return results

    def copy_block(self, source: int, target: int) -> None:
        self.memory[target] = self.memory[source]
