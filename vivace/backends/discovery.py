"""Which model servers run on this machine, for ``vivace doctor``."""

from __future__ import annotations

import asyncio
import re

from msgspec import Struct

from vivace.backends.faults import Fault
from vivace.backends.http import Http
from vivace.backends.replicas import Replica
from vivace.backends.servers import describe

PORTS = {11434: "ollama", 1234: "lm-studio", 8080: "llama-server", 8000: "vllm", 30000: "sglang"}
"""Where they listen unless told otherwise. What answers is told by what it says, not by its port."""
SECONDS = 0.3


class Found(Struct, frozen=True):
    """A server that answered. ``window`` is that of its only model, in tokens, None where it does not say it."""

    kind: str
    base_url: str
    models: list[str]
    window: int | None

    def config(self) -> str:
        """The lines of the configuration file with which it is a backend."""
        lines = [f"[backends.{re.sub(r'[^A-Za-z0-9_-]', '-', self.kind)}]", 'kind = "upstream"']
        lines.append(f'base_url = "{self.base_url}"')
        if len(self.models) != 1:
            lines.append(f'model = "{self.models[0]}"' if self.models else 'model = ""  # it has none loaded')
        if self.window is None:
            lines.append("window = 0  # tokens: set what the server was started with; it does not say")
        return "\n".join(lines)


async def find_servers(ports: dict[int, str] = PORTS, host: str = "127.0.0.1") -> list[Found]:
    """Ask all ports at once, for :data:`SECONDS` each question. Servers of vivace itself are left out."""
    http = Http(connect_timeout=SECONDS, silence=SECONDS)
    found = await asyncio.gather(*(_ask(http, f"http://{host}:{port}/v1", ports[port]) for port in ports))
    await http.close()
    return [server for server in found if server is not None]


async def _ask(http: Http, base_url: str, usual: str) -> Found | None:
    try:
        said = await describe(http, Replica(base_url), "", SECONDS)
    except Fault:
        return None
    if said.kind == "vivace" or not said.listed:
        return None
    # A server with nothing loaded says no owner; the port is the best guess at its name, and only its name.
    kind = usual if said.kind == "openai" and not said.models else said.kind
    return Found(kind, base_url, said.models, said.window)
