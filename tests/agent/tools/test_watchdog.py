"""Each rule of the watchdog at its number, and none of them on work that moves."""

from __future__ import annotations

from typing import Any

import pytest

from vivace.agent.tools.base import ToolResult
from vivace.agent.tools.watchdog import Notice, Watchdog


def levels(notices: list[Notice | None]) -> list[str]:
    return [f"{n.rule}: {n.level}" if n else "" for n in notices]


def test_unknown_tools_and_empty_steps() -> None:
    dog = Watchdog()
    result = ToolResult("x", ok=False, data={"code": "unknown_tool"})
    seen = [dog.observe("nope", {"n": n}, result) for n in range(3)]
    assert levels(seen) == ["unknown tool: nudge", "", "unknown tool: stop"]
    assert levels([dog.empty() for _ in range(3)]) == ["empty: nudge", "", "empty: stop"]
    dog.observe("read", {}, ToolResult("x"))
    assert levels([dog.empty()]) == ["empty: nudge"]


def test_the_same_call_with_the_same_result() -> None:
    dog = Watchdog()
    seen = [dog.observe("shell", {"command": "make"}, ToolResult("failed", ok=False)) for _ in range(5)]
    assert levels(seen) == ["", "", "repeat: nudge", "", "repeat: stop"]
    dog.observe("edit", {"path": "a"}, ToolResult("done", changed=("a",)))
    assert dog.observe("shell", {"command": "make"}, ToolResult("failed", ok=False)) is None


@pytest.mark.parametrize("length", [2, 3, 4])
def test_going_round_in_a_circle(length: int) -> None:
    dog = Watchdog()
    seen = [dog.observe("search", {"n": n % length}, ToolResult(f"{n % length}")) for n in range(5 * length)]
    assert any(n and n.rule in ("cycle", "repeat") and n.level == "stop" for n in seen)
    assert all(n is None for n in seen[: 2 * length])


def test_complaint_17_rereading_what_was_shown() -> None:
    dog = Watchdog()

    def again(n: int) -> Notice | None:
        return dog.observe("read", {"path": f"f{n}"}, ToolResult(f"{n}", data={"repeated": True}))

    assert levels([again(n) for n in range(8)]) == ["", "", "reread: nudge", "", "", "", "", "reread: stop"]
    dog.compacted()
    assert again(9) is None


def test_complaint_20_failing_edits_escalate_and_end() -> None:
    dog = Watchdog()

    def miss(n: int) -> Notice | None:
        return dog.observe("edit", {"path": "a", "n": n}, ToolResult(f"miss {n}", ok=False))

    assert levels([miss(n) for n in range(6)]) == ["", "", "failing edits: escalate", "", "", "failing edits: stop"]
    dog.observe("edit", {"path": "a"}, ToolResult("", changed=("a",)))
    assert miss(7) is None


def test_no_progress_and_progress() -> None:
    dog = Watchdog()
    calls: list[tuple[str, dict[str, Any], ToolResult]] = [
        ("shell", {"command": f"try {n}"}, ToolResult(f"failed {n}", ok=False)) for n in range(30)
    ]
    seen = [dog.observe(*call) for call in calls]
    assert levels(seen)[14] == "no progress: nudge" and levels(seen)[29] == "no progress: stop"
    dog = Watchdog()
    for n in range(200):
        assert dog.observe("read", {"path": f"f{n}"}, ToolResult(f"text {n}")) is None
        assert dog.observe("edit", {"path": "a"}, ToolResult("ok", changed=("a",))) is None
        assert dog.observe("shell", {"command": "make test"}, ToolResult("1 failed", ok=False)) is None
