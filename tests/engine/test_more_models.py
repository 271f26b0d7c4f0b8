"""Qwen3 dense and sparse, and every architecture out of safetensors, against transformers; experts by themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tests.engine import tinymodels
from tests.engine.test_torch_runner import TOKENS, logits_of, runner_of
from vivace.engine import native
from vivace.engine.experts import PackBudget, SparseFeed
from vivace.engine.load import NO_EXPERTS, load_runner
from vivace.engine.messages import EngineConfig
from vivace.engine.native_runner import NativeRunner, packer
from vivace.engine.runner import AbortFlag, Runner, Span
from vivace.engine.scheduler import Limits
from vivace.engine.spec import read_spec
from vivace.engine.torch_runner import TorchRunner
from vivace.engine.weights import Kind, load_weights
from vivace.errors import VivaceError
from vivace.models.weight_source import WeightSource, open_model

ARCHITECTURES = ["qwen2", "llama", "qwen3", "qwen3moe"]


def quiet(stage: str, share: float | None) -> None:
    """No report of progress."""


def wanted_of(model: Any) -> np.ndarray:
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([TOKENS])).logits[0].float().numpy()
    return logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("form", ["one file", "shards", "bf16"])
def test_safetensors_equal_transformers(architecture: str, form: str, tmp_path: Path) -> None:
    model, _ = tinymodels.make(architecture, tmp_path, tied=form == "shards")
    if form == "bf16":
        model = model.to(torch.bfloat16)
    folder = tmp_path / "model"
    model.save_pretrained(folder, max_shard_size="200KB" if form == "shards" else "5GB")
    assert len(list(folder.glob("*.safetensors"))) > 1 or form != "shards"
    got = logits_of(runner_of(folder, tmp_path), TOKENS, [70, 1, 79], list(range(5)))
    stored = type(model).from_pretrained(folder, dtype=torch.float32)
    assert np.abs(got - wanted_of(stored)).max() < 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["fp32", "bf16", "int8"])
def test_both_forms_become_the_same_weights(architecture: str, kind: Kind, tmp_path: Path) -> None:
    model, path = tinymodels.make(architecture, tmp_path)
    model.save_pretrained(tmp_path / "model")
    one = load_weights(path, tmp_path, kind, quiet)
    two = load_weights(tmp_path / "model", tmp_path, kind, quiet)
    assert one.spec.rms_eps == pytest.approx(two.spec.rms_eps)  # GGUF keeps it in float32.
    assert msgspec.structs.replace(one.spec, rms_eps=0.0) == msgspec.structs.replace(two.spec, rms_eps=0.0)
    assert list(one.arrays) == list(two.arrays)
    for name, array in one.arrays.items():
        assert np.array_equal(array, two.arrays[name]), name


@pytest.mark.parametrize("kind", ["int8", "bf16"])
def test_experts_in_reduced_precision_stay_near(kind: Kind, tmp_path: Path) -> None:
    model, path = tinymodels.make("qwen3moe", tmp_path)
    got = logits_of(runner_of(path, tmp_path, kind), TOKENS, [len(TOKENS)], list(range(5)))
    wanted, mine = (torch.log_softmax(torch.from_numpy(logits), -1).numpy() for logits in (wanted_of(model), got))
    assert 0 < np.abs(mine - wanted).mean() < 0.1


def native_logits(runner: Runner, tokens: list[int]) -> np.ndarray:
    found = runner.forward([Span(tokens, 0, list(range(5)), len(tokens), logits=True)], AbortFlag())
    assert found is not None
    return np.array(found[0])


@pytest.mark.skipif(not native.available(), reason="the native kernels are not built here")
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_native_kernels_agree_with_torch_int8(architecture: str, tmp_path: Path) -> None:
    model, path = tinymodels.make(architecture, tmp_path)
    torch_logits = logits_of(runner_of(path, tmp_path, "int8"), TOKENS, [len(TOKENS)], list(range(5)))
    runner = NativeRunner(load_weights(path, tmp_path, "int8", quiet, packer()), 16, 256, threads=2)
    got = native_logits(runner, TOKENS)
    # A last bit may move an activation that is rounded to int8 by a step: 0.025 of the spread, measured for both.
    assert np.abs(got - torch_logits).mean() < 0.04 * torch_logits.std()
    exact = wanted_of(model)
    assert np.abs(got - exact).mean() < 1.1 * np.abs(torch_logits - exact).mean()
    assert (got.argmax(-1) == torch_logits.argmax(-1)).mean() > 0.85


def test_only_chosen_experts_are_multiplied(tmp_path: Path) -> None:
    model, path = tinymodels.make("qwen3moe", tmp_path)
    runner = runner_of(path, tmp_path)
    multiplied: list[tuple[int, int, int]] = []  # Layer, expert, rows.
    for number, layer in enumerate(runner.layers):
        feed = layer.feed
        assert isinstance(feed, SparseFeed)

        def counting(x: torch.Tensor, expert: int, inner: Any = feed.down, number: int = number) -> torch.Tensor:
            multiplied.append((number, expert, len(x)))
            result: torch.Tensor = inner(x, expert)
            return result

        feed.down = counting
    few = TOKENS[:3]
    with torch.no_grad():
        routers = model(torch.tensor([few]), output_router_logits=True).router_logits
    logits_of(runner, few, [3], [0])
    chosen = [logits.topk(3, dim=-1).indices.flatten().tolist() for logits in routers]
    expected = [(number, e, layer.count(e)) for number, layer in enumerate(chosen) for e in sorted(set(layer))]
    assert multiplied == expected
    assert len(multiplied) < 3 * 8, "some expert must be left out, or nothing is shown"


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_experts_that_nobody_chose_are_not_read(kind: Kind, tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen3moe", tmp_path)
    runner = runner_of(path, tmp_path, kind)
    feed = runner.layers[0].feed
    assert isinstance(feed, SparseFeed)
    x = torch.randn(2, 128)
    plain = feed(x)
    chosen = set(feed.route(x)[1].flatten().tolist())
    for matrix in (feed.gateup, feed.down):
        values = matrix._weight if kind == "fp32" else matrix._scale  # type: ignore[attr-defined]
        spoilt = values.clone()
        spoilt[[e for e in range(8) if e not in chosen]] = float("nan")
        setattr(matrix, "_weight" if kind == "fp32" else "_scale", spoilt)
    assert torch.equal(feed(x), plain)


def test_a_row_of_int8_experts_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen3moe", tmp_path)
    feed = runner_of(path, tmp_path, "int8").layers[1].feed
    x = torch.randn(67, 128)
    whole = feed(x)
    for rows in (slice(0, 1), slice(5, 8), slice(20, 60), slice(66, 67)):
        assert torch.equal(feed(x[rows]), whole[rows])


def test_experts_beyond_the_budget_give_the_same_sums(tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen3moe", tmp_path)
    weights = load_weights(path, tmp_path, "int8", quiet)
    results = []
    for budget in (None, 0, 5 * 128 * 128):
        runner = TorchRunner(weights, 16, pack_budget=budget)
        results.append(logits_of(runner, TOKENS, [100, 50], list(range(5))))
        assert budget is None or 0 <= runner.budget.left <= budget
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert not PackBudget(10).take(11)


def test_experts_are_converted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = tinymodels.make("qwen3moe", tmp_path)
    model.save_pretrained(tmp_path / "model")
    for place in (path, tmp_path / "model"):
        asked: list[slice | None] = []
        with open_model(place) as opened:
            kind = type(opened)
            real = kind.dequantize

        def watched(
            self: WeightSource, name: str, rows: slice | None = None, real: Any = real, asked: Any = asked
        ) -> np.ndarray:
            if name.endswith("_exps.weight"):
                asked.append(rows)
            result: np.ndarray = real(self, name, rows)
            return result

        monkeypatch.setattr(kind, "dequantize", watched)
        load_weights(place, tmp_path, "int8", quiet)
        assert len(asked) == 3 * 3 * 8
        assert all(rows is not None and rows.stop - rows.start == 1 for rows in asked)


def test_sparse_models_go_to_pytorch_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available", lambda: True)
    _, path = tinymodels.make("qwen3moe", tmp_path)
    config = EngineConfig(model_path=str(path), cache_dir=str(tmp_path), device="cpu", kv_tokens=256, threads=1)
    runner, spec = load_runner(config, Limits(), quiet)
    assert isinstance(runner, TorchRunner)
    assert NO_EXPERTS in runner.detail
    assert (spec.experts, spec.experts_used, spec.ffn) == (8, 3, 0)
    strict = EngineConfig(model_path=str(path), cache_dir=str(tmp_path), device="cpu", kernels="native")
    with pytest.raises(VivaceError, match=NO_EXPERTS):
        load_runner(strict, Limits(), quiet)


def test_a_pass_of_one_row_reads_only_chosen_experts(tmp_path: Path) -> None:
    _, path = tinymodels.make("qwen3moe", tmp_path)
    with open_model(path) as source:
        spec = read_spec(source)
    attention = 128 * (2 * 4 * 64 + 2 * 2 * 64)
    assert spec.linear_parameters == 3 * (attention + 3 * 3 * 128 * 64 + 8 * 128) + 320 * 128


@pytest.mark.parametrize("norm", [False, True])
def test_shares_are_scaled_as_the_model_says(norm: bool, tmp_path: Path) -> None:
    model, _ = tinymodels.make("qwen3moe", tmp_path)
    model.config.norm_topk_prob = norm
    for layer in model.model.layers:
        layer.mlp.gate.norm_topk_prob = norm
    model.save_pretrained(tmp_path / "model")
    got = logits_of(runner_of(tmp_path / "model", tmp_path), TOKENS, [150], list(range(5)))
    assert np.abs(got - wanted_of(model)).max() < 1e-4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"num_hidden_layers": 0}, "0 layers"),
        ({"num_attention_heads": 0}, "0 heads"),
        ({"num_key_value_heads": 0}, "head counts"),
        ({"head_dim": 63}, "width 63"),
        ({"head_dim": 32}, "attn_q"),
        ({"hidden_size": -128}, "no usable number"),
        ({"hidden_size": "wide"}, "no usable number"),
        ({"rms_norm_eps": True}, "no usable number"),
        ({"num_experts": 16, "num_local_experts": 16}, "ffn_gate_inp"),
        ({"num_experts_per_tok": 9}, "9 of 8 experts"),
        ({"moe_intermediate_size": 10**14}, "ffn_gate_exps"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6}}, "rotary scaling"),
        ({"model_type": "gemma"}, "'gemma'"),
    ],
)
def test_a_configuration_that_contradicts_the_tensors_is_refused(
    changes: dict[str, Any], reason: str, tmp_path: Path, sparse_folder: Path
) -> None:
    shutil.copytree(sparse_folder, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(VivaceError, match=reason):
        load_weights(tmp_path / "model", tmp_path, "fp32", quiet)
    assert not list(tmp_path.glob("converted/*/index.msgpack"))


@pytest.fixture(scope="module")
def sparse_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sparse")
    model, _ = tinymodels.make("qwen3moe", place)
    model.save_pretrained(place / "model")
    return place / "model"
