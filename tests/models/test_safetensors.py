"""Folders of safetensors: read like GGUF files, refused like them, and the same tokens out of ``tokenizer.json``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_samples import small_vocabulary
from safetensors.numpy import save_file

from vivace.errors import UsageError, VivaceError
from vivace.models.catalogue import find_model
from vivace.models.gguf_file import open_gguf
from vivace.models.pull import pull
from vivace.models.store import add, is_present, model_path, remove
from vivace.models.tokenizer import Tokenizer
from vivace.models.tokenizer_json import read_folder_vocabulary
from vivace.models.vocabulary import Vocabulary, read_vocabulary
from vivace.models.weight_source import open_model
from vivace.settings import Settings

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def split(digits: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": WORDS % digits}, "behavior": "Isolated", "invert": False}


CUTS: dict[str, Any] = {
    "qwen2": {"type": "Sequence", "pretokenizers": [split(r"\p{N}"), BYTES]},
    "llama-bpe": {"type": "Sequence", "pretokenizers": [split(r"\p{N}{1,3}"), BYTES]},
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}],
    },
    "gpt-2": {**BYTES, "use_regex": True},
}
"""``pre_tokenizer`` as the families' own files have it."""


def write_tokenizer(folder: Path, vocabulary: Vocabulary, rows: int | None = None) -> None:
    """The vocabulary as a hub repository has it."""
    folder.mkdir(exist_ok=True)
    apart = {*vocabulary.control, *vocabulary.user_defined, *vocabulary.unused}
    added = [
        {"id": id, "content": vocabulary.tokens[id], "special": id in vocabulary.control, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for id in sorted({*vocabulary.control, *vocabulary.user_defined})
    ]
    pairs = iter(vocabulary.merges)
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": CUTS[vocabulary.pre],
        "post_processor": BYTES,
        "model": {
            "type": "BPE",
            "vocab": {token: id for id, token in enumerate(vocabulary.tokens) if id not in apart},
            "merges": [f"{one} {two}" for one, two in zip(pairs, pairs, strict=True)],
            "ignore_merges": vocabulary.pre == "llama-bpe",
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = {"chat_template": vocabulary.chat_template, "bos_token": None, "add_bos_token": False}
    if vocabulary.bos is not None:
        template["bos_token"] = {"content": vocabulary.tokens[vocabulary.bos]}  # type: ignore[assignment]
    (folder / "tokenizer_config.json").write_text(json.dumps(template))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": vocabulary.ends}))


def write_model(folder: Path, vocab: int, pre: str = "qwen2", **config: Any) -> dict[str, np.ndarray]:
    """A one-layer llama of random weights, with a small tokenizer."""
    write_tokenizer(folder, read_vocabulary(small_vocabulary(pre)))
    settings: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab,
        "tie_word_embeddings": True,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    random = np.random.default_rng(0)
    shapes = {
        "model.embed_tokens.weight": (vocab, 32),
        "model.norm.weight": (32,),
        "model.layers.0.input_layernorm.weight": (32,),
        "model.layers.0.post_attention_layernorm.weight": (32,),
        "model.layers.0.self_attn.q_proj.weight": (32, 32),
        "model.layers.0.self_attn.k_proj.weight": (16, 32),
        "model.layers.0.self_attn.v_proj.weight": (16, 32),
        "model.layers.0.self_attn.o_proj.weight": (32, 32),
        "model.layers.0.mlp.gate_proj.weight": (48, 32),
        "model.layers.0.mlp.up_proj.weight": (48, 32),
        "model.layers.0.mlp.down_proj.weight": (32, 48),
    }
    tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return tensors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "Mine", 300)
    return tmp_path / "Mine"


def test_tensors_and_metadata_have_ggufs_names(tmp_path: Path) -> None:
    tensors = write_model(tmp_path / "m", 300, rope_theta=5e5)
    with open_model(tmp_path / "m") as source:
        assert source.metadata["general.architecture"] == "llama"
        assert source.metadata["llama.rope.freq_base"] == 5e5
        assert source.metadata["llama.attention.head_count_kv"] == 1
        assert not source.interleaved_rotary
        assert source.tensor_shape("blk.0.attn_k.weight") == (16, 32)
        wanted = tensors["model.layers.0.mlp.down_proj.weight"]
        assert np.array_equal(source.dequantize("blk.0.ffn_down.weight"), wanted)
        assert np.array_equal(source.dequantize("blk.0.ffn_down.weight", slice(3, 9)), wanted[3:9])
        assert source.dequantize("blk.0.ffn_down.weight", slice(40, 60)).shape == (0, 48)
        with pytest.raises(VivaceError, match=r"no tensor 'output\.weight'"):
            source.dequantize("output.weight")
        os.truncate(tmp_path / "m" / "model.safetensors", 2000)
        with pytest.raises(VivaceError, match="the file changed"):
            source.dequantize("token_embd.weight")


@pytest.mark.parametrize("stored", ["<f2", "bf16"])
def test_half_precision_is_widened_exactly(stored: str, tmp_path: Path) -> None:
    write_model(tmp_path / "m", 300)
    values = np.array([[1.5, -0.25, 3.140625, 65280.0]], np.float32).repeat(300, 0).repeat(8, 1)
    raw = values.astype("<f2").tobytes() if stored == "<f2" else (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    name, kind = "model.embed_tokens.weight", "F16" if stored == "<f2" else "BF16"
    write_raw(tmp_path / "m" / "model.safetensors", {name: (kind, [300, 32], [0, len(raw)])}, raw)
    with open_model(tmp_path / "m") as source:
        assert np.array_equal(source.dequantize("token_embd.weight"), values)


def write_raw(path: Path, entries: dict[str, Any], data: bytes = b"", length: int | None = None) -> None:
    described = {
        name: {"dtype": entry[0], "shape": entry[1], "data_offsets": entry[2]} if isinstance(entry, tuple) else entry
        for name, entry in entries.items()
    }
    header = json.dumps(described).encode()
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)


E = "model.embed_tokens.weight"
N = "model.norm.weight"
HOSTILE: list[tuple[dict[str, Any], int | None, str]] = [
    ({E: ("F32", [2, 2], [0, 16])}, 1 << 60, "header claims"),
    ({E: ("F32", [2, 2], [0, 16])}, 5, "not JSON"),
    ({E: ("I8", [4, 4], [0, 16])}, None, "supported are F32, F16, BF16"),
    ({E: ("F32", [2, 2], [0, 12])}, None, "12 bytes instead of 16"),
    ({E: ("F32", [2, 2], [4, 20])}, None, "past the end"),
    ({E: ("F32", [-2, -2], [0, 16])}, None, "no usable shape"),
    ({E: ("F32", [1 << 40, 1 << 40], [0, 16])}, None, "impossible shape"),
    ({E: ("F32", [1, 1, 1, 1, 1, 4], [0, 16])}, None, "no usable shape"),
    ({E: ("F32", [True, 4], [0, 16])}, None, "no usable shape"),
    ({E: ("F32", [4], [0])}, None, "no usable offsets"),
    ({E: ("F32", [4], [16, 0])}, None, "bytes instead of 16"),
    ({E: ("F32", [2], [0, 8]), N: ("F32", [2], [4, 12])}, None, "overlap"),
    ({E: 7}, None, "not described"),
    ({"a\x1b[31m" * 20: ("F32", [4], [0, 16])}, None, "know what the tensor"),
    ({"x" * 300: ("F32", [4], [0, 16])}, None, "endless length"),
]


@pytest.mark.parametrize(("entries", "length", "reason"), HOSTILE)
def test_hostile_headers_are_refused(folder: Path, entries: dict[str, Any], length: int | None, reason: str) -> None:
    write_raw(folder / "model.safetensors", entries, bytes(16), length)
    with pytest.raises(VivaceError, match=reason) as caught:
        open_model(folder)
    assert caught.value.code == "model_file_invalid"
    assert "\x1b" not in str(caught.value)


def test_shorter_than_a_header(folder: Path) -> None:
    for data in (b"", b"1234567", bytes(8)):
        (folder / "model.safetensors").write_bytes(data)
        with pytest.raises(VivaceError) as caught:
            open_model(folder)
        assert caught.value.code == "model_file_invalid"
    (folder / "model.safetensors").unlink()
    with pytest.raises(VivaceError, match="Cannot read"):
        open_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(VivaceError, match=r"no config\.json"):
        open_model(folder)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("any")
    (place / "config.json").write_text('{"model_type": "llama", "tie_word_embeddings": true}')
    (place / "model.safetensors").write_bytes(len(data).to_bytes(8, "little") + data + bytes(8))
    try:
        open_model(place).close()
    except VivaceError as error:
        assert error.code == "model_file_invalid"
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("names", "reason"),
    [(["../model.safetensors"], "same folder"), (["/etc/x.safetensors"], "same folder"), ([], "same folder")],
)
def test_an_index_names_files_of_its_folder(folder: Path, names: list[str], reason: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(enumerate(names))}))
    with pytest.raises(VivaceError, match=reason):
        open_model(folder)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"quantization_config": {"bits": 4}}, "quantised by another tool"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding window"),
        ({"hidden_act": "gelu"}, "other than SiLU"),
        ({"mlp_only_layers": [0]}, "beside layers without"),
        ({"partial_rotary_factor": 0.5}, "rotate a part"),
    ],
)
def test_other_arithmetic_is_refused(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    write_model(tmp_path / "m", 300, **config)
    with pytest.raises(VivaceError, match=reason) as caught:
        open_model(tmp_path / "m")
    assert caught.value.code == "architecture_unknown"


def test_an_untied_model_needs_its_head(tmp_path: Path) -> None:
    write_model(tmp_path / "m", 300, tie_word_embeddings=False)
    with pytest.raises(VivaceError, match=r"no lm_head\.weight"):
        open_model(tmp_path / "m")


def test_incomplete_experts_are_refused(folder: Path) -> None:
    names = [f"model.layers.0.mlp.experts.{expert}.gate_proj.weight" for expert in (0, 2)]
    entries = {name: ("F32", [2, 1], [8 * i, 8 * i + 8]) for i, name in enumerate(names)}
    write_raw(folder / "model.safetensors", entries, bytes(16))
    with pytest.raises(VivaceError, match="incomplete"):
        open_model(folder)


def test_add_a_folder(folder: Path, here: Settings) -> None:
    info = add(folder, here)
    assert (info.name, info.architecture, info.context_window) == ("mine", "llama", 256)
    assert find_model("mine", here) == info
    assert model_path(info, here) == pull(info, here) == folder.resolve()
    assert is_present(info, here)
    tokenizer = Tokenizer.load(folder, here)
    assert tokenizer.decode(tokenizer.encode("hello 123\n")) == "hello 123\n"
    weights = folder / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    with pytest.raises(VivaceError, match="is not the file"):
        model_path(info, here)
    assert remove(info, here)
    assert weights.exists()
    with pytest.raises(UsageError):
        find_model("mine", here)


def test_add_refuses_a_folder_without_a_usable_tokenizer(folder: Path, here: Settings) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(VivaceError):
        add(folder, here)
    with pytest.raises(VivaceError, match=r"no config\.json"):
        add(folder.parent, here)


TEXTS = [
    "hello hello  hello\n\nhello 1234 12 a1234",
    "DON'T don't we'Ve 'S",
    "e\u0301 é \u00a0\u3000 漢字 👩‍👩‍👧‍👦\r\n\t x",
    "<|im_start|>user\n<tool_call><|im_end|>",
    "",
]


@pytest.mark.parametrize("pre", CUTS)
def test_both_forms_of_a_small_vocabulary_give_the_same_ids(pre: str, tmp_path: Path) -> None:
    vocabulary = read_vocabulary(small_vocabulary(pre))
    write_tokenizer(tmp_path, vocabulary)
    one, two = Tokenizer(vocabulary), Tokenizer(read_folder_vocabulary(tmp_path))
    for text in TEXTS:
        for allow in (False, True):
            ids = two.encode(text, allow)
            assert ids == one.encode(text, allow)
            assert two.decode_bytes(ids) == text.encode()
    assert (two.eos_ids, two.bos_id, two.special_ids) == (one.eos_ids, one.bos_id, one.special_ids)


@pytest.mark.model
def test_both_forms_of_smollm2_are_the_same_vocabulary(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    with open_gguf(model_file("smollm2-135m")) as file:
        vocabulary = read_vocabulary(file.metadata)
    write_tokenizer(tmp_path, vocabulary)
    found = read_folder_vocabulary(tmp_path)
    for field in Vocabulary.__struct_fields__:
        assert getattr(found, field) == getattr(vocabulary, field), field
    one, two = Tokenizer(vocabulary), Tokenizer(found)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_text("utf-8")
        ids = two.encode(text)
        assert ids == one.encode(text)
        assert two.decode_bytes(ids) == text.encode()


@pytest.mark.model
def test_the_library_itself_reads_the_same_file_alike(model_file: Callable[[str], Path], tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    with open_gguf(model_file("smollm2-135m")) as file:
        write_tokenizer(tmp_path, read_vocabulary(file.metadata))
    library, mine = Library.from_file(str(tmp_path / "tokenizer.json")), Tokenizer(read_folder_vocabulary(tmp_path))
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = "".join(
            char for char in path.read_text("utf-8") if (char.isascii() and char.isprintable()) or char == "\n"
        )
        text = text.replace("<|", "< |")  # The library takes control tokens out of any text.
        assert mine.encode(text) == library.encode(text, add_special_tokens=False).ids


def test_ids_without_text_are_padding(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, read_vocabulary(small_vocabulary("qwen2")))
    count = len(read_folder_vocabulary(tmp_path).tokens)
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": count + 5, "bos_token_id": 3}))
    found = read_folder_vocabulary(tmp_path)
    assert len(found.tokens) == count + 5
    assert found.unused[-5:] == list(range(count, count + 5))


def test_tokens_written_like_control_tokens_are_control_tokens(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, read_vocabulary(small_vocabulary("qwen2")))
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    for entry in tokenizer["added_tokens"]:
        entry["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = Tokenizer(read_folder_vocabulary(tmp_path))
    assert found.special_id("<|im_end|>") not in found.encode("<|im_end|>")
    assert found.special_id("<tool_call>") in found.encode("<tool_call>")


def changes() -> list[tuple[Callable[[dict[str, Any]], object], str]]:
    def model(**values: Any) -> Callable[[dict[str, Any]], object]:
        return lambda whole: whole["model"].update(values)

    def whole(**values: Any) -> Callable[[dict[str, Any]], object]:
        return lambda tokenizer: tokenizer.update(values)

    return [
        (model(type="Unigram"), "of the kind 'Unigram'"),
        (model(byte_fallback=True), "byte_fallback"),
        (model(ignore_merges=True), "ignore_merges"),
        (model(vocab={}), "missing, empty"),
        (model(vocab={"a": -1}), "unusable ids"),
        (model(vocab={"a": 1, "b": 1}), "same id"),
        (model(merges=["a b c"]), "not two parts"),
        (model(merges=[]), "no merges"),
        (whole(normalizer={"type": "Lowercase"}), "normaliser 'Lowercase'"),
        (whole(pre_tokenizer=None), "not known"),
        (whole(pre_tokenizer={"type": "Whitespace"}), "Whitespace"),
        (whole(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(r"\p{N}{1,2}"), BYTES]}), "not known"),
        (whole(added_tokens=[{"id": 1}]), "no usable id"),
    ]


@pytest.mark.parametrize(("change", "reason"), changes())
def test_other_tokenizers_are_refused(change: Callable[[dict[str, Any]], object], reason: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path, read_vocabulary(small_vocabulary("qwen2")))
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    change(tokenizer)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(VivaceError, match=reason):
        read_folder_vocabulary(tmp_path)


def test_where_a_template_and_a_first_token_are_written(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, read_vocabulary(small_vocabulary("llama-bpe")))
    special = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    post = {"type": "Sequence", "processors": [BYTES, {"type": "TemplateProcessing", "single": special}]}
    tokenizer = {**json.loads((tmp_path / "tokenizer.json").read_text()), "post_processor": post}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    templates = [{"name": "tools", "template": "no"}, {"name": "default", "template": "yes"}]
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>", "chat_template": templates}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))
    found = Tokenizer(read_folder_vocabulary(tmp_path))
    assert found.add_bos and found.bos_id == found.special_id("<|im_start|>")
    assert found.chat_template == "yes"
    assert {0, found.special_id("<|endoftext|>"), found.special_id("<|im_end|>")} == found.eos_ids
    (tmp_path / "chat_template.jinja").write_text("beside")
    assert Tokenizer(read_folder_vocabulary(tmp_path)).chat_template == "beside"
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 10**9}))
    with pytest.raises(VivaceError, match="not one of"):
        read_folder_vocabulary(tmp_path)
