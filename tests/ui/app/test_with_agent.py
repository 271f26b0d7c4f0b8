"""The app over the real agent and the real service, with a paced model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tests.agent.turns.stage import Act, ActingBackend, Seen, call, options, say, whole
from tests.ui.app.screens import Stage
from tests.ui.scripted import ScriptedHouse
from vivace.backends.paced_script import Step
from vivace.composing import compose_gateway
from vivace.settings import Settings
from vivace.ui.agents import Agents
from vivace.ui.app.app import VivaceApp
from vivace.ui.contract import Choice

BEFORE = "def f():\n    return 1\n"
AFTER = "def f():\n    return 3\n"


def test_an_edit_is_proposed_applied_undone_done_again_and_resumed(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    file = root / "a.py"
    file.write_text(BEFORE)

    async def main() -> None:
        backend = ActingBackend(lambda seen: [whole(AFTER)])
        settings = Settings(state_dir=tmp_path / "service", cache_dir=tmp_path / "cache")
        gateway = compose_gateway(settings, backends={"acting": backend}, catalogue=False, database=False)
        await gateway.begin()
        house = Agents(lambda: gateway, options(tmp_path), models=lambda: ["acting"])
        app = VivaceApp(house, Choice(root=root, model="acting", mode="fast", propose=True, candidates=1))
        app.animation_level = "none"
        async with app.run_test(size=(80, 30)) as pilot:
            stage = Stage(app, pilot, ScriptedHouse(tmp_path))
            await stage.until(lambda: app.talk is not None)
            assert app.talk is not None
            app.ask.grace = 0.0
            stage.paste("let f return 3 in @a.py")
            await stage.press("enter")
            await stage.shows("Apply this change?")
            assert "2 -     return 1" in stage.text() and file.read_text() == BEFORE
            await stage.press("y")
            await stage.shows("✓ done")
            assert file.read_text() == AFTER
            for line, then in (("/undo", BEFORE), ("/redo", AFTER)):
                stage.paste(line)
                await stage.press("enter")
                await stage.until(lambda then=then: file.read_text() == then)  # type: ignore[misc]
            name = app.talk.conversation.id
            stage.paste("/new")
            await stage.press("enter")
            await stage.until(lambda: app.talk is not None and app.talk.conversation.id != name)
            assert "let f return 3" not in stage.text()
            stage.paste(f"/resume {name}")
            await stage.press("enter")
            await stage.shows("> let f return 3 in @a.py")
            assert app.talk.conversation.id == name
            await app.talk.close()
        await house.close()

    asyncio.run(main())


def with_agent(base: Path, act: Act, body: Callable[[Stage], Awaitable[None]]) -> None:
    """Run ``body`` with the app over an agent whose deep turns are ``act``. The workspace is ``base / "work"``."""
    root = base / "work"
    root.mkdir(exist_ok=True)

    async def main() -> None:
        backend = ActingBackend(act)
        settings = Settings(state_dir=base / "service", cache_dir=base / "cache")
        gateway = compose_gateway(settings, backends={"acting": backend}, catalogue=False, database=False)
        await gateway.begin()
        house = Agents(lambda: gateway, options(base), models=lambda: ["acting"])
        app = VivaceApp(house, Choice(root=root, model="acting", mode="deep", approvals="full", candidates=1))
        app.animation_level = "none"
        async with app.run_test(size=(100, 30)) as pilot:
            stage = Stage(app, pilot, ScriptedHouse(base))
            await stage.until(lambda: app.talk is not None)
            await body(stage)
            assert app.talk is not None
            await app.talk.close()
        await house.close()

    asyncio.run(main())


async def enter(stage: Stage, line: str, shows: str = "") -> None:
    stage.paste(line)
    await stage.press("enter")
    if shows:
        await stage.shows(shows)


def test_approvals_change_for_the_conversation_that_is_open(tmp_path: Path) -> None:
    """A switch that only holds for the next conversation is none."""

    def act(seen: Seen) -> list[Step]:
        word = [text for text in seen.users if text.startswith("write")][-1].split()[-1]
        return [say(f"that was {word}")] if seen.output else [call("shell", command=f"echo {word} > {word}")]

    async def body(stage: Stage) -> None:
        await stage.shows(" · full")
        await enter(stage, "write one", "that was one")
        await stage.until(lambda: not stage.app.busy)
        await enter(stage, "/approvals read-only", "read-only: nothing is changed")
        assert "auto" not in stage.text().splitlines()[-1] and "· read-only" in stage.text()
        await enter(stage, "write two", "that was two")
        await stage.until(lambda: not stage.app.busy)
        assert (tmp_path / "work" / "one").exists() and not (tmp_path / "work" / "two").exists()
        await enter(stage, "/approvals", "what may be done without asking")
        await stage.type("full")
        await stage.press("enter")
        await stage.shows("full: everything passes but what destroys")
        await enter(stage, "write three", "that was three")
        assert (tmp_path / "work" / "three").exists()
        await enter(stage, "/approvals reed-only", "there are no approvals reed-only")
        assert stage.app.choice.approvals == "full"

    with_agent(tmp_path, act, body)


def test_a_job_is_shown_listed_stopped_and_told_to_the_model(tmp_path: Path) -> None:
    """Background commands run on unseen."""
    told: list[str] = []

    def act(seen: Seen) -> list[Step]:
        told.extend(text for text in seen.users if "A background job has ended" in text)
        if seen.users[-1].startswith("serve") or "serve" in seen.user:
            if seen.output:
                return [say("It is up.")]
            return [call("shell", command="echo listening; sleep 60", background=True)]
        return [say("Well then.")]

    async def body(stage: Stage) -> None:
        await enter(stage, "serve", "It is up.")
        await stage.shows("└─◦ job-1  running · ")
        await enter(stage, "/jobs", "  echo listening; sleep 60")
        await enter(stage, "/new", "job job-1 runs: stop it first")
        await enter(stage, "/stop job-9", "there is no worker or job 'job-9'")
        await enter(stage, "/stop job-1", "! job job-1 stopped: echo listening; sleep 60 (stopped by the user")
        await stage.shows("■ job-1  stopped · stopped by the user")
        await enter(stage, "and now?", "Well then.")
        await stage.until(lambda: "■ job-1" not in stage.text())
        assert len(told) == 1 and "job-1: stopped by the user" in told[0] and told[0].endswith("\nlistening]")

    with_agent(tmp_path, act, body)


def test_a_conversation_is_exported_and_no_file_is_written_over(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        root, app = tmp_path / "work", stage.app
        assert app.talk is not None
        await enter(stage, "what is this?", "It is a test.")
        await stage.until(lambda: not app.busy)
        await enter(stage, "/export", "exported to")
        text = (root / f"{app.talk.conversation.id}.md").read_text()
        assert text.startswith("# what is this?") and "It is a test." in text
        await enter(stage, "/export talk.json", "talk.json")
        await stage.until((root / "talk.json").exists)
        found = msgspec.json.decode((root / "talk.json").read_bytes())
        assert found["title"] == "what is this?" and found["conversation"]["id"] == app.talk.conversation.id
        (root / "mine.md").write_text("mine")
        await enter(stage, "/export mine.md", "mine.md is there already")
        assert (root / "mine.md").read_text() == "mine"
        await enter(stage, "/export gone/talk.md", "gone/talk.md: No such file or directory")

    with_agent(tmp_path, lambda seen: [say("It is a test.")], body)


def test_what_is_said_after_a_fork_is_shown(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await enter(stage, "first", "✓ done")
        await stage.until(lambda: not stage.app.busy)
        await enter(stage, "/fork", "the old conversation stays as it is")
        await enter(stage, "second", "> second")
        await stage.until(lambda: stage.text().count("✓ done") == 2)
        assert "> first" in stage.text()

    with_agent(tmp_path, lambda seen: [say("It is a test.")], body)
