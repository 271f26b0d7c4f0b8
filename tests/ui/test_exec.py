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
from typer.testing import CliRunner

from tests.ui.scripted import Script, ScriptedHouse, ScriptedTalk
from vivace import cli
from vivace.agent.sessions import Conversation
from vivace.agent.turns import events as ev
from vivace.agent.turns.inbox import Letter
from vivace.agent.turns.limits import Limits
from vivace.errors import UsageError
from vivace.ui import exec_command
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


def test_a_worker_is_told_when_its_state_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def script(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        for steps in range(9):
            state: ev.WorkerState = "running" if steps else "waiting"
            talk.emit(ev.WorkerChanged(worker="worker-1", task="tidy", model="small", state=state, steps=steps))
        over = ev.WorkerChanged(worker="worker-1", task="tidy", model="small", state="done", steps=9, tokens=1200)
        talk.emit(over)
        return ev.TurnEnded(status="done", reason="", seconds=0.1)

    run(tmp_path, script)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("worker")]
    assert lines == [
        "worker worker-1 (small): waiting, tidy",
        "worker worker-1 (small): running",
        "worker worker-1 (small): done, 9 steps, 1,200 tokens, 0.0 s",
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], {"limits": None, "roles": {}}),
        (["--max-steps", "3", "--max-cost", "0.5"], {"limits": Limits(steps=3, cost=0.5)}),
        (["--max-tokens", "9", "--max-seconds", "2"], {"limits": Limits(tokens=9, seconds=2.0)}),
        (["--role", "planner=a", "--role", "reviewer=b"], {"roles": {"planner": "a", "reviewer": "b"}}),
        (["--race", "a", "--race", "b"], {"race_models": ("a", "b")}),
        (["--resume", "x"], {"conversation": "x", "model": ""}),
        (["--approvals", "read-only"], {"approvals": "read-only"}),
        (["--role", "boss=a"], None),
        (["--role", "planner"], None),
        (["--max-steps", "0"], None),
    ],
)
def test_limits_and_roles_of_the_command(
    monkeypatch: pytest.MonkeyPatch, options: list[str], wanted: dict[str, Any] | None
) -> None:
    asked: list[Choice] = []

    def noted(house: object, task: str, choice: Choice, how: ExecOptions) -> int:
        asked.append(choice)
        return 0

    monkeypatch.setattr(exec_command, "run_exec", noted)
    app: Any = cli.app
    result = CliRunner().invoke(app, ["exec", "do it", *options])
    assert result.exit_code == (2 if wanted is None else 0), result.output
    assert [getattr(asked[0], name) for name in wanted] == list(wanted.values()) if wanted else not asked
    assert not any(choice.workers for choice in asked)  # nobody stays to accept what they make


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
    assert lines[-1] == {"type": "Exited", "exit": 0, "undo": "vivace undo"}
    assert lines[-2]["type"] == "TurnEnded" and lines[-2]["changed"] == ["a.py"]
    kinds = [line["type"] for line in lines]
    assert kinds.count("Proposed") == 2 and kinds.count("Said") == 2
    assert next(line for line in lines if line["type"] == "Said")["text"] == "I change \x1b[31mit."


REASON = "no file was named, and none is obvious from the message\nName the file."


