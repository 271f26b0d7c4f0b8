"""A conversation: an append-only tree of entries in one file. What was acknowledged survives any crash.

Entries follow each other; going back and on from there makes a branch, and nothing is ever removed. One process writes
a conversation; whoever opens it meanwhile reads.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vivace.agent.sessions.entries import (
    VERSION,
    About,
    Branch,
    Data,
    Entry,
    Header,
    MessageState,
    State,
    Title,
    User,
    decode_entry,
    decode_header,
    encode_entry,
    encode_header,
)
from vivace.agent.sessions.journal import Journal
from vivace.agent.sessions.upgrades import upgraded, version_of
from vivace.errors import UsageError, VivaceError

TITLE_LENGTH = 80


class Conversation:
    """Made by :meth:`create`, :meth:`open` and :meth:`fork`. Safe to use from several threads.

    ``leaf`` is the entry that the next one follows, None at the beginning. ``repaired`` counts the bytes of a torn last
    line that opening removed, ``damaged`` the numbers of lines that cannot be read (and were left in the file).
    """

    def __init__(self, journal: Journal, header: Header) -> None:
        self.header = header
        self.leaf: str | None = None
        self.repaired = 0
        self.damaged: list[int] = []
        self._journal = journal
        self._entries: dict[str, Entry] = {}
        self._states: dict[str, State] = {}
        self._parents: set[str] = set()
        self._title = ""
        self._lines = 0
        self._lock = threading.RLock()

    @classmethod
    def create(cls, folder: Path, workspace: Path) -> Conversation:
        """A new one in ``folder`` (see :func:`conversations_folder`). Its file is made with its first entry."""
        now = time.time()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}"
        journal = Journal(folder / f"{name}.jsonl", write=True)
        header = Header(version=VERSION, id=name, workspace=str(workspace), created=now)
        return cls(journal, header)

    @classmethod
    def open(cls, path: Path, *, write: bool = True) -> Conversation:
        """Go on with one. While another process writes it, it can only be read: ``read_only`` says why.

        Raises :class:`UsageError` (``conversation_not_found``) and :class:`VivaceError` (``conversation_broken``: its
        first line is no header; ``conversation_version``: a newer vivace wrote it).
        """
        if not path.is_file():
            raise UsageError(f"There is no conversation {path.stem}.", code="conversation_not_found")
        journal = Journal(path, write=write)
        try:
            return cls._opened(journal)
        except BaseException:
            journal.close()
            raise

    @classmethod
    def _opened(cls, journal: Journal) -> Conversation:
        lines = journal.read()
        version = version_of(lines[0]) if lines else None
        if version is None:
            raise VivaceError(f"{journal.path} does not begin as a conversation does", code="conversation_broken")
        if version > VERSION:
            raise VivaceError(
                f"{journal.path} was written by a newer vivace (version {version}; this one reads {VERSION})",
                hint="Update vivace to go on with it.",
                code="conversation_version",
            )
        if version < VERSION:
            lines = upgraded(lines, version)
            if journal.writable:
                journal.replace(b"".join(line + b"\n" for line in lines))
                lines = journal.read()
        try:
            header = decode_header(lines[0])
        except msgspec.DecodeError as error:
            raise VivaceError(f"{journal.path}: {error}", code="conversation_broken") from None
        conversation = cls(journal, header)
        conversation._lines = 1
        torn = conversation._take_in(lines[1:])
        if journal.writable:
            journal.cut(len(torn), sum(map(len, torn)))
            conversation.repaired = journal.repair()
            del conversation.damaged[len(conversation.damaged) - len(torn) :]
            conversation._lines -= len(torn)
        return conversation

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def path_of_file(self) -> Path:
        return self._journal.path

    @property
    def read_only(self) -> str:
        """Why nothing can be added; empty when it can."""
        if self._journal.writable:
            return ""
        if not self._journal.busy:
            return f"The conversation {self.id} was opened to be read."
        by = f" (process {self._journal.writer})" if self._journal.writer else ""
        return f"The conversation {self.id} is open in another vivace{by}."

    @property
    def title(self) -> str:
        """What it was called, else the first line that the user wrote; may be empty."""
        if self._title:
            return self._title
        for entry in self._entries.values():
            if isinstance(entry.data, User) and entry.data.text.strip():
                return short(entry.data.text)
        return ""

    def append(self, data: Data) -> str:
        """Add an entry behind :attr:`leaf`, which it becomes; its id. It is on disk when this returns.

        Raises :class:`UsageError` (``read_only``) and :class:`VivaceError` (``disk_full``, ``write_failed``); nothing
        was added then.
        """
        return self.append_all([data])[0]

    def append_all(self, datas: Sequence[Data]) -> list[str]:
        """The same for several that follow each other, all or none, synced once."""
        with self._lock:
            if self.read_only:
                raise UsageError(
                    self.read_only, hint="Fork it to go on from there, or close it elsewhere.", code="read_only"
                )
            parent, made = self.leaf, []
            for data in datas:
                follows = None if isinstance(data, About) else parent
                made.append(Entry(secrets.token_hex(6), follows, time.time(), data))
                parent = data.at if isinstance(data, Branch) else parent if isinstance(data, About) else made[-1].id
            head = b"" if self._lines else encode_header(self.header)
            self._journal.add(head + b"".join(map(encode_entry, made)))
            self._lines += len(made) + bool(head)
            for entry in made:
                self._add(entry)
            return [entry.id for entry in made]

    def branch(self, at: str | None) -> None:
        """Go on behind ``at`` (None: from the beginning). Stays so when the conversation is opened again."""
        with self._lock:
            if at is not None:
                self.entry(at)
            if at != self.leaf:
                self.append(Branch(at))

    def set_title(self, title: str) -> None:
        self.append(Title(short(title)))

    def set_state(self, message: str, state: MessageState, reason: str = "") -> None:
        """Say what became of a message of the user."""
        if not isinstance(self.entry(message).data, User):
            raise UsageError(f"{message} is not a message of the user", code="not_a_message")
        self.append(State(message, state, reason))

    def state(self, message: str) -> State:
        """What became of a message so far."""
        data = self.entry(message).data
        if not isinstance(data, User):
            raise UsageError(f"{message} is not a message of the user", code="not_a_message")
        return self._states.get(message) or State(message, data.state)

    def undelivered(self) -> list[Entry]:
        """Messages on the current path that wait: none of them may be lost when it is gone on with."""
        users = (entry for entry in self.path() if isinstance(entry.data, User))
        return [entry for entry in users if self.state(entry.id).state in ("queued", "sent")]

    def entry(self, number: str) -> Entry:
        """Raises :class:`UsageError` (``entry_not_found``)."""
        if number not in self._entries:
            raise UsageError(f"The conversation {self.id} has no entry {number}.", code="entry_not_found")
        return self._entries[number]

    def __contains__(self, number: str) -> bool:
        return number in self._entries

    def entries(self) -> list[Entry]:
        """All of the tree, in the order in which they were added."""
        return list(self._entries.values())

    def path(self, leaf: str | None = None) -> list[Entry]:
        """From the first entry to ``leaf``, or to where the conversation is."""
        return list(self.upwards(leaf or self.leaf))[::-1]

    def upwards(self, leaf: str | None) -> Iterator[Entry]:
        """``leaf`` and what it follows, nearest first. Ends early where a damaged line leaves a gap."""
        here = self.entry(leaf) if leaf is not None else None
        while here is not None:
            yield here
            here = self._entries.get(here.parent) if here.parent is not None else None

    def leaves(self) -> list[Entry]:
        """Entries that nothing follows, the newest first."""
        return [entry for entry in reversed(self._entries.values()) if entry.id not in self._parents]

    def fork(self, at: str | None = None) -> Conversation:
        """A new conversation that begins with the path to ``at``; ids and times stay as they are."""
        with self._lock:
            path = self.path(at)
            made = Conversation.create(self._journal.path.parent, Path(self.header.workspace))
            made.header = msgspec.structs.replace(
                made.header,
                forked_from=(self.id, path[-1].id if path else ""),
                lineage=(*self.header.lineage, self.id),
            )
            states = [self._states[entry.id] for entry in path if entry.id in self._states]
            about: list[Data] = [*states, *([Title(self._title)] if self._title else [])]
            copied = [*path, *(Entry(secrets.token_hex(6), None, time.time(), data) for data in about)]
            made._journal.add(encode_header(made.header) + b"".join(map(encode_entry, copied)))
            made._lines = len(copied) + 1
            for entry in copied:
                made._add(entry)
            return made

    def refresh(self) -> list[Entry]:
        """What the process that writes it has added since; for one that reads."""
        with self._lock:
            before = len(self._entries)
            if not self._journal.writable:
                self._take_in(self._journal.read())
            return list(self._entries.values())[before:]

    def close(self) -> None:
        self._journal.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_in(self, lines: list[bytes]) -> list[bytes]:
        """Read lines; gives the last ones that cannot be read, when nothing readable follows them."""
        torn: list[bytes] = []
        for line in lines:
            self._lines += 1
            try:
                self._add(decode_entry(line))
                torn.clear()
            except msgspec.DecodeError:
                self.damaged.append(self._lines)
                torn.append(line)
        return torn

    def _add(self, entry: Entry) -> None:
        match entry.data:
            case State(of=message):
                self._states[message] = entry.data
            case Title(text=text):
                self._title = text
            case Branch(at=at):
                self.leaf = at if at in self._entries else None
            case _:
                self._entries[entry.id] = entry
                if entry.parent is not None:
                    self._parents.add(entry.parent)
                self.leaf = entry.id


def short(text: str) -> str:
    """The first line that says something, cut to the length of a title."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
