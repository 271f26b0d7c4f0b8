"""The clients once against the embedded engine: a small model, so text only and small prompts.

Codex's prompt has about 5,000 tokens of this model, 2,200 of them without the tools that can be switched off; the
prompts of opencode (10,000) and Claude Code (20,000 and more) leave little of its window of 32,768.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.clients.appserver import AppServer
from tests.clients.codex import Codex, answer, faults
from tests.clients.harness import Server, kinds

pytestmark = [pytest.mark.clients, pytest.mark.model]

MODEL = "coder-0.5b"
FEW_TOOLS = {"web_search": "disabled", "agents": {"enabled": False}, "features": {"goals": False}}

CODE = "".join(f"def value_{n}():\n    return {n}\n\n\n" for n in range(6))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model_file: Callable[[str], Path]) -> Iterator[Server]:
    model_file(MODEL)
    folder = tmp_path_factory.mktemp("server")
    with Server(folder, options=["--backend", "local", "--model", MODEL]) as server:
        yield server


def test_the_sdk_gets_text_and_the_reference_is_used(server: Server) -> None:
    with OpenAI(base_url=server.base_url, api_key="none") as client:
        asked = f"Repeat this file exactly, without any other word:\n```python\n{CODE}```"
        prediction: Any = {"type": "content", "content": CODE}
        with client.responses.stream(
            model=MODEL, input=asked, temperature=0, max_output_tokens=200, extra_body={"prediction": prediction}
        ) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            response = stream.get_final_response()
    assert "".join(deltas) == response.output_text
    assert "return 3" in response.output_text
    assert response.usage is not None
    details: Any = response.usage.output_tokens_details
    assert details.accepted_prediction_tokens > response.usage.output_tokens / 2


def test_codex_says_something(server: Server, tmp_path: Path, way: str) -> None:
    codex = Codex(tmp_path, server, supports_websockets=way == "ws", top=FEW_TOOLS)
    ran = codex.run("Answer in one short sentence, without tools: what is two plus two?")
    assert answer(ran)
    assert faults(ran) == []
    usage = ran.json[-1]["usage"]
    assert 1_500 < usage["input_tokens"] < 6_000
    assert usage["output_tokens"] > 0
    if way == "ws":
        # What Codex had prepared before its first turn, the tools above all, is the beginning of that turn's prompt.
        assert usage["cached_input_tokens"] > 0.4 * usage["input_tokens"]


def test_codex_goes_on_where_the_engine_has_the_conversation(server: Server, tmp_path: Path) -> None:
    with AppServer(Codex(tmp_path, server, top=FEW_TOOLS)) as app:
        app.turn("Answer in one short sentence, without tools: what is two plus two?")
        app.turn("And what is three plus three?")
    first, second = (event["response"]["usage"] for event in server.events("response.completed")[-2:])
    assert kinds(server.requests("ws")[-1]) == ["message"]
    # Nothing of the first turn was read again but the last page of KV memory, which it did not fill.
    assert second["input_tokens_details"]["cached_tokens"] > first["input_tokens"] - 64
    assert second["input_tokens"] - second["input_tokens_details"]["cached_tokens"] < 100
