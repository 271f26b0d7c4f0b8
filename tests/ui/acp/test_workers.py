"""Background workers, the command in front and approvals in an editor: as commands, as methods, as options."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import text_block

from tests.agent.turns.stage import ActingBackend, Seen, call, options, say
from tests.ui.acp.test_server import Editor, connected
from vivace.backends.paced_script import Step
from vivace.composing import compose_gateway
from vivace.settings import Settings
from vivace.ui.acp.server import Server
from vivace.ui.agents import Agents
from vivace.ui.contract import Choice

Body = Callable[[ClientSideConnection, Editor, str], Awaitable[None]]


def serve(folder: Path, act: Callable[[Seen], list[Step]], body: Body) -> None:
    """Run ``body`` in a session of a real agent on a model that acts by ``act``."""
    work = folder / "work"
    work.mkdir()
    (work / "a.py").write_text("x = 1\ny = 2\n")

    async def main() -> None:
        settings = Settings(state_dir=folder / "service", cache_dir=folder / "cache")
        gateway = compose_gateway(settings, backends={"acting": ActingBackend(act)}, catalogue=False, database=False)
        await gateway.begin()
        server = Server(
            Agents(lambda: gateway, options(folder)), Choice(root=work, model="acting", mode="deep", approvals="full")
        )
        async with connected(server, 60) as (client, editor):
            session = await client.new_session(cwd=str(work))
            await body(client, editor, session.session_id)

    asyncio.run(main())


def builds(seen: Seen) -> list[Step]:
    """A worker's model: changes ``a.py``, makes a file that is no text, and says so."""
    if seen.user:
        return [call("shell", command="sed -i 's/y = 2/y = 3/' a.py; printf '\\377\\000' > blob.bin")]
    return [say("Done.")]


def sleeps(seen: Seen) -> list[Step]:
    return [call("shell", command="echo begun; sleep 50")] if seen.user else [say("Went on.")]


async def command(client: ClientSideConnection, editor: Editor, name: str, line: str) -> str:
    """Send it; what was answered."""
    before = len(editor.said())
    await client.prompt(session_id=name, prompt=[text_block(line)])
    return editor.said()[before:]


async def ended(client: ClientSideConnection, name: str) -> dict[str, Any]:
    """The first worker, once it has ended."""
    while True:
        (found,) = (await client.ext_method("vivace/workers", {"sessionId": name}))["workers"]
        if found["state"] not in ("waiting", "running"):
            return dict(found)
        await asyncio.sleep(0.02)


def calls(editor: Editor, start: str) -> list[Any]:
    return [u for u in editor.updates if getattr(u, "tool_call_id", "").startswith(start)]


def test_a_result_is_shown_and_merged_on_a_yes_only(tmp_path: Path) -> None:
    file = tmp_path / "work" / "a.py"

    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        assert "worker-1 works on it" in await command(client, editor, name, "/background make y three")
        worker = await ended(client, name)
        assert (worker["state"], worker["task"], worker["files"]) == ("done", "make y three", 2)
        assert worker["tokens"] > 0 and worker["seconds"] > 0
        listed = await command(client, editor, name, "/workers")
        assert "worker-1: done" in listed and "/accept worker-1" in listed
        assert "a.py (+1 -1)" in await command(client, editor, name, "/diff worker-1")
        ((shown,), answer) = (
            calls(editor, "diff-"),
            await client.ext_method("vivace/diff", {"sessionId": name, "worker": "worker-1"}),
        )
        assert [part.type for part in shown.content] == ["content", "diff"]
        assert "blob.bin: binary" in shown.content[0].content.text
        assert (shown.content[1].path, shown.content[1].new_text) == (str(file), "x = 1\ny = 3\n")
        assert "+y = 3" in answer["diff"] and answer["conflicts"] == []
        assert not editor.asked

        for editor.choice in ("n", ""):
            assert "is kept" in await command(client, editor, name, "/accept worker-1")
            assert file.read_text() == "x = 1\ny = 2\n"
        editor.choice = "y"
        assert await command(client, editor, name, "/accept worker-1") == "Taken over from worker-1: a.py, blob.bin."
        assert file.read_text() == "x = 1\ny = 3\n"
        (asked, offered) = editor.asked[-1]
        assert "worker-1" in asked.title and asked.tool_call_id == "accept-3"
        assert [part.type for part in asked.content] == ["content", "diff"]
        assert [option.kind for option in offered] == ["allow_once", "reject_once"]
        assert [u.status for u in calls(editor, "accept-")] == ["pending", "failed"] * 2 + ["pending", "completed"]
        await client.ext_method("vivace/undo", {"sessionId": name})
        assert file.read_text() == "x = 1\ny = 2\n"

    serve(tmp_path, builds, body)


