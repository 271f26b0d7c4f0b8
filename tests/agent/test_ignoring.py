"""The rules of ignore files are those that git itself applies."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.ignoring import Rules, outer_rules

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PATHS = [
    "a", "b", "ab", "abc", "a.log", "b.log", "a/b", "a/ab", "a/b/c", "a/b/abc", "ab/a", "ab/b.log", "x/a/b", "x/a.log",
    "-", "]", "a]", "!a", "#a", "a b", "a ", "a\\b", "é", "A", "a/b.log/c", "b/a/ab/c", "[a]", "a-b", "a5",
]  # fmt: skip
LINES = [
    "a", "*", "a*", "*.log", "/a", "a/", "/a/", "a/b", "a/*", "a/**", "**/a", "**/a/b", "a/**/c", "**", "!a", "!*.log",
    "!a/b", "?", "a?", "[ab]", "[!a]", "[^a]b", "[a-c]*", "[]]", "[]-]", "[!]a]", "[[:alpha:]]*", "[[:digit:]]", "[a",
    "[[:nope:]]", "#a", "\\#a", "\\!a", "a\\ ", "a ", "a\\\\b", "\\", "a\\", "", "  ", "/", "!", "x/", "a/b/", "/**",
    "**/", "a**", "**b", "a**/c", "***/c", "*/b", "?/b", "[a]/b", "a[/]b", "é", "[é]", "\\a", "[\\]]", "[z-a]", "a\r",
    "*b*", "a/b.log/**", "[a-]b", "\\[a\\]", "b/**/c", "**/b/**",
]  # fmt: skip


def git(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    environ = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], input=stdin, capture_output=True, env=environ, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@needs_git
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=4), folder=st.booleans())
def test_the_same_paths_are_ignored_as_by_git(lines: list[str], folder: bool) -> None:
    """A path that does not exist is a file to git; folders have to be there."""
    with TemporaryDirectory() as name:
        root = Path(name)
        git(root, "init", "-q")
        (root / ".gitignore").write_bytes("\n".join(lines).encode() + b"\n")
        for path in PATHS if folder else ():
            (root / path).mkdir(parents=True, exist_ok=True)
        said = git(root, "check-ignore", "--no-index", "-z", "--stdin", stdin="\0".join(PATHS).encode())
        theirs = {path.decode() for path in said.split(b"\0") if path}
        rules = Rules(None, "", "\n".join(lines) + "\n")
        ours = {path for path in PATHS if walked(rules, path, is_folder=folder)}
        assert ours == theirs


def walked(rules: Rules, path: str, *, is_folder: bool) -> bool:
    parts = path.split("/")
    above = ("/".join(parts[:n]) for n in range(1, len(parts)))
    return any(rules.ignored(part, is_folder=True) for part in above) or rules.ignored(path, is_folder=is_folder)


def test_rules_of_folders_above_the_workspace_hold(tmp_path: Path) -> None:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("*.secret\n")
    (tmp_path / ".gitignore").write_text("/sub/inner/out\n*.log\n")
    (tmp_path / "sub" / "inner").mkdir(parents=True)
    (tmp_path / "sub" / ".gitignore").write_text("!keep.log\n/inner/gone\n/gone\n")
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("*~\n")
    rules, prefix = outer_rules(tmp_path / "sub" / "inner", {"XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert prefix == "sub/inner/"
    names = ["out", "a.log", "keep.log", "gone", "x/gone", "a.secret", "a~", "a.py"]
    assert [name for name in names if rules.ignored(prefix + name, is_folder=False)] == [
        "out", "a.log", "gone", "a.secret", "a~"
    ]  # fmt: skip
