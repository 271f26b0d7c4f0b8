"""Models from a config.json, a GGUF file and a catalogue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from vivace.errors import UsageError
from vivace.plan.forward import forecast
from vivace.plan.library import Library
from vivace.plan.reading import find_model
from vivace.plan.setup import make_setup

DENSE = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
LATENT = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "vocab_size": 129280,
    "intermediate_size": 18432,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
}
HYBRID = {
    "text_config": {
        "num_hidden_layers": 60,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "vocab_size": 248320,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_value_head_dim": 128,
        "attn_output_gate": True,
        "mtp_num_hidden_layers": 1,
    }
}


def written(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("config", "name"), [(DENSE, "llama-3.1-8b"), (LATENT, "deepseek-r1"), (HYBRID, "qwen3.5-397b-a17b")]
)
def test_a_config_gives_the_shipped_shape(library: Library, tmp_path: Path, config: dict[str, Any], name: str) -> None:
    found = find_model(library, written(tmp_path, config))
    assert found.shape == library.model(name).shape
    assert found.native == library.model(name).native
    folder = find_model(library, str(tmp_path))
    assert folder.shape == found.shape


def test_a_model_of_a_config_is_planned(library: Library, tmp_path: Path) -> None:
    model = find_model(library, written(tmp_path, LATENT))
    found = forecast(make_setup(library, model, library.device("b200"), count=8))
    shipped = forecast(make_setup(library, library.model("deepseek-r1"), library.device("b200"), count=8))
    assert found.decode == shipped.decode


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        (DENSE, ("hidden_size",)),
        (DENSE, ("num_hidden_layers", "vocab_size")),
        (DENSE, ("intermediate_size",)),
        (LATENT, ("num_experts_per_tok",)),
        (LATENT, ("qk_rope_head_dim", "v_head_dim")),
    ],
)
def test_missing_fields_are_named(
    library: Library, tmp_path: Path, config: dict[str, Any], missing: tuple[str, ...]
) -> None:
    left = {key: value for key, value in config.items() if key not in missing}
    with pytest.raises(UsageError) as caught:
        find_model(library, written(tmp_path, left))
    assert all(name in caught.value.message for name in missing)
    assert caught.value.code == "model_incomplete"


def test_a_cache_that_is_not_known_is_refused(library: Library, tmp_path: Path) -> None:
    strange = {**DENSE, "layer_types": ["full_attention"] * 16 + ["mamba"] * 16}
    with pytest.raises(UsageError, match="mamba"):
        find_model(library, written(tmp_path, strange))


def test_windows_are_read(library: Library, tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    shape = find_model(library, written(tmp_path, {**DENSE, "layer_types": kinds, "sliding_window": 128})).shape
    assert (shape.window, shape.windowed_layers) == (128, 16)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1}'])
def test_what_is_no_config_is_refused(library: Library, tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError):
        find_model(library, str(path))


def test_a_gguf_file_gives_its_shape(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "Tiny.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(3)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_feed_forward_length(128)
    writer.add_context_length(4096)
    writer.add_token_list(["a", "b", "c"])
    writer.add_tensor("token_embd.weight", np.zeros((3, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = find_model(library, str(path))
    shape = found.shape
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) == (3, 64, 4, 2, 16)
    assert (shape.ffn, shape.vocab, shape.tied) == (128, 3, True)
    assert found.window is not None
    assert found.window.value == 4096


def test_what_is_no_gguf_is_refused(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(UsageError):
        find_model(library, str(path))
    with pytest.raises(UsageError, match="no file"):
        find_model(library, str(tmp_path / "absent.gguf"))


def test_a_name_of_the_catalogue_is_the_last_resort(library: Library, tmp_path: Path) -> None:
    place = Path(written(tmp_path, DENSE))
    asked = []

    def catalogue(name: str) -> Path | None:
        asked.append(name)
        return place if name == "my-own" else None

    assert find_model(library, "my-own", catalogue).shape == library.model("llama-3.1-8b").shape
    assert find_model(library, "llama-3.1-8b", catalogue).name == "llama-3.1-8b"
    assert asked == ["my-own"]
    with pytest.raises(UsageError) as caught:
        find_model(library, "llama-3.1-9b", catalogue)
    assert "llama-3.1-8b" in caught.value.hint