def test_what_was_agreed_to_is_what_is_merged(tmp_path: Path) -> None:
    file = tmp_path / "work" / "a.py"

    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.ext_method("vivace/background", {"sessionId": name, "text": "make y three"})
        await ended(client, name)

        async def changes() -> None:
            if len(editor.asked) == 1:
                file.write_text("z = 9\nx = 1\ny = 2\n")

        editor.meanwhile = changes
        editor.choice = "y"
        answer = await client.ext_method("vivace/accept", {"sessionId": name, "worker": "worker-1"})
        assert answer == {"accepted": True, "changed": ["a.py", "blob.bin"]}
        assert len(editor.asked) == 2 and "z = 9" in editor.asked[1][0].content[1].new_text
        assert file.read_text() == "z = 9\nx = 1\ny = 3\n"

    serve(tmp_path, builds, body)


def test_conflicts_are_shown_and_nothing_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "work" / "a.py"

    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.ext_method("vivace/background", {"sessionId": name, "text": "make y three"})
        await ended(client, name)
        file.write_text("x = 1\ny = 7\n")
        editor.choice = "y"
        with pytest.raises(RequestError, match=r"a\.py: both sides changed the same lines"):
            await client.prompt(session_id=name, prompt=[text_block("/accept worker-1")])
        assert not editor.asked and file.read_text() == "x = 1\ny = 7\n"
        begun, over = calls(editor, "accept-")
        assert "Conflict in a.py" in begun.content[0].content.text and over.status == "failed"
        assert "conflict in a.py" in await command(client, editor, name, "/diff worker-1")

    serve(tmp_path, builds, body)


