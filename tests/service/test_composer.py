"""The order of events, for whatever comes from a backend."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.service.lines import PATCH, SHELL, TEAM, check
from vivace.backends.base import CallEnd, CallStart, CallText, Reasoning, Text
from vivace.dialects.tools import ToolTable
from vivace.protocol import events as ev
from vivace.protocol import items as it
from vivace.protocol.items import Response
from vivace.protocol.usage import Usage
from vivace.service.composer import Composer, Told

TABLE = ToolTable.of([SHELL, PATCH, TEAM])


def composed(
    pieces: list[Told], status: Any = "completed", seal: Any = None, summarises: bool = False
) -> tuple[Composer, list[ev.Event]]:
    """Everything of a response with these pieces."""
    numbers = itertools.count()
    composer = Composer(TABLE, lambda: next(numbers), seal, summarises)
    response = Response("resp_1", "m", 0.0)
    events: list[ev.Event] = [ev.Created(next(numbers), response)]
    for piece in pieces:
        events += composer.feed(piece)
    events += composer.close(status)
    whole = Response("resp_1", "m", 0.0, status="completed", output=composer.output, usage=Usage())
    return composer, [*events, ev.Completed(next(numbers), whole)]


def kinds(events: list[ev.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_every_item_has_its_events_in_order() -> None:
    composer, events = composed(
        [
            Reasoning("think"),
            Text("I "),
            Text("look."),
            CallStart("team__spawn", "call_1"),
            CallText('{"cmd"'),
            CallText(':"ls"}'),
            CallEnd(),
            CallStart("apply_patch", "call_2", raw=True),
            CallText("*** Begin"),
            CallEnd(),
            Text("Done."),
        ]
    )
    check(events)
    assert kinds(events) == [
        *["Created", "ItemAdded", "PartAdded", "ReasoningTextDelta", "ReasoningTextDone", "PartDone", "ItemDone"],
        *["ItemAdded", "PartAdded", "TextDelta", "TextDelta", "TextDone", "PartDone", "ItemDone"],
        *["ItemAdded", "ArgumentsDelta", "ArgumentsDelta", "ArgumentsDone", "ItemDone"],
        *["ItemAdded", "CustomInputDelta", "CustomInputDone", "ItemDone"],
        *["ItemAdded", "PartAdded", "TextDelta", "TextDone", "PartDone", "ItemDone", "Completed"],
    ]
    _, talk, call, patch, answer = composer.output
    assert isinstance(talk, it.Message) and isinstance(answer, it.Message)
    assert (talk.phase, answer.phase) == ("commentary", "final_answer")
    assert isinstance(call, it.FunctionCall)
    assert (call.namespace, call.name, call.arguments) == ("team", "spawn", '{"cmd":"ls"}')
    assert isinstance(patch, it.CustomToolCall)
    assert patch.input == "*** Begin"
    opened = next(event for event in events if isinstance(event, ev.ItemAdded) and event.output_index == 2)
    assert isinstance(opened.item, it.FunctionCall)
    assert (opened.item.namespace, opened.item.name, opened.item.call_id) == ("team", "spawn", "call_1")


def test_the_json_around_a_patch_comes_off() -> None:
    composer, events = composed([CallStart("apply_patch", "c"), CallText('{"input":"a\\n'), CallText('b"}'), CallEnd()])
    check(events)
    assert isinstance(composer.output[0], it.CustomToolCall)
    assert composer.output[0].input == "a\nb"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    composer, events = composed([CallStart("shell", "c"), CallEnd()])
    check(events)
    assert isinstance(composer.output[0], it.FunctionCall)
    assert composer.output[0].arguments == "{}"


def test_a_call_that_breaks_off_is_never_handed_over() -> None:
    for status in ("completed", "incomplete"):
        composer, events = composed([Text("x"), CallStart("shell", "c"), CallText('{"cmd"')], status)
        check(events)
        assert composer.broken
        assert [type(item) for item in composer.output] == [it.Message]
        assert "ArgumentsDone" not in kinds(events)


def test_what_follows_a_broken_call_has_an_index_of_its_own() -> None:
    composer, events = composed(
        [CallStart("shell", "c"), CallText("{"), Text("so"), CallStart("shell", "d"), CallEnd()]
    )
    check(events)
    done = [event.output_index for event in events if isinstance(event, ev.ItemDone)]
    assert done == [1, 2]
    assert len(composer.output) == 2


def test_thoughts_are_sealed_where_asked() -> None:
    composer, _ = composed([Reasoning("a"), Reasoning("b"), Text("c")], seal=lambda text: f"<{text}>")
    assert isinstance(composer.output[0], it.Reasoning)
    assert composer.output[0].encrypted_content == "<ab>"


def test_thoughts_go_out_as_the_summary_that_was_asked_for() -> None:
    composer, events = composed([Reasoning("a"), Reasoning("b"), Text("c")], summarises=True)
    check(events)
    assert kinds(events)[1:7] == [
        "ItemAdded",
        "ReasoningSummaryPartAdded",
        "ReasoningSummaryTextDelta",
        "ReasoningSummaryTextDelta",
        "ReasoningSummaryTextDone",
        "ReasoningSummaryPartDone",
    ]
    thought = composer.output[0]
    assert isinstance(thought, it.Reasoning) and it.content_text(thought.summary) == "ab"
    # The model reads its own thoughts again, not a summary of them.
    assert it.item_text(thought) == "ab"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
PIECES = st.one_of(
    TEXTS.map(Text),
    TEXTS.map(Reasoning),
    st.builds(
        CallStart, st.sampled_from(["shell", "team__spawn", "apply_patch", "unknown"]), st.just("c"), st.booleans()
    ),
    TEXTS.map(CallText),
    st.just(CallEnd()),
)


@given(st.lists(PIECES, max_size=30), st.sampled_from(["completed", "incomplete"]))
def test_any_pieces_make_events_in_order(pieces: list[Told], status: str) -> None:
    composer, events = composed(pieces, status)
    check(events)
    for event in events:
        assert ev.decode(ev.encode(event)) is not None
    # A call is there if and only if it was ended.
    calls, is_open = 0, False
    for piece in pieces:
        match piece:
            case CallEnd():
                calls += is_open
                is_open = False
            case CallStart():
                is_open = True
            case Text(text) | Reasoning(text) if text:
                is_open = False
    assert calls == sum(isinstance(item, it.FunctionCall | it.CustomToolCall) for item in composer.output)
