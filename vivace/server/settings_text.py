"""Ready-to-paste settings of clients, with this server's models and their true windows.

Keys and shapes as measured with Codex CLI 0.171, opencode 1.18, Claude Code 2.1 and openai-python 3.57.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from vivace.protocol.contracts import ModelCard

KEY_VARIABLE = "VIVACE_API_KEY"


def settings_text(root: str, cards: Sequence[ModelCard], *, keys: bool, websockets: bool = True) -> str:
    """What to put where. ``root`` is the server's address, ``http://127.0.0.1:8000``; with ``keys`` callers need one.

    The first model is the default one.
    """
    root = reachable(root)
    parts = [
        ("Codex CLI: ~/.codex/config.toml", codex(root, cards[0], keys, websockets)),
        ("opencode: opencode.json", opencode(root, cards, keys)),
        ("Claude Code: the environment", claude_code(root, cards[0], keys)),
        ("OpenAI's Python SDK", sdk(root, cards[0], keys)),
    ]
    return "\n".join(f"# {title}\n\n{text}" for title, text in parts)


def reachable(root: str) -> str:
    """An address to call where the server listens on all of them."""
    parts = urlsplit(root)
    if parts.hostname in ("0.0.0.0", "::"):
        return f"{parts.scheme}://127.0.0.1:{parts.port}"
    return root


def output_limit(window: int) -> int:
    """How much of a window a client should let an answer have: a quarter, at most 32,768 tokens."""
    return max(1, min(32_768, window // 4))


def codex(root: str, card: ModelCard, keys: bool, websockets: bool) -> str:
    """Codex fetches the catalogue only with some token; a variable that is named and not set keeps it from starting."""
    name = _quoted(card.name)
    lines = [
        f"model = {name}",
        'model_provider = "vivace"',
        "",
        "[model_providers.vivace]",
        'name = "Vivace"  # "OpenAI" instead has conversations compacted by this server',
        f'base_url = "{root}/v1"',
        f'env_key = "{KEY_VARIABLE}"' if keys else 'experimental_bearer_token = "none"',
        'wire_api = "responses"',
        f"supports_websockets = {'true' if websockets else 'false'}",
        f'model_catalog_url = "{root}/v1/models"',
    ]
    return "\n".join(lines) + "\n"


def opencode(root: str, cards: Sequence[ModelCard], keys: bool) -> str:
    """Without its limits opencode compacts after every step."""
    models = {
        card.name: {
            "name": card.name,
            "tool_call": card.tools,
            "reasoning": card.reasoning,
            "limit": {"context": card.context_window, "output": output_limit(card.context_window)},
        }
        for card in cards
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Vivace",
        "options": {"baseURL": f"{root}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}" if keys else "none"},
        "models": models,
    }
    value = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"vivace/{cards[0].name}",
        "small_model": f"vivace/{cards[0].name}",
        "provider": {"vivace": provider},
    }
    return json.dumps(value, indent=2) + "\n"


def claude_code(root: str, card: ModelCard, keys: bool) -> str:
    """It takes an unknown model's window for 1,000,000 tokens: compact by hand before a small one is full."""
    return "\n".join(
        [
            f"export ANTHROPIC_BASE_URL={root}",
            f"export ANTHROPIC_AUTH_TOKEN={f'${KEY_VARIABLE}' if keys else 'none'}",
            f"export ANTHROPIC_MODEL={_shell(card.name)}",
            f"export ANTHROPIC_SMALL_FAST_MODEL={_shell(card.name)}",
            "export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
            f"export CLAUDE_CODE_MAX_OUTPUT_TOKENS={output_limit(card.context_window)}",
            f"# /compact before {card.context_window:,} tokens are in use",
            "",
        ]
    )


def sdk(root: str, card: ModelCard, keys: bool) -> str:
    key = f'os.environ["{KEY_VARIABLE}"]' if keys else '"none"'
    return "\n".join(
        [
            *(["import os"] if keys else []),
            "from openai import OpenAI",
            "",
            f'client = OpenAI(base_url="{root}/v1", api_key={key})',
            f'response = client.responses.create(model={_quoted(card.name)}, input="Say hello.")',
            "print(response.output_text)",
            "",
        ]
    )


def _quoted(text: str) -> str:
    """As a TOML or Python string."""
    return json.dumps(text)


def _shell(text: str) -> str:
    return shlex.quote(text)
