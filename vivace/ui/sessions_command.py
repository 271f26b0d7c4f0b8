"""``vivace sessions``: the conversations of this folder, to be listed, exported, played back and forked.

Exit codes: 0 done, 2 wrong usage (there is no such conversation), 1 failure (it cannot be read or written).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from vivace.errors import UsageError, VivaceError

if TYPE_CHECKING:
    from vivace.agent.sessions import Conversation, Summary
    from vivace.settings import Settings
    from vivace.ui.exec_faces import JsonFace, PipeFace

OK, FAILED = 0, 1
SHOWN = 20
"""Conversations that are listed."""
LONGEST_PAUSE = 1.0
"""Seconds that a replay waits before a message of the user, however long it took to come."""

Id = Annotated[str, typer.Argument(metavar="ID", help="Its beginning or end is enough.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, on failure too.")]


def add_sessions_commands(app: typer.Typer, state_dir: Callable[[Settings], Path]) -> None:
    """Add the group. ``state_dir`` is where conversations are kept."""
    group = typer.Typer(no_args_is_help=True, help="The conversations of this folder: list, export, replay, fork.")
    app.add_typer(group, name="sessions")

    @group.command("list")
    def list_sessions(
        context: typer.Context,
        limit: Annotated[int, typer.Option(min=1, help="List so many, the newest first.")] = SHOWN,
        as_json: AsJson = False,
    ) -> None:
        """List the conversations of this folder: id, when it was changed, messages, its first words."""
        raise typer.Exit(_told(as_json, lambda: _list(state_dir(context.obj), limit, as_json)))

    @group.command("export")
    def export(
        context: typer.Context,
        name: Id,
        as_json: Annotated[bool, typer.Option("--json", help="For programs: one object with every entry.")] = False,
        as_markdown: Annotated[bool, typer.Option("--markdown", help="For people; so it is anyway.")] = False,
        output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this new file.")] = None,
    ) -> None:
        """Print a conversation, or write it to a file: what was said and done up to where it is now."""
        if as_json and as_markdown:
            raise typer.BadParameter("--json and --markdown are two forms; give one.")
        raise typer.Exit(_told(as_json, lambda: _export(state_dir(context.obj), name, as_json, output)))

    @group.command("replay")
    def replay(
        context: typer.Context,
        name: Id,
        as_json: Annotated[bool, typer.Option("--json", help="Print the events as JSON lines.")] = False,
        speed: Annotated[
            float,
            typer.Option(min=0.0, help="1 is as fast as it was, 10 ten times as fast; 0 shows everything at once."),
        ] = 0.0,
    ) -> None:
        """Play a conversation back, as vivace exec showed it or would have shown it. Nothing is done again."""
        raise typer.Exit(_replay(state_dir(context.obj), name, as_json, speed))

    @group.command("fork")
    def fork(context: typer.Context, name: Id, as_json: AsJson = False) -> None:
        """Copy a conversation, to go on from where it is and keep it; also one that is open in another vivace."""
        raise typer.Exit(_told(as_json, lambda: _fork(state_dir(context.obj), name, as_json)))


def _list(state_dir: Path, limit: int, as_json: bool) -> None:
    from vivace.agent.sessions import conversations

    found = conversations(_folder(state_dir))[:limit]
    if as_json:
        _put({"conversations": [_as_dict(summary) for summary in found], "error": None})
    elif not found:
        print(f"There is no conversation in {Path.cwd()} yet; vivace and vivace exec begin one.", file=sys.stderr)
    for summary in () if as_json else found:
        print(_line(summary))


def _line(summary: Summary) -> str:
    from vivace.ui.plain import visible

    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.updated))
    said = f"cannot be read: {summary.broken}" if summary.broken else summary.title or "(nothing was said)"
    return f"{summary.id}  {when}  {summary.messages:>3}  {visible(' '.join(said.split()))}"


def _as_dict(summary: Summary) -> dict[str, object]:
    return {
        "id": summary.id,
        "title": summary.title,
        "created": summary.created,
        "updated": summary.updated,
        "messages": summary.messages,
        "entries": summary.entries,
        "forked_from": summary.forked_from[0] if summary.forked_from else None,
        "broken": summary.broken or None,
    }


def _export(state_dir: Path, name: str, as_json: bool, output: Path | None) -> None:
    from vivace.agent.sessions import to_json, to_markdown
    from vivace.ui.plain import visible

    talk = _read(state_dir, name)
    if output is None and not as_json and sys.stdout.isatty():
        print(visible(to_markdown(talk)), end="")
        return
    data = to_json(talk) if as_json else to_markdown(talk).encode("utf-8", "replace")
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(
            f"{output}: is there already, and is not written over.", hint="Name another file.", code="exists"
        ) from None
    except OSError as error:
        raise VivaceError(f"{output}: cannot be written ({error.strerror})", code="write_failed") from None
    print(f"written: {output}", file=sys.stderr)


def _fork(state_dir: Path, name: str, as_json: bool) -> None:
    talk = _read(state_dir, name)
    with talk.fork() as made:
        new = made.id
    if as_json:
        _put({"conversation": new, "forked_from": talk.id, "error": None})
        return
    print(new)
    print(f"To go on with it: vivace --resume {new}", file=sys.stderr)


def _replay(state_dir: Path, name: str, as_json: bool, speed: float) -> int:
    from vivace.ui.exec_faces import JsonFace, ReplayFace

    face: JsonFace | PipeFace = JsonFace() if as_json else ReplayFace()
    code = OK
    try:
        _play(_read(state_dir, name), face, speed)
    except VivaceError as error:
        face.failed(error)
        code = error.exit_code
    except BrokenPipeError:
        return _nobody_reads()
    face.exited(code)
    return code


def _play(talk: Conversation, face: JsonFace | PipeFace, speed: float) -> None:
    face.opened(talk.id)
    for seconds, event in _paced(talk, speed):
        if seconds > 0:
            time.sleep(seconds)
        face(event)


def _paced(talk: Conversation, speed: float) -> Iterator[tuple[float, Any]]:
    """The events, each with the seconds to wait before it."""
    from vivace.agent.turns.events import MessageChanged
    from vivace.ui.replay import timed

    before: float | None = None
    for moment, event in timed(talk):
        wait = (moment - before) / speed if speed and before is not None else 0.0
        before = moment
        yield min(wait, LONGEST_PAUSE) if isinstance(event, MessageChanged) else wait, event


def _folder(state_dir: Path) -> Path:
    from vivace.agent.sessions import conversations_folder

    return conversations_folder(Path.cwd(), state_dir)


def _read(state_dir: Path, name: str) -> Conversation:
    """Raises :class:`UsageError` (``conversation_not_found``) with what there is instead."""
    from vivace.agent.sessions import Conversation, find

    if not name:
        raise UsageError("No conversation is named.", hint="vivace sessions list shows them.", param="id")
    try:
        return Conversation.open(find(_folder(state_dir), name), write=False)
    except UsageError as error:
        if error.code == "conversation_not_found" and not error.hint:
            error.hint = "Say it in the folder in which vivace or vivace exec ran; vivace and vivace exec begin one."
        raise


def _told(as_json: bool, deed: Callable[[], None]) -> int:
    """Do it and give the exit code; what a user can understand is told."""
    try:
        deed()
        sys.stdout.flush()
    except VivaceError as error:
        if as_json:
            told = {"code": error.code, "message": error.message, "hint": error.hint, "param": error.param}
            _put({"error": told})
        else:
            print(f"vivace: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return _nobody_reads()
    return OK


def _nobody_reads() -> int:
    """Whoever read the output is gone; keep the interpreter from flushing into nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _put(value: dict[str, Any]) -> None:
    print(msgspec.json.encode(value).decode("utf-8", "replace"))
