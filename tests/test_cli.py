"""The command line itself: what is loaded for which command, help, bad options, Ctrl-C, variables that are none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.client.serving import MODEL, serving
from vivace import cli
from vivace.agent.sessions import Conversation, User, conversations_folder
from vivace.errors import UsageError, VivaceError
from vivace.ui.agents import Agents
from vivace.ui.contract import Choice

FOLDER = Path(__file__).parents[1]


def vivace(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vivace", *words],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "100", **environ}, timeout=60,
    )  # fmt: skip


def plain(text: str) -> str:
    """Without the frame and the line breaks of an error of usage."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("words", [(), ("exec",), ("models",), ("plan", "turn"), ("undo",), ("keys", "create")])
def test_help_has_a_short_name(words: tuple[str, ...]) -> None:
    short, long = vivace(*words, "-h"), vivace(*words, "--help")
    assert short.returncode == 0 and short.stdout == long.stdout and "Usage" in short.stdout


def test_a_choice_that_is_none_is_told_plainly() -> None:
    told = vivace("exec", "--mode", "fats", "go")
    assert told.returncode == 2 and "Value error" not in told.stderr
    assert "'fats' is not one of 'auto', 'fast', 'deep'" in told.stderr


def test_a_bad_setting_is_no_traceback() -> None:
    told = vivace("models", "list", VIVACE_THREADS="abc")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == "vivace: VIVACE_THREADS is 'abc'; it takes a whole number.\n"


def test_a_variable_that_is_no_setting_is_warned_of() -> None:
    told = vivace("models", "list", VIVACE_TREADS="4")
    assert told.returncode == 0 and told.stdout
    assert told.stderr == ("vivace: VIVACE_TREADS is no setting and changes nothing. Did you mean VIVACE_THREADS?\n")


@pytest.mark.parametrize("command", ["edit", "exec", "undo"])
def test_a_command_that_is_waited_for_imports_no_other(command: str) -> None:
    program = (
        "import sys; from vivace.cli import needed; needed([sys.argv[1]]);"
        "print([m for m in ('vivace.bench', 'vivace.plan', 'vivace.composing', 'vivace.server') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program, command], text=True).strip() == "[]"


def test_every_command_that_the_agent_adds_is_known() -> None:
    from vivace.cli import AGENT, needed

    app = needed(["exec"])
    names = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert set(AGENT) <= names


@pytest.mark.parametrize(
    "words", [("--server", "unix:/nowhere", "exec", "go"), ("--model", "coder-1.5b", "edit", "a.py", "go")]
)
def test_an_option_of_the_app_before_a_command_is_not_passed_over(words: tuple[str, ...]) -> None:
    told = vivace(*words)
    assert told.returncode == 2 and f"{words[0]} before {words[2]} is an option of the app" in plain(told.stderr)


@pytest.mark.parametrize("words", [(), ("exec", "go")])
def test_a_conversation_is_named_or_the_last_one(words: tuple[str, ...]) -> None:
    app: Any = cli.app
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        told = CliRunner().invoke(app, [*words, "--resume", "x", "--continue"])
    assert told.exit_code == 2


class Opened:
    """What stands in for the app: it keeps what it was opened with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        from vivace import agent_commands
        from vivace.settings import Settings
        from vivace.ui.app import run as app

        self.choices: list[Choice] = []
        self.houses: list[Agents] = []
        self.settings = Settings(state_dir=folder / "state", config_dir=folder / "config", keep_edits=False)
        self.open = agent_commands.open_app
        monkeypatch.setattr(app, "run_app", self)
        monkeypatch.chdir(folder)

    def __call__(self, house: Agents, choice: Choice) -> int:
        self.houses.append(house)
        self.choices.append(choice)
        return 0

    def app(self, server: str = "", go_on: bool = False, **words: Any) -> int:
        from vivace.agent_commands import app_choice

        defaults: dict[str, Any] = {"conversation": "", "model": "", "mode": "auto", "candidates": None}
        defaults |= {"approvals": "auto", "roles": (), "race": ()}
        return self.open(self.settings, server, nowhere, app_choice(**{**defaults, **words}), go_on=go_on)


def nowhere(*_: object) -> Any:
    raise AssertionError("no service is needed to find out")


def test_the_app_opens_with_a_model_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = Opened(monkeypatch, tmp_path)
    assert opened.app() == opened.app(model="coder-1.5b", mode="fast", candidates=2, approvals="read-only") == 0
    first, second = opened.choices
    assert (first.model, first.mode, first.propose) == ("coder-0.5b", "auto", True)
    assert (second.model, second.mode, second.candidates, second.approvals) == ("coder-1.5b", "fast", 2, "read-only")
    with pytest.raises(UsageError, match=r"no model 'coder-1\.5'") as refused:
        opened.app(model="coder-1.5")
    assert "Did you mean coder-1.5b" in refused.value.hint and len(opened.choices) == 2


def test_the_app_goes_on_with_the_last_conversation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = Opened(monkeypatch, tmp_path)
    with pytest.raises(UsageError, match="no conversation in this folder yet"):
        opened.app(go_on=True)
    with Conversation.create(conversations_folder(tmp_path, tmp_path / "state"), tmp_path) as talk:
        talk.append(User("go"))
    opened.app(go_on=True)
    opened.app(conversation=talk.id[-4:])
    assert [choice.conversation for choice in opened.choices] == [talk.id, talk.id]
    with pytest.raises(UsageError, match="no conversation zzz"):
        opened.app(conversation="zzz")


def test_the_app_begins_with_what_the_server_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened = Opened(monkeypatch, tmp_path)
    with serving(tmp_path) as server:
        assert opened.app(server.address) == opened.app(server.address, model=MODEL) == 0
        assert [choice.model for choice in opened.choices] == [MODEL, MODEL]
        assert opened.houses[0].models() == [MODEL]
        for words in ({"model": "pace"}, {"race": ["pace"]}, {"roles": ["planner=pace"]}):
            with pytest.raises(UsageError, match="The server has no model 'pace'") as refused:
                opened.app(server.address, **words)
            assert refused.value.hint == f"Did you mean {MODEL}?"
    with pytest.raises(VivaceError, match=r"answers|reach|gone|connect"):
        opened.app(server.address)
    assert len(opened.choices) == 2


def test_an_editor_gets_the_approvals_and_a_model_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vivace.ui.acp import server

    choices: list[Choice] = []
    monkeypatch.setattr(server, "serve_acp", lambda house, choice: choices.append(choice) or 0)
    monkeypatch.setenv("VIVACE_STATE_DIR", str(tmp_path))
    app: Any = cli.app
    assert CliRunner().invoke(app, ["acp", "--approvals", "read-only"]).exit_code == 0
    assert (choices[0].approvals, choices[0].model) == ("read-only", "coder-0.5b")
    refused = CliRunner().invoke(app, ["acp", "--model", "coder-1.5"])
    assert isinstance(refused.exception, UsageError) and len(choices) == 1


def test_the_agent_gets_what_the_settings_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vivace.agent_commands import house

    opened = Opened(monkeypatch, tmp_path)
    options = house(opened.settings, "", nowhere)._options
    assert (options.mcp_folder, options.keep_edits) == (tmp_path / "config", False)
    usual = type(opened.settings)()
    assert usual.keep_edits and usual.config_dir.name == "vivace"


def test_ctrl_c_while_it_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vivace.cli':\n"
        "            print('importing', flush=True)\n"
        "            time.sleep(30)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(FOLDER)])}
    with subprocess.Popen(
        [sys.executable, "-m", "vivace", "models", "list"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "importing\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, "", "") and time.monotonic() - began < 5
