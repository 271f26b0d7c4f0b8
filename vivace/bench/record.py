"""What a benchmark leaves behind: one JSON document with every raw figure; no host names, no paths."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct, field

from vivace.bench.host import Bounds, ModelFacts
from vivace.errors import UsageError

FORMAT = 1


class Contender(Struct, kw_only=True):
    """One engine in one way of running it."""

    name: str
    """``engine variant``, unique in a document."""
    engine: str
    detail: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    start_seconds: float = 0.0
    """From starting the process to being able to answer."""


class Run(Struct, kw_only=True):
    """One turn of one contender, timed by the client's clock. Seconds and tokens."""

    contender: str
    task: str
    round: int
    seconds: float
    """From handing the prompt over to having checked the whole text."""
    ttft: float
    """From handing the prompt over to the first piece of output."""
    prompt_tokens: int
    output_tokens: int
    first_tokens: int
    """Output tokens of the first piece; they are no part of the decode rate."""
    pieces: int
    """How often output arrived: the steps, where an engine sends once a step."""
    cached_tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    counts: bool = False
    """Whether the output was whole and compiles."""
    fault: str = ""
    """Why it does not count."""
    changed: bool | None = None
    """Whether what was asked for is really there; None where nothing was asked of a file."""
    text_sha256: str = ""
    busy_before: float = 0.0
    """Share of the cores that others kept busy just before the run."""

    @property
    def decode_rate(self) -> float:
        """Tokens per second after the first piece."""
        return (self.output_tokens - self.first_tokens) / max(self.seconds - self.ttft, 1e-9)

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second up to the first piece, those found in a cache not counted."""
        return (self.prompt_tokens - (self.cached_tokens or 0)) / max(self.ttft, 1e-9)


class Figure(Struct, kw_only=True):
    """A single measurement: its raw samples in ``unit``, and under what conditions they were taken."""

    measure: str
    name: str
    contender: str
    unit: str
    samples: list[float]
    about: dict[str, float | int | str] = field(default_factory=dict)


class Machine(Struct, kw_only=True):
    """What the figures were measured on."""

    cpu: str
    cores: int
    memory_bytes: int
    features: list[str]
    system: str
    python: str


class Document(Struct, kw_only=True):
    format: int = FORMAT
    date: str
    """Day of the run, UTC."""
    options: dict[str, str | int | float | bool]
    machine: Machine
    model: ModelFacts
    bounds: Bounds
    contenders: list[Contender] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def save(document: Document, path: Path) -> None:
    """Write the document, replacing an older one only when the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    fresh.replace(path)


def load(path: Path) -> Document:
    """Read a document. Raises :class:`UsageError` for what is none."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=Document)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}", param="results") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no result of 'vivace bench speed': {error}", param="results") from error
    if document.format != FORMAT:
        raise UsageError(f"{path} has the format {document.format}; this version reads {FORMAT}.", param="results")
    return document
