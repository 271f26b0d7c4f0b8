"""Schemas, and the way every call takes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.agent.tools.bench import call, context_for
from vivace.agent.approvals.actions import Action, Answer, Decision
from vivace.agent.approvals.approvals import Approvals
from vivace.agent.tools.toolbox import Toolbox, standard_tools


def test_every_tool_is_described_without_references_and_briefly() -> None:
    box = Toolbox(standard_tools())
    assert list(box.tools) == ["read", "search", "list", "edit", "write", "shell", "jobs", "ask", "plan", "delegate"]
    for tool in box.describe():
        text = json.dumps(tool)
        assert "$ref" not in text and tool["parameters"]["type"] == "object"
        assert len(tool["description"]) < 120
    assert len(json.dumps(box.describe())) < 6000
    edits = box.tools["edit"].parameters["properties"]["edits"]["items"]
    assert edits["required"] == ["search", "replace"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("raed", "{}", "Did you mean read"),
        ("read", "{}", "missing required field `path`"),
        ("read", '{"path": 3}', "Expected `str`"),
        ("read", '{"path": "a", "lines": 0}', ">= 1"),
        ("read", '{"path": "a", "end": 3}', "`end`"),
        ("read", "[1]", "no JSON object"),
        ("plan", '{"steps": [{"step": "x", "state": "half"}]}', "half"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(tmp_path: Path, name: str, arguments: str, says: str) -> None:
    result = asyncio.run(Toolbox(standard_tools()).call(name, arguments, context_for(tmp_path)))
    assert not result.ok and says in result.text


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_complaint_9_a_truncated_call_does_nothing(tmp_path: Path, cut: int) -> None:
    whole = json.dumps({"path": "new.py", "content": "x = 1\n" * 10})
    result = asyncio.run(Toolbox(standard_tools()).call("write", whole[:-cut], context_for(tmp_path)))
    assert not result.ok and "Make the call again, whole" in result.text
    assert list(tmp_path.iterdir()) == []


def test_nothing_runs_before_it_is_approved_and_a_checkpoint_comes_between(tmp_path: Path) -> None:
    order: list[str] = []

    async def consult(action: Action, decision: Decision) -> Answer:
        order.append("asked")
        return Answer(allow=len(order) > 1)

    async def guard(what: str) -> None:
        order.append(what)
        assert not (tmp_path / "a").exists()

    context = context_for(tmp_path, consult=consult, before_change=guard)
    context.approvals = Approvals(context.root, "ask")
    refused = call(context, "write", path="a", content="x")
    assert "not approved" in refused.text and not (tmp_path / "a").exists()
    assert call(context, "write", path="a", content="x").ok
    assert order == ["asked", "asked", "write a"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "link/x", "link", "a\0b", ""])
@pytest.mark.parametrize("tool", ["read", "list", "edit", "write", "search", "shell"])
def test_paths_out_of_the_workspace_are_refused(tmp_path: Path, tool: str, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "x").write_text("secret")
    (root / "link").symlink_to(tmp_path)
    arguments = {
        "read": {"path": name},
        "list": {"path": name},
        "edit": {"path": name, "edits": [{"search": "secret", "replace": "x"}]},
        "write": {"path": name, "content": "x"},
        "search": {"path": name, "pattern": "secret"},
        "shell": {"folder": name, "command": "ls"},
    }[tool]
    result = call(context_for(root), tool, **arguments)
    assert not result.ok and result.data["code"] in ("outside_workspace", "bad_path"), result.text
    assert (tmp_path / "x").read_text() == "secret"


def test_ask_plan_and_delegate_go_to_the_face(tmp_path: Path) -> None:
    plans: list[object] = []

    async def question(asked: object) -> str:
        return "blue"

    context = context_for(tmp_path, question=question, on_plan=plans.append)
    assert call(context, "ask", question="Which?", options=["red"]).text == "The user answers: blue"
    steps = [{"step": "a", "state": "done"}, {"step": "b"}]
    assert call(context, "plan", steps=steps).text == "plan: 1 of 2 done\n[x] a\n[ ] b"
    assert plans == [[{"step": "a", "state": "done"}, {"step": "b", "state": "pending"}]]
    assert not call(context, "plan", steps=[{"step": "a", "state": "active"}] * 2).ok
    assert "no background workers" in call(context, "delegate", task="x").text
    assert "nobody is here" in call(context_for(tmp_path), "ask", question="?").text
