"""The map: what matters first, within the budget, fresh, and fast the second time."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from vivace.agent.repomap import map as module
from vivace.agent.repomap.graph import page_rank
from vivace.agent.repomap.index import index_path, load
from vivace.agent.repomap.map import RepoMap
from vivace.agent.tools.clip import estimate

ROOT = Path(__file__).parents[3]


def project(root: Path) -> None:
    texts = {
        "core/engine.py": "class EngineCore:\n    def start_engine(self):\n        return read_settings()\n",
        "core/settings.py": "def read_settings():\n    return {}\n\n\ndef write_settings(values):\n    pass\n",
        "ui/window.py": "from core.engine import EngineCore\n\n\ndef open_window():\n    EngineCore().start_engine()\n",
        "ui/panel.py": "def open_panel():\n    EngineCore().start_engine()\n    read_settings()\n",
        "lonely.py": "def nobody_calls_this():\n    pass\n",
        "tests/test_engine.py": "def test_engine():\n    EngineCore().start_engine()\n",
        "README.md": "# Read me\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_what_is_mentioned_most_comes_first(tmp_path: Path) -> None:
    project(tmp_path / "work")
    made = RepoMap(tmp_path / "work", tmp_path / "cache")
    whole = made.map(1000, estimate)
    assert set(whole.files[:2]) == {"core/engine.py", "core/settings.py"}
    assert whole.definitions == whole.of_definitions == 8 and whole.of_files == 7
    assert "    1 class EngineCore:\n    2   def start_engine(self):" in whole.text
    small = made.map(30, estimate)
    assert 0 < small.definitions < 4 and estimate(small.text) <= 30 and "lonely" not in small.text


def test_what_the_user_names_comes_before_that(tmp_path: Path) -> None:
    project(tmp_path / "work")
    made = RepoMap(tmp_path / "work", tmp_path / "cache")
    assert made.map(30, estimate, task="why does nobody_calls_this fail?").files[0] == "lonely.py"
    assert made.map(60, estimate, files=["ui/window.py"]).files[0] in ("ui/window.py", "core/engine.py")
    assert made.files_for("change the panel")[0] == "ui/panel.py"
    without = made.map(1000, estimate, files=["core/engine.py"], leave_out=["core/engine.py"])
    assert "core/engine.py" not in without.files and without.files[0] == "core/settings.py"
    tests = made.map(1000, estimate, task="add a test")
    assert tests.files.index("tests/test_engine.py") < len(tests.files)


@pytest.mark.parametrize("budget", [0, 1, 10, 50, 200, 1000, 5000])
def test_the_budget_holds_whatever_the_tokenizer(tmp_path: Path, budget: int) -> None:
    made = RepoMap(ROOT / "vivace" / "agent", tmp_path)
    for count in (estimate, len, lambda text: len(text.split())):
        found = made.map(budget, count, task="apply the patch of an edit")
        assert count(found.text) <= budget
    assert budget < 50 or found.definitions


def test_the_index_follows_the_disk_file_by_file(tmp_path: Path) -> None:
    project(tmp_path / "work")
    cache = tmp_path / "cache"
    assert RepoMap(tmp_path / "work", cache).refresh().parsed == 7
    assert RepoMap(tmp_path / "work", cache).refresh().parsed == 0
    (tmp_path / "work" / "lonely.py").write_text("def renamed_now():\n    pass\n")
    (tmp_path / "work" / "ui" / "panel.py").unlink()
    made = RepoMap(tmp_path / "work", cache)
    assert "renamed_now" in made.map(1000, estimate).text and made.refresh().parsed == 0
    fresh = RepoMap(tmp_path / "work", tmp_path / "other")
    assert fresh.refresh().parsed == 6
    assert made.map(1000, estimate).text == fresh.map(1000, estimate).text
    assert "nobody_calls_this" not in load(index_path(cache, (tmp_path / "work").resolve())).names


def test_many_small_changes_come_to_the_same_as_one_reading(tmp_path: Path) -> None:
    rng = random.Random(5)
    work = tmp_path / "work"
    work.mkdir()
    made = RepoMap(work, tmp_path / "cache")
    for step in range(30):
        for _ in range(3):
            file = work / f"f{rng.randrange(12)}.py"
            if rng.random() < 0.2:
                file.unlink(missing_ok=True)
            else:
                names = [f"name_{rng.randrange(20)}" for _ in range(4)]
                file.write_text(f"def {names[0]}():\n    {names[1]}()\n\n\nclass {names[2]}:\n    {names[3]} = 1\n")
                os.utime(file, ns=(step * 1000, step * 1000 + rng.randrange(1000)))
        text = made.map(400, estimate, task="name_3").text
        assert text == RepoMap(work, tmp_path / f"new{step}").map(400, estimate, task="name_3").text


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04rubbish", None])
def test_a_damaged_cache_is_built_anew_and_one_that_cannot_be_written_is_none(
    tmp_path: Path, damage: bytes | None
) -> None:
    project(tmp_path / "work")
    cache = tmp_path / "cache"
    before = RepoMap(tmp_path / "work", cache).map(500, estimate).text
    file = index_path(cache, (tmp_path / "work").resolve())
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if damage is None else damage)
    assert RepoMap(tmp_path / "work", cache).map(500, estimate).text == before
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    assert RepoMap(tmp_path / "work", blocked).map(500, estimate).text == before


def test_page_rank_is_the_stationary_distribution() -> None:
    rng = np.random.default_rng(3)
    size = 40
    e_from, e_to = rng.integers(0, size, 150), rng.integers(0, size, 150)
    weight = rng.random(150) + 0.1
    restart = rng.random(size)
    matrix = np.zeros((size, size))
    for a, b, w in zip(e_from, e_to, weight, strict=True):
        matrix[b, a] += w
    restart_share = restart / restart.sum()
    out = matrix.sum(axis=0)
    matrix = np.where(out > 0, matrix / np.where(out > 0, out, 1), restart_share[:, None])
    exact = np.linalg.solve(np.eye(size) - 0.85 * matrix, 0.15 * restart_share)
    found = page_rank(size, e_from, e_to, weight, restart)
    assert found.sum() == pytest.approx(1) and np.abs(found - exact).max() < 1e-5


def test_a_second_look_takes_no_time(tmp_path: Path) -> None:
    RepoMap(ROOT / "vivace", tmp_path).map(1000, estimate)
    started = time.perf_counter()
    RepoMap(ROOT / "vivace", tmp_path).map(1000, estimate, task="the fair queue")
    assert time.perf_counter() - started < 0.3


def test_its_own_repository_is_understood(tmp_path: Path) -> None:
    made = RepoMap(ROOT / "vivace", tmp_path)
    assert "agent/applier.py" in made.files_for("make_patch drops the last line of a file without a final newline", 5)
    assert "service/queue.py" in made.files_for("the FairQueue starves a principal", 5)
    assert module.NAMED > module.DEFINES > module.IN_PATH
