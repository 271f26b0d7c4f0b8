"""The ACP server against the protocol package's own client, over a real pair of sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import resource_link_block, text_block
from acp.interfaces import Agent, Client
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

from tests.ui.scripted import Script, ScriptedHouse, ScriptedTalk
from vivace.agent.sessions.entries import Items, Note, ToolCall, ToolResult, User
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter
from vivace.ui.acp.server import Server
from vivace.ui.acp.updates import Updates, hunks
from vivace.ui.contract import Choice

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n"


class Editor:
    """A client that keeps what it is told and answers permission requests with ``choice`` ("" cancels).

    ``meanwhile`` happens while the user thinks about one.
    """

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.choice = ""
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.choice:
            return RequestPermissionResponse(outcome=AllowedOutcome(option_id=self.choice, outcome="selected"))
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    def kinds(self) -> list[str]:
        return [update.session_update for update in self.updates]

    def said(self) -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")


@asynccontextmanager
async def connected(server: Server, seconds: float) -> AsyncIterator[tuple[ClientSideConnection, Editor]]:
    """An editor that has greeted ``server``; everything ends with the block, which may take so long."""
    here, there = socket.socketpair()
    mine = await asyncio.open_connection(sock=here)
    yours = await asyncio.open_connection(sock=there)
    agent = AgentSideConnection(cast(Agent, server), yours[1], yours[0], use_unstable_protocol=True)
    editor = Editor()
    client = ClientSideConnection(cast(Client, editor), mine[1], mine[0], use_unstable_protocol=True)
    try:
        async with asyncio.timeout(seconds):
            await client.initialize(protocol_version=1)
            yield client, editor
    finally:
        await client.close()
        await agent.close()
        await server.close()


Body = Callable[[ClientSideConnection, Editor, ScriptedHouse], Awaitable[None]]


def serve(folder: Path, script: Script, body: Body) -> None:
    """Run ``body`` against a server whose turns ``script`` plays."""

    async def main() -> None:
        house = ScriptedHouse(folder / "sessions", script)
        server = Server(house, Choice(root=folder, model="small"))
        async with connected(server, 20) as (client, editor):
            await body(client, editor, house)
        assert house.closed

    asyncio.run(main())


async def talkative(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Thought(text="hm"))
    for n in range(50):
        talk.emit(ev.Said(text=f"{n} "))
    talk.emit(ev.PlanChanged(steps=(("look", "done"), ("mend", "active"), ("rest", "dropped"))))
    talk.emit(ev.ToolBegan(call="c1", name="shell", brief="pytest"))
    talk.emit(ev.ToolOutput(call="c1", text="one\n"))
    talk.emit(ev.ToolEnded(call="c1", ok=False, text="one\ntwo", seconds=0.1, changed=("a.py",)))
    talk.emit(ev.Editing(path="a.py", lines=(" x = 1",)))
    talk.emit(ev.Proposed(diff=DIFF, paths=("a.py",), added=1, removed=1))
    talk.emit(ev.Applied(paths=("a.py",)))
    talk.emit(ev.Meters(ttft=0.1, input_tokens=10, cached_tokens=4, output_tokens=5))
    return ev.TurnEnded(status="done", reason="", seconds=1.0, changed=("a.py",))


async def forever(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Said(text="working"))
    await asyncio.sleep(60)
    return None


def test_a_prompt_from_the_first_word_to_its_end(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        assert session.modes is not None and session.modes.current_mode_id == "auto"
        assert [mode.id for mode in session.modes.available_modes] == ["auto", "fast", "deep"]
        response = await client.prompt(session_id=session.session_id, prompt=[text_block("mend it")])
        assert response.stop_reason == "end_turn"
        assert response.usage is not None and response.usage.total_tokens == 15
        # All updates of the turn came before its end did.
        assert editor.said() == "".join(f"{n} " for n in range(50))
        plan = next(u for u in editor.updates if u.session_update == "plan")
        assert [(e.content, e.status) for e in plan.entries] == [
            ("look", "completed"),
            ("mend", "in_progress"),
            ("(dropped) rest", "completed"),
        ]
        calls = [u for u in editor.updates if u.session_update.startswith("tool_call")]
        assert [(c.tool_call_id, c.status) for c in calls if c.status] == [
            ("c1", "in_progress"),
            ("c1", "failed"),
            ("edit-1", "in_progress"),
            ("edit-1", "completed"),
        ]
        diff = next(c for call in calls for c in call.content or [] if c.type == "diff")
        assert (diff.path, diff.old_text, diff.new_text) == (str(tmp_path / "a.py"), "x = 1\ny = 2\n", "x = 1\ny = 3\n")
        assert "available_commands_update" in editor.kinds()

    serve(tmp_path, talkative, body)


def test_cancel_ends_the_prompt_as_cancelled_within_100_ms(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        waiting = asyncio.create_task(client.prompt(session_id=session.session_id, prompt=[text_block("go")]))
        while not editor.said():
            await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        await client.cancel(session_id=session.session_id)
        assert (await waiting).stop_reason == "cancelled"
        assert asyncio.get_running_loop().time() - began < 0.1

    serve(tmp_path, forever, body)


def test_steer_and_queue_are_two_verbs_and_a_waiting_prompt_is_cancelled_with_the_turn(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        name = session.session_id
        with pytest.raises(RequestError, match="no turn is running"):
            await client.ext_method("vivace/steer", {"sessionId": name, "text": "too early"})
        first = asyncio.create_task(client.prompt(session_id=name, prompt=[text_block("go")]))
        while not editor.said():
            await asyncio.sleep(0.01)
        assert (await client.ext_method("vivace/steer", {"sessionId": name, "text": "left"}))["accepted"]
        second = asyncio.create_task(client.prompt(session_id=name, prompt=[text_block("later")]))
        await asyncio.sleep(0.05)
        assert [call[1:3] for call in house.talk.calls] == [("go", "send"), ("left", "steer"), ("later", "queue")]
        await client.cancel(session_id=name)
        assert [(await first).stop_reason, (await second).stop_reason] == ["cancelled", "cancelled"]
        with pytest.raises(RequestError):
            await client.ext_method("vivace/fly", {"sessionId": name})

    serve(tmp_path, forever, body)


@pytest.mark.parametrize(("choice", "reply"), [("session", "session"), ("no", "no"), ("", "no")])
def test_an_approval_is_asked_in_the_editor_and_going_away_is_a_no(tmp_path: Path, choice: str, reply: str) -> None:
    replies: list[str] = []

    async def asks(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        talk.emit(ev.ToolBegan(call="c1", name="shell", brief="rm -rf build"))
        choices = (("once", "Yes"), ("session", "Yes, in this conversation"), ("no", "No"))
        replies.append(await talk.ask(ev.Asked(ask="a", kind="approval", text="Run: rm -rf build", choices=choices)))
        return None

    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        editor.choice = choice
        session = await client.new_session(cwd=str(tmp_path))
        await client.prompt(session_id=session.session_id, prompt=[text_block("clean")])
        ((call, options),) = editor.asked
        assert call.tool_call_id == "c1" and call.title == "Run: rm -rf build"
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]

    serve(tmp_path, asks, body)
    assert replies == [reply]


def test_an_editor_that_cannot_ask_has_said_no(tmp_path: Path) -> None:
    replies: list[str] = []

    async def asks(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        choices = (("once", "Yes"), ("no", "No"))
        replies.append(await talk.ask(ev.Asked(ask="a", kind="approval", text="Run: make", choices=choices)))
        return None

    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        async def unable() -> None:
            raise RequestError.method_not_found("session/request_permission")

        editor.meanwhile = unable
        session = await client.new_session(cwd=str(tmp_path))
        response = await client.prompt(session_id=session.session_id, prompt=[text_block("make it")])
        assert response.stop_reason == "end_turn"

    serve(tmp_path, asks, body)
    assert replies == ["no"]


def test_the_title_of_a_session_is_told_once_and_the_version_is_ours(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        for version in (0, 1, 2):
            assert (await client.initialize(protocol_version=version)).protocol_version == 1
        session = await client.new_session(cwd=str(tmp_path))
        for text in ("mend it", "and that"):
            await client.prompt(session_id=session.session_id, prompt=[text_block(text)])
        assert [u.title for u in editor.updates if u.session_update == "session_info_update"] == ["mend it"]

    serve(tmp_path, talkative, body)


def test_what_was_set_stays_when_an_open_session_is_loaded_and_ends_with_it(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        name = (await client.new_session(cwd=str(tmp_path))).session_id
        await client.prompt(session_id=name, prompt=[text_block("mend it")])
        await client.set_session_mode(session_id=name, mode_id="deep")
        told = [u for u in editor.updates if u.session_update == "config_option_update"]
        assert told[-1].config_options[0].current_value == "deep"
        loaded: Any = await client.load_session(cwd=str(tmp_path), session_id=name)
        assert (loaded.modes.current_mode_id, house.talk.mode) == ("deep", "deep")
        await client.close_session(session_id=name)
        loaded = await client.load_session(cwd=str(tmp_path), session_id=name)
        assert (loaded.modes.current_mode_id, house.talk.mode) == ("auto", "auto")

    serve(tmp_path, talkative, body)


def test_a_proposal_that_is_declined_fails_its_tool_call(tmp_path: Path) -> None:
    async def proposes(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        talk.emit(ev.Proposed(diff=DIFF, paths=("a.py",), added=1, removed=1))
        reply = await talk.ask(ev.Asked(ask="p", kind="proposal", text=""))
        return ev.TurnEnded(status="unchanged", reason=f"declined ({reply})", seconds=0.1)

    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        response = await client.prompt(session_id=session.session_id, prompt=[text_block("mend")])
        assert response.field_meta is not None and response.field_meta["vivace"]["reason"] == "declined (n)"
        assert editor.asked[0][0].tool_call_id == "edit-1"
        assert editor.updates[-1].status == "failed"

    serve(tmp_path, proposes, body)


def test_a_failed_turn_is_an_error_of_the_prompt(tmp_path: Path) -> None:
    async def fails(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        return ev.TurnEnded(status="failed", reason="the server is gone", seconds=0.1)

    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        with pytest.raises(RequestError, match="the server is gone"):
            await client.prompt(session_id=session.session_id, prompt=[text_block("go")])

    serve(tmp_path, fails, body)


def test_sessions_are_listed_loaded_with_their_history_forked_and_closed(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        session = await client.new_session(cwd=str(tmp_path))
        await client.prompt(session_id=session.session_id, prompt=[text_block("mend it")])
        house.talk.conversation.append(ToolCall("c9", "read", '{"path": "a.py"}'))
        house.talk.conversation.append(ToolResult("c9", "x = 1"))
        await client.close_session(session_id=session.session_id)
        listed = await client.list_sessions(cwd=str(tmp_path))
        assert [(s.session_id, s.title) for s in listed.sessions] == [(session.session_id, "mend it")]
        editor.updates.clear()
        await client.load_session(cwd=str(tmp_path), session_id=session.session_id)
        told = [u for u in editor.updates if u.session_update != "available_commands_update"]
        assert told[0].session_update == "user_message_chunk" and told[0].content.text == "mend it"
        assert [u.tool_call_id for u in told if u.session_update == "tool_call"] == ["c9"]
        copy = await client.fork_session(session_id=session.session_id, cwd=str(tmp_path))
        assert copy.session_id != session.session_id
        assert len((await client.list_sessions(cwd=str(tmp_path))).sessions) == 2
        with pytest.raises(RequestError):
            await client.load_session(cwd=str(tmp_path), session_id="nothing")
        with pytest.raises(RequestError):
            await client.new_session(cwd="not/absolute")

    serve(tmp_path, talkative, body)


def test_modes_models_and_commands(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        name = (await client.new_session(cwd=str(tmp_path))).session_id
        await client.set_session_mode(session_id=name, mode_id="deep")
        changed = await client.set_config_option(config_id="model", session_id=name, value="big")
        assert changed is not None
        # An editor that knows config options takes no notice of the modes.
        assert [(option.id, option.current_value) for option in changed.config_options] == [
            ("mode", "deep"),
            ("model", "big"),
            ("approvals", "auto"),
        ]
        assert (house.talk.mode, house.talk.model) == ("deep", "big")
        for option, value in (("model", "unknown"), ("mode", "yolo"), ("colour", "red")):
            with pytest.raises(RequestError):
                await client.set_config_option(config_id=option, session_id=name, value=value)
        assert house.talk.model == "big"
        with pytest.raises(RequestError):
            await client.set_session_mode(session_id=name, mode_id="yolo")
        await client.prompt(session_id=name, prompt=[text_block("/undo")])
        await client.ext_method("vivace/redo", {"sessionId": name})
        await client.prompt(session_id=name, prompt=[text_block("/goto 3")])
        await client.prompt(session_id=name, prompt=[text_block("/role planner = big")])
        await client.prompt(session_id=name, prompt=[text_block("/role planner")])
        roles = [("role", "planner", "big"), ("role", "planner", "")]
        assert house.talk.calls == [("undo",), ("redo",), ("go_to", 3), *roles]
        with pytest.raises(RequestError, match="goto NUMBER"):
            await client.prompt(session_id=name, prompt=[text_block("/goto")])
        with pytest.raises(RequestError, match=r"no command /undoo\n.*undo"):
            await client.prompt(session_id=name, prompt=[text_block("/undoo")])
        await client.prompt(session_id=name, prompt=[text_block("/etc/hosts is odd")])
        assert house.talk.calls[-1][:2] == ("say", "/etc/hosts is odd")

    serve(tmp_path, talkative, body)


def test_files_that_the_editor_names_are_mentioned(tmp_path: Path) -> None:
    (tmp_path / "a file.py").write_text("x = 1\n")

    async def body(client: ClientSideConnection, editor: Editor, house: ScriptedHouse) -> None:
        name = (await client.new_session(cwd=str(tmp_path))).session_id
        link = resource_link_block("a file.py", (tmp_path / "a file.py").as_uri())
        outside = resource_link_block("passwd", "file:///etc/passwd")
        await client.prompt(session_id=name, prompt=[text_block("mend "), link, text_block("and see "), outside])
        assert house.talk.calls[0][1:] == (
            'mend @"a file.py" and see file:///etc/passwd',
            "send",
            ("a file.py",),
        )

    serve(tmp_path, talkative, body)


def test_hunks_of_new_and_removed_files_and_of_lines_that_look_like_headers() -> None:
    diff = (
        "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
        "--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "--- a/sql.sql\n+++ b/sql.sql\n@@ -1,2 +1,2 @@\n--- a comment\n+++ a plus\n same\n"
    )
    assert list(hunks(diff, Path("/w"))) == [
        ("/w/new.py", "a\nb", None),
        ("/w/old.py", "", "gone\n"),
        ("/w/sql.sql", "++ a plus\nsame\n", "-- a comment\nsame\n"),
    ]


def test_the_output_of_a_command_is_told_in_its_last_part_only() -> None:
    updates = Updates(Path("/w"))
    updates.of(ev.ToolBegan(call="c", name="shell", brief="yes"))
    told = [u for n in range(5000) for u in updates.of(ev.ToolOutput(call="c", text=f"{n:06}\n"))]
    assert 1 <= len(told) < 20 and all(len(u.content[0].content.text) <= 4000 for u in told)
    assert updates.of(ev.Said(worker="w", text="not here")) == []


def test_history_with_reasoning_and_notes_is_replayed(tmp_path: Path) -> None:
    import msgspec

    from vivace.ui.replay import replayed

    house = ScriptedHouse(tmp_path)
    conversation = house.open(Choice(root=tmp_path), lambda event: None).conversation
    items = (
        msgspec.Raw(b'{"type":"reasoning","summary":[{"type":"summary_text","text":"because"}]}'),
        msgspec.Raw(b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}'),
        msgspec.Raw(b'{"type":"function_call","name":"read","arguments":"{}","call_id":"c"}'),
    )
    conversation.append_all([User("go"), Items(items), Note("stopped")])
    assert [type(event).__name__ for event in replayed(conversation)] == ["MessageChanged", "Thought", "Said", "Noted"]
    conversation.close()
