"""The command: exit codes, the JSON object, the question, Ctrl-C; and nothing written unless the code is 0."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.scripted import Script, ScriptedService
from tests.agent.test_edit import NEW, OLD
from vivace.agent.livediff import LiveDiff
from vivace.errors import UsageError, VivaceError
from vivace.settings import Settings
from vivace.ui import edit_command
from vivace.ui.clock import process_started
from vivace.ui.edit_command import EditOptions, run_edit, split_arguments
from vivace.ui.plain import PlainFace, visible

KEYS = {
    "files", "model", "prompt_tokens", "output_tokens", "ttft_s", "decode_tok_s", "draft_accepted", "seconds",
    "wall_seconds", "exit", "error",
}  # fmt: skip
FILE_KEYS = {"path", "changed", "diff", "lines_changed", "reason", "asked", "rungs"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.py").write_text(OLD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(
    *scripts: Script, paths: tuple[str, ...] = ("a.py",), instruction: str = "add one", **options: Any
) -> tuple[int, ScriptedService]:
    service = ScriptedService(list(scripts), open_error=options.pop("open_error", None))
    chosen = EditOptions(model="m", **options)
    return run_edit(lambda _: service, paths, instruction, chosen, Settings(), time.perf_counter()), service


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    told = json.loads(out)
    assert set(told) == KEYS and all(set(file) == FILE_KEYS for file in told["files"])
    return told  # type: ignore[no-any-return]


def test_success_writes_and_tells_what_was_measured(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, service = command(Script.file(NEW, accepted=4), yes=True)
    out = capsys.readouterr().out
    assert code == 0 and (folder / "a.py").read_text() == NEW and service.closed == 1
    assert "-    return x\n+    return x + 1\n" in out
    last = out.strip().split("\n")[-1]
    for word in ("applied", "first token", "tok/s", "from the draft", "1 line changed", " s"):
        assert word in last


def test_a_dialect_is_asked_for_and_its_rungs_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = Script("<<<<<<< SEARCH\n  return x\n=======\n  return x + 1\n>>>>>>> REPLACE\n")
    code, _ = command(answer, yes=True, json=True, dialect="search-replace")
    (file,) = said(capsys)["files"]
    assert code == 0 and (folder / "a.py").read_text() == NEW
    assert (file["asked"], file["rungs"]) == (["search-replace"], ["part of a line"])
    assert file["reason"] == "found by part of a line"
    code, service = command(answer, yes=True, json=True, dialect="xml")
    assert code == 2 and "whole-file" in said(capsys)["error"]["hint"] and service.requests == []


def test_a_file_that_is_not_there_comes_with_advice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = command(Script.file(NEW), paths=("new.py",), yes=True)
    told = capsys.readouterr().err
    assert code == 2 and told.startswith("vivace: new.py: no such file\n") and "make an empty one first" in told
    (folder / "new.py").touch()
    assert command(Script.file(NEW), paths=("new.py",), yes=True)[0] == 0


def test_files_and_model_are_looked_at_before_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def known(model: str) -> None:
        if model != "m":
            raise UsageError(f"There is no model {model!r}", code="model_not_found")

    def told(path: str, model: str) -> str:
        service = ScriptedService([])
        chosen = EditOptions(model=model)
        code = run_edit(lambda _: service, [path], "add one", chosen, Settings(), time.perf_counter(), known)
        assert code == 2
        return capsys.readouterr().err

    assert "nothere.py: no such file" in told("nothere.py", "m")
    assert "There is no model 'foo'" in told("a.py", "foo")
    assert "there is no terminal to ask on" in told("a.py", "m")


def test_a_dry_run_shows_the_diff_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = command(Script.file(NEW), dry_run=True)
    assert code == 0 and (folder / "a.py").read_text() == OLD
    assert capsys.readouterr().out.startswith("--- a/a.py\n+++ b/a.py\n@@ ")


def test_json_of_a_success(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, service = command(Script.file(NEW, accepted=4), yes=True, json=True)
    told = said(capsys)
    output = service.generations[0].sent
    assert (code, told["exit"], told["model"], told["error"]) == (0, 0, "m", None)
    assert (told["prompt_tokens"], told["output_tokens"]) == (10, output)
    assert told["draft_accepted"] == pytest.approx(4 / output, abs=1e-6)
    assert told["wall_seconds"] >= told["seconds"] > 0 and told["ttft_s"] > 0 and told["decode_tok_s"] > 0
    (file,) = told["files"]
    assert (file["path"], file["changed"], file["lines_changed"]) == ("a.py", True, 1) and "@@" in file["diff"]


@pytest.mark.parametrize(
    ("scripts", "options", "code", "error"),
    [
        ([Script.file(OLD)], {}, 3, None),
        ([Script("")], {}, 3, None),
        ([Script.file(NEW)], {"instruction": "  "}, 3, None),
        ([Script.file("x = (")], {}, 1, None),
        ([Script("```python\nx", end="failed")], {}, 1, "generation_failed"),
        ([Script("```python\nx", end="lost")], {}, 1, "generation_failed"),
        ([Script.file(NEW)], {"paths": ("none.py",)}, 2, "file_not_found"),
        ([Script.file(NEW)], {"paths": ("a.py", "../b.py")}, 2, "file_not_found"),
        ([Script.file(NEW)], {"candidates": 0}, 2, "usage"),
        ([Script.file(NEW)], {"dry_run": True}, 2, "usage"),
        ([Script.file(NEW)], {"open_error": UsageError("unknown model", code="model_not_found")}, 2, "model_not_found"),
        ([Script.file(NEW)], {"open_error": VivaceError("no memory")}, 1, "error"),
        ([Script.file(NEW)], {"open_error": RuntimeError("defect")}, 1, "internal"),
    ],
)
def test_every_failure_has_its_code_and_its_json(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    scripts: list[Script],
    options: dict[str, Any],
    code: int,
    error: str | None,
) -> None:
    got, service = command(*scripts, yes=True, json=True, **options)
    told = said(capsys)
    assert (got, told["exit"]) == (code, code)
    assert (told["error"]["code"] if told["error"] else None) == error
    assert not any(file["changed"] for file in told["files"])
    if told["files"] and code == 1:
        assert told["files"][0]["reason"]
    assert (folder / "a.py").read_text() == OLD
    if code == 2:
        assert service.requests == []
    got, _ = command(*scripts, yes=True, **options)
    out, err = capsys.readouterr()
    assert got == code and "Traceback" not in out + err and (out + err).strip()


def test_without_a_terminal_it_does_not_guess(capsys: pytest.CaptureFixture[str]) -> None:
    code, service = command(Script.file(NEW))
    assert code == 2 and service.requests == []
    assert "--yes" in capsys.readouterr().err
    code, _ = command(Script.file(NEW), json=True)
    assert code == 2 and said(capsys)["error"]["param"] == "yes"


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 3), ("", 3), ("what\n\ny\n", 0)])
def test_the_question(folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, code: int) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    got, _ = command(Script.file(NEW))
    assert got == code and (folder / "a.py").read_text() == (NEW if code == 0 else OLD)


def test_ctrl_c_at_the_question(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    monkeypatch.setattr("builtins.input", lambda _: os.kill(os.getpid(), signal.SIGINT) or time.sleep(1))
    got, service = command(Script.file(NEW))
    assert got == 130 and service.closed == 1 and (folder / "a.py").read_text() == OLD


@pytest.mark.parametrize("at", [0, 3])
def test_ctrl_c_while_it_writes(folder: Path, capsys: pytest.CaptureFixture[str], at: int) -> None:
    def press(n: int) -> None:
        if n == at:
            os.kill(os.getpid(), signal.SIGINT)

    got, service = command(Script.file(NEW, pause=0.01, on_chunk=press), yes=True, json=True)
    assert got == 130 and said(capsys)["error"]["code"] == "interrupted"
    assert service.generations[0].stopped == ["cancelled"] and service.closed == 1
    assert (folder / "a.py").read_text() == OLD and len(list(folder.iterdir())) == 1


def test_ctrl_c_once_it_is_written_does_not_deny_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: ScriptedService) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ScriptedService, "close", close)
    got, _ = command(Script.file(NEW), yes=True)
    assert got == 0 and (folder / "a.py").read_text() == NEW


def test_a_file_that_changes_before_it_is_written_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = "theirs = 1\n"
    script = Script.file(NEW, on_chunk=lambda _: (folder / "a.py").write_text(theirs))
    code, _ = command(script, yes=True, json=True)
    assert code == 1 and said(capsys)["error"]["code"] == "changed_meanwhile"
    assert (folder / "a.py").read_text() == theirs


def test_the_last_argument_is_the_instruction() -> None:
    assert split_arguments(["a", "b", "do it"]) == (["a", "b"], "do it")
    for few in ([], ["a.py"]):
        with pytest.raises(UsageError, match="instruction"):
            split_arguments(few)


def test_a_terminal_gets_the_diff_while_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    screen = Terminal()
    face = PlainFace(Console(file=screen, force_terminal=True, width=80))
    monkeypatch.setattr(edit_command, "PlainFace", lambda: face)
    course = edit_command._Course([], face=face)
    monkeypatch.setattr(edit_command, "_Course", lambda names: course)
    code, _ = command(Script.file(NEW + "# \x1b[2J\n", pause=0.02), yes=True)
    shown = screen.getvalue()
    assert code == 0
    assert " changed, " in shown and "return x + 1" in shown
    assert "\x1b[2J" not in shown and "applied" in shown.split("\n")[-2]


def test_control_characters_are_shown_and_not_sent() -> None:
    assert visible("a\x1b[31m\tb\r\x9b") == "a\u241b[31m\tb\u240d\ufffd"


def test_the_live_diff_confirms_a_change_when_it_is_back_in_step() -> None:
    old = [f"line {n}" for n in range(8)]
    live = LiveDiff(old)
    assert live.feed(["line 0", "new", "other"]) == [(" ", "line 0")]
    assert live.feed(["line 3"]) == [
        ("-", "line 1"), ("-", "line 2"), ("+", "new"), ("+", "other"), (" ", "line 3"),
    ]  # fmt: skip
    assert live.feed(["line 4"]) == [(" ", "line 4")]
    assert live.finish() == [("-", "line 5"), ("-", "line 6"), ("-", "line 7")]
    assert live.changed == 5


def test_the_process_started_before_now() -> None:
    assert 0 < time.perf_counter() - process_started() < 3600
