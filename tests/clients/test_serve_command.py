"""``vivace serve`` itself, as users run it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import OpenAI

from tests.clients.codex import Codex, answer, faults
from tests.clients.harness import ROOT, Server, environment

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]


def test_the_command_serves_codex_and_the_sdk(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve({"steps": [{"text": "Hello there."}]}, recorded=False)
    ran = Codex(tmp_path, server, supports_websockets=way == "ws").run("say hello")
    assert (answer(ran), faults(ran)) == ("Hello there.", [])
    assert server.answered("/v1/responses", "WEBSOCKET") == ({101: 1} if way == "ws" else {})
    with OpenAI(base_url=server.base_url, api_key="none") as client:
        assert client.responses.create(model="paced", input="hi").output_text == "Hello there."


def test_the_check_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vivace", "serve", "--backend", "paced", "--check"]
    env = environment(tmp_path, VIVACE_STATE_DIR=str(tmp_path / "state"))
    ran = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "HTTP" in ran.stdout
    assert "WebSocket" in ran.stdout
