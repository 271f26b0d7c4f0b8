"""``config.json`` of a hub repository, in GGUF's words; what the engine does not compute is refused here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vivace.errors import VivaceError
from vivace.models.gguf_cursor import quoted

ARCHITECTURES = {"qwen2": "qwen2", "llama": "llama", "qwen3": "qwen3", "qwen3_moe": "qwen3moe"}
"""``model_type`` -> GGUF's name of the architecture."""

# GGUF's key -> the names in config.json, the first that is there counts.
_NUMBERS = {
    "block_count": ("num_hidden_layers",),
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_attention_heads"),
    "attention.key_length": ("head_dim",),
    "context_length": ("max_position_embeddings",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
}


def metadata_from_config(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """GGUF metadata that says what ``config`` says.

    Raises :class:`VivaceError` (``architecture_unknown``) for parts that change the arithmetic and that the engine
    does not have; an unknown ``model_type`` is passed on as it is.
    """
    kind = str(config.get("model_type", ""))
    architecture = ARCHITECTURES.get(kind, kind)
    _refuse_unknown_parts(config, path)
    rope = {**_object(config, "rope_scaling"), **_object(config, "rope_parameters")}
    scaling = rope.get("rope_type", rope.get("type", "default"))
    found: dict[str, Any] = {
        "general.architecture": architecture,
        f"{architecture}.rope.freq_base": rope.get("rope_theta", config.get("rope_theta", 10000.0)),
        f"{architecture}.rope.scaling.type": "none" if scaling in ("default", None) else quoted(str(scaling)),
    }
    if kind == "qwen3_moe":  # Qwen3MoeConfig's default is False, GGUF files of this architecture always mean True.
        found[f"{architecture}.expert_weights_norm"] = config.get("norm_topk_prob", False) is True
    for key, names in _NUMBERS.items():
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if value is not None:
            found[f"{architecture}.{key}"] = value
    if architecture.startswith("qwen3"):  # Qwen3Config's default: the width of a head does not follow from the rest.
        found.setdefault(f"{architecture}.attention.key_length", 128)
    return found


def _refuse_unknown_parts(config: dict[str, Any], path: Path) -> None:
    layer_types = config.get("layer_types")
    sliding = config.get("use_sliding_window") is True
    if isinstance(layer_types, list):
        sliding = any(kind != "full_attention" for kind in layer_types)
    doubts = {
        "weights quantised by another tool": config.get("quantization_config"),
        "a sliding window": sliding,
        "an activation other than SiLU": config.get("hidden_act", "silu") != "silu",
        "positions that rotate a part of each head": config.get("partial_rotary_factor", 1) not in (1, None),
        "layers with experts beside layers without": config.get("mlp_only_layers")
        or config.get("decoder_sparse_step", 1) != 1,
    }
    for what, there in doubts.items():
        if there:
            raise VivaceError(
                f"The engine does not run {what} ({path}).", hint="Use another model.", code="architecture_unknown"
            )


def _object(config: dict[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}
