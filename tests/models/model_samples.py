"""What the tests of this room share: small model files, and llama.cpp as the independent tokenizer."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from vivace.models.tokenizer import _byte_alphabet

WIDTH = 32

# Merges and words that tell the families apart: digit groups, contractions, words that no merge reaches.
_MERGES = [
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ Ġ",
    "ĠĠ ĠĠ",
    "1 2",
    "12 3",
    "123 4",
    "' s",
    "' S",
    "Ċ Ċ",
    "č Ċ",
    "Ġ hello",
]
_MERGES += ["Ġ 1", "Ġ '", "ĠĠ Ċ", "x y", ", Ċ", ") Ċ", "Ġ (", "Ã ©", "d o", "do n", "' t", "don 't"]


def small_vocabulary(pre: str) -> dict[str, Any]:
    """A byte-level tokenizer's metadata with a handful of merges."""
    words = [*_byte_alphabet(), *dict.fromkeys(merge.replace(" ", "") for merge in _MERGES), "xyzzy"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*words, *special, "<tool_call>", "[PAD0]"]
    types = [1] * len(words) + [3] * len(special) + [4, 5]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
    }


def write_llama(path: Path, tokenizer: Mapping[str, Any]) -> Path:
    """A one-layer llama of random weights with a tokenizer's metadata."""
    tokens = tokenizer["tokenizer.ggml.tokens"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(tokenizer["tokenizer.ggml.model"])
    writer.add_tokenizer_pre(tokenizer["tokenizer.ggml.pre"])
    writer.add_token_list(tokens)
    writer.add_token_types(tokenizer["tokenizer.ggml.token_type"])
    writer.add_token_merges(tokenizer["tokenizer.ggml.merges"])
    writer.add_bos_token_id(tokenizer["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(tokenizer["tokenizer.ggml.eos_token_id"])
    writer.add_add_bos_token(False)
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes |= {f"blk.0.{name}": (WIDTH, WIDTH) for name in names}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, np.float32))
    return _finish(writer, path)


def write_tensors(path: Path, tensors: dict[str, tuple[np.ndarray, gguf.GGMLQuantizationType]]) -> Path:
    """A file of tensors given as stored bytes (or floats) and their type."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_array("test.words", ["one", "zwei", "三"])
    writer.add_array("test.numbers", [1, 2, 3])
    writer.add_bool("test.flag", True)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    return _finish(writer, path)


def _finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Peer:
    """llama.cpp's tokenizer, through the server that xllamacpp embeds."""

    def __init__(self, address: str) -> None:
        self._address = address

    def encode(self, text: str, allow_special: bool = False) -> list[int]:
        """The token ids, without BOS."""
        body = {"content": text, "add_special": False, "parse_special": allow_special}
        request = urllib.request.Request(
            f"{self._address}/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            ids: list[int] = json.load(answer)["tokens"]
            return ids


@contextmanager
def llama_cpp(path: Path) -> Iterator[Peer]:
    """A server on a free port, smallest possible context, for as long as the block lasts."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.port = 0
    params.n_ctx = params.n_batch = params.n_ubatch = 64
    params.n_parallel = 1
    params.warmup = params.fit_params = params.ui = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    try:
        yield Peer(server.listening_address)
    finally:
        del server
