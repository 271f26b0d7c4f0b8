"""Events of a conversation as session updates of the Agent Client Protocol."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from acp import helpers as acp
from acp.schema import PlanEntryStatus, ToolCallLocation, ToolCallStatus, ToolKind

from vivace.agent.turns import events as ev

KINDS: dict[str, ToolKind] = {
    "read": "read",
    "search": "search",
    "list": "search",
    "edit": "edit",
    "write": "edit",
    "shell": "execute",
    "background_shell": "execute",
}
OUTPUT = 4000
"""Characters of a command's output that are shown while it runs: an update of it replaces the one before."""
EVERY = 0.3
"""Seconds between two such updates."""

_STATES: dict[str, PlanEntryStatus] = {"pending": "pending", "active": "in_progress"}
_WORKER: dict[ev.WorkerState, ToolCallStatus] = {
    "waiting": "pending",
    "running": "in_progress",
    "done": "completed",
    "failed": "failed",
    "stopped": "failed",
}
_COUNTS = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Updates:
    """Of one session. ``root`` makes the paths absolute, as the protocol wants them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._outputs: dict[str, tuple[str, float]] = {}
        self._edit = ""
        self._numbers: dict[str, int] = {}
        self._workers: set[str] = set()

    def of(self, event: ev.Event) -> list[Any]:
        """The updates that tell ``event``; none for what the protocol has no word for."""
        if event.worker and not isinstance(event, ev.WorkerChanged):
            return []
        return list(self._of(event))

    def call(self, kind: str) -> str:
        """The id of a new tool call."""
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}-{self._numbers[kind]}"

    @property
    def edit(self) -> str:
        """The tool call that stands for the edit in front; empty when there is none."""
        return self._edit

    @singledispatchmethod
    def _of(self, event: ev.Event) -> Iterator[Any]:
        yield from ()

    @_of.register
    def _(self, event: ev.Said) -> Iterator[Any]:
        yield acp.update_agent_message_text(event.text)

    @_of.register
    def _(self, event: ev.Thought) -> Iterator[Any]:
        yield acp.update_agent_thought_text(event.text)

    @_of.register
    def _(self, event: ev.TurnBegan) -> Iterator[Any]:
        why = f": {event.reason}" if event.reason else ""
        yield acp.update_agent_thought_text(f"[{event.mode}, {event.model}{why}]\n")

    @_of.register
    def _(self, event: ev.Noted) -> Iterator[Any]:
        if event.level == "info":
            yield acp.update_agent_thought_text(f"[{event.text}]\n")
        else:
            yield acp.update_agent_message_text(f"\n[{event.level}: {event.text}]\n")

    @_of.register
    def _(self, event: ev.Editing) -> Iterator[Any]:
        if not self._edit:
            yield self._begin_edit((event.path,))

    @_of.register
    def _(self, event: ev.Proposed) -> Iterator[Any]:
        if event.replaces or not self._edit:
            yield self._begin_edit(event.paths)
        content = [acp.tool_diff_content(*parts) for parts in hunks(event.diff, self.root)]
        title = f"Edit {', '.join(event.paths)} (+{event.added} -{event.removed})"
        yield acp.update_tool_call(self._edit, title=title, content=content)

    @_of.register
    def _(self, event: ev.Applied) -> Iterator[Any]:
        if self._edit:
            yield acp.update_tool_call(self._edit, status="completed", locations=self._places(event.paths))
            self._edit = ""

    @_of.register
    def _(self, event: ev.TurnEnded) -> Iterator[Any]:
        if self._edit:
            # Nothing was written: it was declined, refused or cut off.
            yield acp.update_tool_call(self._edit, status="failed")
            self._edit = ""

    @_of.register
    def _(self, event: ev.ToolBegan) -> Iterator[Any]:
        self._outputs[event.call] = ("", 0.0)
        title = f"{event.name} {event.brief}".strip()
        yield acp.start_tool_call(
            event.call,
            title,
            kind=KINDS.get(event.name, "other"),
            status="in_progress",
            raw_input={"brief": event.brief},
        )

    @_of.register
    def _(self, event: ev.ToolOutput) -> Iterator[Any]:
        text, last = self._outputs.get(event.call, ("", 0.0))
        text = (text + event.text)[-OUTPUT:]
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            yield acp.update_tool_call(event.call, content=[acp.tool_content(acp.text_block(text))])
        self._outputs[event.call] = (text, last)

    @_of.register
    def _(self, event: ev.ToolEnded) -> Iterator[Any]:
        text, _ = self._outputs.pop(event.call, ("", 0.0))
        yield acp.update_tool_call(
            event.call,
            status="completed" if event.ok else "failed",
            content=[acp.tool_content(acp.text_block(event.text or text))],
            locations=self._places(event.changed) or None,
        )

    @_of.register
    def _(self, event: ev.PlanChanged) -> Iterator[Any]:
        entries = [
            acp.plan_entry(f"(dropped) {text}" if state == "dropped" else text, status=_STATES.get(state, "completed"))
            for text, state in event.steps
        ]
        yield acp.update_plan(entries)

    @_of.register
    def _(self, event: ev.ModeChanged) -> Iterator[Any]:
        yield acp.update_current_mode(event.mode)

    @_of.register
    def _(self, event: ev.WorkerChanged) -> Iterator[Any]:
        call, status = f"crew-{event.worker}", _WORKER[event.state]
        if call not in self._workers:
            self._workers.add(call)
            yield acp.start_tool_call(call, f"{event.worker}: {event.task}", kind="other", status=status)
            return
        yield acp.update_tool_call(call, status=status, content=[acp.tool_content(acp.text_block(standing(event)))])

    def _begin_edit(self, paths: tuple[str, ...]) -> Any:
        self._edit = self.call("edit")
        return acp.start_tool_call(
            self._edit, f"Edit {', '.join(paths)}", kind="edit", status="in_progress", locations=self._places(paths)
        )

    def _places(self, paths: tuple[str, ...]) -> list[ToolCallLocation]:
        return [ToolCallLocation(path=str(self.root / path)) for path in paths]


def standing(event: ev.WorkerChanged) -> str:
    """How a background worker stands, in words, and what can be done with its result."""
    used = [
        _used(event.steps, event.most_steps, "steps"),
        _used(event.tokens, event.most_tokens, "tokens"),
        _used(round(event.seconds), event.most_seconds, "s"),
    ]
    parts = [f"{event.state}, {', '.join(used)}.", event.note]
    if event.offer:
        files = f"{event.offer} file{'s' if event.offer > 1 else ''}"
        parts.append(f"It offers {files}: /diff {event.worker} shows, /accept {event.worker} takes over.")
    return " ".join(filter(None, parts))


def _used(amount: int, most: float | None, what: str) -> str:
    return f"{amount:,} {what}" if most is None else f"{amount:,} of {most:,.0f} {what}"


def hunks(diff: str, root: Path) -> Iterator[tuple[str, str, str | None]]:
    """Each hunk of a unified diff as path, new text and old text; None as the old text of a file that is new."""
    path, fresh = "", False
    old: list[str] = []
    new: list[str] = []
    left = right = 0
    lines = diff.split("\n")
    for n, line in enumerate([*lines, "@@ -0,0 +0,0 @@"]):
        inside = left > 0 or right > 0
        if not inside and (old or new):
            yield str(root / path), "".join(new), None if fresh else "".join(old)
            old, new = [], []
        if inside and line[:1] in (" ", "-", "+", ""):
            # The mark for a missing end of line belongs to the line before it.
            end = "" if n + 1 < len(lines) and lines[n + 1].startswith("\\") else "\n"
            if line[:1] != "+":
                old.append(line[1:] + end)
                left -= 1
            if line[:1] != "-":
                new.append(line[1:] + end)
                right -= 1
        elif line.startswith("--- "):
            fresh = line[4:].startswith("/dev/null")
            path = line[4:].split("\t")[0].removeprefix("a/")
        elif line.startswith("+++ ") and not line[4:].startswith("/dev/null"):
            path = line[4:].split("\t")[0].removeprefix("b/")
        elif (match := _COUNTS.match(line)) is not None:
            left, right = int(match[1] or 1), int(match[2] or 1)


def placed(diff: str) -> Iterator[tuple[bool, str]]:
    """The lines of a unified diff, each with whether it belongs to a hunk; headers and words between do not."""
    left = right = 0
    for line in diff.split("\n"):
        inside = (left > 0 or right > 0) and line[:1] in (" ", "-", "+", "")
        yield inside, line
        if inside:
            left -= line[:1] != "+"
            right -= line[:1] != "-"
        elif (match := _COUNTS.match(line)) is not None:
            left, right = int(match[1] or 1), int(match[2] or 1)
