"""The command line itself: what is loaded for which command, help, bad options, Ctrl-C, variables that are none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]


def vivace(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vivace", *words],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "100", **environ}, timeout=60,
    )  # fmt: skip


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

    names = {command.name for command in needed(["exec"]).registered_commands}
    assert set(AGENT) <= names


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
