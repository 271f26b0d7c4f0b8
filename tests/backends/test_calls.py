"""Mixed tool calls come one after the other, whole, and each as soon as it is."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.backends.asking import PATCH, SHELL, assembled
from vivace.backends.base import CallEnd, CallStart
from vivace.backends.calls import Calls, JsonEnd
from vivace.dialects.tools import ToolTable

TABLE = ToolTable.of([SHELL, PATCH])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


def split(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    return [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.lists(st.tuples(objects, st.booleans()), max_size=4), st.data(), st.booleans())
def test_any_mix(given_calls: list[tuple[dict[str, Any], bool]], data: st.DataObject, ascii_only: bool) -> None:
    wanted, waiting = [], {}
    for number, (value, custom) in enumerate(given_calls):
        value = {"input": json.dumps(value)} if custom else value
        arguments = json.dumps(value, ensure_ascii=ascii_only)
        name = "apply_patch" if custom else "shell"
        wanted.append((name, f"c{number}", value["input"] if custom else arguments, True))
        waiting[number] = [(f"c{number}", name, ""), *(("", "", text) for text in split(arguments, data))]
    calls, pieces = Calls(TABLE), []
    # The calls begin in order; their pieces are mixed in any way.
    for number in waiting:
        pieces += calls.add(number, *waiting[number].pop(0))
    while any(waiting.values()):
        number = data.draw(st.sampled_from([n for n, left in waiting.items() if left]))
        pieces += calls.add(number, *waiting[number].pop(0))
    assert assembled(pieces) == wanted, "a call was held after its last piece"
    assert calls.finish(cut=False) == []


@given(objects, st.text(max_size=5), st.data(), st.booleans())
def test_the_end_of_an_object(value: dict[str, Any], after: str, data: st.DataObject, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    end, taken = JsonEnd(), 0
    for piece in split(text, data):
        assert not end.closed or not piece
        taken += end.feed(piece) if not end.closed else 0
    assert end.closed
    assert taken == len(text)
    whole = JsonEnd()
    assert whole.feed(text + after) == len(text)


@given(objects.filter(bool), st.data())
def test_a_cut_call_is_never_ended(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    calls = Calls(TABLE)
    pieces = calls.add(0, "c0", "shell", text[: data.draw(st.integers(0, len(text) - 1))])
    pieces += calls.add(1, "c1", "shell", '{"cmd":"ls"}')
    pieces += calls.add(2, "c2", "shell", "{")
    found = assembled(pieces + calls.finish(cut=True))
    assert [(call_id, ended) for _, call_id, _, ended in found][-1] == ("c0", False)
    assert all(ended for *_, ended in found[:-1])


def test_no_arguments_and_no_json() -> None:
    calls = Calls(TABLE)
    pieces = calls.add(0, "c0", "shell", "")
    pieces += calls.add(1, "c1", "shell", "not json")
    pieces += calls.finish(cut=False)
    assert assembled(pieces) == [("shell", "c0", "{}", True), ("shell", "c1", "not json", True)]


def test_free_text_ends_when_the_stream_says_so() -> None:
    calls = Calls(TABLE)
    pieces = calls.add(3, "c", "apply_patch", "", free=True)
    pieces += calls.add(3, "", "", "*** {Begin} ", free=True)
    pieces += calls.add(3, "", "", "Patch", free=True)
    assert CallEnd() not in pieces
    pieces += calls.end(3, "*** {Begin} Patch")
    assert assembled(pieces) == [("apply_patch", "c", "*** {Begin} Patch", True)]
    assert pieces[0] == CallStart("apply_patch", "c", raw=True)
