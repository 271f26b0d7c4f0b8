"""A model's shape from the metadata of a GGUF file; its tensors are not touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vivace.errors import UsageError
from vivace.plan.evidence import Evidence, Figure
from vivace.plan.model import Model, Shape


def model_from_gguf(path: Path) -> Model:
    """Read ``path``'s header. Raises :class:`UsageError` for what is not GGUF or lacks a needed key."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(str(path))
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UsageError(f"{path} cannot be read as GGUF: {error}", code="model_unreadable", param="model") from None
    fields: dict[str, Any] = {
        name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")
    }
    vocab = reader.get_field("tokenizer.ggml.tokens")
    kind = str(fields.get("general.architecture", ""))
    tied = not any(tensor.name == "output.weight" for tensor in reader.tensors)
    shape = shape_from_fields(fields, kind, len(vocab.data) if vocab else 0, tied, str(path))
    evidence = Evidence(grade="R", source="gguf", date="2026-11", note=f"read from {path.name}")
    window = fields.get(f"{kind}.context_length")
    return Model(
        name=path.stem.lower(),
        title=str(fields.get("general.name", path.stem)),
        shape=shape,
        evidence=evidence,
        window=Figure(value=float(window), grade="R", source="gguf", date="2026-11") if window else None,
    )


def shape_from_fields(fields: dict[str, Any], kind: str, vocab: int, tied: bool, where: str) -> Shape:
    """``kind`` is the architecture's prefix of the keys."""

    def get(name: str) -> Any:
        value = fields.get(f"{kind}.{name}")
        return max(value) if isinstance(value, list) and value else value

    needed = ("block_count", "embedding_length", "attention.head_count")
    gaps = [f"{kind or 'architecture'}.{name}" for name in needed if get(name) is None]
    vocab = vocab or int(get("vocab_size") or 0)
    if not vocab:
        gaps.append("tokenizer.ggml.tokens")
    experts = int(get("expert_count") or 0)
    if experts:
        gaps += [f"{kind}.{n}" for n in ("expert_used_count", "expert_feed_forward_length") if get(n) is None]
    elif get("feed_forward_length") is None:
        gaps.append(f"{kind}.feed_forward_length")
    if get("attention.kv_lora_rank") is not None or get("ssm.state_size") is not None:
        gaps.append("a config.json: GGUF keys of latent attention and of linear layers leave dimensions out")
    if gaps:
        raise UsageError(f"{where} lacks {', '.join(gaps)}.", code="model_incomplete", param="model")
    heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
    return Shape(
        layers=int(get("block_count")),
        hidden=hidden,
        heads=heads,
        vocab=vocab,
        kv_heads=int(get("attention.head_count_kv") or heads),
        head_dim=int(get("attention.key_length") or hidden // heads),
        ffn=int(get("feed_forward_length") or 0) or None,
        tied=tied,
        experts=experts,
        experts_per_token=int(get("expert_used_count")) if experts else None,
        shared_experts=int(get("expert_shared_count") or 0),
        expert_ffn=int(get("expert_feed_forward_length")) if experts else None,
        dense_layers=int(get("leading_dense_block_count") or 0) if experts else 0,
        window=0,
    )
