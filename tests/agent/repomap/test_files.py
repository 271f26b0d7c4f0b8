"""Which files a project has: git's answer, and the same without git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.agent.repomap import files as module
from vivace.agent.repomap.files import project_files

NAMES = ["a", "b", "a.py", "x.log", "build", "docs", "a b", "é", "[x]", "!y", "#z"]
PATTERNS = [
    "*.py", "a", "/a", "a/", "b/*", "**/a", "a/**", "a/**/b", "!a.py", "!b/a", "build/", "[ab]", "[!a]", "*", "!*/",
    "?", "\\!y", "\\#z", "# comment", "", "a b", "x.*", "/b/**", "!/b", "*.l[o-p]g",
    "docs/**/a.py", "a/*/b", "é", "\\[x\\]", "b ",
]  # fmt: skip


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


paths = st.lists(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12, unique=True
)
ignores = st.lists(st.sampled_from(PATTERNS), max_size=5)


@given(names=paths, top=ignores, inner=ignores)
@settings(max_examples=40, deadline=None)
def test_without_git_it_is_what_git_says(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], top: list[str], inner: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name in names:
        try:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    (root / ".gitignore").write_text("\n".join(top) + "\n")
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text("\n".join(inner) + "\n")
    git(root, "init", "-q")
    by_git = module._by_git(root)
    assert sorted(module._walk(root)) == by_git


def test_tracked_files_stay_and_deleted_and_linked_ones_do_not_break_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("kept.log", "gone.py", "new.py", "sub/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", "kept.log", "gone.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "broken").symlink_to("nowhere")
    assert project_files(tmp_path) == [".gitignore", "kept.log", "new.py", "sub/x.py"]
    assert project_files(tmp_path / "sub") == ["x.py"]


def test_a_folder_that_its_repository_ignores_is_walked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("out/\n")
    (tmp_path / "out" / "node_modules").mkdir(parents=True)
    (tmp_path / "out" / "a.py").write_text("x")
    (tmp_path / "out" / "node_modules" / "b.js").write_text("x")
    assert project_files(tmp_path / "out") == ["a.py"]


def test_listing_a_repository_runs_nothing_of_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    assert project_files(tmp_path) == ["a.py"]
