"""Codex CLI reads the catalogue that the server has for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.appserver import AppServer
from tests.clients.codex import Codex, answer, faults
from tests.clients.harness import Running, Server, texts

pytestmark = pytest.mark.clients

Serve = Callable[..., Server]

TIERS = """\
[[tier]]
id = "default"
[[tier]]
id = "turbo"
name = "Turbo"
"""


def test_the_catalogue_makes_the_model_known(tmp_path: Path, serve: Serve, way: str) -> None:
    server = serve({"when": {"output": "."}, "steps": [{"text": "Hello."}]}, {"steps": [{"call": "get_goal"}]})
    ran = Codex(tmp_path, server, supports_websockets=way == "ws").run("say hello")
    assert answer(ran) == "Hello."
    assert not any("metadata" in fault for fault in faults(ran)), ran
    first = server.requests()[0]
    assert "apply_patch" in [tool.get("name") for tool in first["tools"]]
    # Short instructions of the server's own instead of the 20 KB for unknown models.
    assert 200 < len(texts(first, "developer")[0]) < 2000
    # Read once: what the answers say about the catalogue's version agrees with it.
    assert server.answered("/v1/models", "GET") == {200: 1}


def test_the_window_is_the_models(tmp_path: Path, serve: Serve) -> None:
    server = serve({"steps": [{"text": "Hello."}]})
    with AppServer(Codex(tmp_path, server)) as app:
        app.turn("say hello")
    told = [note["params"]["tokenUsage"] for note in app.seen if note["method"] == "thread/tokenUsage/updated"]
    window = server.get("/v1/models").json()["models"][0]["context_window"]
    assert window == 131_072
    assert told[-1]["modelContextWindow"] == int(window * 0.95)  # Codex keeps a twentieth free
    usage = server.events("response.completed")[-1]["response"]["usage"]
    assert told[-1]["last"]["totalTokens"] == usage["total_tokens"]


@pytest.mark.parametrize("tier", ["priority", "ultrafast", "turbo"])
def test_a_tier_of_the_catalogue_is_sent_and_echoed(tmp_path: Path, serve: Serve, way: str, tier: str) -> None:
    settings = {}
    if tier == "turbo":
        (tmp_path / "tiers.toml").write_text(TIERS)
        settings = {"VIVACE_TIERS_FILE": str(tmp_path / "tiers.toml")}
    server = serve({"steps": [{"text": "Hello."}]}, settings=settings)
    codex = Codex(tmp_path, server, supports_websockets=way == "ws", top={"service_tier": tier})
    assert answer(codex.run("say hello")) == "Hello."
    assert {request.get("service_tier") for request in server.requests()} == {tier}
    assert {event["response"]["service_tier"] for event in server.events("response.completed")} == {tier}


def test_the_doctor_finds_nothing_wrong(tmp_path: Path, serve: Serve) -> None:
    server = serve({"steps": [{"text": "Hello."}]})
    codex = Codex(tmp_path, server)
    ran = Running([codex.command, "doctor", "--network-only", "--json"], codex.work, codex.env).wait()
    report = json.loads(ran.out)
    assert report["overallStatus"] == "ok", ran
    assert len(report["checks"]) >= 4
    assert server.answered("/v1/responses", "WEBSOCKET") == {101: 1}
