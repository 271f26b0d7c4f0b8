"""Streams a completion over HTTP from llama.cpp's server or an OpenAI-compatible one. Standard library only."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit


def stream(address: str, path: str, body: dict[str, Any], key: str = "") -> Iterator[dict[str, Any]]:
    """POST ``body`` and yield each event of the answer as an object. Raises OSError where the server refuses."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=1200)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request("POST", parts.path.rstrip("/") + path, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{path} answered {response.status}: {response.read(500).decode(errors='replace')}")
        for line in response:
            data = line.strip().removeprefix(b"data: ")
            if data.startswith(b"{"):
                yield json.loads(data)
    finally:
        connection.close()


def llama_completion(address: str, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A request of the line protocol, by ``/completion`` of llama.cpp's server."""
    body = {
        "prompt": message["tokens"],
        "n_predict": message["max_tokens"],
        "temperature": 0.0,
        "cache_prompt": bool(message.get("options", {}).get("cache", False)),
        "ignore_eos": not message["end"],
        "stream": True,
        "return_tokens": True,
    }
    for event in stream(address, "/completion", body):
        if "error" in event:
            raise OSError(str(event["error"]))
        if event.get("tokens"):
            yield {"event": "tokens", "tokens": event["tokens"]}
        if event.get("stop"):
            timings = event.get("timings", {})
            yield {
                "event": "end",
                "reason": "length" if event.get("stop_type") == "limit" else "stop",
                "output_tokens": event.get("tokens_predicted"),
                "cached_tokens": timings.get("cache_n", 0),
                "drafted": timings.get("draft_n"),
                "accepted": timings.get("draft_n_accepted"),
            }


def openai_completion(address: str, model: str, message: dict[str, Any], key: str = "") -> Iterator[dict[str, Any]]:
    """A request of the line protocol, by ``/v1/completions`` with token ids as prompt (vLLM takes them)."""
    body = {
        "model": model,
        "prompt": message["tokens"],
        "max_tokens": message["max_tokens"],
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop_token_ids": message["end"],
        "ignore_eos": not message["end"],
    }
    reason, usage = "length", {}
    for event in stream(address, "/v1/completions", body, key):
        usage = event.get("usage") or usage
        for choice in event.get("choices", []):
            if choice.get("text"):
                yield {"event": "tokens", "text": choice["text"], "count": 1}
            reason = choice.get("finish_reason") or reason
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    end = {"event": "end", "reason": reason, "cached_tokens": cached}
    yield end | ({"output_tokens": usage["completion_tokens"]} if "completion_tokens" in usage else {})
