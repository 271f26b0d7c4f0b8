"""Events as one block of bytes: what comes out is what went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.service.event_log import pack, unpack

KINDS = st.sampled_from(["text", "other text", "refusal", "thought", "summary", "arguments", "input", "done", "alive"])


def event(kind: str, number: int, text: str) -> ev.Event:
    match kind:
        case "text":
            return ev.TextDelta(number, "msg_1", 0, 0, text)
        case "other text":
            return ev.TextDelta(number, "msg_2", 1, 0, text)
        case "refusal":
            return ev.RefusalDelta(number, "msg_1", 0, 0, text)
        case "thought":
            return ev.ReasoningTextDelta(number, "rs_1", 0, 0, text)
        case "summary":
            return ev.ReasoningSummaryTextDelta(number, "rs_1", 0, 0, text)
        case "arguments":
            return ev.ArgumentsDelta(number, "fc_1", 2, text)
        case "input":
            return ev.CustomInputDelta(number, "ctc_1", 2, text)
        case "done":
            return ev.ItemDone(number, 0, it.Message("assistant", [it.OutputText(text)], "msg_1", "completed"))
        case _:
            return ev.Keepalive(sequence_number=number)


@given(st.lists(st.tuples(KINDS, st.integers(1, 2), st.text(max_size=4)), max_size=40))
def test_what_is_packed_comes_out_again(made: list[tuple[str, int, str]]) -> None:
    number, events = 0, []
    for kind, step, text in made:
        events.append(event(kind, number, text))
        number += step
    assert unpack(pack(events)) == [one for one in events if not isinstance(one, ev.Keepalive)]


def test_a_delta_takes_little_more_than_its_text() -> None:
    events = [event("text", number, "word ") for number in range(1000)]
    events[500].logprobs.append({"token": "word "})  # type: ignore[union-attr]
    packed = pack(events)
    assert unpack(packed) == events
    assert len(packed) < 10_000
