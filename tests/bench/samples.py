"""A document as a run would leave it."""

from __future__ import annotations

from vivace.bench.host import Bounds, ModelFacts
from vivace.bench.record import Contender, Document, Figure, Machine, Run


def run(contender: str, task: str, turn: int, seconds: float, **other: object) -> Run:
    values: dict[str, object] = {"counts": True}
    values |= {"ttft": seconds / 4, "prompt_tokens": 1000, "output_tokens": 900, "first_tokens": 20, "pieces": 10}
    return Run(contender=contender, task=task, round=turn, seconds=seconds, **{**values, **other})  # type: ignore[arg-type]


def document() -> Document:
    runs = [run("vivace", "rename", n, 1.0 + n / 10, drafted=1000, accepted=880, changed=n > 0) for n in range(3)]
    runs += [run("slow peer", "rename", n, 10.0 + n) for n in range(2)]
    runs += [run("slow peer", "rename", 2, 99.0, counts=False, fault="does not compile")]
    widths = [
        Figure(
            measure="widths", name="pass", contender="vivace", unit="ms", samples=[20.0, 21.0, 22.0],
            about={"rows": rows, "context": 0},
        )
        for rows in (1, 64, 256)
    ]  # fmt: skip
    decode = Figure(
        measure="decode", name="plain decode", contender="vivace", unit="tok/s", samples=[40.0], about={"context": 0}
    )
    return Document(
        date="2026-01-02",
        options={"rounds": 3},
        machine=Machine(cpu="A CPU", cores=2, memory_bytes=8 << 30, features=["avx2"], system="Linux", python="3.11.7"),
        model=ModelFacts(
            name="m", weights=500_000_000, kv_values=6144, layers=24, query_width=896, window=4096, detail="int8"
        ),
        bounds=Bounds(bytes_per_second=25e9, int8_per_second=5e12, bf16_per_second=2e12, threads=2),
        contenders=[Contender(name="vivace", engine="vivace"), Contender(name="slow peer", engine="peer")],
        runs=runs,
        figures=[*widths, decode],
    )
