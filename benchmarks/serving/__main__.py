"""Serving benchmarks: each writes one JSON file, and the tables are made from those.

python -m benchmarks.serving rollout                 24 calls of an agent at 8k and 96k tokens: HTTP, WebSocket
python -m benchmarks.serving engine                  time to first token of second turns on the engine, 8k
python -m benchmarks.serving stream                  16 streams at 1,000 tokens a second
python -m benchmarks.serving gateway                 added to one request, beside LiteLLM's proxy
python -m benchmarks.serving table                   the tables in benchmarks/results/README.md
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.machine import describe
from benchmarks.serving import engine_turns, gateway, rollout, stream
from benchmarks.serving.conversation import CALLS
from benchmarks.serving.process import VIVACE
from benchmarks.serving.table import write_table
from vivace import __version__

RESULTS = Path(__file__).parents[1] / "results"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--vivace", default=VIVACE, help="the command of the vivace that is measured")
    what = made.add_subparsers(dest="what", required=True)
    one = what.add_parser("rollout", parents=[shared])
    one.add_argument("--contexts", type=int, nargs="+", default=list(rollout.CONTEXTS), help="tokens")
    one.add_argument("--rollouts", type=int, default=10, help="of each way")
    one = what.add_parser("engine", parents=[shared])
    one.add_argument("--model", default="coder-0.5b")
    one.add_argument("--context", type=int, default=8_000, help="tokens")
    one.add_argument("--rounds", type=int, default=6)
    one = what.add_parser("stream", parents=[shared])
    one.add_argument("--seconds", type=float, default=5.0, help="of each run")
    one.add_argument("--runs", type=int, default=5, help="of each way")
    one = what.add_parser("gateway", parents=[shared])
    one.add_argument("--requests", type=int, default=300, help="of each case")
    one.add_argument("--litellm", type=Path, default=Path("build/litellm"), help="its environment, see setup.sh")
    what.add_parser("table")
    return made


async def rollouts(options: argparse.Namespace) -> dict[str, Any]:
    made = [await rollout.measure(context, options.rollouts, options.vivace) for context in options.contexts]
    return {"calls": CALLS, "contexts": made}


def measured(options: argparse.Namespace) -> Coroutine[Any, Any, dict[str, Any]]:
    match options.what:
        case "rollout":
            return rollouts(options)
        case "engine":
            return engine_turns.measure_engine(options.model, options.context, options.rounds, options.vivace)
        case "stream":
            return stream.measure(options.seconds, options.runs, options.vivace)
        case _:
            return gateway.measure(options.requests, options.vivace, options.litellm)


def command_of(options: argparse.Namespace) -> str:
    """The command with what it was told, places of this machine left out."""
    told = ["python", "-m", "benchmarks.serving", options.what]
    for name, value in vars(options).items():
        if name not in ("what", "results", "vivace", "litellm"):
            told += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return " ".join(told)


def main() -> None:
    options = parser().parse_args()
    if options.what != "table":
        gc.disable()  # a collection in this process would be taken for a delay of the server's
        made = asyncio.run(measured(options))
        report = {
            "command": command_of(options),
            "date": datetime.date.today().isoformat(),
            "vivace": __version__,
            "machine": describe(),
            "result": made,
        }
        place = options.results / f"serving-{options.what}.json"
        place.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
        print(msgspec.json.format(msgspec.json.encode(made), indent=1).decode())
        print(f"written: {place}")
    write_table(options.results)


if __name__ == "__main__":
    main()
