"""The slash commands that an editor offers."""

from __future__ import annotations

from vivace.errors import UsageError
from vivace.ui.app.commands import Command
from vivace.ui.contract import Talk

COMMANDS = (
    Command("undo", "take back the last turn: files and conversation"),
    Command("redo", "do again what was undone"),
    Command("checkpoints", "the states of the files that can be gone back to"),
    Command("goto", "files and conversation to a checkpoint", "NUMBER"),
    Command("compact", "shorten what the model remembers, keep the facts"),
    Command("candidates", "how many answers race for an edit", "N"),
    Command("role", "which model plans, builds or reviews in deep turns; without a model nobody does", "ROLE=MODEL"),
    Command("background", "let a worker do something on the side", "TASK"),
    Command("accept", "take over what a worker made", "WORKER"),
)
SHOWN = 20
"""Checkpoints that are listed."""


async def run_command(talk: Talk, text: str) -> str | None:
    """Do what a prompt of one line says when it is a command; what to answer, None when it is none."""
    name, _, argument = text.strip().removeprefix("/").partition(" ")
    command = next((command for command in COMMANDS if command.name == name), None)
    if not text.startswith("/") or "\n" in text.strip() or command is None:
        return None
    argument = argument.strip()
    if bool(argument) != bool(command.takes):
        raise UsageError(f"/{name} is written: /{name} {command.takes}".rstrip(), code="bad_argument")
    if name in ("goto", "candidates") and not argument.isdigit():
        raise UsageError(f"{argument} is no number", code="bad_number")
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
        case "compact":
            return "Shortened." if await talk.compact() else "There is nothing to shorten."
        case "candidates":
            talk.set_candidates(int(argument))
            return f"From the next turn on: {argument}."
        case "role":
            role, _, model = argument.partition("=")
            talk.set_role(role.strip(), model.strip())
            return f"From the next turn on: {role.strip()} is {model.strip() or 'nobody'}."
        case "background":
            return f"Worker {await talk.background(argument)} works on it."
        case _:
            paths = await talk.accept_worker(argument)
            return f"Taken over: {', '.join(paths) or 'nothing'}."
