"""Tiny random models: made by transformers, written as the GGUF files that converters make of such models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCAB = 320

NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def make(architecture: str, folder: Path, *, seed: int = 0, tied: bool = False) -> tuple[Any, Path]:
    """A random model of one of the engine's architectures and the path of its GGUF file (fp32).

    Heads of the qwen3 kinds are wider than the hidden state divided by their number, as in Qwen3-0.6B.
    """
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 128,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
        "tie_word_embeddings": tied,
    }
    model: Any
    if architecture == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    elif architecture == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(head_dim=64, **sizes))
    elif architecture == "qwen3moe":
        experts = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "norm_topk_prob": True}
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(head_dim=64, **experts, **sizes))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.1))
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
    path = folder / f"{architecture}-{seed}.gguf"
    write(model.eval(), architecture, path)
    return model, path


def write(model: Any, architecture: str, path: Path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    if architecture.startswith("qwen3"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        parts = name.split(".")
        if name.endswith("experts.gate_up_proj"):  # One tensor there, two in GGUF: [experts, gate rows, up rows].
            gate, up = parameter.float().chunk(2, dim=1)
            for which, half in (("gate", gate), ("up", up)):
                writer.add_tensor(f"blk.{parts[2]}.ffn_{which}_exps.weight", half.contiguous().numpy())
            continue
        in_layer = parts[:2] == ["model", "layers"]
        target = f"blk.{parts[2]}.{NAMES['.'.join(parts[3:])]}" if in_layer else NAMES[name]
        array = parameter.float().numpy()
        if architecture == "llama" and "_proj" in name and (".q_" in name or ".k_" in name):
            heads = config.num_attention_heads if ".q_" in name else config.num_key_value_heads
            array = interleaved(array, heads)
        writer.add_tensor(target, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(rows: Any, heads: int) -> Any:
    """Half-split rotary order to the interleaved one that llama GGUF files have (as llama.cpp's converter does)."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
