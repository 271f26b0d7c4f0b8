"""Codex CLI against the server, with the settings that the server prints."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tests.clients.harness import Json, Ran, Running, Server, client, environment


class Codex:
    """Codex with a home of its own. ``root`` is where it connects, unless to the server itself.

    Further arguments are keys of the provider's table; ``top`` are keys at the top of config.toml.
    """

    def __init__(
        self, folder: Path, server: Server, root: str = "", key: str = "", top: Json | None = None, **provider: Any
    ) -> None:
        self.command = client("codex")
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        home = folder / "codex"
        home.mkdir(exist_ok=True)
        text = server.settings("Codex CLI").replace(server.root, root or server.root)
        if top or provider:
            config = tomllib.loads(text)
            config.update(top or {})
            config["model_providers"]["vivace"].update(provider)
            text = toml(config)
        (home / "config.toml").write_text(text, encoding="utf-8")
        self.env = environment(folder / "home", CODEX_HOME=str(home), **({"VIVACE_API_KEY": key} if key else {}))

    def start(self, prompt: str, *arguments: str) -> Running:
        command = [
            self.command, "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write", *arguments, prompt,
        ]  # fmt: skip
        return Running(command, self.work, self.env)

    def run(self, prompt: str, *arguments: str, seconds: float = 60.0) -> Ran:
        """Do a task and see that it ended well."""
        ran = self.start(prompt, *arguments).wait(seconds)
        assert ran.code == 0, ran
        return ran


def items(ran: Ran, kind: str) -> list[Json]:
    """The finished items of a type in Codex's output."""
    done = [event["item"] for event in ran.json if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def answer(ran: Ran) -> str:
    """The last thing that it said."""
    said = items(ran, "agent_message")
    assert said, ran
    text: str = said[-1]["text"]
    return text


def faults(ran: Ran) -> list[str]:
    """Errors and warnings that it showed."""
    shown = [item["message"] for item in items(ran, "error")]
    return shown + [event["message"] for event in ran.json if event["type"] == "error"]


def toml(value: Json, table: str = "") -> str:
    """As TOML; strings, numbers and booleans are written as in JSON."""
    plain = [f"{key} = {json.dumps(item)}" for key, item in value.items() if not isinstance(item, dict)]
    tables = [(f"{table}{key}", item) for key, item in value.items() if isinstance(item, dict)]
    return "\n".join([*plain, *(f"\n[{name}]\n{toml(item, f'{name}.')}" for name, item in tables)]) + "\n"
