"""Workspaces on disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivace.bench.tasksets import tree
from vivace.bench.tasksets.tree import difference, lay_out, read_back
from vivace.errors import VivaceError

NAMES = st.sampled_from(["a.py", "b.py", "sub/c.py", "sub/deep/d.txt"])
TEXTS = st.lists(st.sampled_from(["x\n", "y\n", "\n", "é\r\n", "last"]), max_size=6).map("".join)
TREES = st.dictionaries(NAMES, TEXTS.map(str.encode), max_size=4)


@given(TREES)
@settings(max_examples=30, deadline=None)
def test_what_is_laid_out_is_read_back(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("tree")
    lay_out(files, root)
    assert read_back(root) == files


@given(TREES, TREES)
@settings(max_examples=60, deadline=None)
def test_a_difference_names_what_differs(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    found = difference(before, after)
    assert set(found.paths) == {name for name in {*before, *after} if before.get(name) != after.get(name)}
    for name in found.paths:
        assert f"--- a/{name}\n" in found.text
    texts = [tree.get(name, b"") for tree in (before, after) for name in found.paths]
    assert bool(found.lines) == any(texts) and found.lines <= sum(len(text.split(b"\n")) for text in texts)


def test_the_difference_can_be_applied(tmp_path: Path) -> None:
    before = {"a.py": b"1\n2\n3\n", "sub/b.py": b"x\n"}
    after = {"a.py": b"1\n2b\n3\nlast", "sub/b.py": b"x\ny\n"}
    lay_out(before, tmp_path)
    found = difference(before, after)
    assert found.lines == 3
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=found.text.encode(), check=True)
    assert read_back(tmp_path) == after


def test_what_tools_make_and_links_are_left_out(tmp_path: Path) -> None:
    lay_out({"a.py": b"1", "__pycache__/a.pyc": b"2", "sub/.pytest_cache/x": b"3"}, tmp_path)
    (tmp_path / "link.py").symlink_to("/etc/hostname")
    (tmp_path / "folder").symlink_to("/etc")
    assert read_back(tmp_path) == {"a.py": b"1"}


def test_a_workspace_that_has_grown_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_BYTES", 10)
    lay_out({"a.py": b"12345", "b.py": b"12345"}, tmp_path)
    assert len(read_back(tmp_path)) == 2
    lay_out({"c.py": b"1"}, tmp_path)
    with pytest.raises(VivaceError):
        read_back(tmp_path)


def test_bytes_that_are_no_text_still_make_a_difference() -> None:
    found = difference({"a": b"\xff\n"}, {"a": b"\xfe\xfd\n", "b": b""})
    assert found.paths == ("a", "b")
    found.text.encode("utf-8")
