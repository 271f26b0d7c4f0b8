"""Teacher forcing: what an engine says about each next token of real code."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vivace.engine.kv import BLOCK
from vivace.engine.load import load_runner
from vivace.engine.messages import EngineConfig, KvType
from vivace.engine.runner import AbortFlag, Runner, Span
from vivace.engine.scheduler import Limits
from vivace.models.tokenizer import Tokenizer
from vivace.settings import Settings

DOCUMENT = 1024
SLICE = 128
FILES = ("argparse.py", "textwrap.py", "json/decoder.py", "heapq.py", "shutil.py")
"""Of the standard library, each longer than a document; none of them changes much from version to version."""

Engine = Callable[[list[int]], Iterable[np.ndarray]]
"""A document's tokens -> logits of all its positions, in slices."""


@dataclass
class Said:
    """For every position but a document's last: the log-probability of the true next token, and the likeliest one."""

    chosen: np.ndarray
    greedy: np.ndarray

    @property
    def nll(self) -> float:
        return float(-self.chosen.mean())

    def first(self, positions: int) -> Said:
        return Said(self.chosen[:positions], self.greedy[:positions])


@dataclass
class Difference:
    """How far two engines are apart over the same positions."""

    mean: float
    greedy: float
    nll: float

    @classmethod
    def of(cls, mine: Said, other: Said) -> Difference:
        apart = mine.chosen - other.chosen
        return cls(float(np.abs(apart).mean()), float((mine.greedy == other.greedy).mean()), float(-apart.mean()))


def documents(tokenizer: Tokenizer, count: int, length: int = DOCUMENT) -> list[list[int]]:
    """Beginnings of standard-library files, as tokens."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    made = [tokenizer.encode((folder / name).read_text("utf-8"))[:length] for name in FILES[:count]]
    assert all(len(document) == length for document in made)
    return made


def listen(engine: Engine, documents: list[list[int]]) -> Said:
    chosen, greedy = [], []
    for document in documents:
        start = 0
        for logits in engine(document):
            following = document[start + 1 : start + 1 + len(logits)]
            rows = logits[: len(following)]
            total = torch.logsumexp(torch.from_numpy(rows), dim=1).numpy()
            chosen.append(rows[np.arange(len(rows)), following] - total)
            greedy.append(rows.argmax(axis=1))
            start += len(logits)
    return Said(np.concatenate(chosen), np.concatenate(greedy))


def engine_of(runner: Runner) -> Engine:
    """A runner as an engine, in slices of prefill."""

    def run(document: list[int]) -> Iterable[np.ndarray]:
        blocks = list(range(-(-len(document) // BLOCK)))
        for start in range(0, len(document), SLICE):
            part = document[start : start + SLICE]
            rows = runner.forward([Span(part, start, blocks, len(part), logits=True)], AbortFlag())
            assert rows is not None
            yield rows[0]

    return run


def load(path: Path, kernels: str, precision: str, kv_type: KvType = "bf16") -> Runner:
    config = EngineConfig(
        model_path=str(path),
        cache_dir=str(Settings().cache_dir),
        device="cpu",
        kernels=kernels,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        kv_tokens=2 * DOCUMENT,
        kv_type=kv_type,
    )
    return load_runner(config, Limits(), lambda stage, share: None)[0]
