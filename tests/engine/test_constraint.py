"""Grammars in the engine: outputs keep to them, drafting changes nothing, and bad ones harm nobody else."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.constrained import CALL, END, Room, spelled, text_of
from tests.engine.paperrunner import VOCAB
from vivace.engine.constraint import LONGEST, MOST_RULES, Constraint, Grammars
from vivace.engine.messages import Abort, Finish, Grammar, Sampling, Start
from vivace.engine.scheduler import Limits
from vivace.engine.spelling import Spelling

SCHEMA = {
    "type": "object",
    "properties": {"ab": {"type": "integer"}, "c": {"enum": ["de", "abc"]}},
    "required": ["ab"],
    "additionalProperties": False,
}

GRAMMARS = {
    "regex": ("start: /(ab|de){2,9} [0-9]+/", r"(ab|de){2,9} [0-9]+"),
    "forced": ('start: "abc de ab" /[0-3]/ "abc,abc,abc" /[a-c]/ ".\\n"', r"abc de ab[0-3]abc,abc,abc[a-c]\.\n"),
    "recursive": ('start: pair ("," pair)*\npair: "[" pair "]" | "a"', r"[\[\]a,]+"),
    "json": (f"start: %json {json.dumps(SCHEMA)}", r'\{\s*"ab"\s*:\s*[0-9-]+(\s*,\s*"c"\s*:\s*"(de|abc)")?\s*\}'),
    "marker": ('start: /[a-e]*/ <call> "{" /[0-9]{1,3}/ "}"', r"[a-e]*<call>\{[0-9]{1,3}\}"),
    "end": ('start: "ab"+ <|end|>', r"(ab)+"),
}
SHARED = Grammars(spelled, VOCAB)
"""One for all examples, as in an engine: its compiled grammars are used again and again."""


def constrained(name: str, tokens: list[int], **more: object) -> Start:
    grammar = Grammar(text=GRAMMARS[name][0])
    return Start(id=more.pop("id", 0), tokens=tokens, grammar=grammar, end=[END], **more)  # type: ignore[arg-type]


def alone(request: Start) -> list[int]:
    plain = msgspec.structs.replace(request, draft=False, reference=[])
    return Room(grammars=SHARED).answer(plain)[request.id][0]


@st.composite
def cases(draw: st.DrawFn) -> list[Start]:
    """Requests with and without grammars, some of them twins, with references true, foreign and none."""
    made: list[Start] = []
    for number in range(draw(st.integers(1, 5))):
        sampling = Sampling(
            temperature=draw(st.sampled_from([0.0, 0.0, 0.8, 2.0])),
            seed=draw(st.integers(0, 9)),
            top_p=draw(st.sampled_from([1.0, 0.9])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.2])),
        )
        if made and draw(st.booleans()):
            made.append(msgspec.structs.replace(draw(st.sampled_from(made)), id=number, sampling=sampling))
            continue
        prompt = draw(st.lists(st.integers(0, 9), min_size=1, max_size=70))
        room = draw(st.integers(1, 50))
        name = draw(st.sampled_from([*GRAMMARS, "none"]))
        if name == "none":
            made.append(Start(id=number, tokens=prompt, max_tokens=room, sampling=sampling))
            continue
        request = constrained(name, prompt, id=number, max_tokens=room, sampling=sampling)
        reference = draw(st.sampled_from(["true", "foreign", "none"]))
        truth = alone(request) if reference == "true" else []
        foreign = draw(st.lists(st.integers(0, VOCAB - 1), max_size=30)) if reference == "foreign" else []
        made.append(msgspec.structs.replace(request, reference=truth + foreign))
    return made


@settings(max_examples=120, deadline=None)
@given(cases(), st.integers(1, 64), st.integers(0, 40))
def test_drafts_batches_and_twins_change_nothing(requests: list[Start], rows: int, draft: int) -> None:
    limits = Limits(slice_alone=rows, slice_beside=rows, draft=draft)
    answers = Room(limits=limits, grammars=SHARED).answer(*requests)
    for request in requests:
        tokens, finish = answers[request.id]
        assert tokens == alone(request)
        assert finish.reason in ("stop", "length")
        if request.grammar is not None and finish.reason == "stop":
            pattern = next(p for text, p in GRAMMARS.values() if text == request.grammar.text)
            assert re.fullmatch(pattern, text_of(tokens)), text_of(tokens)


def test_what_is_forced_is_drafted_and_accepted() -> None:
    request = constrained("forced", [1, 2, 3])
    tokens, finish = Room().answer(request)[0]
    assert re.fullmatch(GRAMMARS["forced"][1], text_of(tokens))
    assert finish.steps <= 4 and finish.accepted >= len(tokens) - finish.steps
    plain = Room().answer(msgspec.structs.replace(request, draft=False))[0]
    assert plain[0] == tokens and plain[1].steps == len(tokens) and plain[1].drafted == 0
    # The tokens are those that the model would write the text in.
    written = spelled().encode("abc de ab")
    assert tokens[: len(written)] == written


def test_twins_share_rows_until_they_part() -> None:
    together = [
        constrained("regex", [1, 2, 3], id=n, sampling=Sampling(temperature=2.0, seed=n), max_tokens=40)
        for n in range(6)
    ]
    room = Room(grammars=SHARED)
    answers = room.answer(*together)
    assert len({tuple(tokens) for tokens, _ in answers.values()}) > 1, "all chose the same, so none parted"
    assert room.runner.widths[0] == 3, "the prompt was computed more than once"
    for request in together:
        assert answers[request.id][0] == alone(request)


def test_twins_with_other_grammars_do_not_share() -> None:
    answers = Room().answer(constrained("regex", [1, 2, 3], id=1), constrained("recursive", [1, 2, 3], id=2))
    assert re.fullmatch(GRAMMARS["regex"][1], text_of(answers[1][0]))
    assert re.fullmatch(GRAMMARS["recursive"][1], text_of(answers[2][0]))


def test_stop_strings_and_limits_hold_in_a_grammar() -> None:
    grammar = Grammar(text='start: "abc de ab"')
    tokens, finish = Room().answer(Start(id=0, tokens=[1], grammar=grammar, stop=[b"c d"]))[0]
    assert (finish.reason, text_of(tokens)[: -finish.trim]) == ("stop", "ab")
    tokens, finish = Room().answer(Start(id=0, tokens=[1], grammar=grammar, max_tokens=2))[0]
    assert finish.reason == "length" and len(tokens) == 2


def test_text_never_becomes_a_token_of_control() -> None:
    tokens, finish = Room().answer(Start(id=0, tokens=[1], grammar=Grammar(text='start: "<call>"'), max_tokens=9))[0]
    # This vocabulary cannot spell it, so there is no way to go on.
    assert finish.reason == "error" and CALL not in tokens
    tokens, finish = Room().answer(Start(id=0, tokens=[1], grammar=Grammar(text="start: /a[^b]*/"), max_tokens=60))[0]
    assert not set(tokens) - {END} & spelled().special


@pytest.mark.parametrize(
    ("grammar", "where"),
    [
        ('start: "a" b', r"at 1\(8\): unknown name"),
        ("start: /(/", r"at 1\(8\): invalid regex"),
        ('start: "a" <|nothing|>', "unknown special token"),
        ('start: %json {"type": "nonsense"}', "nonsense"),
        ("", "cannot be used"),
        ("a\0b", "NUL character at offset 1"),
        ('start: "' + "a" * LONGEST + '"', f"{LONGEST} are the most"),
        ("\n".join(f"T{n}: T{n + 1}" for n in range(MOST_RULES + 1)), f"{MOST_RULES} are the most"),
    ],
    ids=["name", "regex", "token", "json", "empty", "nul", "long", "rules"],
)
def test_a_wrong_grammar_says_where_and_harms_nobody(grammar: str, where: str) -> None:
    other = constrained("regex", [1, 2], id=1)
    answers = Room(grammars=SHARED).answer(Start(id=0, tokens=[1, 2], grammar=Grammar(text=grammar)), other)
    tokens, finish = answers[0]
    assert finish.reason == "error" and not tokens
    assert re.search(where, finish.message), finish.message
    assert len(finish.message) < 3000
    assert answers[1][0] == alone(other)


def test_a_grammar_that_leads_nowhere_ends_with_the_reason() -> None:
    grammar = Grammar(text='start: "ab" x\nx: x "c"')
    other = constrained("regex", [1, 2], id=1)
    answers = Room().answer(Start(id=0, tokens=[1, 2], grammar=grammar), other)
    tokens, finish = answers[0]
    assert finish.reason == "error" and text_of(tokens) == "ab" and "cannot go on" in finish.message
    assert answers[1][0] == alone(other)


HOSTILE = {
    "alternatives": "start: " + " ".join('("a"|"aa"|"aaa")' for _ in range(300)),
    "repeats in repeats": "start: /((a{1,100}){1,100}){1,100}/",
    "ambiguous": 'start: s\ns: s s s | s s | "a" | "ab" | "b" s "c" | ""',
    "chain of rules": "start: r0\n"
    + "\n".join(f'r{n}: r{n + 1} "a" | r{n + 1} "b"' for n in range(2000))
    + '\nr2000: "c"',
    "chain of terminals": "start: T0\n" + "\n".join(f'T{n}: T{n + 1} "a"' for n in range(3900)) + '\nT3900: "b"',
    "intersections": "start: T\nT: /[a-e ]{0,500}/ & ~/(.*(a.{20}b|b.{21}c|c.{22}d).*)/ & ~/.*(ab|de.{15}c).*/",
    "states": "start: /[a-e]*a[a-e]{24}b[a-e]*c[a-e]{24}d/",
    "deep": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000,
    "alternatives by the thousand": "start: " + " | ".join(f'"a{n}" start' for n in range(3000)),
    "constant": 'start: "' + "abc de " * 30_000 + '"',
    "unbroken constant": 'start: "' + "ab" * 100_000 + '"',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_bounded_while_others_go_on(name: str) -> None:
    moments: list[float] = []

    class Watched(Room):
        def take(self, message: object) -> None:
            super().take(message)  # type: ignore[arg-type]
            moments.append(time.perf_counter())
            if 0 in self.ends and 1 not in self.ends:
                self.engine.deliver(Abort(1))

    room = Watched(blocks=100)
    room.deliver(Start(id=1, tokens=[1, 2, 3]))  # Decodes until the other one has ended.
    room.deliver(Start(id=0, tokens=[1, 2], grammar=Grammar(text=HOSTILE[name]), max_tokens=60, max_seconds=20))
    started = time.perf_counter()
    room.engine.run()
    longest = max(after - before for before, after in pairwise(moments))
    assert room.ends[0].reason in ("error", "length", "stop"), room.ends[0]
    assert time.perf_counter() - started < 20
    assert longest < 0.1, f"nobody decoded for {longest * 1000:.0f} ms"


class Slow:
    """A vocabulary that is there when ``release`` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self) -> Spelling:
        self.release.wait(20)
        return spelled()


