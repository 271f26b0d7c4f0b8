"""llama.cpp as the independent engine: the C library inside the xllamacpp wheel, called through ctypes."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 256
"""Positions per call: what this file sets n_batch and n_ubatch to."""


class _Blob(c.Structure):
    """Parameters by value. Only the four leading counts of the context's are looked at; the rest stays the default."""

    _fields_ = [("counts", c.c_uint32 * 4), ("rest", c.c_uint8 * 1008)]


class _Batch(c.Structure):
    _fields_ = [
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.c_void_p),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    ]


def _library() -> Any:
    import xllamacpp

    library = c.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "llama_model_default_params": (_Blob, []),
        "llama_context_default_params": (_Blob, []),
        "llama_model_load_from_file": (c.c_void_p, [c.c_char_p, _Blob]),
        "llama_init_from_model": (c.c_void_p, [c.c_void_p, _Blob]),
        "llama_set_n_threads": (None, [c.c_void_p, c.c_int32, c.c_int32]),
        "llama_batch_init": (_Batch, [c.c_int32, c.c_int32, c.c_int32]),
        "llama_batch_free": (None, [_Batch]),
        "llama_decode": (c.c_int32, [c.c_void_p, _Batch]),
        "llama_get_logits": (c.POINTER(c.c_float), [c.c_void_p]),
        "llama_get_memory": (c.c_void_p, [c.c_void_p]),
        "llama_memory_clear": (None, [c.c_void_p, c.c_bool]),
        "llama_free": (None, [c.c_void_p]),
        "llama_model_free": (None, [c.c_void_p]),
        "llama_backend_init": (None, []),
        "llama_log_set": (None, [c.c_void_p, c.c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class LlamaCpp:
    """One model file in llama.cpp with its defaults; ``window`` positions at most."""

    def __init__(self, path: Path, vocab: int, window: int, threads: int) -> None:
        self.vocab = vocab
        self._library = library = _library()
        self._quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda level, text, data: None)
        library.llama_log_set(c.cast(self._quiet, c.c_void_p), None)
        library.llama_backend_init()
        self._model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
        assert self._model, "llama.cpp does not load the file"
        params = library.llama_context_default_params()
        assert list(params.counts) == [512, 2048, 512, 1], "the layout of llama_context_params has changed"
        params.counts[:3] = [window, ROWS, ROWS]
        self._context = library.llama_init_from_model(self._model, params)
        assert self._context
        library.llama_set_n_threads(self._context, threads, threads)

    def logits(self, tokens: list[int]) -> Iterator[np.ndarray]:
        """float32 ``[rows, vocab]`` for all positions of ``tokens`` from 0, in slices; valid until the next one."""
        library = self._library
        library.llama_memory_clear(library.llama_get_memory(self._context), True)
        for start in range(0, len(tokens), ROWS):
            part = tokens[start : start + ROWS]
            batch = library.llama_batch_init(len(part), 0, 1)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, start + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, 1
            batch.n_tokens = len(part)
            status = library.llama_decode(self._context, batch)
            library.llama_batch_free(batch)
            assert status == 0, status
            yield np.ctypeslib.as_array(library.llama_get_logits(self._context), (len(part), self.vocab))

    def close(self) -> None:
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)
