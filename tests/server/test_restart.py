"""A server that is killed: what clients were told of background responses holds in the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SERVE = ["-m", "vivace", "serve", "--backend", "paced", "--tok-s", "500", "--ttft-ms", "1", "--port", "0"]


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server of its own process, and its address."""
    environ = {**os.environ, "VIVACE_STATE_DIR": str(folder)}
    process = subprocess.Popen([sys.executable, *SERVE], env=environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(url: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=20) as answer:
        return str(answer.read().decode())


def told(stream: str) -> list[Any]:
    """The events, but for those that kept the connection alive on a slow machine."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return [event for event in events if event["type"] != "keepalive"]


def begin(address: str, **fields: Any) -> str:
    body = {"model": "paced", "input": "hello", "background": True, **fields}
    return str(json.loads(ask(f"{address}/v1/responses", body))["id"])


def found(url: str) -> Any:
    """What there is; a row that was only in the journal is written shortly after the start."""
    for _ in range(100):
        try:
            return json.loads(ask(url))
        except HTTPError as error:
            assert error.code == 404
            time.sleep(0.02)
    raise AssertionError(f"{url} is lost")


def test_background_responses_outlive_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as (address, process):
        whole = begin(address, max_output_tokens=25)
        replay = f"/v1/responses/{whole}?stream=true&starting_after=2"
        events = told(ask(f"{address}{replay}"))
        assert events[-1]["type"] == "response.incomplete"
        running = begin(address, max_output_tokens=100_000)
        os.kill(process.pid, signal.SIGKILL)
    with serving(tmp_path) as (address, process):
        assert found(f"{address}/v1/responses/{whole}")["status"] == "incomplete"
        assert told(ask(f"{address}{replay}")) == events
        # Whether another server still makes it is not known before its lease ends, seconds later.
        assert found(f"{address}/v1/responses/{running}")["status"] in ("queued", "in_progress", "failed")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
