"""What a run leaves behind: one JSON document with every task's record and what they come to."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from vivace.bench.record import Machine
from vivace.bench.tasksets.summary import Summary
from vivace.errors import UsageError

FORMAT = 1


class Record(Struct, kw_only=True):
    """One task, once. Seconds are wall time of the whole turn with the model loaded: read, ask, check, write."""

    id: str
    kind: str
    seed: int
    status: str
    """``changed``, ``unchanged``, ``refused``, or ``error`` when the turn itself failed."""
    applied: bool = False
    """Files are different on the disk."""
    passed: bool = False
    grade: str = ""
    """``passed``, ``failed``, ``timeout``; empty where nothing was applied, and so nothing was run."""
    wrong_place: bool | None = None
    """Something outside of what the task is about was changed; None where nothing was applied."""
    reason: str = ""
    seconds: float = 0.0
    ttft: float | None = None
    tok_s: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    draft_accepted: float | None = None
    second_round: bool = False
    steps: int = 1
    mode: str = ""
    """The mode that was worked in: what ``auto`` chose."""
    lines_changed: int = 0
    changed_lines_ratio: float | None = None
    """Lines changed over those that the reference changes."""
    changed: tuple[str, ...] = ()
    diff: str = ""


class Options(Struct, frozen=True, kw_only=True):
    """What a run can vary."""

    model: str
    mode: str = "fast"
    candidates: int | None = 1
    """None: the agent's own choice."""
    seeds: tuple[int, ...] = (0,)
    limit: int | None = None
    parallel: int = 1

    @property
    def name(self) -> str:
        """How tables and plots call it."""
        return f"{self.model} {self.mode}" + (f" x{self.candidates}" if (self.candidates or 1) > 1 else "")


class Report(Struct, kw_only=True):
    """One run. ``tasks`` maps the name of a task file to its SHA-256."""

    format: int = FORMAT
    command: str
    date: str
    vivace: str
    machine: Machine
    engine: str
    sandbox: str
    options: Options
    tasks: dict[str, str]
    summary: dict[str, Summary]
    records: list[Record]


def save(report: Report, path: Path) -> None:
    """Write the report, replacing an older one only when the new one is complete.

    One record a line: a change of one task is a change of one line in version control.
    """
    head = msgspec.structs.replace(report, records=[])
    text = msgspec.json.format(msgspec.json.encode(head), indent=1).decode()
    lines = ",\n".join("  " + msgspec.json.encode(record).decode() for record in report.records)
    body = text.removesuffix('"records": []\n}') + f'"records": [\n{lines}\n ]\n}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(body, encoding="utf-8")
    fresh.replace(path)


def load(path: Path) -> Report:
    """Raises :class:`UsageError` for what is no report of this format."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", param="file") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no result of 'vivace bench tasks' ({error}).", param="file") from None
    if report.format != FORMAT:
        raise UsageError(f"{path} has format {report.format}; this version reads {FORMAT}.", param="file")
    return report
