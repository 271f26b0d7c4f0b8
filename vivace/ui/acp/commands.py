"""The slash commands that an editor offers."""

from __future__ import annotations

from vivace.errors import UsageError, did_you_mean
from vivace.ui.acp import workers
from vivace.ui.acp.config import change
from vivace.ui.acp.session import Session
from vivace.ui.app.commands import Command, is_command
from vivace.ui.mentioned import mentioned

COMMANDS = (
    Command("undo", "take back the last turn: files and conversation"),
    Command("redo", "do again what was undone"),
    Command("checkpoints", "the states of the files that can be gone back to"),
    Command("goto", "files and conversation to a checkpoint", "NUMBER"),
    Command("mode", "how to work: auto, fast or deep", "[MODE]"),
    Command("model", "which model answers", "[NAME]"),
    Command("approvals", "what passes without asking: read-only, ask, auto or full", "[MODE]"),
    Command("candidates", "how many answers race for an edit", "N"),
    Command("role", "which model plans, builds or reviews in deep turns; without a model nobody does", "ROLE=MODEL"),
    Command("interrupt", "end the command in front, let the turn go on"),
    Command("compact", "shorten what the model remembers, keep the facts"),
    Command("background", "let a worker do something on the side", "TASK"),
    Command("workers", "how the background workers stand"),
    Command("jobs", "the commands that run in the background"),
    Command("stop", "end a worker, whose work so far is kept as its result, or a job", "ID"),
    Command("diff", "what a worker made", "WORKER"),
    Command("accept", "take over what a worker made, after a look at it", "WORKER"),
)
SHOWN = 20
"""Checkpoints that are listed."""


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a prompt that is a command; None for what is none, such as a path.

    Raises :class:`UsageError` for an unknown name, a missing argument or one too many.
    """
    line = text.strip()
    if not is_command(line):
        return None
    name, _, argument = line.removeprefix("/").partition(" ")
    argument = argument.strip()
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        names = [command.name for command in COMMANDS]
        raise UsageError(f"there is no command /{name}", hint=did_you_mean(name, names), code="unknown_command")
    optional = command.takes.startswith("[")
    if bool(argument) != bool(command.takes) and not optional:
        raise UsageError(f"/{name} is written: /{name} {command.takes}".rstrip(), code="bad_argument")
    if name in ("goto", "candidates") and not argument.isdigit():
        raise UsageError(f"{argument} is no number", code="bad_number")
    return name, argument


async def run_command(session: Session, name: str, argument: str) -> str:
    """Do what :func:`parse` read; what to answer. Raises :class:`vivace.ui.acp.session.Cancelled`, too."""
    talk = session.open
    match name:
        case "undo":
            await talk.undo()
            return "Undone: files and conversation are as before the last turn."
        case "redo":
            await talk.redo()
            return "Done again."
        case "checkpoints":
            points = [f"- {point.id}: {' '.join(point.label.split())}" for point in talk.checkpoints(SHOWN)]
            return "\n".join(points) or "There is no checkpoint yet."
        case "goto":
            await talk.go_to(int(argument))
            return f"The files are those of checkpoint {argument}."
        case "mode" | "model" | "approvals":
            return await _set(session, name, argument)
        case "candidates":
            talk.set_candidates(int(argument))
            return f"From the next turn on: {argument}."
        case "role":
            role, _, model = argument.partition("=")
            talk.set_role(role.strip(), model.strip())
            return f"From the next turn on: {role.strip()} is {model.strip() or 'nobody'}."
        case "interrupt":
            return "The command was ended; the turn goes on." if await talk.interrupt() else "No command runs."
        case "compact":
            return "Shortened." if await session.cancellable(talk.compact()) else "There is nothing to shorten."
        case _:
            return await _crew(session, name, argument)


async def _set(session: Session, option: str, value: str) -> str:
    if not value:
        return f"{option}: {getattr(session.setup, option)}"
    await change(session, option, value)
    await session.tell_setup()
    return f"From the next {'action' if option == 'approvals' else 'turn'} on, {option}: {value}."


async def _crew(session: Session, name: str, argument: str) -> str:
    match name:
        case "background":
            worker = await session.open.background(argument, mentioned(argument, session.root))
            return f"{worker} works on it. /workers shows how it stands, /stop {worker} ends it."
        case "workers":
            return workers.table(session)
        case "stop":
            await workers.stop(session, argument)
            kept = "" if argument in session.jobs else f"; what it did so far is kept: /diff {argument}"
            return f"{argument} is stopped{kept}"
        case "jobs":
            return workers.jobs_table(session)
        case "diff":
            found = await workers.show(session, argument)
            conflicts = [f"- conflict in {conflict}" for conflict in found.conflicts]
            return "\n".join([f"{argument} offers: {found.brief}", *conflicts])
        case _:
            paths = await workers.accept(session, argument)
            if paths is None:
                return f"Nothing was taken over; the result of {argument} is kept."
            return f"Taken over from {argument}: {', '.join(paths) or 'nothing'}."