async def refused(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    changed = ev.MessageChanged(number=1, text="go", verb="queue", state="failed", reason=REASON)
    talk.emit(changed)
    return ev.TurnEnded(status="failed", reason=REASON, seconds=0.5)


def test_a_reason_is_told_once_and_ends_as_it_was_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _ = run(tmp_path, refused)
    out, err = capfd.readouterr()
    assert (code, out) == (1, "")
    assert err.splitlines()[1:] == [f"failed: {REASON.splitlines()[0]}", "Name the file.", "after 0.5 s"]


def test_it_ends_with_the_way_back_where_something_changed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, edits)
    assert capfd.readouterr().err.endswith("\nundo: vivace undo\n")
    run(tmp_path, ending("unchanged"))
    assert "undo" not in capfd.readouterr().err
    run(tmp_path, ending("done"), json=True)
    assert json.loads(capfd.readouterr().out.splitlines()[-1]) == {"type": "Exited", "exit": 0, "undo": None}

    async def commands(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        talk.emit(ev.ToolEnded(call="c", ok=True, text="", seconds=0.1, changed=("b.py",)))
        return ev.TurnEnded(status="stopped", reason="stopped by the user", seconds=0.1)

    run(tmp_path, commands)
    assert capfd.readouterr().err.endswith("\nundo: vivace undo\n")


async def rounds(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
    for words, replaces in (("other.py", False), ("first", False), ("second", True), ("third", True)):
        talk.emit(ev.Proposed(diff=f"{words}\n", paths=("a.py",), added=1, removed=1, replaces=replaces))
        talk.emit(ev.Applied(paths=("a.py",)))
    return ev.TurnEnded(status="done", reason="", seconds=0.1, changed=("a.py",))


def test_a_pipe_gets_only_the_diffs_that_stand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, rounds)
    assert capfd.readouterr().out == "other.py\nthird\n"


def test_where_nothing_is_changed_the_diff_that_is_proposed_is_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def script(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        for words in ("first", "second"):
            talk.emit(ev.Proposed(diff=f"{words}\n", paths=("a.py",), added=1, removed=1, replaces=words != "first"))
        return ev.TurnEnded(status="unchanged", reason="only shown", seconds=0.1)

    for approvals, shown in (("read-only", "second\n"), ("auto", "")):
        choice = Choice(root=tmp_path, approvals=approvals)  # type: ignore[arg-type]
        assert run_exec(ScriptedHouse(tmp_path / "sessions", script), "go", choice, ExecOptions()) == 3
        out, err = capfd.readouterr()
        assert out == shown and "undo" not in err


def test_a_terminal_gets_each_diff_and_is_told_what_replaces_what(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run(tmp_path, rounds)
    out, err = capfd.readouterr()
    assert out == "other.py\nfirst\nsecond\nthird\n"
    assert err.count("the change before was taken back; this one stands in its place\n") == 2


def test_it_goes_on_with_a_conversation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    house = ScriptedHouse(tmp_path / "sessions", edits)
    code = run_exec(house, "go", Choice(root=tmp_path), ExecOptions(json=True, go_on=True))
    told = json.loads(capfd.readouterr().out.splitlines()[0])
    assert (code, told["code"]) == (2, "conversation_not_found") and not house.talks
    run_exec(house, "go", Choice(root=tmp_path), ExecOptions())
    first = house.talk.conversation.id
    for choice, go_on in ((Choice(root=tmp_path), True), (Choice(root=tmp_path, conversation=first[-6:]), False)):
        assert run_exec(house, "more", choice, ExecOptions(go_on=go_on)) == 0
        assert house.talk.conversation.id == first
    assert len(house.talks) == 3


def test_it_ends_with_its_own_message_and_not_with_one_that_had_waited(tmp_path: Path) -> None:
    from vivace.agent.turns.inbox import Inbox

    house = ScriptedHouse(tmp_path / "sessions", edits)
    run_exec(house, "go", Choice(root=tmp_path), ExecOptions())
    conversation = Conversation.open(house.talk.conversation.path_of_file)
    Inbox(conversation).put("it waited", "queue")
    conversation.close()
    taken: list[str] = []

    async def script(talk: ScriptedTalk, letters: list[Letter]) -> ev.TurnEnded | None:
        taken.extend(letter.text for letter in letters)
        return ev.TurnEnded(status="failed" if len(taken) == 1 else "done", reason="", seconds=0.1)

    house.script = script
    assert run_exec(house, "mine", Choice(root=tmp_path), ExecOptions(go_on=True)) == 0
    assert taken == ["it waited", "mine"]


@pytest.mark.parametrize("as_json", [False, True])
def test_an_unknown_model_is_found_before_a_conversation_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], as_json: bool
) -> None:
    house = ScriptedHouse(tmp_path / "sessions", edits)
    code = run_exec(house, "go", Choice(root=tmp_path, model="unknown"), ExecOptions(json=as_json))
    assert code == 2 and not house.talks and house.closed and not list(tmp_path.iterdir())
    out, err = capfd.readouterr()
    assert (json.loads(out.splitlines()[0])["code"] == "model_not_found") if as_json else ("no model" in err)


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
from vivace.ui import exec_command
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


def test_ctrl_c_before_the_turn_has_begun_ends_it_too(tmp_path: Path) -> None:
    class Waits(ScriptedHouse):
        """Its turn never begins: the checkpoint before it takes long."""

        def open(self, choice: Choice, listener: Any) -> ScriptedTalk:
            talk = super().open(choice, listener)
            talk.say = lambda *rest: os.kill(os.getpid(), signal.SIGINT)  # type: ignore[assignment, method-assign]
            return talk

    house = Waits(tmp_path / "sessions")
    assert run_exec(house, "go", Choice(root=tmp_path), ExecOptions()) == 130 and house.closed


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
