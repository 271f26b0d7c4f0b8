"""The catalogue's weights in the forms that peers read: ``convert.py MODEL.gguf FOLDER NAME``.

Makes ``NAME-openvino-int8`` (a stateful IR whose matrices nncf compressed to int8 per channel) from the dequantised
values, and ``NAME-q8_0.gguf``. What is there already is kept.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np


def to_openvino(source: Path, target: Path) -> None:
    """transformers dequantises the file, optimum-intel exports and nncf compresses it. No tokenizer: tokens go in."""
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype="bfloat16")
        model.save_pretrained(folder)
        del model
        eight_bits = OVWeightQuantizationConfig(bits=8, sym=False)
        exported = OVModelForCausalLM.from_pretrained(
            folder, export=True, compile=False, stateful=True, quantization_config=eight_bits
        )
        fresh = target.with_name(target.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        exported.save_pretrained(fresh)
        fresh.rename(target)


def to_q8_0(source: Path, target: Path) -> None:
    """Every matrix as Q8_0, from the dequantised values; vectors and metadata as they are."""
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    fresh = target.with_name(target.name + ".new")
    writer = gguf.GGUFWriter(fresh, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        value = field.contents()
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, value, kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(name, value, kind)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if values.ndim == 2 and values.shape[-1] % 32 == 0:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, q8), raw_dtype=q8)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fresh.rename(target)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for suffix, make in (("-q8_0.gguf", to_q8_0), ("-openvino-int8", to_openvino)):
        target = arguments.folder / (arguments.name + suffix)
        if not target.exists():
            print(f"making {target.name}", flush=True)
            make(arguments.source.resolve(), target)


if __name__ == "__main__":
    main()
