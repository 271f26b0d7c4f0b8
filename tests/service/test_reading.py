"""Items as a model reads them, and what stays of a conversation when it is compacted."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vivace.protocol import items as it
from vivace.protocol.errors import BadRequest
from vivace.protocol.items import Item
from vivace.service.reading import SUMMARY, after_compaction, parts_of, read_after, read_items, wants_compaction
from vivace.service.sealing import Sealer

SEALER = Sealer(b"k" * 32)
TOLD, USER = it.Message("developer", "told"), it.Message("user", "asked")
SAID, THOUGHT = it.Message("assistant", "said"), it.Reasoning("rs", [], [it.ReasoningText("hm")])
CALL, OUTPUT = it.FunctionCall("c1", "shell", "{}"), it.FunctionCallOutput("c1", "out")
PATCH, PATCHED = it.CustomToolCall("c2", "apply_patch", "x"), it.CustomToolCallOutput("c2", "ok")
SUM = it.Message("user", SUMMARY + "sum")
TOOLS = it.AdditionalTools([{"type": "function", "name": "late"}])


def test_opaque_items_are_opened() -> None:
    compaction = it.Compaction(SEALER.seal("compaction", "sum"))
    thought = it.Reasoning("rs", [], None, SEALER.seal("reasoning", "hm"))
    foreign = it.Reasoning("rs", [], None, "gAAAA")
    read = read_items([USER, compaction, thought, foreign, it.CompactionTrigger()], SEALER, lambda id: None)
    assert read == [USER, SUM, THOUGHT]
    for wrong in ("gAAAA", SEALER.seal("reasoning", "hm"), Sealer(b"o" * 32).seal("compaction", "x")):
        with pytest.raises(BadRequest) as caught:
            read_items([USER, it.Compaction(wrong)], SEALER, lambda id: None)
        assert caught.value.param == "input[1]"
    assert wants_compaction([USER, it.CompactionTrigger()])
    assert not wants_compaction([it.CompactionTrigger(), USER])
    assert not wants_compaction([])


@pytest.mark.parametrize(
    ("items", "kept"),
    [
        ([TOLD, USER, SAID, USER], [TOLD, SUM, USER]),
        ([TOLD, USER, SAID], [TOLD, SUM]),
        ([USER, THOUGHT, CALL, OUTPUT], [SUM, CALL, OUTPUT]),
        (
            [TOLD, USER, THOUGHT, SAID, CALL, PATCH, PATCHED, OUTPUT, USER],
            [TOLD, SUM, CALL, PATCH, PATCHED, OUTPUT, USER],
        ),
        ([TOLD, USER, CALL, PATCH, PATCHED], [TOLD, SUM, PATCH, PATCHED]),
        ([TOLD, USER, TOOLS, SAID, TOLD, USER], [TOLD, TOOLS, SUM, TOLD, USER]),
    ],
)
def test_what_is_kept_beside_a_summary(items: list[Item], kept: list[Item]) -> None:
    assert after_compaction(items, [SUM], compacts=False) == kept


def test_a_compaction_alone_stands_for_all_but_what_was_told() -> None:
    assert after_compaction([TOLD, USER, CALL, OUTPUT], [SUM], compacts=True) == [TOLD, SUM]
    made: list[Item] = [it.Compaction(SEALER.seal("compaction", "sum")), SAID]
    assert read_after(None, [TOLD, USER, SAID, USER], made, False, SEALER) == ([TOLD, SUM, USER, SAID], True)
    assert read_after(None, [TOLD, USER], [SAID], False, SEALER) == ([TOLD, USER, SAID], False)


@example([CALL, PATCH, OUTPUT, SAID, PATCHED])
@given(st.lists(st.sampled_from([TOLD, USER, SAID, THOUGHT, CALL, OUTPUT, PATCH, PATCHED]), max_size=12))
def test_no_output_is_left_without_its_call(items: list[Item]) -> None:
    head, start = parts_of(items)
    assert 0 <= head <= start <= len(items)
    before, tail = items[:start], items[start:]
    for output, call in ((OUTPUT, CALL), (PATCHED, PATCH)):
        if output in tail and call not in tail:
            assert call not in before[head:]
    assert all(item == TOLD for item in items[:head])
