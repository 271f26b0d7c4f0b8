"""A model's shape from a Hugging Face ``config.json``. A field that is missing is named, never assumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vivace.errors import UsageError
from vivace.plan.evidence import Evidence, Figure
from vivace.plan.model import Model, Shape

FULL = {"full_attention", "attention", "global_attention"}
WINDOWED = {"sliding_attention", "chunked_attention", "local_attention"}
LINEAR = {"linear_attention"}
NATIVE = {"bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4", "compressed-tensors": "int4-sym"}


def model_from_config(path: Path) -> Model:
    """Read ``path``. Raises :class:`UsageError` that names missing fields and layer kinds that are not known."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a config.json: {error}", code="model_unreadable") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{path} is not a JSON object.", code="model_unreadable")
    inner = raw.get("text_config")
    config: dict[str, Any] = {**raw, **inner} if isinstance(inner, dict) else raw
    shape = shape_from_config(config, str(path))
    date = "2026-11"
    evidence = Evidence(grade="R", source="config-json", date=date, note=f"read from {path.name}")
    window = config.get("max_position_embeddings")
    quantised = (config.get("quantization_config") or {}).get("quant_method", "")
    folder = path.parent.name
    return Model(
        name=folder if path.name == "config.json" and folder else path.stem,
        title=str(config.get("_name_or_path") or path.parent.name or path.stem),
        shape=shape,
        evidence=evidence,
        window=Figure(value=float(window), grade="R", source="config-json", date=date) if window else None,
        native=NATIVE.get(quantised, "bf16"),
        native_dense="bf16" if quantised in ("mxfp4", "compressed-tensors") else "",
    )


def shape_from_config(config: dict[str, Any], where: str) -> Shape:
    """The shape in a config, already flattened."""
    gaps = [
        name for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size") if name not in config
    ]
    latent = "kv_lora_rank" in config
    if latent:
        gaps += [n for n in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim") if n not in config]
    experts = _first(config, "n_routed_experts", "num_local_experts", "num_experts") or 0
    if experts and _first(config, "num_experts_per_tok", "top_k_experts", "moe_topk") is None:
        gaps.append("num_experts_per_tok")
    expert_ffn = _first(config, "moe_intermediate_size", "expert_ffn_hidden_size")
    if experts and expert_ffn is None:
        expert_ffn = config.get("intermediate_size")
    if not experts and "intermediate_size" not in config:
        gaps.append("intermediate_size")
    if experts and expert_ffn is None:
        gaps.append("moe_intermediate_size")
    if gaps:
        raise UsageError(
            f"{where} lacks {', '.join(gaps)}, without which nothing can be planned.",
            code="model_incomplete",
            param="model",
        )
    layers, hidden, heads = config["num_hidden_layers"], config["hidden_size"], config["num_attention_heads"]
    windowed, linear = _kinds(config, layers, where)
    attention: dict[str, Any] = {"attention": "gqa"}
    if latent:
        attention = {
            "attention": "mla",
            "query_rank": config.get("q_lora_rank") or 0,
            "kv_rank": config["kv_lora_rank"],
            "rope_dim": config["qk_rope_head_dim"],
            "nope_dim": config["qk_nope_head_dim"],
            "value_dim": config["v_head_dim"],
        }
    else:
        attention["kv_heads"] = config.get("num_key_value_heads") or heads
        attention["head_dim"] = config.get("head_dim") or hidden // heads
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocab=config["vocab_size"],
        ffn=_first(config, "intermediate_size_mlp", "intermediate_size"),
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=experts,
        experts_per_token=_first(config, "num_experts_per_tok", "top_k_experts", "moe_topk") if experts else None,
        shared_experts=_shared(config, expert_ffn) if experts else 0,
        expert_ffn=expert_ffn if experts else None,
        dense_layers=_dense_layers(config, layers) if experts else 0,
        window=config.get("sliding_window") or 0 if windowed else 0,
        windowed_layers=windowed,
        linear_layers=linear,
        linear_key_heads=config.get("linear_num_key_heads") or 0,
        linear_value_heads=config.get("linear_num_value_heads") or 0,
        linear_head_dim=config.get("linear_value_head_dim") or 0,
        output_gate=bool(config.get("attn_output_gate", False)),
        draft_layers=_first(config, "num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        **attention,
    )


def _kinds(config: dict[str, Any], layers: int, where: str) -> tuple[int, int]:
    """How many layers see a window only, and how many keep a constant state."""
    listed = config.get("layer_types")
    if isinstance(listed, list):
        strange = sorted({str(kind) for kind in listed} - FULL - WINDOWED - LINEAR)
        if strange:
            raise UsageError(
                f"{where} has layers of the kind {', '.join(strange)}, whose cache this planner does not know.",
                code="model_incomplete",
                param="model",
            )
        return sum(kind in WINDOWED for kind in listed), sum(kind in LINEAR for kind in listed)
    if config.get("sliding_window") and config.get("use_sliding_window", True) and "max_window_layers" not in config:
        return layers, 0
    return 0, 0


def _dense_layers(config: dict[str, Any], layers: int) -> int:
    if "first_k_dense_replace" in config:
        return int(config["first_k_dense_replace"])
    step = config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1
    return layers - layers // int(step) + len(config.get("mlp_only_layers") or [])


def _shared(config: dict[str, Any], expert_ffn: int | None) -> int:
    counted = config.get("n_shared_experts")
    if counted is not None:
        return int(counted)
    width = config.get("shared_expert_intermediate_size")
    return max(1, round(width / expert_ffn)) if width and expert_ffn else 0


def _first(config: dict[str, Any], *names: str) -> int | None:
    return next((int(config[name]) for name in names if config.get(name) is not None), None)
