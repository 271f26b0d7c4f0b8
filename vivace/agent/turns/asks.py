"""What waits for the user: questions of the model, approvals, proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from vivace.agent.approvals.actions import Action, Answer, CallTool, Decision, ReadFile, RunCommand, Scope
from vivace.agent.tools.base import Question
from vivace.agent.turns.events import Answered, Asked, Event
from vivace.errors import UsageError, did_you_mean

SAID_ELSE = "(the user said something else; it follows)"
"""The reply to what is open when a new message comes in."""

_SCOPES: dict[Scope, str] = {
    "once": "Yes, this once",
    "session": "Yes, in this conversation",
    "prefix": "Yes, always",
    "path": "Yes, always below this path",
}


class Asks:
    """The open questions of one conversation. Whoever asks waits; a turn that ends takes its questions with it."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._open: dict[str, asyncio.Future[str]] = {}
        self._count = 0

    @property
    def open(self) -> list[str]:
        return list(self._open)

    async def ask(
        self, kind: Literal["question", "approval", "proposal"], text: str, choices: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Show it and wait for the reply: the key of a choice, or other words."""
        self._count += 1
        name = f"ask-{self._count}"
        waiting = self._open[name] = asyncio.get_running_loop().create_future()
        self._emit(Asked(ask=name, kind=kind, text=text, choices=tuple(choices)))
        reply: str = ""
        try:
            reply = await waiting
        finally:
            self._open.pop(name, None)
            self._emit(Answered(ask=name, reply=reply))
        return reply

    def answer(self, ask: str, reply: str) -> None:
        """Raises :class:`UsageError` (``unknown_ask``) for what is not open."""
        waiting = self._open.get(ask)
        if waiting is None:
            hint = did_you_mean(ask, list(self._open)) if self._open else "Nothing waits for an answer."
            raise UsageError(f"there is no question {ask!r}", hint=hint, code="unknown_ask", param="ask")
        if not waiting.done():
            waiting.set_result(reply)

    def give_way(self) -> None:
        """The user said something else: nothing may hold that up."""
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_result(SAID_ELSE)

    async def consult(self, action: Action, decision: Decision) -> Answer:
        """An approval, as :class:`vivace.agent.approvals.approvals.Approvals` wants it."""
        scopes = [scope for scope in _SCOPES if all(scope in need.scopes for need in decision.needs)] or ["once"]
        rules = ", ".join(dict.fromkeys(need.rule for need in decision.needs if need.rule))
        choices = [
            (scope, _SCOPES[scope] + (f" ({rules})" if rules and scope in ("prefix", "path") else ""))
            for scope in scopes
        ]
        why = "\n".join(f"- {need.what}: {need.reason}" for need in decision.needs)
        reply = await self.ask("approval", f"{_shown(action)}\n{why}", [*choices, ("no", "No")])
        chosen = next((scope for scope in scopes if scope == reply), None)
        if chosen is not None:
            return Answer(allow=True, scope=chosen)
        return Answer(allow=False, note="" if reply == "no" else reply.removeprefix("no: "))

    async def question(self, question: Question) -> str:
        """A question of the model; the label of the option that was chosen, or other words."""
        choices = [(str(n), option.label) for n, option in enumerate(question.options, 1)]
        reply = await self.ask("question", question.text, choices)
        return dict(choices).get(reply, reply)


def _shown(action: Action) -> str:
    match action:
        case RunCommand(text=text):
            return f"Run: {text}"
        case CallTool(server=server, tool=tool):
            return f"Call: {server}/{tool}"
        case ReadFile(path=path):
            return f"Read: {path}"
        case _:
            return f"Write: {action.path}"
