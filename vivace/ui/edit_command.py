"""``vivace edit``: the turn, the question, the writing and the exit code, in this order.

Exit codes: 0 changed (or a diff shown with ``--dry-run``), 3 no change or declined, 2 refused before the model was
called, 1 failure, 130 Ctrl-C. Nothing is written unless it is 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from vivace.agent.edit import apply, read_sources
from vivace.agent.result import EditEvent, EditRequest, EditResult
from vivace.agent.turns.race import edit_in_race
from vivace.agent.workspace import SourceFile, interrupts_held
from vivace.errors import UsageError, VivaceError
from vivace.protocol.contracts import Service
from vivace.ui.jsonout import report
from vivace.ui.plain import PlainFace

OK, FAILED, USAGE, NO_CHANGE, INTERRUPTED = 0, 1, 2, 3, 130
S = TypeVar("S")
"""What a service is made from; nothing here looks into it."""


@dataclass(frozen=True)
class EditOptions:
    """The options of the command, one per flag."""

    model: str
    yes: bool = False
    dry_run: bool = False
    json: bool = False
    seed: int = 0
    temperature: float | None = None
    candidates: int = 1
    dialect: str = ""


@dataclass
class _Course:
    """How far the command came, for the report of a failure too."""

    names: list[str]
    result: EditResult | None = None
    error: VivaceError | None = None
    ending: str = ""
    written: bool = False
    face: PlainFace = field(default_factory=PlainFace)


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], str]:
    """``PATH... "INSTRUCTION"``: the last is the instruction. Raises :class:`UsageError` for fewer than two."""
    if len(arguments) < 2:
        raise UsageError(
            "vivace edit takes one or more files and then the instruction",
            hint='The last argument is the instruction, in quotes: vivace edit app.py "add a docstring to main"',
            param="instruction",
        )
    return list(arguments[:-1]), arguments[-1]


def run_edit(
    service_factory: Callable[[S], Service],
    paths: Sequence[str],
    instruction: str,
    options: EditOptions,
    settings: S,
    process_started: float,
    known: Callable[[str], object] = lambda model: None,
    keep: Callable[[Sequence[str], str], object] = lambda paths, label: None,
) -> int:
    """Run the command and return its exit code; nothing escapes but defects.

    ``process_started`` is on the clock of ``time.perf_counter`` (:func:`vivace.ui.clock.process_started`). The service
    is made only after the files and options were found good; ``known`` raises for the name of a model that is none,
    where the service will not be asked. ``keep`` takes the checkpoint for ``vivace undo``, before anything is written.
    """
    course = _Course(list(paths))
    try:
        code = _run(course, service_factory, paths, instruction, options, settings, known, keep)
    except VivaceError as error:
        course.error, code = error, error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = OK if course.written else INTERRUPTED
    except BrokenPipeError:
        code = OK if course.written else FAILED
    except Exception as error:
        # A defect, told in one line all the same; --json keeps its promise of one object.
        what = f"{type(error).__name__}: {error}"
        course.error = VivaceError(f"internal error ({what})", hint="Please report it.", code="internal")
        code = OK if course.written else FAILED
    if code == INTERRUPTED:
        course.error = VivaceError("stopped by Ctrl-C", hint="Nothing was written.", code="interrupted")
    with interrupts_held():
        try:
            _close(course, options, code, process_started)
        except BrokenPipeError:  # whoever read the output is gone; keep the interpreter from flushing into nothing
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _run(
    course: _Course,
    service_factory: Callable[[S], Service],
    paths: Sequence[str],
    instruction: str,
    options: EditOptions,
    settings: S,
    known: Callable[[str], object],
    keep: Callable[[Sequence[str], str], object],
) -> int:
    if options.yes and options.dry_run:
        raise UsageError("--yes and --dry-run exclude each other", param="yes")
    request = EditRequest(
        paths,
        instruction,
        options.model,
        options.seed,
        options.temperature,
        options.candidates,
        dialect=options.dialect,
    )
    sources = _sources(request)
    course.names = [source.name for source in sources]
    asks = not (options.yes or options.dry_run)
    if asks and (options.json or not sys.stdin.isatty()):
        known(options.model)
        why = "--json never asks" if options.json else "there is no terminal to ask on"
        raise UsageError(f"{why}: add --yes to apply the edit or --dry-run to see it only", param="yes")
    if not instruction.strip():
        course.ending = "no change (the instruction is empty)"
        return NO_CHANGE
    service = service_factory(settings)
    listener: Callable[[EditEvent], None] = (lambda _: None) if options.json else course.face
    with asyncio.Runner() as runner:
        try:
            course.result = result = runner.run(edit_in_race(service, request, sources, listener))
            return _decide(course, result, options, lambda: keep(course.names, instruction))
        finally:
            course.face.pause()
            runner.run(service.close())


def _sources(request: EditRequest) -> list[SourceFile]:
    """The files, with advice where one is not there."""
    try:
        return read_sources(request)
    except UsageError as error:
        if error.code == "file_not_found" and not error.hint:
            error.hint = "vivace edit changes files that are there; make an empty one first to have it filled."
        raise


def _decide(course: _Course, result: EditResult, options: EditOptions, keep: Callable[[], object]) -> int:
    """Show the diff, ask where asked to, write."""
    if not options.json:
        course.face.show(result)
    if result.status == "refused":
        course.ending = "refused, nothing written"
        return FAILED
    if result.status == "unchanged":
        course.ending = "no change"
        return NO_CHANGE
    if options.dry_run:
        course.ending = "not written (--dry-run)"
        return OK
    if not options.yes and not course.face.ask():
        course.ending = "declined, nothing written"
        return NO_CHANGE
    try:
        keep()
    except VivaceError as error:  # the edit is wanted all the same
        print(f"vivace: no checkpoint was taken, so vivace undo does not know this edit: {error}", file=sys.stderr)
    with interrupts_held() as interrupted:
        apply(result, interrupted)
        course.ending, course.written = "applied", True
    return OK


def _close(course: _Course, options: EditOptions, code: int, process_started: float) -> None:
    course.face.pause()
    if options.json:
        print(
            report(
                names=course.names,
                model=options.model,
                result=course.result,
                error=course.error,
                code=code,
                wall=time.perf_counter() - process_started,
            ),
            flush=True,
        )
        return
    if course.error:
        print(f"vivace: {course.error}", file=sys.stderr, flush=True)
    elif course.result:
        course.face.close(course.result, course.ending)
    else:
        print(course.ending, flush=True)