def test_a_cancelled_acceptance_is_cancelled_even_when_the_editor_never_answers(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.ext_method("vivace/background", {"sessionId": name, "text": "make y three"})
        await ended(client, name)
        asked = asyncio.Event()

        async def silent() -> None:
            asked.set()
            await asyncio.sleep(60)

        editor.meanwhile = silent
        waiting = asyncio.create_task(client.prompt(session_id=name, prompt=[text_block("/accept worker-1")]))
        await asked.wait()
        await client.cancel(session_id=name)
        assert (await waiting).stop_reason == "cancelled"
        assert calls(editor, "accept-")[-1].status == "failed"
        assert (tmp_path / "work" / "a.py").read_text() == "x = 1\ny = 2\n"

    serve(tmp_path, builds, body)


@pytest.mark.parametrize("way", ["command", "method"])
def test_a_worker_is_stopped_and_the_session_goes_on(tmp_path: Path, way: str) -> None:
    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.ext_method("vivace/background", {"sessionId": name, "text": "wait"})
        while not any(
            w["state"] == "running" for w in (await client.ext_method("vivace/workers", {"sessionId": name}))["workers"]
        ):
            await asyncio.sleep(0.02)
        if way == "command":
            assert "worker-1 is stopped" in await command(client, editor, name, "/stop worker-1")
        else:
            await client.ext_method("vivace/stop", {"sessionId": name, "worker": "worker-1"})
        assert (await ended(client, name))["state"] == "stopped"
        with pytest.raises(RequestError, match="no worker 'worker-7'"):
            await client.prompt(session_id=name, prompt=[text_block("/stop worker-7")])
        with pytest.raises(RequestError):
            await client.ext_method("vivace/stop", {"sessionId": name})
        assert await command(client, editor, name, "/interrupt") == "No command runs."

    serve(tmp_path, sleeps, body)


@pytest.mark.parametrize("way", ["command", "method"])
def test_the_command_in_front_is_interrupted_and_the_turn_goes_on(tmp_path: Path, way: str) -> None:
    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        turn = asyncio.create_task(client.prompt(session_id=name, prompt=[text_block("wait for it")]))
        while not any("begun" in str(u.content) for u in editor.updates if u.session_update == "tool_call_update"):
            await asyncio.sleep(0.02)
        if way == "command":
            assert "The command was ended" in await command(client, editor, name, "/interrupt")
        else:
            assert await client.ext_method("vivace/interrupt", {"sessionId": name}) == {"interrupted": True}
        assert (await turn).stop_reason == "end_turn"
        assert editor.said().endswith("Went on.")

    serve(tmp_path, sleeps, body)


def test_approvals_are_an_option_and_a_command(tmp_path: Path) -> None:
    file = tmp_path / "work" / "new.py"

    def writes(seen: Seen) -> list[Step]:
        return [call("write", path="new.py", content="z = 1\n")] if seen.user else [say("Over.")]

    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        changed = await client.set_config_option(config_id="approvals", session_id=name, value="read-only")
        assert changed is not None and changed.config_options[-1].current_value == "read-only"
        known = [value.value for value in changed.config_options[-1].options]
        assert known == ["read-only", "ask", "auto", "full"]
        await client.prompt(session_id=name, prompt=[text_block("write it")])
        assert not file.exists() and not editor.asked
        await command(client, editor, name, "/approvals ask")
        told = [u for u in editor.updates if u.session_update == "config_option_update"]
        assert told[-1].config_options[-1].current_value == "ask"
        assert await command(client, editor, name, "/approvals") == "approvals: ask"
        await client.prompt(session_id=name, prompt=[text_block("write it")])
        assert not file.exists() and len(editor.asked) == 1
        await command(client, editor, name, "/approvals full")
        await client.prompt(session_id=name, prompt=[text_block("write it")])
        assert file.read_text() == "z = 1\n" and len(editor.asked) == 1
        with pytest.raises(RequestError, match=r"Known|Did you mean"):
            await client.prompt(session_id=name, prompt=[text_block("/approvals yolo")])

    serve(tmp_path, writes, body)


def test_nothing_is_asked_where_nothing_was_made(tmp_path: Path) -> None:
    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.ext_method("vivace/background", {"sessionId": name, "text": "look"})
        await ended(client, name)
        editor.choice = "y"
        assert await command(client, editor, name, "/diff worker-1") == "worker-1 offers: nothing that differs"
        with pytest.raises(RequestError, match="worker-1 changed no file"):
            await client.prompt(session_id=name, prompt=[text_block("/accept worker-1")])
        assert not editor.asked

    serve(tmp_path, lambda seen: [say("Looked.")], body)


def test_a_job_is_listed_and_stopped(tmp_path: Path) -> None:
    def act(seen: Seen) -> list[Step]:
        return [call("shell", command="sleep 50", background=True)] if seen.user else [say("It runs.")]

    async def body(client: ClientSideConnection, editor: Editor, name: str) -> None:
        await client.prompt(session_id=name, prompt=[text_block("serve")])
        (job,) = (await client.ext_method("vivace/workers", {"sessionId": name}))["jobs"]
        assert (job["command"], job["state"], job["code"]) == ("sleep 50", "running", None)
        assert f"{job['job']}: running" in await command(client, editor, name, "/jobs")
        assert await command(client, editor, name, f"/stop {job['job']}") == f"{job['job']} is stopped"
        (job,) = (await client.ext_method("vivace/workers", {"sessionId": name}))["jobs"]
        assert job["state"] == "stopped"

    serve(tmp_path, act, body)
