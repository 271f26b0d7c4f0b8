"""The slash commands: how a line is read, and that every one is documented."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from vivace.errors import UsageError
from vivace.ui.acp.commands import COMMANDS as EDITOR_COMMANDS
from vivace.ui.app.commands import COMMANDS, fitting, is_command, parse
from vivace.ui.app.deeds import APPROVALS
from vivace.ui.app.run import light_terminal
from vivace.ui.app.widgets.help import HELPED, help_text
from vivace.ui.contract import Approving
from vivace.ui.mentioned import mentioned, written

DOCS = Path(__file__).parents[3] / "docs"


def test_every_command_is_documented_in_its_own_words() -> None:
    text = (DOCS / "terminal.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"| `{f'/{command.name} {command.takes}'.strip()}` | {command.brief} |" in text
    editors = (DOCS / "acp.md").read_text(encoding="utf-8")
    assert all(f"`/{command.name}`" in editors for command in EDITOR_COMMANDS)


def test_every_widget_has_help_and_what_is_in_front_comes_first() -> None:
    for widget in HELPED:
        assert widget.HELP.startswith("## ")
        assert help_text(widget.HELP).startswith(widget.HELP)
        assert all(other.HELP in help_text(widget.HELP) for other in HELPED)


def test_every_kind_of_approvals_is_explained() -> None:
    assert tuple(APPROVALS) == get_args(Approving)


def test_lines_are_read() -> None:
    assert parse("/mode fast")[0].name == "mode" and parse("/mode  fast ")[1] == "fast"
    assert parse("/undo") == (parse("/undo")[0], "")
    with pytest.raises(UsageError, match="no command /") as error:
        parse("/modle x")
    assert "model" in error.value.hint
    for line in ("/", "/undo now", "/background"):
        with pytest.raises(UsageError):
            parse(line)
    assert fitting("ch")[0].name == "checkpoints" and fitting("zz") == []


@pytest.mark.parametrize(
    ("text", "command"),
    [("/undo", True), ("/mode fast", True), ("/etc/hosts is wrong", False), ("/undo\nmore", False), ("undo", False)],
)
def test_a_path_at_the_beginning_is_no_command(text: str, command: bool) -> None:
    assert is_command(text) is command


def test_files_that_a_message_names(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "b c.py").write_text("")
    text = f"mend @a.py, {written('b c.py')} and @a.py; not @gone.py, me@a.py, @../{tmp_path.name}-x or @/etc/passwd"
    assert mentioned(text, tmp_path) == ("a.py", "b c.py")


@pytest.mark.parametrize(("said", "light"), [("", False), ("0;15", True), ("15;0", False), ("0;default;7", True)])
def test_light_terminals_say_so(said: str, light: bool) -> None:
    assert light_terminal(said) is light
