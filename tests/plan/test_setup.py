"""Set-ups that cannot be, and what is said of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.errors import UsageError, VivaceError
from vivace.plan.compare import parse
from vivace.plan.draft import Draft
from vivace.plan.library import Library
from vivace.plan.model import total_parameters
from vivace.plan.setup import make_setup, memory


def test_memory_of_a_dense_model_is_its_weights_and_its_cache(library: Library) -> None:
    setup = make_setup(library, library.model("llama-3.1-8b"), library.device("h100"), context=8192, batch=4)
    found = memory(setup)
    assert found.weights == 2 * total_parameters(setup.model.shape)
    assert found.kv == 4 * 8192 * 131_072
    assert found.usable == pytest.approx(72e9)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(64, 20_000))
def test_the_cache_grows_with_sequences_and_positions(batch: int, context: int) -> None:
    library = Library()

    def kv(sequences: int, positions: int) -> float:
        setup = make_setup(
            library, library.model("qwen3-32b"), library.device("gb300"), count=8, batch=sequences, context=positions
        )
        return memory(setup).kv

    assert kv(batch, context) == pytest.approx(batch * kv(1, context))
    assert kv(batch, context) == pytest.approx(context / 64 * kv(batch, 64))


def test_the_fewest_devices_that_hold_it(library: Library) -> None:
    setup = make_setup(library, library.model("llama-3.1-70b"), library.device("h100"), context=1024)
    assert setup.count == 2
    with pytest.raises(VivaceError):
        make_setup(library, library.model("llama-3.1-70b"), library.device("h100"), context=1024, count=1)
    wafers = make_setup(library, library.model("llama-3.1-70b"), library.device("wse-3"), context=1024)
    assert wafers.count == 4  # as it was served in August 2024


def test_latent_attention_is_kept_on_every_device_for_one_sequence(library: Library) -> None:
    model, device = library.model("deepseek-r1"), library.device("b200")
    one = make_setup(library, model, device, count=8, context=1024, weights="nvfp4")
    eight = make_setup(library, model, device, count=8, context=1024, weights="nvfp4", batch=8)
    assert memory(one).kv == pytest.approx(memory(eight).kv)


def test_a_draft_layer_takes_memory(library: Library) -> None:
    plain = make_setup(library, library.model("deepseek-r1"), library.device("gb300"), count=8)
    drafting = make_setup(
        library, library.model("deepseek-r1"), library.device("gb300"), count=8, draft=Draft("mtp", (0.9,))
    )
    assert memory(plain).draft == 0
    assert memory(drafting).draft == pytest.approx(2 * 11.5e9, rel=0.05)  # one layer with 256 experts in bf16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llama-3.1-405b@h100x8", ("does not fit", "weights 811.70 GB", "239.93 GB too few")),
        ("llama-3.1-8b@h100:batch=0", ("--batch 0", "below 1")),
        ("llama-3.1-8b@h100:context=0", ("--context 0", "below 1")),
        ("llama-3.1-8b@h100:context=200000", ("200,000", "68,928 over", "131,072")),
        ("llama-3.1-8b@h100x16", ("8 more than the 8",)),
        ("llama-3.1-8b@wse-3x40", ("leave 8 empty",)),
        ("kimi-k3@gb300x8", ("nope_dim, value_dim, experts_per_token",)),
        ("deepseek-v4-pro@gb300x8", ("total and active parameters",)),
        ("llama-3.1-8b@h100:weights=int3", ("int3",)),
        ("llama-3.1-8b@h100:draft=mtp:accept=0.5", ("no layers for multi-token prediction",)),
        ("llama-3.1-8b", ("names no device",)),
        ("llama-3.1-8b@h100:colour=red", ("colour",)),
        ("llama-3.1-8b@h100:batch=many", ("many",)),
    ],
)
def test_the_limit_is_named_and_by_how_much(library: Library, text: str, said: tuple[str, ...]) -> None:
    with pytest.raises(VivaceError) as caught:
        parse(library, text)
    for words in said:
        assert words in str(caught.value)


def test_a_stage_that_is_too_full_is_named(library: Library) -> None:
    with pytest.raises(VivaceError, match="fullest of 11 stages holds 12 layers"):
        make_setup(
            library, library.model("llama-3.1-405b"), library.device("wse-3"), count=11, weights="int8", context=32_768
        )


def test_a_model_that_no_group_holds_is_refused(library: Library) -> None:
    with pytest.raises(VivaceError, match="does not fit 8 x a100"):
        make_setup(library, library.model("kimi-k2.6"), library.device("a100"), weights="bf16")


def test_the_published_format_is_the_default(library: Library) -> None:
    setup = make_setup(library, library.model("kimi-k2.6"), library.device("gb300"))
    assert (setup.weights, setup.dense_weights) == ("int4-sym", "bf16")
    other = make_setup(library, library.model("kimi-k2.6"), library.device("gb300"), weights="fp8")
    assert (other.weights, other.dense_weights) == ("fp8", "fp8")


def test_errors_are_usage_errors_where_the_words_are_wrong(library: Library) -> None:
    with pytest.raises(UsageError):
        make_setup(library, library.model("llama-3.1-8b"), library.device("h100"), batch=-1)
