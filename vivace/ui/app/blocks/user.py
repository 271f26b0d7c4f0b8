"""A message of the user, with what became of it."""

from __future__ import annotations

from vivace.agent.sessions.entries import MessageState
from vivace.ui.app.blocks.base import Block

MARKS: dict[str, str] = {"queued": "waits", "sent": "sent", "delivered": "", "failed": "not delivered"}


class UserMessage(Block):
    def __init__(self, text: str, verb: str = "send", state: MessageState = "delivered", reason: str = "") -> None:
        super().__init__()
        self.text, self.verb, self.state, self.reason = text, verb, state, reason

    def become(self, state: MessageState, reason: str) -> None:
        self.state, self.reason = state, reason
        self.again()

    def plain(self) -> str:
        return self.text

    def fill(self) -> None:
        assert self.look is not None
        look = self.look
        self.add_text(self.text, look.strong, "» " if self.verb == "steer" else "> ", look.user)
        note = MARKS[self.state]
        if self.state == "failed" and self.reason:
            note = f"{note}: {self.reason}"
        if note:
            self.add_text(note, look.bad if self.state == "failed" else look.dim)
