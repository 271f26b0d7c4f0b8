"""``/v1/models``: one body for everybody. ``data`` is OpenAI's list, ``models`` the catalogue that Codex CLI wants.

Codex takes a model that no catalogue names for one with a 272,000-token window and without ``apply_patch``, so both
must be true here (measured with 0.171). Its required keys were found by leaving out each.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from vivace.errors import did_you_mean
from vivace.protocol.contracts import ModelCard
from vivace.protocol.errors import Refused
from vivace.protocol.items import encode
from vivace.server.call import Call

BASE_INSTRUCTIONS = """\
You are a coding agent in the user's terminal. Work on the files of the current directory with the tools you have.
- Read what you need before you change it, and keep every change as small as the task allows.
- Change files with apply_patch. Follow the style of the code around the change.
- Run commands to find facts and to check your work; do not guess what a command would print.
- Say what you did in a few sentences, with the paths of the files. Say so if something did not work.
"""
"""Instead of the 20 KB that Codex sends for a model without instructions of its own."""

_TIERS = {
    "priority": ("Fast", "Goes first, at a higher price."),
    "flex": ("Flex", "Waits while others are served, at a lower price."),
    "default": ("Standard", "The usual speed and price."),
    "ultrafast": ("Ultrafast", "The fastest there is."),
}


async def list_models(call: Call) -> None:
    """GET /v1/models"""
    body, etag = listed(tuple(await call.gateway.models(call.principal)))
    call.door.etags[call.principal.id] = etag
    if call.headers.get("if-none-match") == etag:
        await call.answer(b"", 304, headers={"etag": etag})
        return
    await call.answer(body, headers={"etag": etag, "x-models-etag": etag})


async def one_model(call: Call) -> None:
    """GET /v1/models/{id}"""
    name: str = call.scope["path_params"]["model"]
    cards = await call.gateway.models(call.principal)
    for card in cards:
        if card.name == name:
            free = (await call.gateway.open(name)).free_slots  # in no list: that has an ETag
            await call.json({**entry(card), "free_slots": free})
            return
    names = [card.name for card in cards]
    raise Refused(
        f"The model {name[:200]!r} does not exist.",
        404,
        "model_not_found",
        "model",
        hint=did_you_mean(name, names) if names else "",
    )


def etag_headers(call: Call) -> dict[str, str]:
    """The ETag of the list as the caller's principal got it last: Codex fetches it again when it has another one."""
    etag = call.door.etags.get(call.principal.id)
    return {} if etag is None else {"x-models-etag": etag}


@lru_cache(maxsize=64)
def listed(cards: tuple[ModelCard, ...]) -> tuple[bytes, str]:
    """The body and its ETag."""
    body = encode(
        {
            "object": "list",
            "data": [entry(card) for card in cards],
            "models": [codex_entry(card, n) for n, card in enumerate(cards, 1)],
        }
    )
    return body, f'"{hashlib.sha256(body).hexdigest()[:24]}"'


def entry(card: ModelCard) -> dict[str, Any]:
    """A model as OpenAI lists it; ``max_model_len`` is vLLM's word for the window."""
    return {
        "id": card.name,
        "object": "model",
        "created": 0,
        "owned_by": card.owned_by,
        "max_model_len": card.context_window,
        # What vivace's own client asks for.
        "dialect": card.dialect,
        "takes_reference": card.takes_reference,
        "detail": card.detail,
        "tools": card.tools,
        "grammars": card.grammars,
        "reasoning": card.reasoning,
        "tiers": card.tiers,
        "price": card.price,
    }


def codex_entry(card: ModelCard, place: int) -> dict[str, Any]:
    """A model as Codex CLI 0.171 reads it."""
    efforts = ("low", "medium", "high") if card.reasoning else ("medium",)
    told = "Thinks {} before it answers." if card.reasoning else "Answers without thinking first ({})."
    found: dict[str, Any] = {
        "slug": card.name,
        "display_name": card.name,
        "description": f"{card.detail or card.name}.",  # Codex CLI writes on behind it
        "supported_reasoning_levels": [{"effort": effort, "description": told.format(effort)} for effort in efforts],
        "default_reasoning_level": "medium",
        "default_reasoning_summary": "none",
        "shell_type": "shell_command",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "base_instructions": BASE_INSTRUCTIONS,
        "support_verbosity": False,
        "apply_patch_tool_type": "freeform",
        "truncation_policy": {"mode": "tokens", "limit": min(10_000, max(1_000, card.context_window // 8))},
        "context_window": card.context_window,
        "max_context_window": card.context_window,
        "experimental_supported_tools": [],
        "input_modalities": ["text"],
        "availability_nux": None,
        "upgrade": None,
    }
    if card.tiers:
        found["service_tiers"] = [
            {"id": tier, "name": _TIERS.get(tier, (tier, ""))[0], "description": _TIERS.get(tier, ("", tier))[1]}
            for tier in card.tiers
        ]
    return found
