"""What the scheduler asks of a model: one pass over rows of several sequences.

Two runners exist: PyTorch (any device) and the native kernels (CPU). Each owns the weights and the KV memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass
class Span:
    """Consecutive rows of one sequence in one pass.

    The tokens go to positions ``start ...``; ``blocks`` is the sequence's block table and reaches at least that far.
    Output is wanted for the last ``outputs`` rows: the most likely token of each, with its probability at
    ``temperature`` where that is not 0, or all ``logits``.
    """

    tokens: list[int]
    start: int
    blocks: list[int]
    outputs: int
    logits: bool = False
    temperature: float = 0.0


@dataclass
class Likeliest:
    """The most likely token of each row and its probability at a temperature; all logits of a row when asked for."""

    tokens: NDArray[np.int32]
    probabilities: NDArray[np.float32]
    """To about 1e-5."""
    temperature: float
    logits: Callable[[int], NDArray[np.float32]]
    """Row -> ``[vocab]``. Costs about a pass."""


Rows = NDArray[np.int32] | NDArray[np.float32] | Likeliest


class AbortFlag:
    """Set by the thread that reads messages, read by the model between layers.

    A numpy array so that native code can read the same memory.
    """

    def __init__(self) -> None:
        self.memory: NDArray[np.int32] = np.zeros(1, dtype=np.int32)

    def set(self) -> None:
        self.memory[0] = 1

    def clear(self) -> None:
        self.memory[0] = 0

    def __bool__(self) -> bool:
        return bool(self.memory[0])


class Runner(Protocol):
    """A loaded model and its KV memory of ``kv_blocks`` blocks."""

    kv_blocks: int
    detail: str

    def forward(self, spans: list[Span], abort: AbortFlag) -> list[Rows] | None:
        """Compute the spans' rows and store their KV.

        Returns for each span int32 ``[outputs]`` (the most likely tokens; ties go to the lowest id) or, where logits
        are wanted, float32 ``[outputs, vocab]``. Where probabilities are wanted it is either :class:`Likeliest` or the
        logits, whichever is cheaper. Valid until the next call. None if ``abort`` was seen set: then the
        KV at the spans' positions is undefined and everything before them is as it was.
        """
        ...

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block's keys and values of every layer."""
        ...
