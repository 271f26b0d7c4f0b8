"""Frames between the engine process and whoever started it: msgpack, length first, one tagged struct each.

Down: :class:`Open` once, then :class:`Start`, :class:`Abort`, :class:`Inspect`. Up: :class:`Loading` and :class:`Ready`
or :class:`Fatal`, then :class:`Step` (what one pass gave, for every sequence in it) and :class:`Report`.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec
from msgspec import Struct, field

HEADER = struct.Struct("<I")

KvType = Literal["bf16", "int8"]
"""How KV memory keeps a key or value. With fp32 weights bf16 means fp32."""


class EngineConfig(Struct, kw_only=True, frozen=True):
    """How to run one model. ``threads``, ``window`` and ``kv_tokens`` of 0 are chosen by the engine."""

    model_path: str
    cache_dir: str
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "int8", "bf16", "fp32"] = "auto"
    kernels: Literal["auto", "native", "torch"] = "auto"
    threads: int = 0
    window: int = 0
    kv_tokens: int = 0
    kv_type: KvType = "bf16"


class Sampling(Struct, kw_only=True, frozen=True):
    """How a token is chosen. ``temperature`` 0 is greedy; the other fields' defaults are off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    @property
    def plain_greedy(self) -> bool:
        """Whether the most likely token is always the choice, so that no logits need to leave the model."""
        return self.temperature <= 0.0 and self.repetition_penalty == 1.0


class Grammar(Struct, kw_only=True, frozen=True):
    """What an output may be: ``text`` in llguidance's dialect of Lark, see docs/grammars.md."""

    text: str


class Open(Struct, tag=True, frozen=True):
    config: EngineConfig


class Start(Struct, tag=True, frozen=True, kw_only=True):
    """Answer ``tokens``. What is in KV memory already is found by token prefix and not computed again.

    ``reference`` is what the output will mostly be, as tokens; ``end`` are tokens and ``stop`` byte strings that end
    the output. ``max_tokens`` and ``max_seconds`` of 0 set no limit. ``draft`` false computes token by token.
    ``grammar`` is enforced token by token; a complete output ends with "stop". ``prefill_only`` puts the prompt into KV
    memory for requests to come and ends with "stop" before the first token.
    """

    id: int
    tokens: list[int]
    sampling: Sampling = field(default_factory=Sampling)
    reference: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    max_tokens: int = 0
    max_seconds: float = 0.0
    stop: list[bytes] = field(default_factory=list)
    priority: int = 0
    draft: bool = True
    grammar: Grammar | None = None
    prefill_only: bool = False


class Abort(Struct, tag=True, frozen=True):
    id: int


class Inspect(Struct, tag=True, frozen=True):
    """Ask for a :class:`Report`."""


class Shutdown(Struct, tag=True, frozen=True):
    pass


class Loading(Struct, tag=True, frozen=True):
    """Progress before :class:`Ready`; ``share`` from 0 to 1."""

    stage: str
    share: float


class Ready(Struct, tag=True, frozen=True):
    """The engine can answer. ``detail`` says how it runs, in words."""

    window: int
    vocab: int
    kv_tokens: int
    detail: str


class Fatal(Struct, tag=True, frozen=True):
    """The engine cannot run, with the reason and what to do."""

    message: str
    hint: str = ""
    code: str = "engine"


FinishReason = Literal["stop", "length", "window", "time", "aborted", "error"]


class Finish(Struct, frozen=True):
    """Why and with what figures a sequence ended.

    ``output_tokens`` counts every token that was computed and accepted, the ending one included. ``drafted`` and
    ``accepted`` count draft tokens; ``steps`` the passes that gave output. ``trim`` is the length in bytes of the
    matched stop string and what followed it, which is no part of the answer.
    """

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    drafted: int
    accepted: int
    steps: int
    trim: int = 0
    message: str = ""


class Progress(Struct, frozen=True, array_like=True):
    """New tokens of one sequence, and its end if it has ended."""

    id: int
    tokens: list[int]
    finish: Finish | None = None


class Step(Struct, tag=True, frozen=True):
    progress: list[Progress]


class Report(Struct, tag=True, frozen=True):
    """The state of the engine, for tests and metrics. ``kv_blocks_held`` are those that running sequences hold."""

    running: int
    waiting: int
    kv_blocks: int
    kv_blocks_held: int
    kv_blocks_cached: int
    steps: int
    resident_bytes: int


Down = Open | Start | Abort | Inspect | Shutdown
Up = Loading | Ready | Fatal | Step | Report

_encoder = msgspec.msgpack.Encoder()
decode_down = msgspec.msgpack.Decoder(Down).decode
decode_up = msgspec.msgpack.Decoder(Up).decode


def frame(message: Down | Up) -> bytes:
    """The bytes of one frame."""
    body = _encoder.encode(message)
    return HEADER.pack(len(body)) + body
