"""Sparse feed-forwards in PyTorch: a router picks a few experts for each row, and only these are read and multiplied.

Rows are grouped by expert, so that an expert chosen by many rows is read once. The results come back to their rows by
rank and are added rank by rank, so the order of additions does not depend on what else is in the pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vivace.engine.spec import ModelSpec

Multiply = Callable[[Tensor, int], Tensor]
"""``x [rows, in]`` and an expert's number -> ``[rows, out]``."""


@dataclass
class PackBudget:
    """Bytes that may still be spent on packed copies of experts.

    oneDNN multiplies an int8 matrix in its own layout, a copy in memory. Of a dense model everything is copied. The
    experts of a 30B model are 29 GB, of which a conversation may touch a part: they are copied when they are first
    chosen, as long as the budget lasts; the others are multiplied where the file is mapped, to the same sums, at about
    1.7 times the time (one row of a 1536 x 2048 matrix, measured), and their pages can be given back by the system.
    """

    left: int

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


class Int8Experts:
    """One matrix of every expert; exact int8 products whichever way they are made."""

    def __init__(self, q: Tensor, scale: Tensor, budget: PackBudget) -> None:
        self._q, self._scale, self._budget = q, scale, budget
        self._zero = torch.zeros(scale.shape[1], dtype=torch.int32)
        self._packed: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, expert: int) -> Tensor:
        absmax = x.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30)
        rounded = (x * (127.0 / absmax)).round_().to(torch.int8)
        packed = self._packed.get(expert)
        if packed is None and self._budget.take(self._q[expert].numel()):
            packed = self._packed[expert] = torch.ops.onednn.qlinear_prepack(self._q[expert], None)
        out: Tensor
        if packed is None:
            out = torch._int_mm(rounded, self._q[expert].t()).float() * self._scale[expert]
        else:
            out = torch.ops.onednn.qlinear_pointwise(
                rounded, 1.0, 0, packed, self._scale[expert], self._zero, None, 1.0, 0, torch.float32, "none", [], ""
            )
        return out.mul_(absmax / 127.0)


class FloatExperts:
    """One matrix of every expert, ``weight`` [experts, out, in], multiplied where it lies."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def __call__(self, x: Tensor, expert: int) -> Tensor:
        return F.linear(x, self._weight[expert])


class SparseFeed:
    """The sparse feed-forward of one layer."""

    def __init__(self, spec: ModelSpec, router: Tensor, gateup: Multiply, down: Multiply) -> None:
        self.spec = spec
        self.router = router
        self.gateup = gateup
        self.down = down

    def __call__(self, x: Tensor) -> Tensor:
        """``x`` [rows, hidden] -> the addition to the residual stream, [rows, hidden] float32."""
        shares, chosen = self.route(x)
        ranks = self.spec.experts_used
        numbers = chosen.flatten().cpu()
        order = torch.argsort(numbers, stable=True)
        present, counts = torch.unique_consecutive(numbers[order], return_counts=True)
        parts = torch.empty(x.shape[0] * ranks, self.spec.hidden, dtype=torch.float32, device=x.device)
        places = torch.split(order.to(x.device), counts.tolist())
        for expert, place in zip(present.tolist(), places, strict=True):
            parts[place] = self._one(x[place // ranks], expert)
        parts = parts.view(-1, ranks, self.spec.hidden)
        out = parts[:, 0] * shares[:, :1]
        for rank in range(1, ranks):
            out += parts[:, rank] * shares[:, rank : rank + 1]
        return out

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts' shares (float32) and numbers, each [rows, experts_used], the largest share first.

        The product with a router in float64 is rounded to the same float32 whatever the number of rows.
        """
        logits = (x.to(self.router.dtype) @ self.router.t()).float()
        shares, chosen = logits.softmax(dim=-1).topk(self.spec.experts_used, dim=-1)
        return (shares / shares.sum(dim=-1, keepdim=True) if self.spec.norm_experts else shares), chosen

    def _one(self, x: Tensor, expert: int) -> Tensor:
        gate, up = self.gateup(x, expert).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up, expert).float()
