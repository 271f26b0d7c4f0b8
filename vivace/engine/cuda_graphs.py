"""Passes of fixed shapes, captured once and replayed: a narrow pass on a GPU is otherwise spent on launching kernels.

A shape is spans x rows of each x positions of context, each rounded up a ladder. Its step reads everything that changes
from buffers of its own: token ids, positions, where to store keys and values, and block tables. Rows that fill the
shape up store to a block that no sequence has; positions after a row's own are masked, so a row means the same in every
shape. A shape is captured when it first occurs, which takes a few passes' time.

Keys and values are gathered into one place for each layer, up to the rounded context: about three times the traffic of
reading them where they lie, and still little beside the weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vivace.engine.kv import BLOCK
from vivace.engine.runner import Rows, Span

if TYPE_CHECKING:
    from vivace.engine.torch_runner import TorchRunner

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SPANS = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (1024, 4096, 16384, 65536, 262144)
"""Positions, multiples of :data:`BLOCK`. Wide steps: few graphs, and attention is the smaller part of a pass."""

MOST_ROWS = 256
"""Rows of all spans after rounding; a wider pass keeps the GPU busy without a graph."""

Step = Callable[[], tuple[Tensor, Tensor]]
Capture = Callable[[Step], tuple[Callable[[], object], tuple[Tensor, Tensor]]]
"""Makes of a step a function that repeats it, and the tensors that hold its results after each repetition."""


class Shape(NamedTuple):
    spans: int
    rows: int
    context: int


def cuda_capture() -> Capture:
    """Capture into CUDA graphs that share one memory pool: results hold until the next replay of any of them."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Step) -> tuple[Callable[[], object], tuple[Tensor, Tensor]]:
        # Libraries choose kernels and take workspaces at their first calls, which must not happen while capturing.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            results = step()
        return graph.replay, results

    return capture


class GraphedSteps:
    """The captured steps of one runner, by shape. ``scratch`` is the block for rows that fill a shape up."""

    def __init__(self, runner: TorchRunner, scratch: int, capture: Capture) -> None:
        self.runner = runner
        self.scratch = scratch
        self.capture = capture
        self.steps: dict[Shape, _Captured] = {}

    def shape_of(self, spans: list[Span]) -> Shape | None:
        """The smallest shape that holds ``spans``; None where no captured shape should."""
        wanted = (len(spans), max(len(s.tokens) for s in spans), max(s.start + len(s.tokens) for s in spans))
        ladders = (SPANS, ROWS, CONTEXTS)
        if any(size > ladder[-1] for size, ladder in zip(wanted, ladders, strict=True)):
            return None
        shape = Shape(*(ladder[bisect_left(ladder, size)] for size, ladder in zip(wanted, ladders, strict=True)))
        return shape if shape.spans * shape.rows <= MOST_ROWS else None

    def run(self, spans: list[Span], shape: Shape) -> list[Rows]:
        """As :meth:`vivace.engine.runner.Runner.forward`."""
        step = self.steps.get(shape)
        if step is None:
            inputs = StaticInputs(shape, self.scratch, self.runner.device)
            inputs.fill(spans)
            replay, results = self.capture(lambda: static_step(self.runner, inputs))
            step = self.steps[shape] = _Captured(inputs, replay, results)
        step.inputs.fill(spans)
        step.replay()
        best, logits = step.results
        found: list[Rows] = []
        for number, span in enumerate(spans):
            end = number * shape.rows + len(span.tokens)
            rows = slice(end - span.outputs, end)
            found.append(
                logits[rows].float().cpu().numpy() if span.logits or span.temperature else best[rows].cpu().numpy()
            )
        return found


class _Captured(NamedTuple):
    inputs: StaticInputs
    replay: Callable[[], object]
    results: tuple[Tensor, Tensor]


class StaticInputs:
    """The buffers that a step reads: views of one tensor, so that filling them is one copy to the device."""

    def __init__(self, shape: Shape, scratch: int, device: torch.device) -> None:
        self.shape = shape
        self.scratch = scratch
        rows, blocks = shape.spans * shape.rows, shape.context // BLOCK
        self.packed = torch.zeros(3 * rows + shape.spans * blocks, dtype=torch.int64, device=device)
        self.tokens, self.places, self.slots, tables = torch.split(
            self.packed, [rows, rows, rows, shape.spans * blocks]
        )
        self.tables = tables.view(shape.spans, blocks)

    def fill(self, spans: list[Span]) -> None:
        """Put ``spans`` in, which the shape holds."""
        shape, scratch = self.shape, self.scratch
        tokens: list[int] = []
        places: list[int] = []
        slots: list[int] = []
        tables: list[int] = []
        for span in spans:
            here = range(span.start, span.start + len(span.tokens))
            spare = shape.rows - len(here)
            tokens += [*span.tokens, *[0] * spare]
            places += [*here, *[0] * spare]
            slots += [span.blocks[place // BLOCK] * BLOCK + place % BLOCK for place in here]
            slots += [scratch * BLOCK] * spare
            table = span.blocks[: -(-here.stop // BLOCK)]
            tables += [*table, *[scratch] * (shape.context // BLOCK - len(table))]
        spare = shape.spans - len(spans)
        tokens += [0] * (spare * shape.rows)
        places += [0] * (spare * shape.rows)
        slots += [scratch * BLOCK] * (spare * shape.rows)
        tables += [scratch] * (spare * (shape.context // BLOCK))
        self.packed.copy_(torch.tensor([*tokens, *places, *slots, *tables]))


def static_step(runner: TorchRunner, inputs: StaticInputs) -> tuple[Tensor, Tensor]:
    """One pass over the buffers: the most likely token of every row (int32), and all logits [rows, vocab]."""
    x = runner.hidden(inputs.tokens, inputs.places, _Gathered(runner, inputs), None)
    assert x is not None, "only an abort flag ends a pass early"
    logits = runner.logits(x)
    return logits.argmax(dim=-1).to(torch.int32), logits


class _Gathered:
    """The attention of all spans at once, over gathered blocks; see :class:`vivace.engine.torch_runner.Attention`."""

    def __init__(self, runner: TorchRunner, inputs: StaticInputs) -> None:
        self.runner = runner
        self.inputs = inputs
        shape, spec = inputs.shape, runner.spec
        device = inputs.packed.device
        self.group = spec.heads // spec.kv_heads
        self.slots = (inputs.tables[:, :, None] * BLOCK + torch.arange(BLOCK, device=device)).flatten()
        places = inputs.places.view(shape.spans, 1, shape.rows, 1)
        mask = torch.arange(shape.context, device=device) <= places
        # Heads that share keys are rows of one head: kernels for masked attention know nothing of shared keys.
        self.mask = mask.repeat(1, 1, self.group, 1)

    def mix(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shape, spec, kv = self.inputs.shape, self.runner.spec, self.runner.kv[layer]
        kv[:, :, self.inputs.slots] = torch.stack((k, v)).transpose(1, 2).to(kv.dtype)
        both = kv[:, :, self.slots].view(2, spec.kv_heads, shape.spans, shape.context, spec.head_dim)
        keys, values = both.transpose(1, 2)
        split = q.to(kv.dtype).view(shape.spans, shape.rows, spec.kv_heads, self.group, spec.head_dim)
        queries = split.permute(0, 2, 3, 1, 4).reshape(shape.spans, spec.kv_heads, -1, spec.head_dim)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask)
        heads = mixed.view(shape.spans, spec.heads, shape.rows, spec.head_dim)
        return heads.transpose(1, 2).reshape(-1, spec.q_width).to(self.runner.dtype)
