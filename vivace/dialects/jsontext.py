"""JSON text that is still being written: strings decoded as they come."""

from __future__ import annotations

import re

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_SPECIAL = re.compile(r'["\\]')
_FOUR_HEX = re.compile(r"[0-9a-fA-F]{4}")


class StringDecoder:
    """The inside of one JSON string, pieces in, decoded text out, up to the closing quote.

    What comes out joined is what ``json.loads`` gives, except that half a surrogate pair becomes U+FFFD (it could not
    be sent on as UTF-8). Line breaks and other control characters, which models write raw, are taken as they are.
    """

    def __init__(self) -> None:
        self.closed = False
        self.rest = ""
        """What followed the closing quote."""

        self._held = ""
        self._high = ""

    def feed(self, text: str) -> str:
        """The text that ``text`` completes. After the closing quote everything goes to ``rest``."""
        if self.closed:
            self.rest += text
            return ""
        text = self._held + text
        self._held = ""
        out: list[str] = []
        at = 0
        while at < len(text):
            special = _SPECIAL.search(text, at)
            end = special.start() if special else len(text)
            if end > at:
                out.append(self._half() + _utf8(text[at:end]))
            at = end
            if special is None:
                break
            if text[at] == '"':
                out.append(self._half())
                self.closed, self.rest = True, text[at + 1 :]
                break
            taken = self._escape(text, at, out)
            if not taken:
                self._held = text[at:]
                break
            at += taken
        return "".join(out)

    def finish(self) -> str:
        """What is left when the text broke off: half a pair is U+FFFD, half an escape nothing."""
        self._held = ""
        return self._half()

    def _escape(self, text: str, at: int, out: list[str]) -> int:
        """The length of the escape at ``at``; 0 while it is not whole."""
        if at + 1 == len(text):
            return 0
        letter = text[at + 1]
        if letter != "u":
            out.append(self._half() + _ESCAPES.get(letter, "\\" + letter))
            return 2
        digits = text[at + 2 : at + 6]
        if len(digits) < 4 and all(char in "0123456789abcdefABCDEF" for char in digits):
            return 0
        if not _FOUR_HEX.fullmatch(digits):
            out.append(self._half() + "\\u")
            return 2
        char = chr(int(digits, 16))
        if "\ud800" <= char <= "\udbff":
            out.append(self._half())
            self._high = char
        elif self._high and "\udc00" <= char <= "\udfff":
            out.append((self._high + char).encode("utf-16", "surrogatepass").decode("utf-16"))
            self._high = ""
        else:
            out.append(self._half() + _utf8(char))
        return 6

    def _half(self) -> str:
        half, self._high = self._high, ""
        return "\ufffd" if half else ""


_KEY = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*"')
_MAYBE_KEY = re.compile(r'\s*(\{\s*("((?:[^"\\]|\\.)*\\?)?("\s*(:\s*)?)?)?)?')


class CustomInputDecoder:
    """The free text of a custom tool out of the JSON arguments ``{"input": "..."}`` that a model writes, as they come.

    Whatever the model calls the string, the first one is meant. Arguments that are no such object come out as they are.
    """

    def __init__(self) -> None:
        self._string: StringDecoder | None = None
        self._head = ""
        self._plain = False

    def feed(self, text: str) -> str:
        """The part of the free text that ``text`` completes."""
        if self._plain:
            return text
        if self._string is not None:
            return self._string.feed(text)
        self._head += text
        opened = _KEY.match(self._head)
        if opened:
            self._string = StringDecoder()
            return self._string.feed(self._head[opened.end() :])
        if _MAYBE_KEY.fullmatch(self._head):
            return ""
        self._plain = True
        return self._head

    def finish(self) -> str:
        """What is left at the end of the arguments."""
        if self._string is not None:
            return self._string.finish()
        return "" if self._plain else self._head


def _utf8(text: str) -> str:
    """``text`` with lone surrogates, which no UTF-8 has, replaced."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)
