"""Asked to describe one definition: what happens to its neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks import task_rows
from vivace.agent.confined import put_back_neighbours
from vivace.agent.workspace import SourceFile

TEXT = "import os\n\n\ndef load(path):\n    return path\n\n\ndef total(items):\n    return sum(items)\n"
MINE = TEXT.replace("    return sum", '    """Adds up."""\n    return sum')
BOTH = MINE.replace("    return path", '    """Loads."""\n    return path')


def confined(after: str, instruction: str, text: str = TEXT) -> tuple[str, str]:
    return put_back_neighbours(SourceFile(Path("a.py"), "a.py", text.encode()), after, instruction)


def test_only_the_named_function_is_described() -> None:
    assert confined(BOTH, "add a docstring to total()") == (MINE, "put back 1 line outside of total")
    assert confined(MINE, "add a docstring to total()") == (MINE, "")
    renamed = BOTH.replace("def load(path):", "def load(path: str):")
    assert confined(renamed, "add a docstring to `total`")[0] == MINE


def test_an_import_and_a_comment_above_belong_to_it() -> None:
    hinted = TEXT.replace("import os\n", "import os\nfrom typing import List\n").replace("(items)", "(items: List)", 1)
    assert confined(hinted, "add type hints to `total`") == (hinted, "")
    above = TEXT.replace("def total", "# Adds up.\ndef total")
    assert confined(above, "add a comment to `total`") == (above, "")


@pytest.mark.parametrize(
    "instruction",
    [
        "add docstrings",
        "add docstrings to all functions",
        "add a docstring to total() and load()",
        "add a docstring to every function, total too",
        "make total() return 0 for nothing",
        "add a docstring to total() and rename load",
    ],
)
def test_where_more_is_meant_nothing_is_put_back(instruction: str) -> None:
    assert confined(BOTH, instruction) == (BOTH, "")


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_touched(name: str) -> None:
    for task in task_rows(name):
        if task["id"] == "editeval/138":  # this one's reference describes the neighbours, too, which was not asked for
            continue
        assert confined(task["reference"], task["instruction"], task["before"]) == (task["reference"], ""), task["id"]
