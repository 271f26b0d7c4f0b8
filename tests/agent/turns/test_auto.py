"""Which mode, and the reason in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.turns.stage import play, say, stage
from vivace.agent.sessions.entries import User
from vivace.agent.turns.auto import Decision, decide
from vivace.agent.turns.named import named_files, obvious_files
from vivace.agent.turns.verify import Ground, Verifier


def project(root: Path) -> None:
    root.mkdir()
    for name, text in {
        "app.py": "def start_up():\n    return 1\n\n\nclass Window:\n    pass\n",
        "sub/util.py": "def shared():\n    pass\n",
        "sub/other.py": "def shared():\n    pass\n",
        "tests/test_app.py": "from app import start_up\n",
        "b.py": "",
        "c.py": "",
        "d.py": "",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("text", "mode", "reason", "paths"),
    [
        ("rename x to y in app.py", "fast", "one edit of app.py; verified in about", ["app.py"]),
        ("add a docstring to `start_up`", "fast", "the only place with that name", ["app.py"]),
        ("fix Window.close()", "fast", "the only place", ["app.py"]),
        ("tidy `sub/util.py` and b.py", "fast", "one edit of sub/util.py and b.py", ["sub/util.py", "b.py"]),
        ("What does start_up do?", "fast", "a question about app.py", ["app.py"]),
        ("What is a monad?", "fast", "a question", []),
        ("How is this project structured?", "deep", "no file is named", []),
        ("fix the crash at start", "deep", "no file is named", []),
        ("change `shared` to return 1", "deep", "no file is named", []),
        ("run the tests and fix app.py", "deep", "'run'", ["app.py"]),
        ("make the tests pass in app.py", "deep", "'make the tests pass'", ["app.py"]),
        ("use pathlib in app.py, b.py, c.py and d.py", "deep", "4 files", ["app.py", "b.py", "c.py", "d.py"]),
        ("In app.py:\n1. add a\n2. add b\n3. add c", "deep", "several steps", ["app.py"]),
        ("edit app.py " + "so that it is fine " * 40, "deep", "words", ["app.py"]),
    ],
)
def test_the_rules_choose_and_say_why(tmp_path: Path, text: str, mode: str, reason: str, paths: list[str]) -> None:
    project(tmp_path / "work")

    async def run() -> Decision:
        async with stage(tmp_path, lambda seen: [say("ok")], mode="auto") as scene:
            assert scene.agent.desk is not None
            return await decide(scene.agent.desk, [User(text)], "auto")

    decision = play(run)
    assert (decision.mode, decision.paths) == (mode, paths)
    assert reason in decision.reason


def test_what_takes_long_to_verify_is_not_checked_behind_a_fast_answer(tmp_path: Path) -> None:
    project(tmp_path / "work")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], mode="auto") as scene:
            assert scene.agent.desk is not None
            desk = scene.agent.desk
            first = await decide(desk, [User("rename x in app.py")], "auto")
            desk.measured.took("pytest tests/test_app.py", 95.0)
            second = await decide(desk, [User("rename x in app.py")], "auto")
            assert first.check and not second.check
            assert "verifying would take 95 s" in second.reason
            assert (await decide(desk, [User("rename x in app.py")], "deep")).reason == "as you set it"

    play(run)


def test_as_many_checks_as_fit_are_counted_on_and_guesses_are_called_so(tmp_path: Path) -> None:
    """The guesses of ruff, pytest and mypy are more than the half minute together: two of them fit."""
    project(tmp_path / "work")
    (tmp_path / "work" / "pyproject.toml").write_text("[tool.ruff]\n[tool.mypy]\n")

    async def run() -> None:
        async with stage(tmp_path, lambda seen: [say("ok")], mode="auto") as scene:
            assert scene.agent.desk is not None
            desk = scene.agent.desk

            async def told() -> Decision:
                decision = await decide(desk, [User("rename x in app.py")], "auto")
                options = desk.options
                verifier = Verifier(
                    Ground(desk.root, desk.context, desk.measured, options.cache_dir, options.quick), ["app.py"]
                )
                assert decision.check == bool(verifier.affordable)
                return decision

            first = await told()
            assert first.check and "verified in about 21 s (guessed, without mypy)" in first.reason
            desk.measured.took("ruff", 0.5)
            desk.measured.took("pytest tests/test_app.py", 2.5)
            assert "verified in about 18 s (guessed)" in (await told()).reason
            desk.measured.took("mypy", 6.0)
            assert (await told()).reason.endswith("verified in about 9 s")
            desk.measured.gave_up("mypy", 30.0)
            assert (await told()).reason.endswith("verified in about 3 s (without mypy)")
            desk.measured.gave_up("ruff", 30.0)
            desk.measured.gave_up("pytest tests/test_app.py", 30.0)
            last = await told()
            assert not last.check and "took more than 30 s when it was tried last" in last.reason

    play(run)


def test_names_of_files_are_found_in_what_is_said(tmp_path: Path) -> None:
    root = tmp_path / "work"
    project(root)
    assert named_files(root, "see @sub/util.py, then ./app.py.") == ["sub/util.py", "app.py"]
    assert named_files(root, "test_app.py is red") == ["tests/test_app.py"]
    assert named_files(root, "version 1.5 of e.g. this") == []
    (root / "sub" / "app.py").touch()
    assert named_files(root, "app.py") == ["app.py"]
    assert obvious_files(root, "`shared` and `start_up`") == ["app.py"]
    assert obvious_files(root, "make it nicer") == []
