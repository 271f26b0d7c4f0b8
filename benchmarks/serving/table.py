"""The serving tables on the page of the results folder, made from the JSON files and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- serving: begin -->", "<!-- serving: end -->"
Report = dict[str, Any]


def write_table(folder: Path) -> None:
    """Write these tables into ``README.md`` of ``folder``; other parts of the page stay."""
    page = folder / "README.md"
    text = page.read_text("utf-8") if page.exists() else "# Results\n"
    before, begin, rest = text.partition(BEGIN)
    after = rest.partition(END)[2].lstrip("\n") if begin else ""
    parts = [before.rstrip("\n"), f"{BEGIN}\n{section(folder)}\n{END}", after.rstrip("\n")]
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def section(folder: Path) -> str:
    out = [
        "## Serving",
        "",
        "Made from `serving-*.json` by `python -m benchmarks.serving table`; what is measured, and how, is in",
        "`docs/serving-benchmarks.md`. Medians, as a client on the same machine saw them.",
    ]
    sources = []
    for name, tables in PARTS.items():
        place = folder / f"serving-{name}.json"
        if not place.exists():
            continue
        report = json.loads(place.read_text("utf-8"))
        out += ["", *tables(report["result"])]
        machine = f"{report['machine']['cpu']}, {report['machine']['cores']} cores"
        sources.append([place.name, report["date"], report["vivace"], machine, f"`{report['command']}`"])
    if sources:
        out += ["", *table(("file", "date", "vivace", "processor", "made by"), sources)]
    return "\n".join(out)


def rollout_tables(result: Report) -> list[str]:
    rows = []
    for made in result["contexts"]:
        for way, found in made["ways"].items():
            saved = made["saved_percent"] if way == "websocket" else {}
            rows.append(
                [
                    f"{made['context']:,}",
                    WAYS[way],
                    f"{found['bytes_sent'] / 1000:,.0f}",
                    f"{found['ttft_ms']:.2f}{minus(saved.get('ttft_ms'))}",
                    f"{found['whole_ms']:.2f}{minus(saved.get('whole_ms'))}",
                    f"{found['whole_p90_ms']:.2f}",
                    f"{found['cpu_ms']:.2f}{minus(saved.get('cpu_ms'))}",
                    f"{made['healthz_ms']:.2f}",
                ]
            )
    head = (
        "context", "way", "KB sent a call", "first token ms", "whole round trip ms", "p90 ms", "server CPU ms a call",
        "GET /healthz ms",
    )  # fmt: skip
    return [f"### A rollout of {result['calls']} calls, the backend taking no time", "", *table(head, rows)]


def engine_tables(result: Report) -> list[str]:
    rows = [
        [
            CASES[case],
            f"{found['input_tokens']:,}",
            f"{found['cached_tokens']:,}",
            f"{found['ttft_ms']:,.0f}",
            f"{found['ttft_range_ms'][0]:,.0f}-{found['ttft_range_ms'][1]:,.0f}",
            str(found["turns"]),
        ]
        for case, found in ((case, result["cases"][case]) for case in CASES)
    ]
    saved = [[name, f"{-value:+.1f} %"] for name, value in result["saved_percent"].items()]
    return [
        f"### Time to first token on the engine, {result['model']}, {result['context']:,} tokens",
        "",
        *table(("turn", "prompt tokens", "of them cached", "TTFT ms", "range ms", "turns"), rows),
        "",
        *table(("TTFT of the second turn", "difference"), saved),
    ]


def stream_tables(result: Report) -> list[str]:
    rows = [
        [
            WAYS[way],
            f"{found['cpu_us_per_token']:.1f}",
            "-".join(f"{value:.1f}" for value in found["cpu_us_per_token_range"]),
            f"{100 * found['cpu_share_of_a_core']:.0f}",
            f"{found['lag_p50_ms']:.2f}",
            f"{found['lag_p99_ms']:.2f}",
            f"{found['lag_max_ms']:.1f}",
            str(found["tokens_per_event"]),
            str(found["bytes_per_token"]),
        ]
        for way, found in result["ways"].items()
    ]
    head = (
        "way", "server CPU us a token", "range", "% of a core", "lag p50 ms", "lag p99 ms", "lag max ms",
        "tokens an event", "bytes a token",
    )  # fmt: skip
    title = f"### {result['streams']} streams at {result['tokens_per_second']:,} tokens a second each"
    return [title, "", *table(head, rows)]


def gateway_tables(result: Report) -> list[str]:
    rows = []
    for case, found in result["cases"].items():
        added = result["added_ms"].get(case)
        server = case.split(" ", 1)[0]
        rows.append(
            [
                case,
                f"{found['whole_ms']:.2f}",
                f"{found['whole_p90_ms']:.2f}",
                f"{found['ttft_ms']:.2f}" if "stream" in case else "",
                f"{added['whole_ms']:.2f}" if added else "",
                f"{added['ttft_ms']:.2f}" if added and "stream" in case else "",
                f"{result['cpu_ms_per_request'][server]:.2f}",
            ]
        )
    head = (
        "asked", "whole ms", "p90 ms", "first token ms", "added to the whole ms", "added to the first token ms",
        "server CPU ms a request",
    )  # fmt: skip
    title = (
        f"### Added to one request, {result['requests']} of each in turn; LiteLLM {result['litellm'].splitlines()[0]}"
    )
    return [title, "", *table(head, rows)]


PARTS = {
    "rollout": rollout_tables,
    "engine": engine_tables,
    "stream": stream_tables,
    "gateway": gateway_tables,
}
WAYS = {
    "http": "HTTP, whole history",
    "websocket": "WebSocket",
    "sse": "SSE",
    "lanes": "WebSocket, one connection",
}
CASES = {
    "first": "first",
    "chain second": "second on its chain (WebSocket)",
    "http second": "second as a fresh HTTP request, cache on",
    "uncached second": "second as a fresh HTTP request, nothing cached",
    "chain third": "third, one short line, on its chain",
    "http third": "third, one short line, as a fresh HTTP request",
}


def minus(saved: float | None) -> str:
    return "" if saved is None else f" ({-saved:+.0f} %)"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
