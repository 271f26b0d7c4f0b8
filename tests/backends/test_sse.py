"""Server-sent events come out the same however the network cuts them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vivace.backends.sse import SseReader

lines = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20)


@given(st.lists(st.lists(lines, min_size=1, max_size=3), max_size=5), st.data(), st.sampled_from(["\n", "\r\n"]))
def test_any_cut(events: list[list[str]], data: st.DataObject, end: str) -> None:
    said = [": a comment", "event: message", "id: 1"]
    text = "".join(
        "".join(f"{line}{end}" for line in [*said, *(f"data: {line}" for line in event)]) + end for event in events
    )
    body = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    reader = SseReader()
    found: list[bytes] = []
    for begin, stop in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += reader.feed(body[begin:stop])
    assert found == ["\n".join(event).encode() for event in events]
    assert reader.finish() == []


def test_an_end_without_an_empty_line_and_data_without_a_space() -> None:
    reader = SseReader()
    assert reader.feed(b'data:{"a":1}\n\ndata: {"b":2}') == [b'{"a":1}']
    assert reader.finish() == [b'{"b":2}']
    assert reader.finish() == []
