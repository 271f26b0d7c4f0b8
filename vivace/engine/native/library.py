"""The shared library: its structs (those of vivace_native.h), its signatures, and where it is found."""

from __future__ import annotations

import ctypes as c
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

ABI = 3


class LinearStruct(c.Structure):
    _fields_ = [
        ("w", c.c_void_p),
        ("scale", c.c_void_p),
        ("colsum", c.c_void_p),
        ("bias", c.c_void_p),
        ("n", c.c_int32),
        ("k", c.c_int32),
    ]


class ConfigStruct(c.Structure):
    _fields_ = [
        ("layers", c.c_int32),
        ("hidden", c.c_int32),
        ("heads", c.c_int32),
        ("kv_heads", c.c_int32),
        ("head_dim", c.c_int32),
        ("ffn", c.c_int32),
        ("vocab", c.c_int32),
        ("rope_dim", c.c_int32),
        ("rope_interleaved", c.c_int32),
        ("max_rows", c.c_int32),
        ("max_positions", c.c_int32),
        ("flags", c.c_int32),
        ("idle_spin_us", c.c_int32),
        ("reserved", c.c_int32),
        ("rope_theta", c.c_double),
        ("rms_eps", c.c_double),
        ("inv_freq", c.c_void_p),
        ("rope_attn_factor", c.c_double),
    ]


class LayerStruct(c.Structure):
    _fields_ = [
        ("attn_norm", c.c_void_p),
        ("qkv", LinearStruct),
        ("q_norm", c.c_void_p),
        ("k_norm", c.c_void_p),
        ("o", LinearStruct),
        ("ffn_norm", c.c_void_p),
        ("gate_up", LinearStruct),
        ("down", LinearStruct),
    ]


class WeightsStruct(c.Structure):
    _fields_ = [
        ("embed", c.c_void_p),
        ("layers", c.POINTER(LayerStruct)),
        ("final_norm", c.c_void_p),
        ("head", LinearStruct),
    ]


class SpanStruct(c.Structure):
    _fields_ = [("blocks", c.c_void_p), ("start", c.c_int32), ("rows", c.c_int32)]


class BatchStruct(c.Structure):
    _fields_ = [
        ("tokens", c.c_void_p),
        ("spans", c.POINTER(SpanStruct)),
        ("argmax_rows", c.c_void_p),
        ("argmax", c.c_void_p),
        ("argmax_logit", c.c_void_p),
        ("argmax_sharpness", c.c_void_p),
        ("argmax_weight", c.c_void_p),
        ("logit_rows", c.c_void_p),
        ("logits", c.c_void_p),
        ("n_tokens", c.c_int32),
        ("n_spans", c.c_int32),
        ("n_argmax", c.c_int32),
        ("n_logits", c.c_int32),
    ]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "vv_abi": (c.c_int32, []),
    "vv_isa_best": (c.c_int32, []),
    "vv_isa_name": (c.c_char_p, [c.c_int32]),
    "vv_packed_size": (c.c_int64, [c.c_int64, c.c_int64]),
    "vv_pack": (c.c_int32, [c.c_void_p, c.c_int64, c.c_int64, c.c_void_p, c.c_void_p]),
    "vv_quantize": (c.c_int32, [c.c_void_p, c.c_int64, c.c_int64, c.c_void_p, c.c_void_p]),
    "vv_alloc": (c.c_void_p, [c.c_int64]),
    "vv_release": (None, [c.c_void_p, c.c_int64]),
    "vv_model_create": (c.c_void_p, [c.POINTER(ConfigStruct), c.POINTER(WeightsStruct), c.c_int32, c.c_int32]),
    "vv_model_free": (None, [c.c_void_p]),
    "vv_error": (c.c_char_p, []),
    "vv_kv_create": (c.c_void_p, [c.c_void_p, c.c_int32, c.c_int32]),
    "vv_kv_free": (None, [c.c_void_p]),
    "vv_kv_block_bytes": (c.c_int64, [c.c_void_p]),
    "vv_kv_copy_block": (c.c_int32, [c.c_void_p, c.c_int32, c.c_int32]),
    "vv_kv_drop_blocks": (c.c_int32, [c.c_void_p, c.c_int32, c.c_int32]),
    "vv_forward": (c.c_int32, [c.c_void_p, c.c_void_p, c.POINTER(BatchStruct), c.c_void_p]),
    "vv_logits": (c.c_int32, [c.c_void_p, c.c_int32, c.c_void_p]),
    "vv_profile": (c.c_int32, [c.c_void_p, c.c_void_p]),
    "vv_profile_name": (c.c_char_p, [c.c_int32]),
    "vv_profile_reset": (None, [c.c_void_p]),
    "vv_gemm_int32": (
        c.c_int32,
        [c.c_int32, c.c_void_p, c.c_int32, c.c_void_p, c.c_void_p, c.c_int32, c.c_int32, c.c_void_p],
    ),
    "vv_probe": (c.c_double, [c.c_int32, c.c_int32, c.c_int64, c.c_double]),
}


@cache
def load() -> Any:
    """The library with its signatures set; OSError where it was not built or does not fit this package."""
    here = Path(__file__).parent
    found = [p for suffix in EXTENSION_SUFFIXES if (p := here / f"_native{suffix}").exists()]
    if not found:
        raise OSError(f"no native kernels in {here}: run `python setup.py build_ext --inplace` (needs a C++ compiler)")
    library = c.CDLL(str(found[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise OSError(f"{found[0].name} has no {name}: build it again")
        function.restype = result
        function.argtypes = arguments
    if library.vv_abi() != ABI:
        raise OSError(f"{found[0].name} has ABI {library.vv_abi()}, this package needs {ABI}: build it again")
    return library


@cache
def available() -> bool:
    """Whether the native library is built and loads here."""
    try:
        load()
    except OSError:
        return False
    return True
