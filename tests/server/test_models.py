"""The list of models: what OpenAI's clients and Codex CLI read of it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2 as httpx
import msgspec
import pytest

from tests.server.scripted import ScriptedGateway
from tests.server.serving import serving
from vivace.protocol.contracts import ModelCard
from vivace.server.models import codex_entry, listed

SAMPLE = Path(__file__).parents[3] / "shared" / "reference" / "samples" / "sample_codex_model_catalog.json"
CARD = ModelCard("small", 32_768, "chat", True, "int8", True, True, tiers=("default", "priority", "turbo"))
REQUIRED = {
    "slug", "display_name", "supported_reasoning_levels", "shell_type", "visibility", "supported_in_api", "priority",
    "support_verbosity", "truncation_policy", "experimental_supported_tools",
}  # fmt: skip
"""Found by leaving out each with Codex CLI 0.171."""


def test_codex_finds_what_it_requires_and_a_true_window() -> None:
    entry = codex_entry(CARD, 1)
    assert entry.keys() >= REQUIRED
    assert (entry["context_window"], entry["apply_patch_tool_type"]) == (32_768, "freeform")
    assert entry["truncation_policy"] == {"mode": "tokens", "limit": 4096}
    assert [tier["id"] for tier in entry["service_tiers"]] == ["default", "priority", "turbo"]
    assert all(tier["name"] and tier["description"] for tier in entry["service_tiers"])
    assert [level["effort"] for level in entry["supported_reasoning_levels"]] == ["low", "medium", "high"]
    assert 200 < len(entry["base_instructions"]) < 2000
    plain = codex_entry(msgspec.structs.replace(CARD, reasoning=False, tiers=()), 1)
    assert "service_tiers" not in plain and len(plain["supported_reasoning_levels"]) == 1


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample catalogue is not beside the checkout")
def test_values_have_the_types_of_a_catalogue_that_codex_takes() -> None:
    sample = json.loads(SAMPLE.read_text())["models"][0]
    entry = codex_entry(CARD, 1)
    for name in sample.keys() & entry.keys():
        if sample[name] is not None:
            assert type(entry[name]) is type(sample[name]), name


def test_one_body_for_all_and_an_etag_that_follows_it() -> None:
    with serving(ScriptedGateway) as server:
        gateway = server.door.gateway
        assert isinstance(gateway, ScriptedGateway)
        asking = {"model": "small", "input": "hi"}
        before = httpx.post(server.base_url + "/responses", json=asking)
        assert "x-models-etag" not in before.headers, "who has no list is not told of its ETag"
        found = httpx.get(server.base_url + "/models", params={"client_version": "0.171.0"})
        assert [model["id"] for model in found.json()["data"]] == ["small", "big/one"]
        assert [model["slug"] for model in found.json()["models"]] == ["small", "big/one"]
        etag = found.headers["etag"]
        assert httpx.post(server.base_url + "/responses", json=asking).headers["x-models-etag"] == etag
        again = httpx.get(server.base_url + "/models", headers={"if-none-match": etag})
        assert again.status_code == 304 and not again.content
        gateway.cards = gateway.cards[:1]
        assert httpx.get(server.base_url + "/models", headers={"if-none-match": etag}).headers["etag"] != etag
        assert httpx.get(server.base_url + "/models/small").json()["max_model_len"] == 4096
        gone = httpx.get(server.base_url + "/models/big/one")
        assert gone.status_code == 404 and "small" in gone.json()["error"]["message"]


def test_the_list_is_made_once() -> None:
    assert listed((CARD,)) is listed((CARD,))