@pytest.fixture
def slow() -> Iterator[Slow]:
    spell = Slow()
    yield spell
    spell.release.set()


def in_thread(room: Room) -> threading.Thread:
    thread = threading.Thread(target=room.engine.run)
    thread.start()
    return thread


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> float:
    started = time.perf_counter()
    while not condition():
        assert time.perf_counter() - started < seconds, "it does not come"
        time.sleep(0.001)
    return time.perf_counter() - started


def test_while_a_grammar_compiles_its_request_can_be_stopped_and_others_run(slow: Slow) -> None:
    room = Room(grammars=Grammars(slow, VOCAB))
    room.deliver(constrained("regex", [1, 2], id=0), constrained("json", [1, 2], id=1, max_seconds=0.2))
    room.deliver(constrained("json", [1, 2], id=2), Start(id=3, tokens=[1, 2], max_tokens=30))
    thread = in_thread(room)
    wait_for(lambda: 3 in room.ends)
    assert room.ends[3].reason == "length" and 0 not in room.ends
    room.engine.deliver(Abort(0))
    assert wait_for(lambda: 0 in room.ends) < 0.1
    assert room.ends[0].reason == "aborted"
    assert wait_for(lambda: 1 in room.ends) < 1.0
    assert room.ends[1].reason == "time"
    slow.release.set()
    thread.join(10)
    assert re.fullmatch(GRAMMARS["json"][1], text_of(room.tokens[2]))


