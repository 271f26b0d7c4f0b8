"""The slash commands: their names, what they are for, and how a line is read. The app does what they say."""

from __future__ import annotations

from msgspec import Struct

from vivace.errors import UsageError, did_you_mean


class Command(Struct, frozen=True):
    """``takes`` shows the argument; in brackets when it may be left out."""

    name: str
    brief: str
    takes: str = ""


COMMANDS = (
    Command("help", "keys and commands"),
    Command("mode", "how to work: auto, fast or deep", "[MODE]"),
    Command("model", "which model answers", "[NAME]"),
    Command("role", "which model plans, builds or reviews in deep turns", "[ROLE MODEL]"),
    Command("approvals", "what may be done without asking: read-only, ask, auto or full", "[MODE]"),
    Command("candidates", "how many answers race for an edit", "N"),
    Command("undo", "take back the last turn: files and conversation"),
    Command("redo", "do again what was undone"),
    Command("checkpoints", "go to a state of the files", "[NUMBER]"),
    Command("background", "let a worker do something on the side", "TASK"),
    Command("workers", "the background workers"),
    Command("accept", "take over what a worker made", "WORKER"),
    Command("jobs", "the commands that run in the background"),
    Command("stop", "end the turn, a worker or a job", "[ID]"),
    Command("interrupt", "end the command in front, let the turn go on"),
    Command("continue", "finish a turn that was cut off"),
    Command("compact", "shorten what the model remembers, keep the facts"),
    Command("fork", "go on in a copy of this conversation"),
    Command("new", "begin a new conversation"),
    Command("resume", "go on with an earlier conversation", "[ID]"),
    Command("export", "write this conversation to a file, as Markdown or, for .json, as JSON", "[FILE]"),
    Command("copy", "copy the last answer"),
    Command("theme", "dark or light colours", "[NAME]"),
    Command("quit", "leave"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def parse(line: str) -> tuple[Command, str]:
    """``/NAME ARGUMENT``. Raises :class:`UsageError` for an unknown name, a missing argument or one too many."""
    name, _, argument = line.strip().removeprefix("/").partition(" ")
    command = _BY_NAME.get(name)
    if command is None:
        raise UsageError(
            f"there is no command /{name}",
            hint=did_you_mean(name, list(_BY_NAME)) if name else "/help lists them.",
            code="unknown_command",
        )
    argument = argument.strip()
    if not argument and command.takes and not command.takes.startswith("["):
        raise UsageError(f"/{name} wants one argument: /{name} {command.takes}", code="missing_argument")
    if argument and not command.takes:
        raise UsageError(f"/{name} takes no argument", code="extra_argument")
    return command, argument


def fitting(typed: str) -> list[Command]:
    """Commands whose name begins with what was typed, then those that hold it."""
    begin = [command for command in COMMANDS if command.name.startswith(typed)]
    return begin + [command for command in COMMANDS if typed in command.name and command not in begin]


def is_command(text: str) -> bool:
    """A path such as ``/etc/hosts`` at the beginning of a message is none."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text.startswith("/") and "\n" not in text and "/" not in first[1:] and "." not in first
