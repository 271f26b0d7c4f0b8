"""Backwards: the claim of 750 tok/s on about 88 wafers, and what the region must obey."""

from __future__ import annotations

import time

import numpy as np
import pytest

from vivace.errors import UsageError, VivaceError
from vivace.plan.constants import constants
from vivace.plan.forward import decode_speed
from vivace.plan.infer import Claim, Inference, infer, predicted
from vivace.plan.library import Library
from vivace.plan.model import active_parameters
from vivace.plan.setup import make_setup

CLAIM = Claim(tok_s=750, device="wse-3", devices=(70, 100))


@pytest.fixture(scope="module")
def found(library: Library) -> Inference:
    return infer(library, CLAIM)


def test_the_region_of_the_claim(found: Inference) -> None:
    """As told, without speculation and with a layer a wafer: 67 to 92 layers in an earlier derivation by hand."""
    told = found.regions[0]
    layers, active = told.marginal("layers"), told.marginal("active")
    assert layers.low == pytest.approx(68, abs=3)
    assert layers.middle == pytest.approx(79, abs=3)
    assert layers.high == pytest.approx(92, abs=3)
    assert active.low < 12e9
    assert 100e9 < active.high < 260e9
    total = told.marginal("total at 8 bits")
    assert 1.1e12 < total.low < total.high < 3.5e12


def test_without_its_assumptions_the_claim_names_no_layers(found: Inference) -> None:
    told, free = found.regions[0].marginal("layers"), found.regions[-1].marginal("layers")
    assert free.high / free.low > 2 * told.high / told.low
    assert told.narrowed > 0.85  # what looks like a finding is the assumption
    assert free.high > 150


def test_without_speculation_the_speed_bounds_the_layers_from_above(found: Inference) -> None:
    region = next(each for each in found.regions if each.assumption.startswith("layers a device free"))
    assert region.marginal("layers").high < 100
    assert region.marginal("layers").low < 50


def test_nothing_but_the_total_follows_from_memory(found: Inference) -> None:
    for region in found.regions:
        assert region.marginal("total at 8 bits").narrowed > 0.9
        assert region.marginal("active").verdict == "not identified"


def test_a_light_cache_is_necessary(found: Inference) -> None:
    told = found.regions[0]
    assert told.kv_feasible["GQA-8"] < 0.3 < told.kv_feasible["GQA-4"] < told.kv_feasible["MLA"]
    assert told.kv_resident["GQA-8"][1] < 88 < told.kv_resident["MLA"][1]


def test_the_verdict(found: Inference) -> None:
    words = " ".join(found.verdict)
    for part in (
        "Feasible",
        "an assumption, not a finding",
        "not identified",
        "not decoration",
        "wrong as identification",
    ):
        assert part in words


def test_it_takes_less_than_ten_seconds(library: Library) -> None:
    began = time.perf_counter()
    infer(library, CLAIM)
    assert time.perf_counter() - began < 10


def test_the_same_seed_gives_the_same_region(library: Library, found: Inference) -> None:
    assert infer(library, CLAIM).regions[0].marginals == found.regions[0].marginals


def test_every_point_of_the_region_runs_at_the_claimed_speed(library: Library) -> None:
    """The backward equation is the forward one, without the bytes of the crossings (half a percent)."""
    setup = make_setup(library, library.model("llama-3.1-70b"), library.device("wse-3"), count=80, context=1)
    k = constants(setup)
    drawn = {
        "layers": np.array([80.0]),
        "devices": np.array([80.0]),
        "active": np.array([float(active_parameters(setup.model.shape))]),
        "bits": np.array([16.0]),
        "draft gain": np.array([1.0]),
        "ends": np.array([k["ends"]]),
        "fixed time": np.array([k["layer"]]),
        "bandwidth share": np.array([k["weights.bf16"]]),
        "hop": np.array([k["stage_hop"]]),
    }
    backward = predicted(drawn, setup.device, setup.calibration)[0]
    assert backward == pytest.approx(decode_speed(setup, k), rel=0.008)


def test_a_node_of_gpus_can_be_asked_as_well(library: Library) -> None:
    region = infer(library, Claim(tok_s=150, device="a100", devices=(8, 8)), draws=200_000).regions[0]
    assert region.kept >= 300
    assert region.marginal("layers").high < 130


def test_a_speed_that_nothing_reaches_is_refused_with_the_limit(library: Library) -> None:
    with pytest.raises(VivaceError, match="No model of the stated ranges runs at 20000 tok/s"):
        infer(library, Claim(tok_s=20_000, device="wse-3", devices=(70, 100)), draws=100_000)


@pytest.mark.parametrize(
    "claim",
    [
        Claim(tok_s=0, device="wse-3", devices=(70, 100)),
        Claim(tok_s=750, device="wse-3", devices=(100, 70)),
        Claim(tok_s=750, device="wse-3", devices=(70, 100), gain=(0.5, 1.0)),
        Claim(tok_s=750, device="wse-3", devices=(70, 100), tolerance=0),
        Claim(tok_s=750, device="h100", devices=(8, 16)),
    ],
)
def test_a_claim_that_cannot_be_is_refused(library: Library, claim: Claim) -> None:
    with pytest.raises(UsageError):
        infer(library, claim, draws=10_000)


def test_every_prior_says_why(found: Inference) -> None:
    assert len(found.priors) == 11
    assert all(prior.reason and prior.low <= prior.high for prior in found.priors)
