"""What a benchmark wants of the rooms below: handed in by the command, so that nothing here imports them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from vivace.protocol.contracts import Service


class ModelFacts(Struct, frozen=True, kw_only=True):
    """The numbers of a model that bounds are computed from.

    ``weights`` are the parameters that one pass multiplies, the head included; ``kv_values`` the key and value numbers
    that one position holds over all layers. ``weight_bytes`` and ``kv_bytes`` say how wide vivace stores one of each.
    """

    name: str
    weights: int
    kv_values: int
    layers: int
    query_width: int
    window: int
    weight_bytes: float = 1.0
    kv_bytes: float = 2.0
    file_sha256: str = ""
    detail: str = ""
    """How the engine runs it, for people."""

    def step_bytes(self, context: int = 0, sequences: int = 1) -> float:
        """Bytes that one pass must read: the weights once, and the KV of each sequence."""
        return self.weights * self.weight_bytes + sequences * context * self.kv_values * self.kv_bytes

    def step_operations(self, rows: int) -> float:
        """Multiplications and additions of the linear layers for ``rows`` rows with logits each."""
        return 2.0 * self.weights * rows


class Bounds(Struct, frozen=True, kw_only=True):
    """What the machine can do at best, measured. Zero where it cannot be measured or does not exist here."""

    bytes_per_second: float = 0.0
    int8_per_second: float = 0.0
    """Integer operations (a multiplication and an addition are two)."""
    bf16_per_second: float = 0.0
    threads: int = 0


class Texts(Protocol):
    """The model's chat template and tokenizer."""

    def prompt(self, instructions: str, user: str) -> list[int]:
        """Token ids up to where the answer begins."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens left out."""
        ...

    def reference(self, text: str) -> list[int]:
        """The tokens of an answer that consists of ``text``, its end token included."""
        ...

    @property
    def end_tokens(self) -> list[int]: ...


class Finish(Protocol):
    """The last figures of an answer, as the engine counts them."""

    @property
    def reason(self) -> str: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def drafted(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def steps(self) -> int: ...


class Progress(Protocol):
    @property
    def tokens(self) -> list[int]: ...
    @property
    def finish(self) -> Finish | None: ...


class TokenStream(Protocol):
    """Progress of one request, in order; the last one has a ``finish``."""

    def __aiter__(self) -> AsyncIterator[Progress]: ...

    def abort(self) -> None: ...


class TokenEngine(Protocol):
    """An engine process of its own, asked in tokens."""

    async def open(self) -> None: ...

    def ask(
        self,
        tokens: list[int],
        *,
        max_tokens: int,
        reference: Sequence[int] = (),
        end: Sequence[int] = (),
        temperature: float = 0.0,
        seed: int = 0,
        priority: int = 0,
        draft: bool = True,
    ) -> TokenStream:
        """Begin to answer; without ``end`` only ``max_tokens`` ends the answer."""
        ...

    async def resident_bytes(self) -> int: ...

    async def close(self) -> None: ...


class StepTimer(Protocol):
    """A loaded model whose single passes can be timed."""

    def seconds(self, rows: int, context: int) -> float:
        """Time of one pass of ``rows`` rows behind ``context`` positions, the best token of every row wanted."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Host:
    """Everything a speed benchmark needs.

    ``service`` answers for ``facts.name``; ``token_engine`` makes a separate, closed engine process; ``step_timer``
    loads the model into this process; ``probe`` measures the machine. ``close`` belongs to whoever made the host.
    """

    service: Service
    facts: ModelFacts
    texts: Texts
    token_engine: Callable[[], TokenEngine]
    step_timer: Callable[[], StepTimer]
    probe: Callable[[], Bounds]
    model_file: str
    """Path of the weights, for peers that read the same file; never recorded."""
