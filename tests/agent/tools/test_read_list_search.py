"""Looking: lines, trees, matches, all within a budget and never a secret."""

from __future__ import annotations

import asyncio
import random
import shutil
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agent.tools.bench import call, context_for
from vivace.agent.tools.base import Context
from vivace.agent.tools.search import Search, SearchArguments


def test_read_shows_numbered_lines_and_remembers_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo\r\nthree".encode())
    context = context_for(tmp_path)
    result = call(context, "read", path="a.txt", start=2)
    assert result.text == "a.txt: lines 2-3 of 3 (CRLF line ends)\n2\ttwo\n3\tthree"
    sight = context.seen.get("a.txt")
    assert sight is not None and sight.spans == [(2, 3)] and sight.sha256 == result.data["sha256"]
    assert not result.data["repeated"]
    assert call(context, "read", path="a.txt", start=3).data["repeated"]
    call(context, "read", path="a.txt", lines=1)
    assert sight.spans == [(1, 3)]


def test_a_long_file_comes_in_parts_that_join(tmp_path: Path) -> None:
    lines = [f"line {n} " + "x" * (n % 70) for n in range(1, 3001)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    context = context_for(tmp_path, budget=900)
    got: list[str] = []
    while len(got) < 3000:
        result = call(context, "read", path="long.txt", start=len(got) + 1)
        assert context.count(result.text) <= 900
        got += [line.split("\t", 1)[1] for line in result.text.split("\n")[1:] if "\t" in line]
    assert got == lines


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"a\0b", "binary", "3 bytes"),
        (b"x" * (8 * 1024 * 1024 + 1), "too_large", "8,388,609"),
        (None, "file_not_found", "Did you mean src/parser.py"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, raw: bytes | None, code: str, says: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "parser.py").touch()
    if raw is not None:
        (tmp_path / "src" / "parse.py").write_bytes(raw)
    result = call(context_for(tmp_path), "read", path="src/parse.py")
    assert (result.ok, result.data["code"]) == (False, code) and says in result.text


def test_odd_files_are_shown_and_named(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a\nb\xe9\n")
    (tmp_path / "empty").touch()
    (tmp_path / "mini.js").write_text("x" * 100_000)
    context = context_for(tmp_path)
    assert "not UTF-8, from line 2" in call(context, "read", path="latin").text
    assert call(context, "read", path="empty").text == "empty: empty"
    assert "98,000 more characters" in call(context, "read", path="mini.js").text
    assert "has 2 lines" in call(context, "read", path="latin", start=9).text
    assert call(context, "read", path=".").data["code"] == "not_a_file"


def test_secrets_are_read_only_with_the_users_word(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "a.txt").write_text("KEY=1")
    context = context_for(tmp_path)
    assert "hold" in call(context, "read", path=".env").text
    assert call(context, "search", pattern="KEY").data["files"] == 1


def tree(root: Path) -> None:
    for name in ("src/app/main.py", "src/app/util.py", "docs/a/b/c.md", "README.md", "build/out.o", ".github/ci.yml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")
    (root / ".gitignore").write_text("build/\n")


@pytest.mark.parametrize("git", [True, False])
def test_list_is_a_tree_without_what_git_ignores(tmp_path: Path, git: bool) -> None:
    tree(tmp_path)
    if git:
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert call(context_for(tmp_path), "list").text == (
        "./: 6 files\n.github/\n  ci.yml\ndocs/a/b/\n  c.md\nsrc/app/\n  main.py\n  util.py\n.gitignore\nREADME.md"
    )
    assert call(context_for(tmp_path), "list", path="src", depth=1).text == "src/: 2 files\napp/ (2 files)"
    assert call(context_for(tmp_path), "list", path="build").text == "build/: 1 file (ignored by git)\nout.o"


def test_a_big_tree_is_closed_where_the_budget_ends(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"dir{n:02}").mkdir()
        for m in range(20):
            (tmp_path / f"dir{n:02}" / f"file{m}.py").touch()
    result = call(context_for(tmp_path, budget=400), "list")
    assert "dir39/ (20 files)" in result.text and result.data == {"path": ".", "files": 800, "depth": 1}
    assert "more entries" in call(context_for(tmp_path, budget=400), "list", depth=2).text


SEARCHES = [Search(None)] + ([Search("rg")] if shutil.which("rg") else [])


def search(within: Context, tool: Search, **arguments: Any) -> str:
    return asyncio.run(tool.run(SearchArguments(**arguments), within)).text


@pytest.mark.parametrize("tool", SEARCHES, ids=lambda tool: tool.ripgrep or "python")
def test_search_finds_literally_by_regex_and_with_context(tmp_path: Path, tool: Search) -> None:
    tree(tmp_path)
    (tmp_path / "src/app/main.py").write_text("a\nf(x)\nb\nc\nF(x)\r\nd\n")
    (tmp_path / "src/app/bin.py").write_bytes(b"f(x)\0")
    context = context_for(tmp_path)
    assert search(context, tool, pattern="f(x)") == "1 matching line in 1 file\nsrc/app/main.py\n2:f(x)"
    assert "2 matching lines" in search(context, tool, pattern="F\\(.\\)$", regex=True, ignore_case=True)
    assert search(context, tool, pattern="f(x)", context=1).endswith("1-a\n2:f(x)\n3-b")
    assert search(context, tool, pattern="needle", glob="*.md") == (
        "2 matching lines in 2 files\nREADME.md\n1:needle\ndocs/a/b/c.md\n1:needle"
    )
    assert search(context, tool, pattern="needle", path="docs").startswith("1 matching line in 1 file")
    assert search(context, tool, pattern="needle", path="build").startswith("1 matching line in 1 file")
    assert search(context, tool, pattern="nothing") == "no match for 'nothing' in ."
    assert call(context, "search", pattern="(", regex=True).data["code"] == "bad_pattern"
    assert call(context, "search", pattern="-e").ok


@pytest.mark.skipif(len(SEARCHES) < 2, reason="ripgrep is not installed")
def test_both_searches_agree(tmp_path: Path) -> None:
    rng = random.Random(7)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for n in range(40):
        path = tmp_path / rng.choice(["a", "b/c", "."]) / f"f{n}.{rng.choice(['py', 'txt'])}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(rng.choice(string.ascii_lowercase[:4] + "\n") for _ in range(400)))
    context = context_for(tmp_path, budget=100_000)
    for pattern in ("abc", "a.c", "dd", "^a", "bad$"):
        for around in (0, 2):
            for glob in ("", "*.py"):
                arguments = {"pattern": pattern, "regex": True, "context": around, "glob": glob}
                python, ripgrep = (search(context, tool, **arguments) for tool in SEARCHES)
                assert python == ripgrep


@pytest.mark.parametrize("tool", SEARCHES, ids=lambda tool: tool.ripgrep or "python")
def test_too_many_matches_give_every_file_its_turn(tmp_path: Path, tool: Search) -> None:
    for n in range(5):
        (tmp_path / f"f{n}.txt").write_text("hit\n" * 300)
    context = context_for(tmp_path, budget=300)
    text = search(context, tool, pattern="hit")
    assert all(f"f{n}.txt" in text for n in range(5)) and "more lines" in text and context.count(text) <= 300
