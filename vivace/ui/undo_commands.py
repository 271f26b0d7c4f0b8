"""``vivace undo``, ``redo`` and ``checkpoints``: the way back in a folder where the agent has worked.

They do what the same commands of the app do, to the conversation that was worked in last; an edit of ``vivace edit``
has none, and only its files go back. Exit codes: 0 done, 3 there
was nothing to undo or redo, 2 wrong usage, 1 failure (some file could not be restored, or another vivace is at work).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from vivace.errors import UsageError, VivaceError

if TYPE_CHECKING:
    from vivace.agent.checkpoints import Checkpoint, CheckpointStore, Position, Restored
    from vivace.agent.sessions import Conversation
    from vivace.settings import Settings

OK, FAILED, NO_CHANGE = 0, 1, 3
SHOWN = 20
"""Checkpoints that are listed."""
NOTHING = ("nothing_to_undo", "nothing_to_redo")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, on failure too.")]
Deed = Callable[[Path, "CheckpointStore"], "Restored"]
"""Given the folder of the conversations and the checkpoints, goes somewhere."""


def add_undo_commands(app: typer.Typer, state_dir: Callable[[Settings], Path]) -> None:
    """Add the three. ``state_dir`` is where conversations and checkpoints are kept."""

    @app.command("undo")
    def undo(context: typer.Context, as_json: AsJson = False) -> None:
        """Take back the last turn of the agent or the last vivace edit in this folder."""
        said = "undone: files and conversation are as before the last turn; vivace redo brings it back"
        edit = "undone: the files are as before the last vivace edit; vivace redo brings it back"
        raise typer.Exit(_done(state_dir(context.obj), _undo, said, as_json, edit))

    @app.command("redo")
    def redo(context: typer.Context, as_json: AsJson = False) -> None:
        """Do again what was undone in this folder."""
        raise typer.Exit(_done(state_dir(context.obj), _redo, "done again", as_json))

    @app.command("checkpoints")
    def checkpoints(
        context: typer.Context,
        number: Annotated[int | None, typer.Argument(help="Go to this one: files and conversation.")] = None,
        limit: Annotated[int, typer.Option(min=1, help="List so many, the newest first.")] = SHOWN,
        as_json: AsJson = False,
    ) -> None:
        """List the states of the files in this folder that can be gone back to, or go to one."""
        folder = state_dir(context.obj)
        if number is None:
            raise typer.Exit(_listed(folder, limit, as_json))
        said = f"the files are those of checkpoint {number}; vivace undo and vivace redo move from here"
        raise typer.Exit(_done(folder, _to(number), said, as_json))


def _done(state_dir: Path, deed: Deed, said: str, as_json: bool, edit: str = "") -> int:
    """Do it, say so (``edit`` where it went to before an edit), and give the exit code."""
    try:
        restored = _travelled(state_dir, deed)
    except VivaceError as error:
        return _refused(error, as_json)
    if as_json:
        _put(
            {
                "checkpoint": restored.checkpoint.id,
                "files": [{"path": change.path, "change": change.change} for change in restored.changes],
                "unsaved": [change.path for change in restored.unsaved],
                "refused": [{"path": each.path, "reason": each.reason} for each in restored.refused],
                "error": None,
            }
        )
    else:
        _tell(restored, edit if edit and restored.checkpoint.kind == "edit" else said)
    return FAILED if restored.refused else OK


def _tell(restored: Restored, said: str) -> None:
    from vivace.agent.checkpoints.records import shown

    print(said)
    for change in restored.changes:
        print(f"  {shown(change.path)} ({'permissions' if change.change == 'mode' else change.change})")
    for refused in (*restored.kept, *restored.refused):
        print(f"vivace: {shown(refused.path)} was left as it is: {refused.reason}", file=sys.stderr)


def _listed(state_dir: Path, limit: int, as_json: bool) -> int:
    from vivace.agent.checkpoints import CheckpointStore

    try:
        _worked_here(state_dir)
        with CheckpointStore(Path.cwd(), state_dir) as store:
            points, head = store.checkpoints(limit), store.head
    except VivaceError as error:
        return _refused(error, as_json)
    if as_json:
        _put({"checkpoints": [_as_dict(point) for point in points], "head": head.id if head else None, "error": None})
    else:
        lines = [f"{point.id:>4}  {_when(point.created)}  {' '.join(point.label.split())}" for point in points]
        print("\n".join(lines) or "There is no checkpoint yet.")
    return OK


def _travelled(state_dir: Path, deed: Deed) -> Restored:
    """Go where ``deed`` goes, and see that the conversation which that is about follows the files."""
    from vivace.agent.checkpoints import CheckpointStore
    from vivace.agent.sessions import reconcile

    folder = _worked_here(state_dir)
    with CheckpointStore(Path.cwd(), state_dir) as store:
        if _talks(folder):
            with _opened(folder) as latest:
                reconcile(latest, store)
        restored = deed(folder, store)
        if (left := store.unsettled) is not None:
            with _opened(folder, left) as talk:
                reconcile(talk, store)
        return restored


def _undo(folder: Path, store: CheckpointStore) -> Restored:
    """To before the last turn or edit that is not undone, whichever conversation it was in."""
    from vivace.agent.checkpoints.single import EDIT
    from vivace.agent.sessions import step_back
    from vivace.agent.sessions.together import TURN, knows, position_of

    head = point = store.head
    moved = head is not None and bool(store.diff(head.id))
    while point is not None:
        place = point.position
        if point.kind == EDIT and (point is not head or moved):
            return store.undo(to=point.id)
        if point.kind == TURN and place is not None:
            with _opened(folder, place) as talk:
                went_on = knows(talk, place) and position_of(talk).entry != place.entry
                if point is not head or moved or went_on:
                    return step_back(talk, store, to=point.id)
        point = store.get(point.parent) if point.parent is not None else None
    raise UsageError("There is nothing to undo: no earlier checkpoint.", code="nothing_to_undo")


def _redo(folder: Path, store: CheckpointStore) -> Restored:
    from vivace.agent.sessions import step_forth

    if not _talks(folder):
        return store.redo()
    with _opened(folder) as talk:
        return step_forth(talk, store)


def _to(number: int) -> Deed:
    from vivace.agent.sessions import go_to

    def deed(folder: Path, store: CheckpointStore) -> Restored:
        if not _talks(folder):
            return store.restore(number)
        with _opened(folder, store.get(number).position) as talk:
            return go_to(talk, store, number)

    return deed


@contextmanager
def _opened(folder: Path, place: Position | None = None) -> Iterator[Conversation]:
    """The conversation that a place is in, the latest one where nothing is said or that one is gone.

    Raises :class:`UsageError` (``read_only``) while it is open elsewhere.
    """
    from vivace.agent.sessions import Conversation, find
    from vivace.agent.sessions.together import knows

    talk = Conversation.open(find(folder))
    if place is not None and not knows(talk, place):
        with suppress(UsageError):
            named = Conversation.open(find(folder, place.conversation))
            talk.close()
            talk = named
    try:
        if talk.read_only:
            raise UsageError(talk.read_only, hint="Say /undo or /redo there, or close it.", code="read_only")
        yield talk
    finally:
        talk.close()


def _talks(folder: Path) -> bool:
    """Whether there is a conversation: edits alone make none."""
    return any(folder.glob("*.jsonl"))


def _worked_here(state_dir: Path) -> Path:
    """The folder of the conversations. Raises :class:`UsageError` where there is neither one nor a checkpoint."""
    from vivace.agent.checkpoints.single import has_checkpoints
    from vivace.agent.sessions import conversations_folder

    folder = conversations_folder(Path.cwd(), state_dir)
    if not _talks(folder) and not has_checkpoints(Path.cwd(), state_dir):
        raise UsageError(
            f"Nothing was changed by vivace in {Path.cwd()} yet.",
            hint="Say it in the folder in which vivace, vivace exec or vivace edit ran.",
            code="conversation_not_found",
        )
    return folder


def _refused(error: VivaceError, as_json: bool) -> int:
    if as_json:
        _put({"error": {"code": error.code, "message": error.message, "hint": error.hint, "param": error.param}})
    else:
        print(f"vivace: {error}", file=sys.stderr)
    return NO_CHANGE if error.code in NOTHING else error.exit_code


def _put(value: dict[str, Any]) -> None:
    print(msgspec.json.encode(value).decode("utf-8", "replace"))


def _as_dict(point: Checkpoint) -> dict[str, object]:
    return {"id": point.id, "created": point.created, "kind": point.kind, "label": point.label}


def _when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
