"""The app over the real agent and the real service, with a paced model."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.agent.turns.stage import ActingBackend, options, whole
from tests.ui.app.screens import Stage
from tests.ui.scripted import ScriptedHouse
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