def test_nothing_is_compiled_for_those_who_have_left(slow: Slow) -> None:
    grammars = Grammars(slow, VOCAB)
    done = threading.Event()
    first = grammars.constrain(Grammar(text='start: "a"'), lambda: None)
    left: Constraint | None = grammars.constrain(Grammar(text='start: "b"'), lambda: None)
    last = grammars.constrain(Grammar(text='start: "c"'), done.set)
    assert left is not None
    del left
    slow.release.set()
    assert done.wait(10) and first.ready and last.ready
    assert list(grammars._compiled) == ['start: "a"', 'start: "c"']


def test_an_engine_without_grammars_refuses_them() -> None:
    room = Room()
    room.engine.grammars = None
    finish = room.answer(constrained("regex", [1]))[0][1]
    assert finish.reason == "error" and "without grammars" in finish.message


def test_a_prompt_is_put_into_memory_for_others() -> None:
    prompt = [n % 7 for n in range(200)]
    room = Room()
    room.deliver(Start(id=0, tokens=prompt, prefill_only=True), Start(id=1, tokens=prompt, prefill_only=True))
    room.deliver(Start(id=2, tokens=[*prompt, 3], max_tokens=5))
    room.engine.run()
    assert room.tokens[0] == room.tokens[1] == []
    assert room.ends[0] == Finish("stop", 200, 0, 0, 0, 0, 0)
    assert room.ends[1].cached_tokens == room.ends[2].cached_tokens == 192
    assert sum(room.runner.widths) < 200 + 8 + 9 + 5 + 130, "the prompt was computed twice"


def test_putting_a_prompt_into_memory_can_be_given_up() -> None:
    room = Room(limits=Limits(slice_alone=1))
    forward = room.runner.forward

    def stepped(*arguments: object) -> object:
        if len(room.runner.widths) == 20:
            room.engine.deliver(Abort(0))
        return forward(*arguments)  # type: ignore[arg-type]

    room.runner.forward = stepped  # type: ignore[method-assign, assignment]
    tokens, finish = room.answer(Start(id=0, tokens=[1] * 200, prefill_only=True))[0]
    assert (tokens, finish.reason) == ([], "aborted") and len(room.runner.widths) < 25
