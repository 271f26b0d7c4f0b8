"""``vivace exec``: exit codes, plain text and JSON lines, nobody to ask, Ctrl-C."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ui.scripted import Script, ScriptedHouse, ScriptedTalk
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter
from vivace.errors import UsageError
from vivace.ui.contract import Choice
from vivace.ui.exec_command import ExecOptions, run_exec, task_of

DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-one\n+two\n"


def run(folder: Path, script: Script, task: str = "mend @a.py", **options: Any) -> tuple[int, ScriptedHouse]:
    house = ScriptedHouse(folder / "sessions", script)
    code = run_exec(house, task, Choice(root=folder, model="small"), ExecOptions(**options))
    return code, house


def ending(status: ev.Status) -> Script:
    async def script(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        talk.emit(ev.Said(text="It is mended."))
        return ev.TurnEnded(status=status, reason="", seconds=0.1)

    return script


@pytest.mark.parametrize(
    ("status", "code"), [("done", 0), ("unchanged", 3), ("failed", 1), ("limit", 1), ("stopped", 130)]
)
def test_exit_codes(tmp_path: Path, status: ev.Status, code: int) -> None:
    got, house = run(tmp_path, ending(status))
    assert got == code and house.closed


async def edits(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    talk.emit(ev.Meters(ttft=0.25, tokens_per_second=321.0))
    talk.emit(ev.Said(text="I change \x1b[31mit."))
    talk.emit(ev.ToolBegan(call="c", name="shell", brief="pytest"))
    talk.emit(ev.ToolOutput(call="c", text="".join(f"line {n}\n" for n in range(20))))
    talk.emit(ev.ToolEnded(call="c", ok=False, text="", seconds=1.5))
    talk.emit(ev.Proposed(diff=DIFF.replace("two", "three"), paths=("a.py",), added=1, removed=1))
    talk.emit(ev.Proposed(diff=DIFF, paths=("a.py",), added=1, removed=1, replaces=True))
    talk.emit(ev.Applied(paths=("a.py",)))
    talk.emit(ev.Said(worker="w1", text="not of this conversation"))
    return ev.TurnEnded(status="done", reason="", seconds=2.0, changed=("a.py",))


def test_words_and_the_diff_go_to_the_pipe_and_progress_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _ = run(tmp_path, edits)
    out, err = capfd.readouterr()
    assert code == 0
    assert out == "I change \x1b[31mit.\n" + DIFF
    assert "fast · small · one file is named\n" in err
    assert "> shell pytest\n  | line 15\n" in err and "line 14\n" not in err
    assert "done, 2.0 s, changed a.py, first token 250 ms, 321 tok/s\n" in err


def test_files_that_the_task_names_go_along(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    _, house = run(tmp_path, edits)
    assert house.talk.calls[0] == ("say", "mend @a.py", "send", ("a.py",))


def test_json_lines_hold_every_event(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, house = run(tmp_path, edits, json=True)
    out, err = capfd.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and err == ""
    assert lines[0] == {"type": "Opened", "conversation": house.talk.conversation.id}
    assert lines[-1] == {"type": "Exited", "exit": 0}
    assert lines[-2]["type"] == "TurnEnded" and lines[-2]["changed"] == ["a.py"]
    kinds = [line["type"] for line in lines]
    assert kinds.count("Proposed") == 2 and kinds.count("Said") == 2
    assert next(line for line in lines if line["type"] == "Said")["text"] == "I change \x1b[31mit."


def test_nobody_is_there_to_ask(tmp_path: Path) -> None:
    replies: dict[str, str] = {}

    async def asks(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        kinds: tuple[Any, ...] = ("approval", "question", "proposal")
        for kind in kinds:
            replies[kind] = await talk.ask(ev.Asked(ask=kind, kind=kind, text="?"))
        return None

    assert run(tmp_path, asks)[0] == 0
    assert replies["approval"].startswith("no: nobody") and replies["proposal"] == "y"
    assert "Decide yourself" in replies["question"]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_begin_is_told_with_its_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    class Closed(ScriptedHouse):
        def open(self, choice: Choice, listener: Any) -> ScriptedTalk:
            raise UsageError("there is no model nothing", hint="Did you mean small?", code="model_not_found")

    house = Closed(tmp_path)
    assert run_exec(house, "go", Choice(root=tmp_path), ExecOptions(json=as_json)) == 2
    assert house.closed
    out, err = capfd.readouterr()
    if as_json:
        error, ended = map(json.loads, out.splitlines())
        assert error["type"] == "Error" and error["code"] == "model_not_found" and ended["exit"] == 2
    else:
        assert (out, err) == ("", "vivace: there is no model nothing\nDid you mean small?\n")


def test_the_task_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("mend it\n"))
    assert task_of("-") == "mend it\n"
    with pytest.raises(UsageError):
        task_of("  ")


PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.ui.scripted import ScriptedHouse
from vivace.agent.turns import events as ev
from vivace.ui.contract import Choice
from vivace.ui.exec_command import ExecOptions, run_exec

async def forever(talk, letters):
    n = 0
    while True:
        n += 1
        talk.emit(ev.Said(text=f"{n} "))
        await asyncio.sleep(0.005)

folder = Path(sys.argv[1])
raise SystemExit(run_exec(ScriptedHouse(folder, forever), "go", Choice(root=folder), ExecOptions(json=True)))
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, cwd=Path.cwd())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_within_100_ms(tmp_path: Path, number: signal.Signals) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if b'"Said"' in line:
                    break
            sent = time.monotonic()
            os.kill(process.pid, number)
            kinds = []
            for line in process.stdout:
                kinds.append(json.loads(line)["type"])
                if kinds[-1] == "TurnEnded":
                    break
            took = time.monotonic() - sent
            assert process.wait(5) == 130
            assert took < 0.1 and "Said" not in kinds[kinds.index("TurnEnded") :]
        finally:
            process.kill()


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(10) == 1
        finally:
            process.kill()


def test_importing_the_command_line_imports_no_toolkit() -> None:
    program = (
        "import sys, vivace.cli, vivace.ui.edit_command; print([m for m in ('textual', 'acp') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_the_scripted_conversation_is_one_of_the_contract(tmp_path: Path) -> None:
    from vivace.ui.contract import House, Talk

    house: House = ScriptedHouse(tmp_path)
    talk: Talk = house.open(Choice(root=tmp_path), lambda event: None)
    asyncio.run(talk.close())
