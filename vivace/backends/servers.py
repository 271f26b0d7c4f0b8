"""The kinds of OpenAI-compatible servers, told apart by what they answer, and what each can be asked besides."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from vivace.backends.faults import Fault, fault_of
from vivace.backends.http import Http
from vivace.backends.replicas import Replica

_OWNERS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llama-server",
    "library": "ollama",
    "organization_owner": "lm-studio",
    "vivace": "vivace",
}
"""``owned_by`` of the model list -> kind of server."""
_WINDOWS = ("max_model_len", "context_length", "context_window")
"""Where model lists say the window: vLLM and SGLang, OpenRouter and others, hosted providers."""
PROBE_SECONDS = 2.0
COUNT_SECONDS = 10.0
"""A server that prefills may take its time to count."""


HAS_TOKENIZER = frozenset({"vllm", "sglang", "llama-server"})
"""Kinds of servers that can be asked for the tokens of a text."""


class Described(Struct, frozen=True):
    """What a server said of itself. ``model`` is the one that is meant, empty when none is; ``window`` is in tokens,
    None where the server does not say it. ``listed``: it has a list of models, however short."""

    kind: str
    models: list[str]
    model: str = ""
    window: int | None = None
    owned_by: str = ""
    listed: bool = True


async def describe(http: Http, replica: Replica, model: str, seconds: float = PROBE_SECONDS) -> Described:
    """Ask one server for its models and the window of ``model``, or of its only one. Raises :class:`Fault`."""
    ask = _Asker(http, replica, seconds)
    listed = await ask.models()
    names = [entry["id"] for entry in listed]
    chosen = _chosen(model, names)
    entry = next((entry for entry in listed if entry["id"] == chosen), listed[0] if listed else {})
    owner = str(entry.get("owned_by") or "")
    kind = _OWNERS.get(owner, "openai")
    if not listed:
        return Described(kind, [], model, listed=ask.listed)
    window = next((entry[key] for key in _WINDOWS if isinstance(entry.get(key), int)), None)
    if window is None and chosen:
        match kind:
            case "llama-server":
                window = await ask.llama_window()
            case "ollama":
                window = await ask.ollama_window(chosen)
            case "lm-studio":
                window = await ask.lm_studio_window(chosen)
    return Described(kind, names, chosen, window, owner)


async def count_tokens(http: Http, replica: Replica, kind: str, body: dict[str, Any]) -> int | None:
    """Tokens of the prompt of a Chat Completions body, by the server's own tokenizer; None where it has none to ask."""
    ask = _Asker(http, replica, COUNT_SECONDS)
    asked = {name: body[name] for name in ("model", "messages", "tools") if name in body}
    if kind == "vllm":
        said = await ask.json("POST", "/tokenize", {**asked, "add_generation_prompt": True})
        count = said.get("count")
        return count if isinstance(count, int) else None
    if kind == "llama-server":
        prompt = (await ask.json("POST", "/apply-template", asked)).get("prompt")
        if isinstance(prompt, str):
            tokens = (await ask.json("POST", "/tokenize", {"content": prompt, "parse_special": True})).get("tokens")
            return len(tokens) if isinstance(tokens, list) else None
    return None


async def token_ids(http: Http, replica: Replica, kind: str, model: str, text: str) -> list[int] | None:
    """A text as tokens, its control tokens as such, by the server's own tokenizer; None where it has none to ask."""
    if kind not in HAS_TOKENIZER:
        return None
    if kind == "llama-server":
        asked: dict[str, Any] = {"content": text, "add_special": False, "parse_special": True}
    else:
        asked = {"model": model, "prompt": text, "add_special_tokens": False}
    tokens = (await _Asker(http, replica, COUNT_SECONDS).json("POST", "/tokenize", asked)).get("tokens")
    return tokens if isinstance(tokens, list) and all(isinstance(id, int) for id in tokens) else None


class _Asker:
    """Small questions to one server."""

    def __init__(self, http: Http, replica: Replica, seconds: float) -> None:
        self._http = http
        self._replica = replica
        self._seconds = seconds
        self.listed = False

    async def models(self) -> list[dict[str, Any]]:
        """The entries of the model list; none where the server has no list. Raises :class:`Fault`."""
        base = self._replica.base_url.rstrip("/")
        status, body, headers = await self._ask("GET", f"{base}/models")
        if status in (404, 405):
            return []
        if status != 200:
            raise fault_of(status, body, headers, base)
        try:
            listed = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Fault(f"{base}/models is no JSON; is it an OpenAI-compatible server?", status=502) from error
        data = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(data, list):
            raise Fault(f"{base}/models is no list of models; is it an OpenAI-compatible server?", status=502)
        self.listed = True
        return [entry for entry in data if isinstance(entry, dict) and isinstance(entry.get("id"), str)]

    async def json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """An object from a route outside of ``/v1``; empty where there is none."""
        try:
            status, said, _ = await self._ask(method, self._replica.root + path, body)
            found = msgspec.json.decode(said) if status == 200 else {}
        except (Fault, msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    async def _ask(self, method: str, url: str, body: Any = None) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of an answer. Raises :class:`Fault`."""
        headers = {"content-type": "application/json", **self._replica.headers()}
        encoded = None if body is None else msgspec.json.encode(body)
        where = self._replica.base_url.rstrip("/")
        with await self._http.ask(method, url, headers, encoded, where=where, silence=self._seconds) as answer:
            return answer.status, await answer.body(), answer.headers

    async def llama_window(self) -> int | None:
        """llama-server's window of one slot."""
        settings = (await self.json("GET", "/props")).get("default_generation_settings")
        return _count(settings, "n_ctx")

    async def ollama_window(self, model: str) -> int | None:
        """Ollama's window of a loaded model, or what its Modelfile sets; what the model could take is no answer."""
        for entry in _entries(await self.json("GET", "/api/ps"), "models"):
            if model in (entry.get("name"), entry.get("model")):
                return _count(entry, "context_length")
        said = (await self.json("POST", "/api/show", {"model": model})).get("parameters")
        found = re.search(r"^num_ctx\s+(\d+)", said, re.MULTILINE) if isinstance(said, str) else None
        return int(found[1]) if found else None

    async def lm_studio_window(self, model: str) -> int | None:
        """LM Studio's window of a loaded model."""
        for entry in _entries(await self.json("GET", "/api/v0/models"), "data"):
            if entry.get("id") == model:
                return _count(entry, "loaded_context_length")
        return None


def _chosen(model: str, names: list[str]) -> str:
    if not model:
        return names[0] if len(names) == 1 else ""
    return next((name for name in (model, f"{model}:latest") if name in names), "")


def _entries(said: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = said.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _count(table: Any, key: str) -> int | None:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, int) and value > 0 else None
