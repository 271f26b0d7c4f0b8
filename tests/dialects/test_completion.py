"""Prompts without a conversation, on a real vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vivace.dialects.completion import completion_ends, completion_prompt, completion_stops
from vivace.errors import UsageError
from vivace.models.tokenizer import Tokenizer
from vivace.settings import Settings

needs_model = pytest.mark.model


@pytest.fixture(scope="module")
def tokenizer(model_file: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(model_file("coder-0.5b"), Settings(cache_dir=tmp_path_factory.mktemp("cache")))


@needs_model
def test_a_gap_lies_between_the_models_own_marks(tokenizer: Tokenizer) -> None:
    before, after = "def add(a, b):\n    return ", "\n\n<|fim_middle|> is text here\n"
    ids = completion_prompt(tokenizer, {"fim": {"prefix": before, "suffix": after}})
    assert tokenizer.decode(ids) == f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"
    middle = tokenizer.special_id("<|fim_middle|>")
    # What a user wrote is never a control token.
    assert middle is not None
    assert ids.count(middle) == 1 and ids[-1] == middle
    assert {middle, tokenizer.special_id("<|file_sep|>")} <= set(completion_ends(tokenizer))


@needs_model
def test_raw_text_goes_on_as_it_is(tokenizer: Tokenizer) -> None:
    ids = completion_prompt(tokenizer, {"raw": "The capital <|im_end|> of"})
    assert tokenizer.decode(ids) == "The capital <|im_end|> of"
    assert tokenizer.special_id("<|im_end|>") not in ids


@needs_model
@pytest.mark.parametrize(
    "prompt",
    [{}, {"raw": 3}, {"fim": "x"}, {"fim": {"prefix": "a"}}, {"fim": {"prefix": "a", "suffix": None}}, {"raw": ""}],
)
def test_other_shapes_are_refused(tokenizer: Tokenizer, prompt: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        completion_prompt(tokenizer, prompt)
    assert caught.value.param == "prompt"


@needs_model
def test_a_model_without_marks_says_so(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(model_file("smollm2-135m"), Settings(cache_dir=tmp_path))
    known = tokenizer.special_id("<fim_prefix>")
    if known is not None:
        pytest.skip("this model has marks for a gap")
    with pytest.raises(UsageError, match="no tokens for filling a gap"):
        completion_prompt(tokenizer, {"fim": {"prefix": "a", "suffix": "b"}})


FENCES = ["\n```", "```"]


@pytest.mark.parametrize(
    ("before", "after", "stops"),
    [
        ("def add(a, b):\n    return", "\n\nprint(add(1, 2))\n", [*FENCES, "\nprint(add(1, 2))\n"]),
        ("def add(a, b):\n", "\n\nprint(add(1, 2))\n", [*FENCES, "print(add(1, 2))\n"]),
        ("x = f(", ", default=None)\ny = 1\n", [*FENCES, ", default=None)\n"]),
        ("x = f(", ")\nanother_line = 1\nand_more()\n", [*FENCES, ")\nanother_line = 1\n"]),
        ("if a {\n    b;\n    ", "\n}\n", [*FENCES, "\n}\n"]),
        ("if a {\n    b;\n", "\n}\n", FENCES),
        ("x = {\n}\n    ", "\n}\n", FENCES),
        ("if a:\n    ", "\n\nelse:\n    give_up()\n", [*FENCES, "\nelse:\n    give_up()\n"]),
        ("# T\n```py\n", "\n```\nsome more text\n", ["```\nsome more text\n"]),
        ("say_it_again()\n", "say_it_again()\n", FENCES),
        ("a", "", FENCES),
        ("", "the_end_of_it", [*FENCES, "the_end_of_it"]),
    ],
)
def test_what_fills_a_gap_ends_where_talk_or_the_text_behind_begins(before: str, after: str, stops: list[str]) -> None:
    assert completion_stops({"fim": {"prefix": before, "suffix": after}}) == stops


def test_text_that_goes_on_has_no_such_end() -> None:
    assert completion_stops({"raw": "```py\nx = 1\n"}) == []
