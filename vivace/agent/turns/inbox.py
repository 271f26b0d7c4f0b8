"""What the user said and nobody has answered yet. Every message has a state that can be shown, until it is delivered.

Three verbs, never guessed: *steer* adds to the running turn, *queue* holds for the next, *stop* ends the turn and gives
back what was not taken. Whoever runs turns is the one consumer: a steer that a turn ends without having taken is the
first thing of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from vivace.agent.sessions.conversation import Conversation
from vivace.agent.sessions.entries import Entry, MessageState, User
from vivace.agent.turns.waiting import Waiting, WaitingFile

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
        self.adopted = False
        """A process that is gone had taken it; the turn that it was taken into is over."""


class Inbox:
    """The waiting messages of one conversation, in order. ``changed`` is told each one whose state has changed.

    They are on disk from the moment that :meth:`put` returns; a new inbox of the same conversation has them again.
    """

    def __init__(self, conversation: Conversation, changed: Callable[[Letter], None] = lambda letter: None) -> None:
        self.conversation = conversation
        self.changed = changed
        self.interrupt: Callable[[Letter], None] = lambda letter: None
        """Called for a steer: the running turn's way to be told."""
        self._waiting: list[Letter] = []
        self._sent: list[Letter] = []
        self._count = 0
        self._file = WaitingFile(conversation.path_of_file.with_suffix(".waiting"))
        for kept in self._file.load(self._users()):
            verb: Verb = "steer" if kept.verb == "steer" else "queue"
            self._waiting.append(self._letter(kept.text, verb, kept.files))

    def put(self, text: str, verb: Verb, files: tuple[str, ...] = ()) -> Letter:
        """Take a message in. It is shown from now on, and one day delivered, failed with a reason, or given back."""
        letter = self._letter(text, verb, files)
        self._waiting.append(letter)
        self._save()
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

    def adopt(self, entries: list[Entry]) -> None:
        """Messages that a process that is gone had taken into the conversation, and nobody had begun to answer."""
        for entry in entries:
            if isinstance(entry.data, User):
                letter = self._letter(entry.data.text, "queue", entry.data.files)
                letter.entry, letter.state, letter.adopted = entry.id, "sent", True
                self._sent.append(letter)

    @property
    def sent(self) -> list[Letter]:
        """Taken into a request that the service has not begun to answer."""
        return list(self._sent)

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

    def leave_out(self, text: str, reason: str) -> None:
        """The next request holds no more of the conversation than ``text``: it delivers nothing else."""
        out = [letter for letter in self._sent if letter.text.strip() not in text]
        self._sent = [letter for letter in self._sent if letter not in out]
        for letter in out:
            self._become(letter, "failed", reason)

    def give_back(self) -> list[Letter]:
        """Everything that nobody took, for the user to edit; it is waiting no more."""
        back, self._waiting = self._waiting, []
        self._save()
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
        self._save()
        self.changed(letter)
        if letter.verb == "steer":
            self.interrupt(letter)
        return True

    def drop(self, number: int) -> bool:
        """Take back a waiting message; False when it was taken already."""
        before = len(self._waiting)
        self._waiting = [letter for letter in self._waiting if letter.number != number]
        self._save()
        return len(self._waiting) < before

    def _take(self, letters: list[Letter]) -> list[Letter]:
        if not letters:
            return letters
        rest = [letter for letter in self._waiting if letter not in letters]
        self._file.save(_kept(rest), _kept(letters), self._users())
        entries = self.conversation.append_all([User(letter.text, "sent", letter.files) for letter in letters])
        self._waiting = rest
        self._save()
        for letter, entry in zip(letters, entries, strict=True):
            letter.entry, letter.state = entry, "sent"
            self._sent.append(letter)
            self.changed(letter)
        return letters

    def _letter(self, text: str, verb: Verb, files: tuple[str, ...]) -> Letter:
        self._count += 1
        return Letter(self._count, text, verb, files)

    def _save(self) -> None:
        self._file.save(_kept(self._waiting))

    def _users(self) -> int:
        return sum(isinstance(entry.data, User) for entry in self.conversation.entries())

    def _become(self, letter: Letter, state: MessageState, reason: str = "") -> None:
        letter.state, letter.reason = state, reason
        self.conversation.set_state(letter.entry, state, reason)
        self.changed(letter)


def _kept(letters: list[Letter]) -> list[Waiting]:
    return [Waiting(letter.text, letter.verb, letter.files) for letter in letters]
