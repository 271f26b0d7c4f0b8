"""A folder as the hub gives it: ``config.json`` and ``*.safetensors``, seen as one model file with GGUF's names.

All headers are read and checked when the folder is opened; tensor bytes are read when asked for, by ``preadv`` rather
than by a mapping, so that a file cut short under a running process is an error and not a bus error.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from vivace.errors import VivaceError
from vivace.models.gguf_cursor import quoted
from vivace.models.hub_config import metadata_from_config
from vivace.models.json_file import invalid, read_json
from vivace.models.safetensors_header import StoredTensor, read_tensors

MAX_FILES = 1024

_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
_LAYER = re.compile(r"model\.layers\.(\d{1,4})\.(.+)\.(weight|bias)")
_EXPERT = re.compile(r"mlp\.experts\.(\d{1,5})\.(gate|up|down)_proj")


class SafetensorsFolder:
    """The open folder; see :class:`vivace.models.weight_source.WeightSource`.

    A tensor is a list of stored ones: one, or one for each expert.
    """

    interleaved_rotary = False

    def __init__(self, path: Path, metadata: dict[str, Any], tensors: dict[str, list[StoredTensor]]) -> None:
        self.path = path
        self._metadata = metadata
        self._tensors = tensors
        self._files: dict[Path, BinaryIO] = {}

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    @property
    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        stored = self._stored(name)
        return (len(stored), *stored[0].shape) if _per_expert(name) else stored[0].shape

    def dequantize(self, name: str, rows: slice | None = None) -> npt.NDArray[np.float32]:
        stored = self._stored(name)
        if _per_expert(name):
            return np.stack([self._read(tensor) for tensor in stored[rows or slice(None)]])
        return self._read(stored[0], rows)

    def _stored(self, name: str) -> list[StoredTensor]:
        if name not in self._tensors:
            raise VivaceError(
                f"{self.path} has no tensor {name!r}",
                hint="The folder is of another architecture, or incomplete.",
                code="model_file_invalid",
            )
        return self._tensors[name]

    def _read(self, tensor: StoredTensor, rows: slice | None = None) -> npt.NDArray[np.float32]:
        start, size, shape = tensor.offset, tensor.size, tensor.shape
        if rows is not None:
            first, last, step = rows.indices(shape[0])
            if step != 1:
                raise ValueError("rows are read one after the other: the step must be 1")
            each = size // shape[0]
            shape = (max(0, last - first), *shape[1:])
            start, size = start + first * each, shape[0] * each
        if tensor.file not in self._files:
            self._files[tensor.file] = tensor.file.open("rb", buffering=0)
        data = np.empty(size, np.uint8)
        view = memoryview(data)  # type: ignore[arg-type]  # numpy 2.4's stubs hide the buffer protocol of 3.11
        done = 0
        while done < size:
            count = os.preadv(self._files[tensor.file].fileno(), [view[done : done + (1 << 30)]], start + done)
            if count == 0:
                raise invalid(tensor.file, f"it ended at byte {start + done} while it was read: the file changed")
            done += count
        if tensor.dtype == "BF16":
            values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = data.view("<f4" if tensor.dtype == "F32" else "<f2").astype(np.float32, copy=False)
        return values.reshape(shape)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_folder(path: Path) -> SafetensorsFolder:
    """Opens a folder after checking every header in it.

    Raises :class:`VivaceError`: ``model_file_invalid``, ``model_file_unreadable``, or ``architecture_unknown``.
    """
    if not (path / "config.json").exists():
        raise VivaceError(
            f"{path} has no config.json, so it is no folder of a model",
            hint="Give a .gguf file, or a folder with config.json, *.safetensors and tokenizer.json.",
            code="model_file_invalid",
        )
    config = read_json(path / "config.json", 1 << 20)
    metadata = metadata_from_config(config, path / "config.json")
    tied = config.get("tie_word_embeddings") is True
    tensors: dict[str, list[StoredTensor]] = {}
    experts: dict[str, dict[int, StoredTensor]] = defaultdict(dict)
    for file in weight_files(path):
        for name, tensor in _tensors_of(file).items():
            if name.endswith("rotary_emb.inv_freq") or (tied and name == "lm_head.weight"):
                continue
            target, expert = _name(name, path)
            place = experts[target] if expert is not None else tensors
            key = target if expert is None else expert
            if key in place:
                raise invalid(file, f"the tensor {quoted(name)} appears twice")
            place[key] = [tensor] if expert is None else tensor  # type: ignore[index, assignment]
    for target, by_number in experts.items():
        in_order = [by_number.get(number) for number in range(len(by_number))]
        whole = [tensor for tensor in in_order if tensor is not None]
        if len(whole) < len(in_order) or len({tensor.shape for tensor in whole}) != 1:
            raise invalid(path, f"the experts of {quoted(target)} are incomplete or of different shapes")
        tensors[target] = whole
    if not tied and "output.weight" not in tensors:
        raise invalid(path, "it has no lm_head.weight, and config.json does not say that the embedding stands for it")
    return SafetensorsFolder(path, metadata, tensors)


def weight_files(path: Path) -> list[Path]:
    """The safetensors files that make up the model: those that the index names, or the only one."""
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return [path / "model.safetensors"]
    named = read_json(index).get("weight_map")
    names = sorted({str(name) for name in named.values()}) if isinstance(named, dict) else []
    if not 0 < len(names) <= MAX_FILES or not all(re.fullmatch(r"[\w.-]+\.safetensors", name) for name in names):
        raise invalid(index, "it does not name safetensors files of the same folder")
    return [path / name for name in names]


def _tensors_of(file: Path) -> dict[str, StoredTensor]:
    try:
        info = file.stat()
        if not stat.S_ISREG(info.st_mode):
            raise VivaceError(f"{file} is not a regular file", code="model_file_unreadable")
        with file.open("rb", buffering=0) as opened:
            return read_tensors(opened, info.st_size, file)
    except OSError as error:
        raise VivaceError(f"Cannot read {file}: {error.strerror}", code="model_file_unreadable") from error


def _name(name: str, path: Path) -> tuple[str, int | None]:
    """GGUF's name, and the number of the expert where the tensor is one expert's."""
    if name in _WHOLE:
        return _WHOLE[name], None
    match = _LAYER.fullmatch(name)
    if match:
        layer, part, kind = match.groups()
        expert = _EXPERT.fullmatch(part)
        if expert and kind == "weight":
            return f"blk.{int(layer)}.ffn_{expert[2]}_exps.weight", int(expert[1])
        if part in _IN_LAYER:
            return f"blk.{int(layer)}.{_IN_LAYER[part]}.{kind}", None
    raise invalid(path, f"the engine does not know what the tensor {quoted(name)} is for")


def _per_expert(name: str) -> bool:
    return name.endswith("_exps.weight")
