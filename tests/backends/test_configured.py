"""Backends out of configuration tables, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vivace.backends.configured import PacedConfig, UpstreamConfig, backend_from_config
from vivace.backends.upstream import UpstreamBackend
from vivace.errors import UsageError


def test_an_upstream() -> None:
    table = {
        "kind": "upstream",
        "base_url": ["http://a/v1", "http://b/v1"],
        "api_key_env": "KEY",
        "window": 9,
        "model": "m",
    }
    backend = backend_from_config(table, "up", environ={"KEY": "k"})
    assert isinstance(backend, UpstreamBackend)
    assert [replica.api_key for replica in backend.upstream.replicas] == ["k", "k"]
    assert (backend.upstream.name, backend.upstream.window, backend.model) == ("up", 9, "m")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "kind None"),
        ({"kind": "upstraem"}, "Did you mean upstream"),
        ({"kind": "upstream"}, "base_url"),
        ({"kind": "upstream", "base_url": "http://a", "modle": "x"}, "unknown key 'modle'.\nDid you mean model"),
        ({"kind": "upstream", "base_url": "a:8000"}, "begins with http"),
        ({"kind": "upstream", "base_url": "http://"}, "begins with http"),
        ({"kind": "upstream", "base_url": "http://a:port/v1"}, "http://a:port/v1"),
        ({"kind": "upstream", "base_url": []}, "needs one address"),
        ({"kind": "upstream", "base_url": ["http://a", "http://a"]}, "different ones"),
        ({"kind": "upstream", "base_url": "http://a", "api_key_env": "NONE"}, "NONE is not set"),
        ({"kind": "upstream", "base_url": "http://a", "window": 0}, "above 0"),
        ({"kind": "upstream", "base_url": "http://a", "window": "big"}, "backends.x: window: Expected `int"),
        ({"kind": "upstream", "base_url": "http://a", "api": "grpc"}, "Invalid enum value"),
        ({"kind": "upstream", "base_url": "http://a", "dialect": "qwenxml"}, "Did you mean qwen-xml"),
        ({"kind": "paced", "tok_s": -1}, "tok_s is -1"),
        ({"kind": "paced", "script": "none.toml"}, "cannot be read"),
    ],
)
def test_what_is_said_of_a_wrong_table(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        backend_from_config(table, "x", environ={})
    assert said in str(raised.value)


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text("utf-8")
    for kind in (UpstreamConfig, PacedConfig):
        for name in kind.__struct_fields__:
            assert f"`{name}`" in page, f"docs/backends.md does not tell of {name}"
