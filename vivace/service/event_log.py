"""The events of an ended response as one block of bytes, to be told again after a restart.

A JSON array. An event is its object; deltas that went on where the last one ended are one entry, ``[event, [text,
...]]``: what they have besides their text, their numbers included, follows from the first. So a long answer takes about
three times its text, and not two hundred bytes a token.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from vivace.protocol import events as ev

_Delta = (
    ev.TextDelta
    | ev.RefusalDelta
    | ev.ReasoningTextDelta
    | ev.ReasoningSummaryTextDelta
    | ev.ArgumentsDelta
    | ev.CustomInputDelta
)


def pack(events: Sequence[ev.Event]) -> bytes:
    """The events in order, without those that only kept a connection alive."""
    entries: list[bytes] = []
    first: _Delta | None = None
    more: list[str] = []

    def close() -> None:
        if first is not None:
            entries.append(b"[%b,%b]" % (ev.encode(first), ev.encode(more)) if more else ev.encode(first))

    for event in events:
        if isinstance(event, ev.Keepalive):
            continue
        if not isinstance(event, _Delta):
            close()
            first = None
            entries.append(ev.encode(event))
        elif first is not None and _goes_on(first, len(more) + 1, event):
            more.append(event.delta)
        else:
            close()
            first, more = event, []
    close()
    return b"[%b]" % b",".join(entries)


def unpack(packed: bytes) -> list[ev.Event]:
    """What :func:`pack` was given. Raises :class:`msgspec.DecodeError` for what it did not make."""
    events: list[ev.Event] = []
    for entry in msgspec.json.decode(packed, type=list[Raw]):
        text = bytes(entry)
        if not text.startswith(b"["):
            events.append(ev.decode(text))
            continue
        head, more = msgspec.json.decode(text, type=tuple[Raw, list[str]])
        first = ev.decode(bytes(head))
        assert isinstance(first, _Delta)
        events.append(first)
        for place, delta in enumerate(more, 1):
            number = first.sequence_number + place
            events.append(msgspec.structs.replace(first, sequence_number=number, delta=delta))
    return events


def _goes_on(first: _Delta, place: int, event: _Delta) -> bool:
    """Whether ``event`` differs from ``first``, ``place`` events before it, in its text and number alone."""
    if type(event) is not type(first) or event.sequence_number != first.sequence_number + place:
        return False
    return msgspec.structs.replace(event, sequence_number=first.sequence_number, delta=first.delta) == first
