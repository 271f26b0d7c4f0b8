"""What the user said and nobody has answered yet. Every message has a state that can be shown, until it is delivered.

Three verbs, never guessed: *steer* adds to the running turn, *queue* holds for the next, *stop* ends the turn and gives
back what was not taken. Whoever runs turns is the one consumer: a steer that a turn ends without having taken is the
first thing of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import MessageState, User

Verb = Literal["steer", "queue"]


class Letter:
    """One message. ``entry`` is its entry in the conversation once it was taken into a turn."""

    def __init__(self, number: int, text: str, verb: Verb, files: tuple[str, ...]) -> None:
        self.number = number
        self.text = text
        self.verb: Verb = verb
        self.files = files
        self.state: MessageState = "queued"
        self.reason = ""
        self.entry = ""


class Inbox:
    """The waiting messages of one conversation, in order. ``changed`` is told each one whose state has changed."""

    def __init__(self, conversation: Conversation, changed: Callable[[Letter], None] = lambda letter: None) -> None:
        self.conversation = conversation
        self.changed = changed
        self.interrupt: Callable[[Letter], None] = lambda letter: None
        """Called for a steer: the running turn's way to be told."""
        self._waiting: list[Letter] = []
        self._sent: list[Letter] = []
        self._count = 0

    def put(self, text: str, verb: Verb, files: tuple[str, ...] = ()) -> Letter:
        """Take a message in. It is shown from now on, and one day delivered, failed with a reason, or given back."""
        self._count += 1
        letter = Letter(self._count, text, verb, files)
        self._waiting.append(letter)
        self.changed(letter)
        if verb == "steer":
            self.interrupt(letter)
        return letter

    @property
    def waiting(self) -> list[Letter]:
        return list(self._waiting)

    @property
    def steered(self) -> bool:
        """Whether the running turn has something to take."""
        return any(letter.verb == "steer" for letter in self._waiting)

    def take_steers(self) -> list[Letter]:
        """The steers, for the request that the running turn makes next."""
        return self._take([letter for letter in self._waiting if letter.verb == "steer"])

    def take_next(self) -> list[Letter]:
        """What the next turn begins with: all steers that came too late, else the first that was queued."""
        late = [letter for letter in self._waiting if letter.verb == "steer"]
        return self._take(late or self._waiting[:1])

    def delivered(self) -> None:
        """The service has begun to answer a request with the messages that were taken."""
        for letter in self._sent:
            self._become(letter, "delivered")
        self._sent.clear()

    def failed(self, reason: str) -> None:
        """The request with the messages that were taken came to nothing; they are kept, and can be sent again."""
        for letter in self._sent:
            self._become(letter, "failed", reason)
        self._sent.clear()

    def give_back(self) -> list[Letter]:
        """Everything that nobody took, for the user to edit; it is waiting no more."""
        back, self._waiting = self._waiting, []
        for letter in back:
            letter.state, letter.reason = "failed", "given back"
            self.changed(letter)
        return back

    def change(self, number: int, text: str | None = None, verb: Verb | None = None) -> bool:
        """Edit a waiting message, or turn a queued one into a steer; False when it was taken already."""
        letter = next((letter for letter in self._waiting if letter.number == number), None)
        if letter is None:
            return False
        letter.text = letter.text if text is None else text
        letter.verb = letter.verb if verb is None else verb
        self.changed(letter)
        if letter.verb == "steer":
            self.interrupt(letter)
        return True

    def drop(self, number: int) -> bool:
        """Take back a waiting message; False when it was taken already."""
        before = len(self._waiting)
        self._waiting = [letter for letter in self._waiting if letter.number != number]
        return len(self._waiting) < before

    def _take(self, letters: list[Letter]) -> list[Letter]:
        for letter in letters:
            letter.entry = self.conversation.append(User(letter.text, "sent", letter.files))
            self._waiting.remove(letter)
            self._sent.append(letter)
            letter.state = "sent"
            self.changed(letter)
        return letters

    def _become(self, letter: Letter, state: MessageState, reason: str = "") -> None:
        letter.state, letter.reason = state, reason
        self.conversation.set_state(letter.entry, state, reason)
        self.changed(letter)
