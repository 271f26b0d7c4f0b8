"""What nobody asked for: layout instead of an edit, and examples of use at the end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vivace.agent.attempt import Attempt
from vivace.agent.dialect import Ask
from vivace.agent.extras import only_layout, without_examples
from vivace.agent.reply import Reply
from vivace.agent.verdict import judge
from vivace.agent.workspace import SourceFile

TASKS = Path(os.environ.get("VIVACE_TASKS", Path(__file__).parents[2].parent / "shared" / "data" / "tasks"))
CODE = "def f(x):\n    # adds\n    return x+1\n"


@pytest.mark.parametrize(
    ("after", "instruction", "said"),
    [
        (CODE.replace("x+1", "x + 1"), "fix the bug", "layout"),
        (CODE.replace("x+1", "(x+1)"), "add two", "layout"),
        (CODE.replace("# adds", "# Add one, correctly"), "fix the bug in f", "comments"),
        (CODE.replace("x+1", "x+2"), "fix the bug", ""),
        (CODE.replace("x+1", "x + 1"), "follow PEP 8", ""),
        (CODE.replace("x+1", "x + 1"), "add spaces around the plus", ""),
        (CODE.replace("# adds", "# Why: because"), "say why", ""),
        (CODE.replace("# adds", "# add"), "fix the comment", ""),
        (CODE.replace("x+1", "x+"), "fix it", ""),
    ],
)
def test_layout_is_no_edit_unless_it_is_asked_for(after: str, instruction: str, said: str) -> None:
    reason = only_layout("a.py", CODE, after, instruction)
    assert said in reason and bool(said) == bool(reason)
    assert only_layout("a.js", CODE, after, instruction) == ""


EDITED = CODE.replace("x+1", "x+2")


@pytest.mark.parametrize(
    "tail",
    [
        "\n# Test cases\nprint(f(1))  # 3\nprint(f(2))\n",
        "\n\n# Example usage:\nvalue = 1\nprint(f(value))\n",
        "assert f(1) == 3\n",
        '\n\nif __name__ == "__main__":\n    print(f(1))\n',
    ],
)
def test_examples_of_use_are_left_out_and_told(tail: str) -> None:
    text, note = without_examples("a.py", CODE, EDITED + tail, "f must add two. Example: f(1) is 3")
    assert text == EDITED and "examples of use" in note
    assert without_examples("a.py", CODE, EDITED + tail, "add two, and print an example") == (EDITED + tail, "")
    assert without_examples("a.py", CODE + tail, EDITED + tail, "add two") == (EDITED + tail, "")


@pytest.mark.parametrize("tail", ["\n\nX = 1\n", "\n\ndef main():\n    print(1)\n", "f(1)\n", "\n# done\n"])
def test_other_code_at_the_end_stays(tail: str) -> None:
    assert without_examples("a.py", CODE, EDITED + tail, "add two") == (EDITED + tail, "")


def test_a_script_without_definitions_is_left_alone() -> None:
    assert without_examples("a.py", "x = 1\n", "x = 1\nprint(x)\n", "make it two") == ("x = 1\nprint(x)\n", "")


def test_the_verdict_uses_both() -> None:
    ask = Ask(SourceFile(Path("a.py"), "a.py", CODE.encode()), "fix the bug in f")
    tail = "\n# Test\nprint(f(1))\n"
    verdict = judge(ask, Attempt(reply=Reply("closed", EDITED + tail)))
    assert verdict.patch is not None and verdict.patch.text == EDITED and "left out" in verdict.note
    for code in (CODE + tail, CODE.replace("x+1", "x + 1")):
        assert judge(ask, Attempt(reply=Reply("closed", code))).unchanged


@pytest.mark.parametrize("name", ["edit", "repair", "long_edit"])
def test_no_reference_answer_is_touched(name: str) -> None:
    path = TASKS / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"no task data at {TASKS} (set VIVACE_TASKS)")
    for line in path.read_text(encoding="utf-8").splitlines():
        task = json.loads(line)
        given = task["path"], task["before"], task["reference"], task["instruction"]
        assert only_layout(*given) == "", task["id"]
        assert without_examples(*given) == (task["reference"], ""), task["id"]
