"""The whole agent as a solver, on the real gateway with the paced backend."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench.tasksets.samples import GOOD, SECRET, WRONG, task
from vivace.agent.sandbox.base import NoSandbox
from vivace.backends.paced import Pace, PacedBackend
from vivace.backends.paced_script import Script
from vivace.bench.tasksets.record import Record
from vivace.bench.tasksets.run import one_task
from vivace.bench.tasksets.whole import Whole
from vivace.composing import compose_gateway
from vivace.protocol.contracts import Generation, ModelCard, Principal, Service
from vivace.protocol.items import encode
from vivace.protocol.requests import ResponseRequest
from vivace.settings import Settings


class Recording:
    """A service that keeps what it is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.asked: list[str] = []

    async def open(self, model: str) -> ModelCard:
        return await self._service.open(model)

    async def input_tokens(self, request: ResponseRequest) -> int:
        self.asked.append(encode(request).decode())
        return await self._service.input_tokens(request)

    def start(self, request: ResponseRequest, principal: Principal) -> Generation:
        self.asked.append(encode(request).decode())
        return self._service.start(request, principal)

    async def close(self) -> None:
        await self._service.close()


def solved(tmp_path: Path, mode: Any, *rules: dict[str, Any], candidates: int = 1) -> tuple[Record, list[str]]:
    script = msgspec.convert({"rules": list(rules)}, Script)

    async def go() -> tuple[Record, list[str]]:
        settings = Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
        backend = PacedBackend(script=script, pace=Pace(tok_s=5000, ttft=0.001))
        service = Recording(compose_gateway(settings, backends={"paced": backend}, catalogue=False, database=False))
        try:
            return await one_task(task(), 0, Whole(service, "paced", mode, candidates), NoSandbox()), service.asked
        finally:
            await service.close()

    return asyncio.run(go())


def edited(text: str) -> list[dict[str, Any]]:
    """A model that looks, edits, and says so; asked for a file, it gives the file."""
    block = {"search": "    return x", "replace": text.split("\n")[2]}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "solution.py"}),
        ("edit", {"path": "solution.py", "edits": [block]}),
    ]
    rules: list[dict[str, Any]] = [
        {"when": {"tool": name, "turn": turn}, "steps": [{"call": name, "arguments": arguments}]}
        for turn, (name, arguments) in enumerate(calls, 1)
    ]
    return [
        *rules,
        {"when": {"tool": "read"}, "steps": [{"text": "Done."}]},
        {"steps": [{"text": f"```python\n{text}```"}]},
    ]


@pytest.mark.parametrize(("mode", "candidates"), [("auto", 1), ("auto", 4), ("deep", 1)])
@pytest.mark.parametrize(("text", "passed"), [(GOOD, True), (WRONG, False)])
def test_a_turn_is_graded_and_nothing_that_is_asked_holds_a_test(
    tmp_path: Path, mode: str, candidates: int, text: str, passed: bool
) -> None:
    record, asked = solved(tmp_path, mode, *edited(text), candidates=candidates)
    assert record.status == "changed" and record.passed is passed, record.reason
    assert record.changed == ("solution.py",) and record.wrong_place is False
    assert record.mode == ("deep" if mode == "deep" else "fast")
    assert record.output_tokens > 0 and record.ttft is not None
    assert any("Fix the bug in the function" in sent for sent in asked)
    for sent in asked:
        assert SECRET not in sent and "task_tests" not in sent and "TESTS PASSED" not in sent


def test_a_turn_that_changes_nothing_says_why(tmp_path: Path) -> None:
    record, _ = solved(tmp_path, "deep", {"steps": [{"text": "It is fine as it is."}]})
    assert not record.applied and record.status in ("unchanged", "refused") and record.reason


def test_a_question_does_not_hold_a_turn_up(tmp_path: Path) -> None:
    ask = {"when": {"tool": "ask", "turn": 1}, "steps": [{"call": "ask", "arguments": {"question": "Twice what?"}}]}
    record, asked = solved(tmp_path, "deep", ask, {"steps": [{"text": "I stop here."}]})
    assert record.status == "unchanged" and record.seconds < 30
    assert any("Nobody is here to answer" in sent for sent in asked)
