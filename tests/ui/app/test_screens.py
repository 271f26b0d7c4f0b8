"""What is on the screen, by keys that a person would press."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.ui.app.screens import Stage, play
from tests.ui.scripted import ScriptedTalk
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter

DIFF = """\
--- a/pkg/util.py
+++ b/pkg/util.py
@@ -10,5 +10,6 @@ def load(path):
     data = read(path)
     if not data:
         return None
-    return parse(data)
+    parsed = parse(data)
+    return parsed

"""
ANSWER = """\
Loading **checks** what it has read: `parse` may give nothing.

- first `parse`
- then the rest

```python
def load(path):
    return parse(read(path))
```
"""


async def turn(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Said(text=ANSWER))
    talk.emit(ev.Editing(path="pkg/util.py", lines=("     data = read(path)", "-    return parse(data)")))
    talk.emit(ev.Proposed(diff=DIFF, paths=("pkg/util.py",), added=2, removed=1, verified="syntax"))
    talk.emit(
        ev.Meters(
            ttft=0.123, tokens_per_second=412.3, copied=0.83, steps=1, input_tokens=12_345, cached_tokens=8000,
            output_tokens=900, context=0.21, cost=0.0012,
        )
    )  # fmt: skip
    reply = await talk.ask(
        ev.Asked(ask="p", kind="proposal", text="", choices=(("apply", "Apply"), ("no", "Leave it")))
    )
    if reply != "apply":
        return ev.TurnEnded(status="unchanged", reason="declined", seconds=1.5)
    talk.emit(ev.Applied(paths=("pkg/util.py",), checkpoint=2))
    return ev.TurnEnded(status="done", reason="", seconds=1.5, changed=("pkg/util.py",))


async def work(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Thought(text="Let me look at the tests."))
    talk.emit(ev.PlanChanged(steps=(("look at the tests", "done"), ("mend it", "active"), ("check", "pending"))))
    talk.emit(ev.ToolBegan(call="1", name="shell", brief="pytest -q"))
    talk.emit(ev.ToolOutput(call="1", text="".join(f"test {n} passed\n" for n in range(30))))
    talk.emit(ev.WorkerChanged(worker="w1", task="write the docs", state="running", steps=3, tokens=12_400, seconds=9))
    choices = (("once", "Yes, this once"), ("session", "Yes, in this conversation"), ("no", "No"))
    text = "Run: rm -rf build\n- rm -rf build: it deletes files"
    await talk.ask(ev.Asked(ask="a", kind="approval", text=text, choices=choices))
    talk.emit(ev.ToolEnded(call="1", ok=True, text="", seconds=2.3, changed=("a.py",)))
    await asyncio.sleep(60)
    return None


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["small", "large"])
def test_the_first_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body(stage: Stage) -> None:
        stage.matches(f"first-{size[0]}")

    play(tmp_path, body, size=size)


@pytest.mark.parametrize("light", [False, True], ids=["dark", "light"])
def test_a_proposal_is_applied_by_one_key(tmp_path: Path, light: bool) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("check it")
        await stage.press("enter")
        await stage.shows("Apply this change?")
        stage.matches("proposal")
        await stage.press("y")
        await stage.shows("done · 1.5 s")
        stage.matches("applied")
        assert stage.house.talk.calls[-1] == ("answer", "p", "apply")

    play(tmp_path, body, turn, light=light)


def test_a_proposal_is_declined_by_one_key(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("check it")
        await stage.press("enter")
        await stage.shows("Apply this change?")
        await stage.press("n")
        await stage.shows("unchanged: declined")
        assert "syntax · declined" in stage.text()

    play(tmp_path, body, turn)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["small", "large"])
def test_a_deep_turn_with_a_worker_and_an_approval(tmp_path: Path, size: tuple[int, int]) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("go")
        await stage.press("enter")
        await stage.shows("May it?")
        stage.matches(f"deep-{size[0]}")

    play(tmp_path, body, work, size=size)


def test_help_begins_with_the_widget_that_has_the_focus(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.press("f1")
        await stage.shows("Esc closes")
        stage.matches("help")
        await stage.press("escape", "shift+tab")
        await stage.until(lambda: len(stage.app.screen_stack) == 1)
        stage.app.transcript.focus()
        await stage.press("f1")
        await stage.shows("go from block to block")

    play(tmp_path, body)


def test_completion_of_commands_and_files(tmp_path: Path) -> None:
    (tmp_path / "project" / "pkg").mkdir(parents=True)
    (tmp_path / "project" / "pkg" / "util.py").write_text("x = 1\n")
    (tmp_path / "project" / "main.py").write_text("x = 1\n")

    async def body(stage: Stage) -> None:
        await stage.type("/c")
        await stage.shows("▸ /candidates")
        stage.matches("commands")
        await stage.press("escape", "ctrl+c")
        await stage.type("mend @utl")
        await stage.shows("▸ @pkg/util.py")
        await stage.press("tab")
        await stage.type("now")
        await stage.press("enter")
        assert stage.house.talk.calls[-1] == ("say", "mend @pkg/util.py now", "send", ("pkg/util.py",))

    play(tmp_path, body)


def test_output_is_unfolded_and_a_block_is_copied(tmp_path: Path) -> None:
    async def body(stage: Stage) -> None:
        await stage.type("go")
        await stage.press("enter")
        await stage.shows("May it?")
        assert "test 10 passed" not in stage.text()
        await stage.press("y")
        await stage.shows("✓ shell")
        await stage.press("ctrl+o")
        await stage.until(lambda: "test 10 passed" in stage.app.transcript.plain())
        assert sum("passed" in row.text for block in stage.app.transcript.blocks for row in block.rows) == 30
        stage.app.transcript.focus()
        await stage.press("k", "c")
        assert stage.app.clipboard.startswith("shell pytest -q") or "rm -rf" in stage.app.clipboard

    play(tmp_path, body, work)


def test_no_colour_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def body(stage: Stage) -> None:
        await stage.type("check it")
        await stage.press("enter")
        await stage.shows("Apply this change?")
        stage.matches("proposal")
        segments = [segment for row in stage.app.screen._compositor.render_strips() for segment in row]
        styles = [segment.style for segment in segments if segment.style is not None]
        assert styles and all(s.color is None or s.color.is_default for s in styles)
        assert all(s.bgcolor is None or s.bgcolor.is_default for s in styles)

    play(tmp_path, body, turn)


def test_a_conversation_that_is_gone_on_with_shows_what_was(tmp_path: Path) -> None:
    async def first(stage: Stage) -> None:
        await stage.type("the first message")
        await stage.press("enter")
        await stage.shows("done")

    async def second(stage: Stage) -> None:
        await stage.shows("> the first message")

    play(tmp_path, first)
    name = next((tmp_path / "sessions").glob("*.jsonl")).stem
    play(tmp_path, second, conversation=name)
