"""Which checks a change of these files can be put to: found in the workspace, never made up."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from vivace.agent.repomap.files import project_files
from vivace.agent.turns.measured import Measured

Kind = Literal["lint", "types", "doctest", "tests"]
MOST_TESTS = 12
"""Test files of one change."""
_MAX_BYTES = 200_000

GUESSES: dict[Kind, float] = {"lint": 1.0, "types": 15.0, "doctest": 2.0, "tests": 20.0}
"""Seconds of a check that never ran here."""
LEAST = 5.0
"""Seconds that any check is given, however little time there is."""


class Check(Struct, frozen=True):
    """One command. ``key`` names it in the measured times; ``counts`` reads its faults from the output."""

    kind: Kind
    key: str
    argv: tuple[str, ...]


class Choice(Struct, frozen=True):
    """What is run of the checks that there are. ``left_out`` takes too long, or did when it was tried last."""

    checks: list[Check]
    left_out: list[Check]
    seconds: float
    """Of ``checks`` together."""
    guessed: bool
    """Some of that was never measured here."""


def affordable(checks: Sequence[Check], measured: Measured, room: float) -> Choice:
    """As many checks as ``room`` seconds allow, in their order."""
    chosen: list[Check] = []
    left_out: list[Check] = []
    total, guessed = 0.0, False
    for check in checks:
        seconds = seconds_of(check, measured)
        if total + seconds > room or measured.is_late(check.key, limit_of(room)):
            left_out.append(check)
            continue
        chosen.append(check)
        total += seconds
        guessed = guessed or measured.seconds(check.key) is None
    return Choice(chosen, left_out, total, guessed)


def seconds_of(check: Check, measured: Measured) -> float:
    """As measured, else as guessed. What was measured long ago keeps no check out for ever."""
    known, guess = measured.seconds(check.key), GUESSES[check.kind]
    if known is None:
        return guess
    return min(known, guess) if measured.is_old(check.key) else known


def limit_of(room: float) -> float:
    """Seconds after which one check is ended, where all of them may take ``room``."""
    return max(LEAST, room)


def find_checks(root: Path, paths: Sequence[str], files: Sequence[str] | None = None) -> list[Check]:
    """The checks for changed ``paths``, cheap ones first."""
    known = list(files) if files is not None else project_files(root)
    python = [path for path in paths if path.endswith((".py", ".pyi"))]
    script = [path for path in paths if path.endswith((".js", ".mjs", ".cjs"))]
    found: list[Check] = []
    project = _toml(root / "pyproject.toml").get("tool", {})
    runner = program(root, "python", sys.executable)
    ruff, mypy, node = program(root, "ruff"), program(root, "mypy"), program(root, "node")
    if python and ruff and ("ruff" in project or {"ruff.toml", ".ruff.toml"} & set(known)):
        found.append(
            Check("lint", "ruff", (ruff, "check", "--quiet", "--no-cache", "--output-format=concise", *python))
        )
    if script and node:
        found += [Check("lint", "node --check", (node, "--check", path)) for path in script]
    for path in python:
        if _holds(root / path, re.compile(r"^\s*>>> ", re.MULTILINE)):
            found.append(Check("doctest", f"doctest {path}", (runner, "-m", "doctest", path)))
    tests = related_tests(root, python, known)
    if tests:
        quiet = ("-q", "--no-header", "-p", "no:cacheprovider", "--tb=short")
        found.append(Check("tests", f"pytest {' '.join(tests)}", (runner, "-m", "pytest", *quiet, *tests)))
    if python and mypy and ("mypy" in project or {"mypy.ini", ".mypy.ini"} & set(known)):
        found.append(Check("types", "mypy", (mypy, "--no-error-summary", "--no-color-output", *python)))
    return found


def related_tests(root: Path, paths: Sequence[str], known: Sequence[str]) -> list[str]:
    """Test files that go with changed Python files: named after one, or importing it."""
    tests = [path for path in known if _is_test(path)]
    found = [path for path in paths if _is_test(path)]
    for path in paths:
        stem = Path(path).stem
        name = Path(path).parent.name if stem == "__init__" else stem
        imports = re.compile(rf"^\s*(?:from|import)\b.*\b{re.escape(name)}\b", re.MULTILINE)
        names = (f"test_{name}", f"{name}_test")
        found += [test for test in tests if Path(test).stem in names or _holds(root / test, imports)]
    return list(dict.fromkeys(found))[:MOST_TESTS]


def program(root: Path, name: str, default: str = "") -> str:
    """The project's own, else ``default``, the one on the path, or the one that came with this Python; may be empty."""
    for folder in (".venv/bin", "venv/bin", "node_modules/.bin"):
        path = root / folder / name
        if path.is_file():
            return str(path)
    if default and Path(default).is_file():
        return default
    beside = Path(sys.executable).parent / name
    return shutil.which(name) or (str(beside) if beside.is_file() else default)


def _is_test(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _holds(path: Path, what: re.Pattern[str]) -> bool:
    try:
        return path.stat().st_size <= _MAX_BYTES and bool(what.search(path.read_text("utf-8", errors="ignore")))
    except OSError:
        return False


def _toml(path: Path) -> dict[str, dict[str, object]]:
    try:
        return tomllib.loads(path.read_text("utf-8", errors="ignore"))
    except (OSError, tomllib.TOMLDecodeError):
        return {}
