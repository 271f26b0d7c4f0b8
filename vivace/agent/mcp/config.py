"""Which servers there are: the files that other agents read too.

JSON as in ``.mcp.json`` of Claude Code, Cursor and others (``{"mcpServers": {"name": {...}}}``), or TOML as in Codex's
``config.toml`` (``[mcp_servers.name]``). Keys of either that are not known here are left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from vivace.errors import UsageError

PROJECT_FILES = (".mcp.json", ".vivace/mcp.toml")
"""In a workspace. They come with the repository, so the user is asked before a server of theirs is started."""
USER_FILES = ("mcp.toml", "mcp.json")
"""In the user's own configuration folder."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


class ServerConfig(Struct, frozen=True):
    """One server: a command that speaks over its standard input and output, or a URL that speaks HTTP."""

    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = msgspec.field(default={}, name="headers")
    http_headers: dict[str, str] = {}
    """Codex's word for ``headers``."""
    bearer_token_env_var: str = ""
    """Name of the environment variable that holds a token for the ``Authorization`` header."""
    startup_timeout_sec: float = 20.0
    tool_timeout_sec: float = 120.0
    enabled: bool = True
    disabled: bool = False
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    origin: str = ""
    """The file that it comes from."""
    trusted: bool = True
    """The user wrote it, not the repository."""

    @property
    def active(self) -> bool:
        return self.enabled and not self.disabled

    @property
    def fingerprint(self) -> str:
        """Changes with whatever decides what is run; an approval holds for one fingerprint."""
        what = [self.command, *self.args, self.cwd, self.url, *sorted(f"{k}={v}" for k, v in self.env.items())]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """What it is, for people, in one line."""
        return self.url or " ".join([self.command, *self.args])

    def offers(self, tool: str) -> bool:
        """Whether a tool of it is wanted."""
        return (self.enabled_tools is None or tool in self.enabled_tools) and tool not in self.disabled_tools


@dataclass
class Found:
    """The servers by name, and for people what could not be read: one sentence with the file for each fault."""

    servers: dict[str, ServerConfig] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def load_servers(workspace: Path, user_folder: Path, environment: Mapping[str, str] = os.environ) -> Found:
    """All servers by name; one of the user's own wins over one of the workspace. Missing files are no error.

    What is wrong in a file or with a server is a fault of that file or server alone. The user's own server that is at
    fault leaves no room for the workspace's of the same name.
    """
    found = Found()
    for name in PROJECT_FILES:
        _read(workspace / name, environment, found, trusted=False)
    # A folder inside the workspace is the repository's, whoever calls it the user's.
    trusted = not user_folder.resolve().is_relative_to(workspace.resolve())
    for name in USER_FILES:
        _read(user_folder / name, environment, found, trusted=trusted)
    return found


def _read(file: Path, environment: Mapping[str, str], found: Found, *, trusted: bool) -> None:
    """The servers of one file; none when it is not there."""
    try:
        table = _table(file)
    except UsageError as error:
        found.faults.append(error.message)
        return
    for name, entry in table.items():
        found.servers.pop(name, None)
        try:
            found.servers[name] = _server(file, name, entry, environment, trusted)
        except UsageError as error:
            found.faults.append(error.message)


def _table(file: Path) -> dict[str, Any]:
    """What a file says of servers. Raises :class:`UsageError` (``bad_mcp_config``) with what is wrong in it."""
    try:
        raw = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _bad(file, error.strerror or str(error)) from None
    try:
        whole = msgspec.toml.decode(raw) if file.suffix == ".toml" else msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise _bad(file, str(error)) from None
    table = whole.get("mcpServers", whole.get("mcp_servers", {})) if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise _bad(file, "there is no table mcpServers")
    return table


def _server(file: Path, name: str, entry: Any, environment: Mapping[str, str], trusted: bool) -> ServerConfig:
    """Raises :class:`UsageError` (``bad_mcp_config``). One that is switched off is not looked at any closer."""
    if not isinstance(entry, dict):
        raise _bad(file, f"server {name} is no table")
    if entry.get("enabled") is False or entry.get("disabled") is True:
        return ServerConfig(name, enabled=False, origin=str(file), trusted=trusted)
    if entry.get("type") == "sse":
        raise _bad(file, f"server {name}: the old SSE transport is not supported; use its streamable HTTP address")
    try:
        config = msgspec.convert(expand(entry, environment), ServerConfig)
    except KeyError as error:
        raise _bad(file, f"server {name}: the environment variable {error.args[0]} is not set") from None
    except msgspec.ValidationError as error:
        raise _bad(file, f"server {name}: {error}") from None
    if bool(config.command) == bool(config.url):
        raise _bad(file, f"server {name}: needs a command or a url, one of them")
    if config.url and not config.url.startswith(("http://", "https://")):
        raise _bad(file, f"server {name}: {config.url} is no HTTP address")
    headers = {**config.http_headers, **config.headers}
    if config.bearer_token_env_var:
        token = environment.get(config.bearer_token_env_var, "")
        if not token:
            raise _bad(file, f"server {name}: the environment variable {config.bearer_token_env_var} is not set")
        headers["Authorization"] = f"Bearer {token}"
    return msgspec.structs.replace(config, name=name, headers=headers, origin=str(file), trusted=trusted)


def expand(value: Any, environment: Mapping[str, str]) -> Any:
    """``${NAME}`` and ``${NAME:-default}`` in every text, as Claude Code does. Raises :class:`KeyError`."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, environment), value)
    if isinstance(value, dict):
        return {key: expand(part, environment) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [expand(part, environment) for part in value]
    return value


def _value(found: re.Match[str], environment: Mapping[str, str]) -> str:
    if found[2] is not None:
        return environment.get(found[1]) or found[2]
    return environment[found[1]]


def _bad(file: Path, what: str) -> UsageError:
    return UsageError(f"{file}: {what}", code="bad_mcp_config", param="mcpServers")
