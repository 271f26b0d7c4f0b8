"""Random items, events and JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from vivace.protocol import events as ev
from vivace.protocol import items as it

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
number = st.integers(0, 2**31)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text.filter(lambda key: key not in ("type", "role", "id")), json_values, max_size=3)
unknown_type = st.text("abcxyz._", min_size=1, max_size=8)
optional_text = st.none() | text

parts: st.SearchStrategy[it.ContentPart] = st.one_of(
    st.builds(it.InputText, text),
    st.builds(it.InputImage, optional_text, optional_text, optional_text),
    st.builds(it.InputFile, optional_text, optional_text),
    st.builds(it.OutputText, text, st.lists(objects, max_size=2)),
    st.builds(it.Refusal, text),
    st.builds(it.SummaryText, text),
    st.builds(it.ReasoningText, text),
    st.builds(lambda kind, rest: it.OtherPart({"type": kind, **rest}), unknown_type, objects),
)
content = text | st.lists(parts, max_size=3)
status = st.sampled_from([None, "in_progress", "completed", "incomplete"])
items: st.SearchStrategy[it.Item] = st.one_of(
    st.builds(
        it.Message,
        st.sampled_from(["user", "assistant", "system", "developer"]),
        content,
        optional_text,
        status,
        st.sampled_from([None, "commentary", "final_answer"]),
    ),
    st.builds(
        it.Reasoning, optional_text, st.lists(parts, max_size=2), st.none() | st.lists(parts, max_size=2), optional_text
    ),
    st.builds(it.FunctionCall, text, text, text, optional_text, optional_text, status),
    st.builds(it.FunctionCallOutput, text, content, optional_text, status),
    st.builds(it.CustomToolCall, text, text, text, optional_text, optional_text, status),
    st.builds(it.CustomToolCallOutput, text, content, optional_text, status),
    st.builds(it.Compaction, text, optional_text),
    st.builds(it.CompactionTrigger),
    st.builds(it.AdditionalTools, st.lists(objects, max_size=2), optional_text, optional_text),
    st.builds(it.WebSearchCall, optional_text, optional_text, st.none() | objects),
    st.builds(it.ItemReference, text),
    st.builds(lambda kind, rest: it.OtherItem({"type": kind, **rest}), unknown_type, objects),
)
responses = st.builds(
    it.Response,
    id=text,
    model=text,
    created_at=st.floats(0, 1e10),
    status=st.sampled_from(["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]),
    output=st.lists(items, max_size=3),
    error=st.none() | st.builds(it.ResponseError, text, text),
    incomplete_details=st.none() | st.builds(it.IncompleteDetails, text),
    instructions=optional_text,
    tools=st.lists(objects, max_size=2),
    usage=st.none() | st.builds(it.Usage, number, output_tokens=number, total_tokens=number),
    metadata=st.dictionaries(text, text, max_size=2),
)
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "response": responses,
    "item": items,
    "part": parts,
    "error": st.builds(ev.ErrorBody, text, text, optional_text, optional_text),
    "steer": st.builds(ev.Steer, text, optional_text, st.none() | text | st.lists(items, max_size=2)),
    "rate_limits": st.builds(ev.RateLimitWindows, st.none() | st.builds(ev.RateLimitWindow, number, number, number)),
    "required_input": st.lists(st.builds(ev.RequiredInput, text, text, optional_text), max_size=2),
    "headers": st.dictionaries(text, text, max_size=2),
    "status": st.none() | number,
    "logprobs": st.lists(objects, max_size=2),
}


def _event(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        name = field.name
        plain = number if name.endswith(("number", "index")) else text
        fields[name] = _BY_NAME.get(name, plain)
    if kind is ev.ReasoningSummaryPartDone:
        fields["status"] = optional_text
    return st.builds(kind, **fields)


known_events: st.SearchStrategy[ev.Event] = st.one_of([_event(kind) for kind in ev.KNOWN_EVENTS])


@st.composite
def mutated(draw: st.DrawFn, documents: list[bytes]) -> bytes:
    """One of the documents with a value replaced or removed, or with its bytes broken."""
    data = draw(st.sampled_from(documents))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        return data[:at] + draw(st.binary(max_size=6)) + data[draw(st.integers(at, min(at + 6, len(data)))) :]
    document = json.loads(data)
    places = list(_places(document))
    holder, key = draw(st.sampled_from(places))
    if draw(st.booleans()):
        holder[key] = draw(json_values)
    else:
        del holder[key]
    return json.dumps(document).encode()


def _places(value: Any) -> Any:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(entries):
        yield value, key
        yield from _places(inner)
