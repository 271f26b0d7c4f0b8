"""What goes into an edit turn and what comes out of it: requests, events for the face, results and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vivace.agent.applier import Patch
from vivace.agent.attempt import Attempt
from vivace.agent.workspace import SourceFile
from vivace.protocol.contracts import ModelCard


def no_rules(card: ModelCard, source: SourceFile) -> str:
    """Nobody wants anything."""
    return ""


@dataclass(frozen=True)
class EditRequest:
    """One edit turn. Every file gets the same instruction."""

    paths: Sequence[str]
    instruction: str
    model: str
    seed: int = 0
    """Another one gives other samples, of every candidate."""
    temperature: float | None = None
    """Of every candidate; by default the first is greedy and the others are sampled at 0.6."""
    candidates: int = 1
    root: Path | None = None
    """The workspace; the current folder by default."""
    dialect: str = ""
    """The form of the answers (:data:`vivace.edit_dialect.EditDialect`); by default the model's own."""
    greedy: bool = True
    """The first candidate is the model's likeliest answer. Off where that one is known already."""
    free: bool = False
    """Ask for whole code in the free manner at once (:mod:`vivace.agent.dialect`): the careful one gave nothing."""
    rules: Callable[[ModelCard, SourceFile], str] = no_rules
    """What the project wants of every edit of a file, for the model to know."""


@dataclass(frozen=True)
class Opened:
    """The model is ready."""

    card: ModelCard


@dataclass(frozen=True)
class Began:
    """A first candidate starts to write: it rewrites ``old``, which starts at line ``first_line`` (from 0)."""

    source: SourceFile
    old: Sequence[str]
    first_line: int
    retry: str = ""
    """Why the answers before were refused, when this is the second round."""


@dataclass(frozen=True)
class Lines:
    """Code lines that the first candidate has completed."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Settled:
    """One file is decided."""

    outcome: FileOutcome


@dataclass
class FileOutcome:
    """``changed``: ``patch`` may be applied. ``unchanged``: no edit came. ``refused``: ``reason`` says why."""

    source: SourceFile
    status: Literal["changed", "unchanged", "refused"] = "unchanged"
    patch: Patch | None = None
    reason: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    winner: Attempt | None = None
    """The attempt that the status rests on; ``None`` when all were refused."""
    asked: list[str] = field(default_factory=list)
    """What was asked for, round by round: a dialect, ``told`` behind it for a second try with the reason of the first;
    ``whole function`` and ``whole file``."""
    free: bool = False
    """The last round asked in the free manner."""
    rungs: tuple[str, ...] = ()
    """How each hunk of the answer was found, from ``exact`` down; empty where the code was written anew."""

    @property
    def dialect(self) -> str:
        """What the status rests on."""
        return self.asked[-1] if self.asked else ""


EditEvent = Opened | Began | Lines | Settled


@dataclass
class EditResult:
    """A turn. ``seconds`` run from the model being ready to the last validated diff."""

    card: ModelCard
    files: list[FileOutcome]
    seconds: float = 0.0

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for file in self.files for attempt in file.attempts]

    @property
    def status(self) -> Literal["changed", "unchanged", "refused"]:
        """All or none: one refused file refuses the turn."""
        states = {file.status for file in self.files}
        if "refused" in states:
            return "refused"
        return "changed" if "changed" in states else "unchanged"

    @property
    def patches(self) -> list[Patch]:
        """What may be written: nothing unless every file came out well."""
        return [file.patch for file in self.files if file.patch] if self.status == "changed" else []

    @property
    def prompt_tokens(self) -> int:
        return sum(attempt.usage.input_tokens for attempt in self.attempts)

    @property
    def output_tokens(self) -> int:
        return sum(attempt.usage.output_tokens for attempt in self.attempts)

    @property
    def ttft(self) -> float | None:
        """Seconds from the first request to its first text."""
        return self.attempts[0].ttft if self.attempts else None

    @property
    def decode_rate(self) -> float | None:
        """Tokens per second of the answers that won: (output - 1) / (last - first text), summed over the files."""
        told = [file.winner or file.attempts[-1] for file in self.files if file.attempts]
        tokens = sum(attempt.usage.output_tokens - 1 for attempt in told if attempt.usage.output_tokens)
        seconds = sum(attempt.last - attempt.first for attempt in told)
        return tokens / seconds if seconds > 0 and tokens > 0 else None

    @property
    def draft_accepted(self) -> float | None:
        """Share of the output that came from the draft."""
        accepted = sum(a.usage.output_tokens_details.accepted_prediction_tokens for a in self.attempts)
        return accepted / self.output_tokens if self.output_tokens else None

    @property
    def lines_changed(self) -> int:
        return sum(file.patch.lines_changed for file in self.files if file.patch)
