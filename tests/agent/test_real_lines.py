"""Search texts that can only be real lines, in one place: the grammar against counting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from tests.agent.rendering import HUNKS, Change, answer, block, source_of
from vivace.agent.edit_dialects import line_anchors, search_replace
from vivace.agent.edit_dialects.real_lines import LONGEST, one_of_its_kind, repeated
from vivace.agent.workspace import SourceFile
from vivace.backends.base import Job
from vivace.backends.upstream_chat import chat_body
from vivace.dialects.constrain import constrain
from vivace.dialects.families import family_of
from vivace.dialects.tools import ToolTable
from vivace.engine.constraint import LONGEST as ENGINE_LONGEST
from vivace.errors import UsageError
from vivace.protocol.options import GrammarFormat, TextOptions
from vivace.protocol.requests import decode_request

BYTES = LLTokenizer("byte")
LINES = st.lists(st.sampled_from(["a", "b", "  a", "", " ", "c\\d", '"q"', "é🦀", "x=//1", "\x0c"]), max_size=9)


def grammar_of(source: SourceFile, dialect: str = "search-replace") -> str:
    """As the engine gets it: the dialect's grammar, embedded by what composes a request's constraint."""
    form = search_replace if dialect == "search-replace" else line_anchors
    family = family_of(None, "hermes")
    return constrain(family, lambda mark: None, ToolTable(), GrammarFormat(form.grammar(source))).text


def matcher(grammar: str) -> LLMatcher:
    made = LLMatcher(BYTES, LLMatcher.grammar_from_lark(grammar))
    assert not made.get_error(), made.get_error()
    return made


def allowed(grammar: LLMatcher, text: str) -> bool:
    tokens = list(text.encode())
    state = grammar.deep_copy()
    return state.validate_tokens(tokens) == len(tokens) and state.consume_tokens(tokens) and state.is_accepting()


@given(LINES)
@settings(max_examples=60, deadline=None)
def test_a_search_text_is_allowed_when_it_stands_in_one_place_and_nowhere_else(lines: list[str]) -> None:
    source = source_of("".join(line + "\n" for line in lines).encode())
    if not one_of_its_kind(lines):
        assert not any(line.strip() for line in lines)
        return
    grammar = matcher(grammar_of(source))
    seen = set()
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + 1):
            run = lines[first:last]
            places = sum(lines[n : n + len(run)] == run for n in range(len(lines)))
            unique = places == 1 and any(line.strip() for line in run)
            assert allowed(grammar, block(run, ["new"])) == unique, run
            seen.add(tuple(run))
    for strange in (["z"], ["a", "z"], ["b", "", "b"], []):
        if tuple(strange) not in seen:
            assert not allowed(grammar, block(strange, ["new"]))


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_every_run_that_stands_twice_is_part_of_a_repeated_one(lines: list[str]) -> None:
    runs = [lines[first:last] for first, last in repeated(lines)]
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + 1):
            run = lines[first:last]
            twice = sum(lines[n : n + len(run)] == run for n in range(len(lines))) > 1
            part = any(other[n : n + len(run)] == run for other in runs for n in range(len(other)))
            assert twice == part


def test_several_blocks_and_any_replacement_but_no_text_around() -> None:
    source = source_of(b"a\nb\nc\n")
    grammar = matcher(grammar_of(source))
    both = block(["a"], []) + block(["b", "c"], ["x", ">>>>>>> REPLAC", "=======", "é"])
    assert allowed(grammar, both)
    assert not allowed(grammar, "Here it is:\n" + both)
    assert not allowed(grammar, both + "Done.\n")
    assert not allowed(grammar, both[:-10])


@pytest.mark.parametrize("dialect", ["search-replace", "line-anchors"])
def test_right_answers_are_allowed_and_commands_name_real_lines(dialect: str) -> None:
    source = source_of(b"a\n=======\nb\n@@ x\n\na\n")
    grammar = matcher(grammar_of(source, dialect))
    changes = [Change(2, 3, ("B", "@@ y")), Change(0, 0, ("first",)), Change(3, 5)]
    assert allowed(grammar, answer(dialect, source, changes))
    if dialect == "line-anchors":
        assert not allowed(grammar, "@@@ delete aaa to aaa\n")


def test_files_of_all_sizes_are_ready_at_once_or_not_constrained() -> None:
    text = Path(search_replace.__file__).read_text()
    for copies in (1, 20, 400):
        # Copies of a real file: nearly every run stands in several places, the numbered ones do not.
        source = source_of("".join(f"# part {n}\n{text}" for n in range(copies)).encode())
        start = time.perf_counter()
        grammar = search_replace.grammar(source)
        assert time.perf_counter() - start < 3
        assert len(grammar) < min(ENGINE_LONGEST, LONGEST + 1000)
        assert bool(grammar) == (copies < 400)
        if grammar:
            ready = matcher(grammar_of(source))
            assert allowed(ready, block(["# part 0"], ["# part zero"]))
            assert allowed(ready, block(["# part 0", text.split("\n", 1)[0]], []))
            assert allowed(ready, block([text.split("\n", 1)[0]], [])) == (copies == 1)
    assert HUNKS[2] == "apply-patch" and one_of_its_kind(["\x01", "a"]) == ""


def test_a_grammar_is_a_text_format_that_comes_and_goes_on_as_it_was_written() -> None:
    body = b'{"model": "m", "input": "x", "text": {"format": {"type": "grammar", "grammar": "start: \\"a\\""}}}'
    request = decode_request(body)
    assert request.text == TextOptions(format=GrammarFormat('start: "a"'))
    job = Job(request=request, items=[])
    assert chat_body(job, "m", set(), {})["response_format"] == {"type": "grammar", "grammar": 'start: "a"'}


@pytest.mark.parametrize("text", ["start: missing", "start: " + '"a" ' * 200_000, "start: /(?=a)/"])
def test_a_grammar_that_cannot_be_used_is_the_callers_fault(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        constrain(family_of(None, "hermes"), lambda mark: None, ToolTable(), GrammarFormat(text))
    assert caught.value.param == "text.format" and caught.value.code == "invalid_grammar"
