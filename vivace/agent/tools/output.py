"""The output of a command: all of it to the face as it comes, its two ends in memory for the model."""

from __future__ import annotations

import codecs
from collections.abc import Callable

END = 64 * 1024
"""Characters kept of either end; no tool budget is larger."""


class Output:
    """Bytes in, text out. Bytes that are not UTF-8 show as replacement characters; terminal codes are left out."""

    def __init__(self, listener: Callable[[str], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._codes = _Codes()
        self._listener = listener
        self._head = ""
        self._tail = ""
        self._length = 0
        self._told = 0
        self._fresh = ""
        self._missed = 0

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take a piece; ``final`` flushes what a cut-off character left."""
        text = self._codes.strip(self._decoder.decode(data, final)).replace("\r\n", "\n")
        if not text:
            return
        if self._listener is not None:
            self._listener(text)
        self._length += len(text)
        room = END - len(self._head)
        self._head += text[:room]
        self._tail = (self._tail + text[room:])[-END:]
        self._fresh += text
        if len(self._fresh) > 2 * END:
            self._missed += len(self._fresh) - 2 * END
            self._fresh = self._fresh[-2 * END :]

    @property
    def dropped(self) -> int:
        """Characters that are kept no more."""
        return self._length - len(self._head) - len(self._tail)

    @property
    def text(self) -> str:
        """Everything, or both ends when it was too much."""
        if not self.dropped:
            return self._head + self._tail
        return f"{self._head}\n[... {self.dropped:,} characters dropped ...]\n{self._tail}"

    def take(self) -> str:
        """What came since the last call; of too much only the end, which is said."""
        fresh, missed = self._fresh, self._missed
        self._fresh, self._missed = "", 0
        return f"[... {missed:,} characters dropped ...]\n{fresh}" if missed else fresh


class _Codes:
    """Strips the escape sequences of terminals (ECMA-48), also those that end in the next piece."""

    _LONGEST = 256
    """An escape that does not end within so many characters is none."""

    def __init__(self) -> None:
        self._open = ""

    def strip(self, text: str) -> str:
        text = self._open + text
        self._open = ""
        if "\x1b" not in text:
            return text
        out = []
        at = 0
        while (start := text.find("\x1b", at)) >= 0:
            out.append(text[at:start])
            end = _escape_end(text, start)
            if end < 0:
                if len(text) - start < self._LONGEST:
                    self._open = text[start:]
                    return "".join(out)
                end = start + 1
            at = end
        out.append(text[at:])
        return "".join(out)


def _escape_end(text: str, start: int) -> int:
    """The index behind the escape sequence at ``start``, or -1 when it goes on."""
    if start + 1 >= len(text):
        return -1
    kind = text[start + 1]
    if kind == "[":  # CSI: parameters, then one final byte
        for at in range(start + 2, len(text)):
            if "@" <= text[at] <= "~":
                return at + 1
        return -1
    if kind in "]P_^X":  # OSC and its kin: to BEL or ST
        bell, close = text.find("\x07", start), text.find("\x1b\\", start + 2)
        ends = [at for at in (bell + 1, close + 2 if close >= 0 else 0) if at > start]
        return min(ends) if ends else -1
    return start + 2
