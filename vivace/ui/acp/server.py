"""The methods that an editor calls."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from acp import PROTOCOL_VERSION
from acp.core import run_agent
from acp.exceptions import RequestError
from acp.helpers import update_available_commands
from acp.interfaces import Agent, Client
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandInput,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    UnstructuredCommandInput,
)

from vivace import __version__
from vivace.agent.turns.events import Noted
from vivace.errors import UsageError, VivaceError
from vivace.ui.acp import config, prompts
from vivace.ui.acp.commands import COMMANDS, parse, run_command
from vivace.ui.acp.extensions import METHODS
from vivace.ui.acp.mcp_servers import servers_of
from vivace.ui.acp.session import Cancelled, Session
from vivace.ui.contract import Choice, House

Brought = Sequence[Any] | None
"""MCP servers of the editor."""


class Server:
    """See :class:`acp.interfaces.Agent`. ``choice`` is what sessions begin with."""

    def __init__(self, house: House, choice: Choice) -> None:
        self.house, self.choice = house, choice
        self.sessions: dict[str, Session] = {}
        self._client: Client | None = None

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def close(self) -> None:
        for session in list(self.sessions.values()):
            await session.close()
        self.sessions.clear()
        await self.house.close()

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,  # the only one that is spoken; an editor with another one leaves
            agent_info=Implementation(name="vivace", title="vivace", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                prompt_capabilities=PromptCapabilities(embedded_context=True, image=False, audio=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
                field_meta={"vivace": {"methods": [f"_{name}" for name in METHODS]}},
            ),
            auth_methods=[],
        )

    async def new_session(self, cwd: str, mcp_servers: Brought = None, **_: Any) -> NewSessionResponse:
        session = await self._open(cwd, "", mcp_servers)
        return NewSessionResponse(session_id=session.name, **self._set(session))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Brought = None, **_: Any
    ) -> LoadSessionResponse:
        session = await self._open(cwd, session_id, mcp_servers)
        await session.replay()
        return LoadSessionResponse(**self._set(session))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Brought = None, **_: Any
    ) -> ResumeSessionResponse:
        session = await self._open(cwd, session_id, mcp_servers)
        return ResumeSessionResponse(**self._set(session))

    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: Brought = None, **_: Any
    ) -> ForkSessionResponse:
        with _told():
            copy = self.house.read(_folder(cwd), session_id).fork()
        copy.close()
        session = await self._open(cwd, copy.id, mcp_servers)
        return ForkSessionResponse(session_id=session.name, **self._set(session))

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> ListSessionsResponse:
        root = _folder(cwd) if cwd else self.choice.root
        found = [
            SessionInfo(session_id=past.id, cwd=str(root), title=past.title or None, updated_at=_moment(past.updated))
            for past in self.house.conversations(root)
            if not past.broken
        ]
        return ListSessionsResponse(sessions=found)

    async def close_session(self, session_id: str, **_: Any) -> None:
        await self._session(session_id).close()
        del self.sessions[session_id]

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        with _told():
            text, files = prompts.read(prompt, session.root)
            command = parse(text)
            if command is None:
                return await session.prompt(text, files)
            try:
                await session.say(await run_command(session, *command))
            except Cancelled:
                return PromptResponse(stop_reason="cancelled")
            return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        session = self.sessions.get(session_id)
        if session is not None:
            await session.cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        session = self._session(session_id)
        with _told():
            await config.change(session, "mode", mode_id)
        await session.tell_setup()
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        with _told():
            await config.change(session, config_id, str(value))
        return SetSessionConfigOptionResponse(config_options=config.options(session.setup, self.house.models()))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See :mod:`vivace.ui.acp.extensions`; all take ``sessionId``."""
        if method not in METHODS:
            raise RequestError.method_not_found(f"_{method}")
        session = self._session(str(params.get("sessionId", "")))
        with _told():
            return await METHODS[method](session, params)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """None is known; the protocol has them ignored."""

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise RequestError.invalid_params({"methodId": method_id, "known": []})

    async def _open(self, cwd: str, name: str, brought: Brought) -> Session:
        assert self._client is not None
        root = _folder(cwd)
        servers, faults = servers_of(brought, root)
        choice = msgspec.structs.replace(self.choice, root=root, conversation=name, mcp_servers=servers)
        if name in self.sessions:
            setup = self.sessions[name].setup
            choice = msgspec.structs.replace(choice, mode=setup.mode, model=setup.model, approvals=setup.approvals)
            await self.close_session(name)
        session = Session(choice, self._client, self.house)
        try:
            with _told():
                session.talk = self.house.open(choice, session.listen)
                await session.talk.begin()
        except BaseException:
            await session.close()
            raise
        session.name = session.talk.conversation.id
        self.sessions[session.name] = session
        for fault in faults:
            session.listen(Noted(text=fault, level="warning"))
        asyncio.get_running_loop().call_soon(self._offer, session)
        return session

    def _offer(self, session: Session) -> None:
        """The slash commands and what happened on the way, told once the editor knows the session."""
        session.known.set()
        commands = [
            AvailableCommand(
                name=command.name,
                description=command.brief,
                input=AvailableCommandInput(UnstructuredCommandInput(hint=command.takes)) if command.takes else None,
            )
            for command in COMMANDS
        ]
        task = asyncio.create_task(session.client.session_update(session.name, update_available_commands(commands)))
        session.keep(task)

    def _session(self, name: str) -> Session:
        session = self.sessions.get(name)
        if session is None:
            raise RequestError(-32002, f"there is no open session {name}", {"sessionId": name})
        return session

    def _set(self, session: Session) -> dict[str, Any]:
        """What a session is set to, in both ways that the protocol has for it."""
        return {
            "modes": config.modes(session.setup),
            "config_options": config.options(session.setup, self.house.models()),
        }


class _told:
    """Errors for users as errors of the protocol."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, VivaceError):
            code = -32602 if isinstance(error, UsageError) else -32603
            raise RequestError(code, str(error), {"code": error.code, "hint": error.hint}) from None


def serve_acp(house: House, choice: Choice) -> int:
    """Serve the editor on standard input and output until it closes them; 0."""
    asyncio.run(_serve(house, choice))
    return 0


async def _serve(house: House, choice: Choice) -> None:
    if sys.stdin.isatty():
        raise UsageError(
            "vivace acp is started by an editor, which speaks the Agent Client Protocol to it",
            hint="docs/acp.md says how to set one up; in a terminal there is: vivace",
            code="no_editor",
        )
    server = Server(house, choice)
    try:
        # It asks for these methods by name and leaves out what it does not know.
        await run_agent(cast(Agent, server), use_unstable_protocol=True)
    finally:
        await server.close()


def _folder(cwd: str) -> Path:
    path = Path(cwd)
    if not path.is_absolute() or not path.is_dir():
        raise RequestError.invalid_params({"cwd": "the absolute path of a folder that is there"})
    return path


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
