"""What a gateway adds to one request: the same upstream asked directly, through vivace, and through LiteLLM's proxy.

One client, one request at a time on kept connections, the ways in turn. What is added is the difference of medians.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.serving.client import Http, Reply, of_stream
from benchmarks.serving.conversation import encode, prose
from benchmarks.serving.process import Process, running, said_at, vivace
from benchmarks.serving.upstream import MODEL
from vivace.bench.stats import quantile

WARM = 30
"""Requests of each way that do not count."""
PROMPT_CHARACTERS = 4000
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


class Case(Struct, frozen=True):
    """A way, and what is asked there. Several cases share a server."""

    server: str
    path: str
    stream: bool

    @property
    def name(self) -> str:
        return (
            f"{self.server} {'responses' if self.path == RESPONSES else 'chat'} {'stream' if self.stream else 'whole'}"
        )

    @property
    def base(self) -> str:
        """The direct case that it is compared with; it is the same upstream request."""
        return f"direct chat {'stream' if self.stream else 'whole'}"


CASES = (
    *(Case(server, CHAT, stream) for server in ("direct", "vivace", "litellm") for stream in (False, True)),
    Case("vivace", RESPONSES, False),
    Case("vivace", RESPONSES, True),
)


class Skipped(Exception):
    """LiteLLM cannot be measured; says why."""


@contextmanager
def litellm(upstream: Process, folder: Path) -> Iterator[Process]:
    """LiteLLM's proxy in front of the upstream, one worker, in its own environment. Raises :class:`Skipped`."""
    command = folder / "bin" / "litellm"
    if not command.exists():
        raise Skipped("is not installed: run benchmarks/serving/setup.sh")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = f"""\
model_list:
  - model_name: {MODEL}
    litellm_params:
      model: openai/{MODEL}
      api_base: {upstream.root}/v1
      api_key: none
litellm_settings:
  telemetry: false
  set_verbose: false
"""
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        # Without keys, as vivace is here: neither looks one up.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    with tempfile.TemporaryDirectory(prefix="vivace-litellm-") as made:
        place = Path(made)
        (place / "config.yaml").write_text(config, "utf-8")

        def listens(log: str) -> str | None:
            with socket.socket() as probe:
                return f"http://127.0.0.1:{port}" if probe.connect_ex(("127.0.0.1", port)) == 0 else None

        whole = (str(command), "--config", str(place / "config.yaml"), "--host", "127.0.0.1", "--port", str(port))
        try:
            with running(whole, listens, environment=environment, folder=place) as process:
                yield process
        except RuntimeError as error:
            raise Skipped(f"did not start: {str(error).strip().splitlines()[-1]}") from error


async def measure(requests: int, command: str, litellm_folder: Path) -> dict[str, Any]:
    """``requests`` of each case, after :data:`WARM` that do not count."""
    config_of = '[backends.{0}]\nkind = "upstream"\nbase_url = "{1}/v1"\napi = "chat"\n'.format
    skipped = ""
    with ExitStack() as stack:
        upstream = stack.enter_context(
            running(
                (sys.executable, "-m", "benchmarks.serving.upstream"),
                said_at,
                folder=Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vivace-upstream-"))),
            )
        )
        servers = {"direct": upstream}
        servers["vivace"] = stack.enter_context(vivace(config_of(MODEL, upstream.root), ("--backend", MODEL), command))
        try:
            servers["litellm"] = stack.enter_context(litellm(upstream, litellm_folder))
        except Skipped as reason:
            skipped = str(reason)
        made, cpu = await _ask_all(servers, requests)
    cases = {case.name: _summary(made[case.name]) for case in made_cases(servers)}
    added = {
        case.name: {key: round(cases[case.name][key] - cases[case.base][key], 3) for key in ("whole_ms", "ttft_ms")}
        for case in made_cases(servers)
        if case.server != "direct"
    }
    return {
        "requests": requests,
        "litellm": skipped or _version(litellm_folder),
        "cases": cases,
        "added_ms": added,
        "cpu_ms_per_request": cpu,
    }


def made_cases(servers: Mapping[str, Process]) -> list[Case]:
    return [case for case in CASES if case.server in servers]


async def _ask_all(
    servers: Mapping[str, Process], requests: int
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, float]]:
    """Milliseconds to the end and to the first text, by case; and each server's processor time a request."""
    chance = random.Random(0)
    lines = {case.name: await Http.open(servers[case.server].root) for case in made_cases(servers)}
    made: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
    before: dict[str, float] = {}
    for number in range(WARM + requests):
        if number == WARM:
            before = {name: server.cpu_seconds() for name, server in servers.items()}
        order = made_cases(servers)
        chance.shuffle(order)
        text = prose(chance, PROMPT_CHARACTERS)
        for case in order:
            reply = await lines[case.name].ask(case.path, encode(_body(case, text)))
            if reply.status != 200:
                raise RuntimeError(f"{case.name}: {reply.status} {reply.body[:300]!r}")
            if number >= WARM:
                made[case.name].append(((reply.done - reply.sent) / 1e6, _ttft(case, reply)))
    counts = {name: requests * sum(case.server == name for case in order) for name in servers}
    cpu = {
        name: round((server.cpu_seconds() - before[name]) / counts[name] * 1e3, 3) for name, server in servers.items()
    }
    for line in lines.values():
        await line.close()
    return made, cpu


def _body(case: Case, text: str) -> dict[str, Any]:
    if case.path == RESPONSES:
        return {"model": MODEL, "input": text, "store": False, "stream": case.stream}
    messages = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": text}]
    options = {"stream_options": {"include_usage": True}} if case.stream else {}
    return {"model": MODEL, "messages": messages, "stream": case.stream, **options}


def _ttft(case: Case, reply: Reply) -> float:
    """Milliseconds to the first text; of a whole answer, to its end."""
    if not case.stream:
        return (reply.done - reply.sent) / 1e6
    for now, data in of_stream(reply.pieces):
        if data.startswith(b"[DONE]"):
            break
        event = msgspec.json.decode(data)
        choices = event.get("choices") or [{}]
        if event.get("type") == "response.output_text.delta" or choices[0].get("delta", {}).get("content"):
            return (now - reply.sent) / 1e6
    raise RuntimeError(f"{case.name}: no text in {reply.body[:300]!r}")


def _summary(made: list[tuple[float, float]]) -> dict[str, float]:
    whole, ttft = [whole for whole, _ in made], [ttft for _, ttft in made]
    return {
        "whole_ms": quantile(whole, 0.5),
        "whole_p90_ms": quantile(whole, 0.9),
        "ttft_ms": quantile(ttft, 0.5),
        "ttft_p90_ms": quantile(ttft, 0.9),
    }


def _version(folder: Path) -> str:
    command = (folder / "bin" / "python", "-c", "import importlib.metadata as m; print(m.version('litellm'))")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
