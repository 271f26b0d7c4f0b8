"""Links: found by id or by what they say, and forgotten in time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol import items as it
from vivace.protocol.items import Item, items_of
from vivace.service.chains import NEAR, OVERHEAD, Chains, Link, extend, root

CONVERSATION: list[Item] = [
    it.Message("developer", "Be good."),
    it.Message("user", [it.InputText("look")]),
    it.Reasoning("rs_1", [], [it.ReasoningText("hm")], "v1.x.y"),
    it.Message("assistant", [it.OutputText("I look.")], "msg_1", "completed", "commentary"),
    it.FunctionCall("call_1", "spawn", '{"a": 1}', "team", "fc_1", "completed"),
    it.FunctionCallOutput("call_1", "done"),
    it.CustomToolCall("call_2", "apply_patch", "*** Begin", None, "ctc_1", "completed"),
    it.CustomToolCallOutput("call_2", [it.InputText("ok")]),
    it.Compaction("blob", "cmp_1"),
    it.Message("assistant", [it.OutputText("Done.")], "msg_2", "completed", "final_answer"),
]


def link(id: str = "r1", parent: Link | None = None, made: list[Item] | None = None, **fields: Any) -> Link:
    given = fields.pop("given", [it.Message("user", f"to {id}")])
    made = [it.Message("assistant", f"from {id}", f"msg_{id}")] if made is None else made
    principal, model = fields.pop("principal", "me"), fields.pop("model", "m")
    return Link(id, principal, model, parent, given, made, [*given, *made], **fields)


def find(chains: Chains, items: list[Item], principal: str = "me", model: str = "m", told: str | None = None) -> Any:
    found = chains.longest(root(principal, model, told), items)
    return (found.link.id if found.link else None, found.covered)


def sent_back(item: Item) -> list[Item]:
    """An item as a client sends it back: without what is no part of what was said."""
    if isinstance(item, it.Reasoning):
        return []
    value: dict[str, Any] = {
        key: v for key, v in msgspec.to_builtins(item).items() if key not in ("id", "status", "phase")
    }
    if value["type"] == "message" and value["role"] == "assistant":
        value["content"] = [{"type": "output_text", "text": part["text"]} for part in value["content"]]
    return items_of([value])


def test_a_conversation_that_is_sent_again_is_found() -> None:
    chains = Chains()
    first = link("r1", given=CONVERSATION[:2], made=CONVERSATION[2:5])
    second = link("r2", first, given=CONVERSATION[5:6], made=CONVERSATION[6:7])
    third = link("r3", second, given=CONVERSATION[7:8], made=CONVERSATION[8:])
    for each in (first, second, third):
        chains.add(each)
    more: list[Item] = [it.Message("user", "more")]
    assert find(chains, [*CONVERSATION, *more]) == ("r3", 10)
    bare = [back for item in CONVERSATION for back in sent_back(item)]
    assert len(bare) == len(CONVERSATION) - 1
    assert find(chains, [*bare, *more]) == ("r3", 9)
    assert find(chains, [*bare[:6], *more]) == ("r2", 6)
    assert find(chains, bare[:3]) == (None, 0)
    assert third.items() == CONVERSATION
    assert third.all_given() == CONVERSATION[:8]


def test_nobody_elses_and_nothing_else_is_found() -> None:
    chains = Chains()
    chains.add(link("r1", given=CONVERSATION[:2], made=CONVERSATION[2:5]))
    assert find(chains, CONVERSATION) == ("r1", 5)
    assert find(chains, CONVERSATION, principal="you") == (None, 0)
    assert find(chains, CONVERSATION, model="n") == (None, 0)
    assert find(chains, CONVERSATION, told="Be bad.") == (None, 0)
    assert chains.get("r1", "you") is None
    assert chains.item("fc_1", "you") is None
    assert chains.item("fc_1", "me") is CONVERSATION[4]
    for place in (0, 1, 3, 4):
        changed = [*CONVERSATION[:place], it.Message("user", "else"), *CONVERSATION[place + 1 :]]
        assert find(chains, changed) == (None, 0)


def test_an_answer_that_was_only_thought_is_no_part_of_a_request_without_it() -> None:
    chains = Chains()
    chains.add(link("r1", given=CONVERSATION[:2], made=CONVERSATION[2:3]))
    assert find(chains, CONVERSATION[:2]) == (None, 0)
    chains.add(link("warm", given=CONVERSATION[:1], made=[]))
    assert find(chains, CONVERSATION[:2]) == ("warm", 1)


def test_links_expire_after_their_last_use() -> None:
    now = [0.0]
    chains = Chains(lifetime=10, clock=lambda: now[0])
    chains.add(link("old"))
    chains.add(link("used"))
    now[0] = 8
    assert chains.get("used", "me") is not None
    now[0] = 12
    assert chains.get("old", "me") is None
    assert chains.get("used", "me") is not None
    now[0] = 23
    assert find(chains, link("used").items()) == (None, 0)
    assert chains.get("used", "me") is None
    assert (len(chains), chains.held_bytes, chains._by_digest, chains._by_item) == (0, 0, {}, {})


def test_what_a_chain_holds_counts_until_its_last_link_goes() -> None:
    chains = Chains(most_bytes=100 * (OVERHEAD + 1100))
    text: list[Item] = [it.Message("user", "x" * 1000)]
    parent: Link | None = None
    for n in range(60):
        parent = link(f"a{n}", parent, given=text)
        chains.add(parent)
    for n in range(60):
        chains.drop(f"a{n}") if n < 59 else None
    held = chains.held_bytes
    assert held > 60 * 1000  # all of it is behind the last link
    chains.drop("a59")
    assert chains.held_bytes == 0


def test_the_least_recently_used_make_room_and_the_bound_holds() -> None:
    most = 50 * (OVERHEAD + 1200)
    chains = Chains(most_bytes=most)
    text: list[Item] = [it.Message("user", "x" * 1000)]
    tips: dict[int, Link] = {}
    for n in range(400):
        chain = n % 4 if n < 200 else 0
        tips[chain] = link(f"{chain}.{n}", tips.get(chain) if len(tips) > chain and n % 40 > 3 else None, given=text)
        chains.add(tips[chain])
        assert chains.held_bytes <= most
    assert chains.get(tips[0].id, "me") is tips[0]
    assert chains.get(tips[1].id, "me") is None


def test_a_chain_that_goes_on_keeps_its_last_links_at_hand() -> None:
    now = [0.0]
    chains = Chains(lifetime=10, clock=lambda: now[0])
    tip: Link | None = None
    for n in range(20):
        now[0] = n * 4.0
        tip = link(f"r{n}", tip)
        chains.add(tip)
    assert len(chains) >= NEAR
    for n in range(20 - NEAR, 20):
        assert chains.get(f"r{n}", "me") is not None


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "get"]), st.integers(0, 12), st.integers(0, 12)), max_size=60
)


@given(STEPS, st.integers(1, 12))
def test_the_books_are_right_whatever_happens(steps: list[tuple[str, int, int]], room: int) -> None:
    chains = Chains(most_bytes=room * (OVERHEAD + 60))
    links: dict[str, Link] = {}
    for action, a, b in steps:
        if action == "add":
            parent = links.get(f"r{b}")
            links[f"r{a}"] = link(f"r{a}", parent if f"r{b}" != f"r{a}" else None)
            chains.add(links[f"r{a}"])
        elif action == "drop":
            chains.drop(f"r{a}")
        else:
            chains.get(f"r{a}", "me")
        held: dict[int, Link] = {}
        for each in chains._links.values():
            step: Link | None = each
            while step is not None:
                held[id(step)] = step
                step = step.parent
        assert chains.held_bytes == sum(each.size for each in held.values())
        assert chains.held_bytes <= room * (OVERHEAD + 60)
        assert all(chains._links.get(each.id) is each for each in chains._by_digest.values())


@pytest.mark.parametrize("item", CONVERSATION)
def test_a_digest_knows_what_is_said(item: Item) -> None:
    start = root("me", "m", None)
    after = extend(start, [item]).digest
    assert (after == start) == isinstance(item, it.Reasoning)
