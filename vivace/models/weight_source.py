"""Weights by name, whatever they are stored in: a GGUF file, or a folder of safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt


class WeightSource(Protocol):
    """Named tensors and metadata, both in GGUF's words: ``blk.0.attn_q.weight``, ``qwen2.block_count``.

    What it gives passed every check that can be made without reading tensor data. Close it, or use it as a context
    manager.
    """

    path: Path

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensor_names(self) -> list[str]: ...

    @property
    def interleaved_rotary(self) -> bool:
        """Whether rows of q and k are in interleaved rotary order rather than half-split order."""
        ...

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Rows (outputs) first; experts before rows."""
        ...

    def dequantize(self, name: str, rows: slice | None = None) -> npt.NDArray[np.float32]:
        """The values, of the first dimension only ``rows`` where that is given; only these are read."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_model(path: Path | str) -> WeightSource:
    """Opens a GGUF file, or a folder with ``config.json`` and safetensors files.

    Raises :class:`vivace.errors.VivaceError` (``model_file_invalid``, ``model_file_unreadable``) with what is wrong.
    """
    path = Path(path)
    if path.is_dir():
        from vivace.models.safetensors_folder import open_folder

        return open_folder(path)
    from vivace.models.gguf_file import open_gguf

    return open_gguf(path)
